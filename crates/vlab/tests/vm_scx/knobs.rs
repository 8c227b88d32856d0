// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said of single VMs, by a user and by cgroups; what is charged; and what the
//! kernel's verifier went through.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use scx_vcpu::config::Config;
use units::Ns;
use vlab::vm::Output;

use super::Machine;
use super::boot_with;
use super::number;
use super::policies::response;
use super::policies::share;
use super::policies::vcpus;
use super::policies::vms;
use super::said;

#[test]
fn root_vm_scx_vcpu_knobs_cgroups_and_charges() {
    let switches = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm_scx/switches.toml");
    let output = boot_with(
        include_str!("knobs.sh"),
        Machine {
            files: &[(&switches, "/switches.toml")],
            ..Machine::default()
        },
    );
    every_program_is_verified(&output);
    so_is_what_switches_turn_on(&output);
    who_has_no_privileges_is_told_what_to_do(&output);
    knobs_count_alone(&output, response(&vms(&output, "fixed")));
    cgroups_count(&output);
    run_time_is_the_kernels(&output);
    for key in ["fixed", "credit2", "masks"] {
        assert_eq!(number(&output, &format!("{key}-exit")), 0);
    }
}

/// A VM's slice, its rescheduling latency (J3) and its pCPUs, beside VMs that have none.
fn knobs_count_alone(output: &Output, fixed: Ns) {
    let knobs = vms(output, "fixed-knobs");
    eprintln!(
        "fixed, 5 ms beside 50 ms: share {:.3}; latency 2 ms: response {}, was {fixed}",
        share(&knobs),
        response(&knobs)
    );
    // 5 of 55 ms; without a slice of its own it has half.
    assert!(share(&knobs) < 0.25, "{knobs:?}");
    assert_eq!(knobs[0].own_slice, Ns::from_ms(5));
    assert!(knobs[0].slice <= Ns::from_ms(5), "{knobs:?}");
    assert_eq!(knobs[1].own_slice, Ns::ZERO);
    assert!(knobs[1].slice > Ns::from_ms(5), "{knobs:?}");
    assert_eq!(knobs[2].latency, Ns::from_ms(2));
    // The others' turns are 55 ms together.
    assert!(response(&knobs) < fixed / 3, "{knobs:?}");
    assert!(said(output, "pinned").contains("may run on none of these"));
    assert!(said(output, "unweighed").contains("fixed knows no weights"));

    let cpus = vcpus(output, "cpus");
    assert!(cpus[..2].iter().all(|vcpu| vcpu.cpu == 1), "{cpus:?}");
    // Two vCPU threads on the second one alone, and afterwards none.
    let only_second = |key: &str| said(output, key).contains(" 2 1 ");
    assert!(only_second("allowed"), "{}", said(output, "allowed"));
    assert!(!said(output, "allowed-after").trim().ends_with(" 1"));
    assert!(
        !only_second("allowed-after"),
        "{}",
        said(output, "allowed-after")
    );
}

/// `cpu.weight` multiplies a VM's weight; a cpuset is where it runs.
fn cgroups_count(output: &Output) {
    assert_eq!(number(output, "weighs"), 1024);
    let weighed = vms(output, "credit2-cgroup");
    eprintln!("credit2, 512 : 256 x 4: share {:.3}", share(&weighed));
    assert!((0.24..0.43).contains(&share(&weighed)), "{weighed:?}");
    let confined = vcpus(output, "credit2-cpuset");
    assert!(
        confined[2..4].iter().all(|vcpu| vcpu.cpu == 1),
        "{confined:?}"
    );
    assert!(confined[2..4].iter().all(|vcpu| vcpu.ran > Ns::ZERO));
}

/// `ran` of each vCPU lies between what the kernel said of its thread just before and
/// just after. A turn that goes on is in neither but for its part until the last tick.
fn run_time_is_the_kernels(output: &Output) {
    let kernels = |key: &str| -> BTreeMap<u32, u64> {
        said(output, key)
            .split_whitespace()
            .map(|word| {
                let (tid, ran) = word.split_once(':').unwrap();
                (tid.parse().unwrap(), ran.parse().unwrap())
            })
            .collect()
    };
    let (f0, f1) = (kernels("from-before"), kernels("from-after"));
    let (t0, t1) = (kernels("to-before"), kernels("to-after"));
    let (from, to) = (vcpus(output, "from-ours"), vcpus(output, "to-ours"));
    // A slice of 10 ms at each end, and a machine that is late.
    let slack = 40_000_000;
    for (from, to) in from.iter().zip(&to) {
        let (tid, ours) = (from.tid, (to.ran - from.ran).0);
        let least = (t0[&tid] - f1[&tid]).saturating_sub(slack);
        let most = t1[&tid] - f0[&tid] + slack;
        eprintln!(
            "vCPU {} of {}: ran {ours} ns, by the kernel {} to {}",
            to.vcpu,
            to.vm,
            t0[&tid] - f1[&tid],
            t1[&tid] - f0[&tid]
        );
        assert!((least..=most).contains(&ours), "{least} {ours} {most}");
    }
}

