// SPDX-License-Identifier: Apache-2.0 OR MIT

mod fuzz;
mod limits;
mod mutate;
mod parameters;
mod policy;
mod real;
mod sweep;
mod vms;

use units::Ns;

use super::ArmKind;
use super::Baselines;
use super::HostPolicy;
use super::LoadKind;
use super::Part;
use super::Pattern;
use super::Scenario;

const GOOD: &str = r#"
name = "small"
title = "One load, two arms"

[topology]
cpus = 2

[sharing]
vms_per_pcpu = [2, 4]
slice = "11 ms"

[[load]]
name = "pulse-qd1"
kind = "pulse"

[[load]]
name = "bursts"
kind = "disk"
pattern = "bursty"
burst = "50 ms"
pause = "30 ms"

[[arm]]
name = "vanilla"

[[arm]]
name = "ours"
kind = "vmigrater"
rounds = 2

[[arm]]
name = "fifo"
rounds = 1
"#;

#[test]
fn a_disk_has_at_most_a_queue_per_vcpu() {
    let with =
        |queues: &str| GOOD.replace("cpus = 2", &format!("cpus = 2\ndisk_queues = {queues}"));
    let queues = |text: &str| {
        Scenario::parse(text, "s.toml")
            .unwrap()
            .topology
            .disk_queues
    };
    assert_eq!(queues(GOOD), None);
    assert_eq!(queues(&with("1")), Some(1));
    assert_eq!(queues(&with("2")), Some(2));
    for wrong in ["0", "3"] {
        assert_eq!(
            error_of(&with(wrong)),
            format!("s.toml:7: `topology.disk_queues` is {wrong}; write a number from 1 to 2")
        );
    }
}

fn error_of(text: &str) -> String {
    Scenario::parse(text, "s.toml").unwrap_err().to_string()
}

/// What is replaced in a good file, by what, and everything that the error must contain.
type Case = (&'static str, &'static str, &'static [&'static str]);

fn errors_say(good: &str, cases: &[Case], error_of: fn(&str) -> String) {
    for (from, to, wanted) in cases {
        assert!(good.contains(from), "{from}");
        let message = error_of(&good.replacen(from, to, 1));
        for part in *wanted {
            assert!(
                message.contains(part),
                "replacing {from} by {to}: {message:?} lacks {part:?}"
            );
        }
    }
}

#[test]
fn a_good_file_gets_its_defaults() {
    let scenario = Scenario::parse(GOOD, "s.toml").unwrap();
    assert_eq!(scenario.measure.rounds, 5);
    assert_eq!(scenario.compute.threads_per_cpu, 1);
    assert_eq!(scenario.sharing.sweep_permille, 100);
    assert_eq!(
        scenario.loads[0].kind,
        LoadKind::Pulse {
            queue_depth: 1,
            device: Ns::from_us(100),
            threads: 1,
            cpu: Ns::ZERO,
            arrivals: Vec::new(),
        }
    );
    let LoadKind::Disk {
        pattern,
        burst: Some(burst),
        ..
    } = &scenario.loads[1].kind
    else {
        panic!("{:?}", scenario.loads[1]);
    };
    assert_eq!(
        (*pattern, burst.on, burst.off),
        (Pattern::Bursty, Ns::from_ms(50), Ns::from_ms(30))
    );
    assert_eq!(
        scenario.arms[1].kind,
        ArmKind::Vmigrater {
            dry_run: false,
            profile: None,
            without: Vec::new(),
            config: None
        }
    );
}

