// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario sets of a host policy is what schedules.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use experiment::result::RunResult;
use experiment::scenario::KnownPolicy;
use experiment::scenario::PolicyKey;
use experiment::scenario::PolicyKind;
use experiment::scenario::Scenario;
use rayon::prelude::*;
use sim::hypervisor::Kind;
use sim::hypervisor::Sharing;
use sim::hypervisor::Value;
use sim::hypervisor::named;
use units::Ns;
use vlab::reproduce::known;
use vlab::sim::simulate;

/// Machines on which what a policy decides matters: hyperthreads that are short of CPU
/// time, with all kinds of programs; pCPUs that are at times idle; cores with only I/O and
/// with only computation; VMs that do something else in each period; and control groups.
const RIGS: [&str; 5] = [
    r#"
name = "crowded"
title = "Every kind of program on few hyperthreads"
topology = { cpus = 4 }
sharing = { slice = "5 ms" }
measure = { rounds = 1, warmup = "100 ms", window = "2 s", baselines = "none" }
compute = { threads_per_cpu = 0 }
arm = [{ name = "vanilla" }]
device = [
    { name = "disk", kind = "ssd", latency = "300 us" },
    { name = "net", kind = "network", path = "driver-domain", interval = "2 ms" },
]
load = [
    { name = "reads", kind = "reader", device = "disk", threads = 4, process = "50 us" },
    { name = "bursts", kind = "reader", device = "disk", threads = 2, process = "400 us", burst = "170 ms", pause = "130 ms" },
    { name = "ping", kind = "echo", device = "net" },
    { name = "meets", kind = "parallel", work = "400 us" },
    { name = "sums", kind = "compute" },
]
vm = [
    { name = "io", vcpus = 4, class = "io", loads = ["reads", "ping"] },
    { name = "web", vcpus = 3, class = "io", loads = ["bursts"], threads_per_vcpu = 1 },
    { name = "meets", vcpus = 4, loads = ["meets"] },
    { name = "busy", vcpus = 4, weight = 700, loads = ["sums"] },
    { name = "dom0", vcpus = 1, class = "driver-domain" },
]
[sim]
platform = "paper-smt"
threads_per_core = 2
"#,
    r#"
name = "roomy"
title = "pCPUs that are at times idle"
topology = { cpus = 6 }
sharing = { slice = "5 ms" }
measure = { rounds = 1, warmup = "100 ms", window = "2 s", baselines = "none" }
compute = { threads_per_cpu = 0 }
arm = [{ name = "vanilla" }]
device = [{ name = "disk", kind = "ssd", latency = "900 us" }]
load = [
    { name = "reads", kind = "reader", threads = 3, process = "60 us" },
    { name = "bursts", kind = "reader", threads = 5, process = "700 us", burst = "230 ms", pause = "330 ms" },
    { name = "meets", kind = "parallel", work = "2 ms", spread_permille = 900 },
    { name = "sums", kind = "compute", threads = 2 },
]
vm = [
    { name = "io", count = 2, vcpus = 3, class = "io", loads = ["reads"] },
    { name = "web", vcpus = 5, loads = ["bursts"] },
    { name = "meets", vcpus = 6, loads = ["meets"] },
    { name = "busy", vcpus = 3, loads = ["sums"] },
]
[sim]
platform = "bed"
"#,
    r#"
name = "apart"
title = "Cores with only I/O, and with only computation"
topology = { cpus = 6 }
sharing = { slice = "5 ms" }
measure = { rounds = 1, warmup = "100 ms", window = "3 s", baselines = "none" }
compute = { threads_per_cpu = 0 }
arm = [{ name = "vanilla" }]
device = [{ name = "disk", kind = "ssd", latency = "400 us" }]
load = [
    { name = "reads", kind = "reader", threads = 2, vcpu = 0, pinned = true, process = "60 us" },
    { name = "few", kind = "reader", threads = 2, vcpu = 2, pinned = true, process = "5 ms" },
    { name = "sums", kind = "compute", threads = 2, vcpu = 4 },
]
vm = [{ name = "all", count = 3, vcpus = 6, class = "io", loads = ["reads", "few", "sums"] }]
[sim]
platform = "paper-smt"
threads_per_core = 2
"#,
    r#"
name = "unsteady"
title = "VMs that do something else in each period"
topology = { cpus = 4 }
sharing = { slice = "5 ms" }
measure = { rounds = 1, warmup = "100 ms", window = "4 s", baselines = "none" }
compute = { threads_per_cpu = 0 }
arm = [{ name = "vanilla" }]
device = [{ name = "disk", kind = "ssd", latency = "200 us" }]
load = [
    { name = "bursts", kind = "reader", threads = 8, process = "1 ms", burst = "100 ms", pause = "100 ms", arrivals = [{ at = "2 s", threads = 4 }] },
    { name = "locks", kind = "locks", hold = "300 us" },
    { name = "meets", kind = "parallel", work = "300 us" },
    { name = "sums", kind = "compute" },
]
vm = [
    { name = "web", count = 3, vcpus = 4, loads = ["bursts"] },
    { name = "busy", vcpus = 3, loads = ["sums"] },
    { name = "locks", vcpus = 4, loads = ["locks"] },
    { name = "meets", vcpus = 3, loads = ["meets"] },
]
[sim]
platform = "paper-jupiter"
"#,
    r#"
name = "grouped"
title = "VMs that are control groups"
topology = { cpus = 4 }
sharing = { slice = "5 ms" }
measure = { rounds = 1, warmup = "100 ms", window = "1 s", baselines = "none" }
compute = { threads_per_cpu = 0 }
arm = [{ name = "vanilla" }]
load = [{ name = "sums", kind = "compute" }]
vm = [{ name = "busy", count = 2, vcpus = 4, group = true, loads = ["sums"] }]
[sim]
platform = "paper-smt"
threads_per_core = 2
"#,
];