/// Program and instructions of each line that begins so, by policy.
fn programs<'a>(output: &'a Output, key: &str) -> BTreeMap<&'a str, Vec<(&'a str, u32)>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in output.stdout.lines() {
        let Some(rest) = line.strip_prefix(key) else {
            continue;
        };
        eprintln!("{line}");
        let words: Vec<&str> = rest.split(' ').collect();
        let programs = all.entry(words[0]).or_default();
        programs.push((words[1], words[2].parse::<u32>().unwrap()));
    }
    for (policy, programs) in &all {
        assert!(programs.len() >= 15, "{policy}: {programs:?}");
        // The kernel gives up at a million.
        let fits = |(_, count): &(&str, u32)| (1..500_000).contains(count);
        assert!(programs.iter().all(fits), "{policy}: {programs:?}");
    }
    all
}

/// What the verifier went through for each, for the table in docs/scx_vcpu-measured.md.
fn every_program_is_verified(output: &Output) {
    let all = programs(output, "verified: ");
    let policies = ["credit1", "credit2", "fixed", "isacs", "ische", "vslicer"];
    assert_eq!(all.into_keys().collect::<Vec<_>>(), policies);
}

/// And with the switches' other side; `fixed` and `vslicer` have none.
fn so_is_what_switches_turn_on(output: &Output) {
    let policies = ["credit1", "credit2", "isacs", "ische"];
    for policy in policies {
        let key = format!("switched-{policy}");
        assert_eq!(number(output, &key), 0, "{}", output.stdout);
    }
    let all = programs(output, "switched: ");
    assert_eq!(all.into_keys().collect::<Vec<_>>(), policies);
}

/// One line each. With a scheduler `run` says that there is one, which comes first; without one
/// there is nothing that the others could do as root either.
fn who_has_no_privileges_is_told_what_to_do(output: &Output) {
    for (key, elsewhere) in [
        ("denied-alone ", &["list", "stats", "set"][..]),
        ("denied-beside ", &["run"]),
    ] {
        let lines = output.stdout.lines();
        let told: Vec<&str> = lines.filter_map(|line| line.strip_prefix(key)).collect();
        assert_eq!(told.len(), 6, "{}", output.stdout);
        for line in told {
            eprintln!("{key}{line}");
            let [code, count, command, text] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let refused = matches!(command, "run" | "trace" | "restore");
            assert_eq!(code, if refused { "3" } else { "1" }, "{line}");
            assert_eq!(count, "1", "{line}");
            assert!(text.starts_with("scx_vcpu: "), "{line}");
            let way = match (elsewhere.contains(&command), command) {
                (true, "run") => "end it first",
                (true, _) => "start it with `scx_vcpu run`",
                (false, _) => "run as root",
            };
            assert!(text.contains(way), "{line}");
        }
    }
}

/// Fields of `settings` that are no numbers, with what they say.
fn switches(settings: &impl Debug) -> Vec<String> {
    let text = format!("{settings:#?}");
    let fields = text.lines().map(|line| line.trim().trim_end_matches(','));
    let is_switch = |field: &&str| {
        let value = field.split_once(": ").map(|(_, value)| value);
        value.is_some_and(|value| value.chars().all(char::is_alphabetic))
    };
    fields.filter(is_switch).map(str::to_owned).collect()
}

#[test]
fn the_file_of_switches_has_all_that_the_programs_have() {
    let (file, default) = (include_str!("switches.toml"), Config::default());
    let file = Config::parse(file, "switches.toml").unwrap();
    let settings = |config: &Config| {
        [
            switches(&config.credit1.settings()),
            switches(&config.credit2.settings()),
            switches(&config.ische.settings(&config.credit1)),
            switches(&config.isacs.settings()),
        ]
    };
    let mut same_ones: Vec<String> = Vec::new();
    for (own, default) in settings(&file).iter().zip(settings(&default)) {
        assert!(!default.is_empty() && own.len() == default.len(), "{own:?}");
        let same = own.iter().zip(default);
        same_ones.extend(
            same.filter(|(own, default)| *own == default)
                .map(|(own, _)| own.clone()),
        );
    }
    // The simulator's alone: the programs charge what was used, and an idle pCPU takes anybody.
    let simulated = ["charging: Exact", "idle_takes: Anybody"];
    same_ones.retain(|field| !simulated.contains(&field.as_str()));
    assert_eq!(same_ones, [""; 0], "as by default");
}