#[test]
fn every_kind_of_arm_can_be_written() {
    let arms = r#"
[[arm]]
name = "no-v12"
kind = "vmigrater"
without = ["soon-active", "wakeup-lever"]

[[arm]]
name = "heartbeat"
kind = "vmigrater"
config = "source = \"heartbeat\""

[[arm]]
name = "published"
without = ["pull"]

[[arm]]
name = "xballoon"

[[arm]]
name = "theirs"
command = ["their-tool", "--threads", "{tids}"]
"#;
    let scenario = Scenario::parse(&(GOOD.to_owned() + arms), "s.toml").unwrap();
    let kinds: Vec<&ArmKind> = scenario.arms[3..].iter().map(|arm| &arm.kind).collect();
    let vmigrater =
        |profile: Option<&str>, without: &[Part], config: Option<&str>| ArmKind::Vmigrater {
            dry_run: false,
            profile: profile.map(str::to_owned),
            without: without.to_vec(),
            config: config.map(str::to_owned),
        };
    let wanted = [
        vmigrater(None, &[Part::SoonActive, Part::WakeupLever], None),
        vmigrater(None, &[], Some("source = \"heartbeat\"")),
        vmigrater(Some("published"), &[Part::Pull], None),
        ArmKind::Xballoon { config: None },
        ArmKind::Command {
            command: ["their-tool", "--threads", "{tids}"]
                .map(str::to_owned)
                .to_vec(),
        },
    ];
    assert_eq!(kinds, wanted.iter().collect::<Vec<_>>());
    assert!(kinds[..4].iter().all(|kind| kind.is_daemon()) && !kinds[4].is_daemon());
    // A result keeps them all.
    let json = serde_json::to_string(&scenario).unwrap();
    assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
}

#[test]
fn results_from_before_parts_and_arrivals_still_parse() {
    let arm = r#"{"kind": "vmigrater", "dry_run": false, "profile": null, "config": null}"#;
    let arm: ArmKind = serde_json::from_str(arm).unwrap();
    assert!(matches!(arm, ArmKind::Vmigrater { without, .. } if without.is_empty()));
    let load = r#"{"kind": "pulse", "queue_depth": 1, "device": 100000, "threads": 1}"#;
    let load: LoadKind = serde_json::from_str(load).unwrap();
    assert!(load.arrivals().is_empty());
    for part in Part::ALL {
        let word = serde_json::to_string(&part).unwrap();
        assert_eq!(word.trim_matches('"'), part.name());
    }
}

#[test]
fn arms_rotate_and_drop_out_after_their_rounds() {
    let scenario = Scenario::parse(GOOD, "s.toml").unwrap();
    let names = |round| -> Vec<String> {
        scenario
            .order_of_round(round)
            .iter()
            .map(|arm| arm.name.clone())
            .collect()
    };
    assert_eq!(names(0), ["vanilla", "ours", "fifo"]);
    assert_eq!(names(1), ["ours", "vanilla"]);
    assert_eq!(names(2), ["vanilla"]);
}

const HOSTS: &str = r#"
[[arm]]
name = "c2"
kind = "vanilla"
host_policy = "credit2"

[[arm]]
name = "c2-ours"
kind = "vmigrater"
host_policy = "credit2"

[[arm]]
name = "kernel"
kind = "vanilla"
host_policy = "eevdf"
"#;

#[test]
fn arms_of_one_host_policy_follow_each_other() {
    let scenario = Scenario::parse(&(GOOD.to_owned() + HOSTS), "s.toml").unwrap();
    assert!(scenario.names_host_policies());
    assert_eq!(scenario.arms[0].host_policy(), HostPolicy::Fixed);
    assert_eq!(scenario.arms[3].host_policy(), HostPolicy::Credit2);
    let names = |round| -> Vec<&str> {
        let order = scenario.order_of_round(round);
        order.iter().map(|arm| arm.name.as_str()).collect()
    };
    assert_eq!(
        names(0),
        ["vanilla", "ours", "fifo", "c2", "c2-ours", "kernel"]
    );
    // The next group first, and in each group the next arm.
    assert_eq!(names(1), ["c2-ours", "c2", "kernel", "ours", "vanilla"]);
    assert_eq!(names(2), ["kernel", "vanilla", "c2", "c2-ours"]);
    // A result keeps them.
    let json = serde_json::to_string(&scenario).unwrap();
    assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
}