/// The policies that have, between them, every key of all.
const POLICIES: [&str; 14] = [
    "cfs",
    "eevdf",
    "eevdf-slices",
    "credit1",
    "credit2",
    "isacs",
    "ische-auto",
    "vslicer",
    "haltpoll",
    "haltpoll-enhanced",
    "vsmtio",
    "relaxed",
    "demand",
    "jupiter",
];

fn result(rig: &str, policy: &str, set: &str) -> RunResult {
    let text = format!("{rig}host = \"{policy}\"\n[sim.policy]\n{set}");
    let known = known().expect("the embedded files are whole");
    let points = Scenario::parse_points(&text, "s.toml", &known);
    let points = points.unwrap_or_else(|error| panic!("{policy} {set}: {error}"));
    simulate(&points[0]).expect("it can be simulated").0
}

fn phases(rig: &str, policy: &str, set: &str) -> String {
    serde_json::to_string(&result(rig, policy, set).phases).expect("phases are JSON")
}

/// Values that a key may be set to, as TOML.
fn values(kind: &PolicyKind) -> Vec<String> {
    let lengths = [1, 100, 700, 5_000, 40_000, 300_000].map(Ns::from_us);
    let numbers = [0, 1, 3, 50, 500, 5_000];
    match kind {
        PolicyKind::Duration(range) | PolicyKind::DurationOrNone(range) => {
            let ends = [*range.start(), *range.end()];
            let all = lengths.into_iter().filter(|length| range.contains(length));
            let all = all.chain(ends).map(|length| format!("\"{} ns\"", length.0));
            let none = matches!(kind, PolicyKind::DurationOrNone(_)).then(|| "\"0 s\"".to_owned());
            all.chain(none).collect()
        }
        PolicyKind::Number(range) => {
            let all = numbers.into_iter().filter(|number| range.contains(number));
            all.chain([*range.end()])
                .map(|number| number.to_string())
                .collect()
        }
        PolicyKind::Switch => vec!["false".to_owned(), "true".to_owned()],
        PolicyKind::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
    }
}

/// What else has to be set for a key to matter, one of these: credit is hardly ever
/// exactly 0 where each nanosecond is charged; conflicts on all pCPUs are rare where few
/// latencies are low; and VMs whose demand turns, as that of lenders has to, make JUPITER
/// get out of the way.
fn beside(key: &str) -> &'static [&'static str] {
    match key {
        "zero_is_under" => &["charging = \"sampled\"\n"],
        "rcr_conflict_permille" => &[
            "rcr_low_latency = \"6 ms\"\ndisable = false\n",
            "rcr_low_latency = \"9 ms\"\ndisable = false\n",
            "rcr_low_latency = \"30 ms\"\ndisable = false\n",
            "rcr_low_latency = \"90 ms\"\ndisable = false\n",
        ],
        "elb_max_degradation_permille" | "elb_above" => &["disable = false\n"],
        _ => &[""],
    }
}

/// Does any value of this key make any difference on any machine?
fn matters(policy: &str, key: &PolicyKey) -> bool {
    let part = key.part.as_ref();
    let part = part.map_or(String::new(), |(part, _)| format!("{part} = true\n"));
    let on = |rig: &str, beside: &str| {
        let beside = format!("{part}{beside}");
        let without = phases(rig, policy, &beside);
        values(&key.kind).iter().any(|value| {
            let set = format!("{beside}{} = {value}\n", key.name);
            phases(rig, policy, &set) != without
        })
    };
    let mut besides = beside(&key.name).iter();
    besides.any(|beside| RIGS.iter().any(|rig| on(rig, beside)))
}