#[test]
fn a_host_policy_has_one_name_everywhere() {
    for policy in HostPolicy::ALL {
        assert_eq!(HostPolicy::from_name(policy.name()), Some(policy));
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(json.trim_matches('"'), policy.name());
    }
    for (name, baselines) in Baselines::NAMES {
        let json = serde_json::to_string(&baselines).unwrap();
        assert_eq!(json.trim_matches('"'), name);
    }
}

#[test]
fn a_policy_file_needs_an_arm_that_has_a_policy() {
    let config = "host_config = \"[credit2]\"\n";
    let text = format!("{config}{GOOD}{HOSTS}");
    let scenario = Scenario::parse(&text, "s.toml").unwrap();
    assert_eq!(scenario.host_config.as_deref(), Some("[credit2]"));
    let error = error_of(&format!("{config}{GOOD}"));
    assert!(
        error.contains("s.toml:1: `host_config` is set") && error.contains("host_policy"),
        "{error}"
    );
}

#[test]
fn every_value_error_names_line_field_value_and_what_is_right() {
    let cases: &[Case] = &[
        (
            "cpus = 2",
            "cpus = 0",
            &["s.toml:6:", "`topology.cpus` is 0", "1 to 1024"],
        ),
        ("cpus = 2", "cpus = -3", &["`topology.cpus` is -3"]),
        (
            "[2, 4]",
            "[]",
            &["s.toml:9:", "`sharing.vms_per_pcpu` is empty", "[2, 4, 8]"],
        ),
        (
            "[2, 4]",
            "[2, 65]",
            &["`sharing.vms_per_pcpu` is 65", "1 to 64"],
        ),
        ("[2, 4]", "[2, 2]", &["`sharing.vms_per_pcpu` is 2", "once"]),
        (
            "\"11 ms\"",
            "\"11 parsecs\"",
            &[
                "s.toml:10:",
                "`sharing.slice` is \"11 parsecs\"",
                "200 us to 1 s",
            ],
        ),
        ("\"11 ms\"", "\"-1 ms\"", &["`sharing.slice` is \"-1 ms\""]),
        (
            "\"11 ms\"",
            "\"3 days\"",
            &["`sharing.slice` is \"3 days\""],
        ),
        (
            "name = \"small\"",
            "name = \"Big One\"",
            &["s.toml:2:", "`name` is \"Big One\"", "lower-case"],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"tape\"",
            &["s.toml:14:", "`load[0].kind` is \"tape\"", "\"disk\""],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"pulse\"\nblock_kib = 4",
            &["s.toml:15:", "`load[0].block_kib`", "no such key"],
        ),
        (
            "pattern = \"bursty\"",
            "pattern = \"zigzag\"",
            &["`load[1].pattern` is \"zigzag\"", "random-read"],
        ),
        (
            "pattern = \"bursty\"",
            "",
            &["`load[1].pattern` is missing"],
        ),
        (
            "pause = \"30 ms\"",
            "",
            &["`load[1].pause` is missing", "both"],
        ),
        (
            "\"bursty\"",
            "\"random-read\"",
            &["`load[1].burst/pause` is \"50 ms\"", "bursty"],
        ),
        (
            "name = \"bursts\"",
            "name = \"pulse-qd1\"",
            &["s.toml:17:", "`load[1].name`", "name of its own"],
        ),
        (
            "name = \"vanilla\"",
            "name = \"magic\"",
            &["s.toml:24:", "`arm[0].kind` is \"magic\"", "\"published\""],
        ),
        (
            "name = \"vanilla\"",
            "name = \"fifo\"",
            &["`arm[2].name`", "name of its own"],
        ),
        (
            "kind = \"vmigrater\"",
            "kind = \"command\"",
            &["`arm[1].command` is missing or empty", "{tids}"],
        ),
        (
            "name = \"vanilla\"",
            "name = \"solo\"",
            &["`arm[0].name` is \"solo\"", "always measured"],
        ),
        ("rounds = 2", "rounds = 0", &["`arm[1].rounds` is 0"]),
        (
            "rounds = 2",
            "host_policy = \"credit9\"",
            &[
                "s.toml:29:",
                "`arm[1].host_policy` is \"credit9\"",
                "\"eevdf\"",
                "\"isacs\"",
            ],
        ),
        (
            "rounds = 1",
            "kind = \"host\"\nhost_policy = \"fixed\"",
            &["`arm[2].host_policy` is set", "`policy`"],
        ),
        (
            "[topology]",
            "[measure]\nbaselines = \"some\"\n[topology]",
            &["`measure.baselines` is \"some\"", "\"solo\""],
        ),
        (
            "rounds = 1",
            "config = \"x\"",
            &["`arm[2].config`", "only arms that start the daemon"],
        ),
        ("rounds = 1", "profile = \"x\"", &["`arm[2].profile`"]),
        (
            "rounds = 2",
            "without = [\"push\", \"magic\"]",
            &[
                "s.toml:29:",
                "`arm[1].without` is \"magic\"",
                "\"soon-active\"",
                "\"completion-path\"",
            ],
        ),
        (
            "rounds = 2",
            "without = [\"push\", \"push\"]",
            &["`arm[1].without` is \"push\"", "once"],
        ),
        (
            "rounds = 1",
            "without = [\"push\"]",
            &["s.toml:33:", "`arm[2].without`", "\"published\""],
        ),
        (
            "rounds = 1",
            "kind = \"fifo\"\ncommand = [\"true\"]",
            &["s.toml:34:", "`arm[2].command`", "leave the command out"],
        ),
        (
            "rounds = 1",
            "command = [\" \"]",
            &["s.toml:33:", "`arm[2].command` is without a program"],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"pulse\"\narrivals = [{ at = \"3 s\", threads = 1 }]",
            &["s.toml:15:", "`load[0].arrivals[0].at` is \"3 s\"", "2 s"],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"pulse\"\narrivals = [{ at = \"1 s\", threads = 1 }, { at = \"900 ms\", threads = 1 }]",
            &["`load[0].arrivals[1].at` is \"900 ms\"", "ascending"],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"pulse\"\narrivals = [{ at = \"1 s\", threads = 64 }]",
            &["`load[0].arrivals[0].threads` is 64", "65 threads"],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"pulse\"\ncpu = \"1 s\"",
            &["`load[0].cpu` is \"1 s\"", "100 ms"],
        ),
        (
            "pattern = \"bursty\"",
            "pattern = \"bursty\"\nthreads = 65",
            &["`load[1].threads` is 65", "1 to 64"],
        ),
    ];
    errors_say(GOOD, cases, error_of);
}

#[test]
fn shape_errors_name_the_line_and_the_key() {
    let cases: &[Case] = &[
        ("cpus = 2", "cpus = 2\nnuma = 1", &["s.toml:7:", "numa"]),
        ("cpus = 2", "cpus = \"two\"", &["s.toml:6:", "string"]),
        ("slice = \"11 ms\"", "", &["s.toml:8:", "slice"]),
        ("[topology]", "[topology", &["s.toml:5:", "]"]),
    ];
    errors_say(GOOD, cases, error_of);
    assert!(error_of("").contains("s.toml:1:"), "{}", error_of(""));
}

#[test]
fn a_scenario_needs_loads_and_arms() {
    let no_loads = GOOD.split("[[load]]").next().unwrap();
    assert!(error_of(no_loads).contains("[[load]]"));
    let no_arms = GOOD.split("[[arm]]").next().unwrap();
    assert!(error_of(no_arms).contains("[[arm]]"));
}

#[test]
fn a_missing_file_is_named() {
    let error = Scenario::load(std::path::Path::new("/nonexistent/x.toml")).unwrap_err();
    assert!(
        error.to_string().starts_with("/nonexistent/x.toml: "),
        "{error}"
    );
}

#[test]
fn every_scenario_of_the_tree_is_valid_and_named_like_its_file() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let known = fuzz::known();
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let points = Scenario::load_points(&path, &known);
        let points = points.unwrap_or_else(|error| panic!("{error}"));
        for scenario in points {
            assert_eq!(path.file_stem().unwrap(), scenario.name.as_str());
        }
        seen += 1;
    }
    assert!(seen > 5, "{seen} scenarios");
}