#[test]
fn every_key_of_every_policy_changes_a_run() {
    let known = known().unwrap();
    let keys = |policy: &KnownPolicy| -> Vec<String> {
        policy.keys.iter().map(|key| key.name.clone()).collect()
    };
    let of = |name: &str| known.hosts.iter().find(|policy| policy.name == name);
    let tried: Vec<&KnownPolicy> = POLICIES.iter().filter_map(|name| of(name)).collect();
    let names: BTreeSet<String> = tried.iter().flat_map(|policy| keys(policy)).collect();
    for policy in &known.hosts {
        let untried: Vec<String> = keys(policy);
        let untried: Vec<_> = untried.iter().filter(|key| !names.contains(*key)).collect();
        assert!(untried.is_empty(), "{}: {untried:?}", policy.name);
    }
    let all: Vec<(&str, &PolicyKey)> = tried
        .iter()
        .flat_map(|policy| policy.keys.iter().map(|key| (policy.name.as_str(), key)))
        .collect();
    assert!(all.len() > 100, "{}", all.len());
    let dead: Vec<String> = all
        .par_iter()
        .filter(|(policy, key)| !matters(policy, key))
        .map(|(policy, key)| format!("{policy}.{}", key.name))
        .collect();
    assert!(dead.is_empty(), "{dead:#?}");
}

/// What the table of docs/scenarios.md says of a key.
fn row(policy: &str) -> Vec<String> {
    // Told apart from any other length.
    let slice = Ns(7_777_700);
    let sharing = Sharing {
        vms_per_pcpu: 2,
        slice,
        sweep_permille: 0,
    };
    let policy = named(policy, &sharing).expect("one of TABLES");
    let keys = policy.keys();
    let default = |value: &Value| match value {
        Value::Duration(length) if *length == slice => "`sharing.slice`".to_owned(),
        Value::Duration(length) if *length == slice * 2 => "2 x `sharing.slice`".to_owned(),
        Value::Duration(length) if *length == slice / 6 => "`sharing.slice` / 6".to_owned(),
        Value::Duration(Ns::ZERO) => "0 s".to_owned(),
        Value::Word(word) => format!("`{word}`"),
        other => other.to_string(),
    };
    let takes = |kind: &Kind| match kind {
        Kind::Duration(range) => format!("{} to {}", range.start(), range.end()),
        Kind::DurationOrNone(range) => format!("{} to {}, 0 s", range.start(), range.end()),
        Kind::Number(range) => format!("{} to {}", range.start(), range.end()),
        Kind::Switch => "true, false".to_owned(),
        Kind::Word(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    // Beside `sharing.slice` a scenario's Credit2 and ISACS have no slice of their own.
    let goes_by_sharing = matches!(policy.name, "credit2" | "isacs");
    keys.iter()
        .map(|key| {
            let default = match key.name {
                "slice" if goes_by_sharing => default(&Value::Duration(slice)),
                _ => default(&key.default),
            };
            let source = if key.source.is_empty() {
                "ours"
            } else {
                key.source
            };
            format!(
                "| `{}` | {} | {} | {source} |",
                key.name,
                takes(&key.kind),
                default
            )
        })
        .collect()
}

/// Policies with a table of their own in docs/scenarios.md; the others have the keys of
/// one of these.
const TABLES: [&str; 13] = [
    "cfs", "eevdf", "credit1", "credit2", "isacs", "ische", "vslicer", "haltpoll", "vsmtio",
    "balance", "relaxed", "demand", "jupiter",
];

#[test]
fn every_key_is_in_the_documentation_with_its_range_default_and_source() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut missing = String::new();
    for policy in TABLES {
        let heading = format!("`{policy}`");
        let missed: Vec<String> = row(policy)
            .into_iter()
            // The line goes on with what the key means.
            .filter(|row| !text.lines().any(|line| line.starts_with(row.as_str())))
            .collect();
        if !missed.is_empty() || !text.contains(&heading) {
            let _ = writeln!(missing, "\n{heading}\n{}", missed.join("\n"));
        }
    }
    assert!(missing.is_empty(), "docs/scenarios.md lacks:{missing}");
    let known = known().unwrap();
    let of = |name: &str| -> BTreeSet<&str> {
        let policy = known.hosts.iter().find(|policy| policy.name == name);
        let keys = policy.map_or(&[][..], |policy| &policy.keys);
        keys.iter().map(|key| key.name.as_str()).collect()
    };
    for policy in &known.hosts {
        let own = of(&policy.name);
        let has = |table: &&str| own.is_subset(&of(table));
        assert!(TABLES.iter().any(has), "{}: no table", policy.name);
    }
}

#[test]
fn a_key_is_an_axis_and_an_arm_has_keys_of_its_own() {
    let text = RIGS[1].replace(
        "arm = [{ name = \"vanilla\" }]",
        r#"arm = [
            { name = "vanilla" },
            { name = "isacs", kind = "host" },
            { name = "as-printed", kind = "host", policy = "isacs", settings = { equation_2 = "as-printed" } },
        ]"#,
    ) + r#"host = "credit2"
[sweep]
"sim.policy.slice" = ["1 ms", "20 ms"]
"arm.as-printed.settings.slice" = ["2 ms"]
"#;
    let points = Scenario::parse_points(&text, "s.toml", &known().unwrap()).unwrap();
    assert_eq!(points.len(), 2);
    let phase = |scenario: &Scenario, arm: &str| {
        let (result, _) = simulate(scenario).unwrap();
        let phase = result.phases.into_iter().find(|phase| phase.arm == arm);
        let mut phase = phase.unwrap();
        phase.arm = String::new();
        serde_json::to_string(&phase).unwrap()
    };
    assert_ne!(phase(&points[0], "vanilla"), phase(&points[1], "vanilla"));
    // The arms have their own policy, which the axis does not reach.
    for arm in ["isacs", "as-printed"] {
        assert_eq!(phase(&points[0], arm), phase(&points[1], arm));
    }
    assert_ne!(phase(&points[0], "isacs"), phase(&points[0], "as-printed"));
    let json = serde_json::to_string(&points[1]).unwrap();
    assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), points[1]);
}

/// Slices of Credit1 are its own; who sets them is not told that `sharing.slice` is not
/// read.
#[test]
fn a_policy_with_slices_of_its_own_says_so_unless_they_are_set() {
    let warnings = |set| result(RIGS[1], "credit1", set).warnings;
    let told = warnings("");
    assert!(told.len() == 1 && told[0].contains("credit1"), "{told:?}");
    assert!(warnings("slice = \"5 ms\"").is_empty());
}

/// `host_policy` of real hosts: the same policy with the times that `scx_vcpu` has and
/// what `host_config` says, VMs with the classes that it gives them.
#[test]
fn host_policies_of_real_hosts_are_simulated() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/host-policies.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let run = |text: &str| {
        let points = Scenario::parse_points(text, "s.toml", &known().unwrap()).unwrap();
        simulate(&points[0]).unwrap().0
    };
    let result = run(&text);
    assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    let rate = |result: &RunResult, arm: &str| {
        let rate = vlab::sim::rate(result, "randread-qd1", arm, 2);
        rate.unwrap_or_else(|| panic!("no {arm}"))
    };
    for arm in &result.scenario.arms {
        let rate = rate(&result, &arm.name);
        println!("{}: {rate:.0}", arm.name);
        assert!(rate > 100.0, "{}: {rate}", arm.name);
    }
    // The VM with I/O is on the I/O core by itself, the other one on the general core.
    let class = text.replace("class = \"io\"", "class = \"cpu\"");
    let alike = run(&class);
    let compute = |result: &RunResult| -> f64 {
        let phase = result.phases.iter().find(|phase| phase.arm == "ische");
        phase.unwrap().compute_per_s.iter().sum()
    };
    let (apart, together) = (compute(&result), compute(&alike));
    println!("compute of the first VM under ische: {apart:.0}, of the same class: {together:.0}");
    assert!(apart > 1.3 * together);
    assert_eq!(rate(&result, "credit2"), rate(&alike, "credit2"));
    // A table of the policy file is read.
    let slices = text.replace("[ische]", "[credit2]\nslice = \"1ms\"\n\n[ische]");
    assert!(rate(&run(&slices), "credit2") != rate(&result, "credit2"));
    // And what the simulator does not have of it is refused.
    let capped = text.replace("class = \"io\"", "cap = 50");
    let points = Scenario::parse_points(&capped, "s.toml", &known().unwrap()).unwrap();
    let error = simulate(&points[0]).unwrap_err().to_string();
    assert!(error.contains("cap") && error.contains("vlab0"), "{error}");
    // Half of a pCPU for a VM that has half of two, where the policy has caps.
    let mut credit1 = points[0].clone();
    credit1.arms.retain(|arm| arm.name == "credit1");
    let work = |result: &RunResult| -> f64 {
        let phase = result.phases.iter().find(|phase| phase.arm == "credit1");
        phase.unwrap().compute_per_s.iter().sum()
    };
    let (capped, free) = (work(&simulate(&credit1).unwrap().0), work(&result));
    println!("compute of the first VM under credit1: {free:.0}, capped: {capped:.0}");
    assert!(capped < 0.7 * free);
}
