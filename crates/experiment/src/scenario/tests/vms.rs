// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[vm]]`, `[[device]]` and programs.

use units::Ns;

use super::super::Class;
use super::super::DeviceKind;
use super::super::Elevator;
use super::super::Known;
use super::super::Leave;
use super::super::LoadKind;
use super::super::Pins;
use super::super::Program;
use super::super::Queues;
use super::super::Scenario;
use super::super::ScenarioError;
use super::super::Threads;
use super::Case;
use super::errors_say;

pub(super) const GOOD: &str = r#"
name = "own"
title = "VMs one by one"

[topology]
cpus = 4

[sharing]
slice = "11 ms"

[compute]
threads_per_cpu = 0

[[device]]
name = "disk"
kind = "hdd"
wait = "7 ms"
path = "driver-domain"

[[device]]
name = "net"
kind = "network"
mb_per_s = 12.5

[[load]]
name = "reads"
kind = "reader"
device = "disk"
threads = 2

[[load]]
name = "ping"
kind = "echo"
device = "net"

[[load]]
name = "meets"
kind = "parallel"
work = "2 ms"

[[vm]]
name = "web"
count = 2
vcpus = 2
pins = [1, 3]
class = "latency-sensitive"
loads = ["reads", "ping"]

[[vm]]
name = "dom0"
vcpus = 3
class = "driver-domain"
backend = "21 us"
copies_mb_per_s = 1800

[[vm]]
name = "sums"
weight = 512
placement = "one-to-one"
threads_per_vcpu = 2
loads = ["meets"]

[[arm]]
name = "vanilla"
"#;

pub(super) fn one(text: &str) -> Result<Scenario, ScenarioError> {
    let mut points = Scenario::parse_points(text, "s.toml", &Known::default())?;
    assert_eq!(points.len(), 1);
    Ok(points.remove(0))
}

pub(super) fn error_of(text: &str) -> String {
    Scenario::parse_points(text, "s.toml", &Known::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn vms_devices_and_programs_are_read_with_their_defaults() {
    let scenario = one(GOOD).unwrap();
    let [web, dom0, sums] = scenario.vms.as_slice() else {
        panic!("{:?}", scenario.vms);
    };
    assert_eq!(
        (web.count, web.vcpus, web.weight, web.arm),
        (2, 2, 1024, true)
    );
    assert_eq!(web.pins, Pins::On(vec![1, 3]));
    assert_eq!(web.class, Some(Class::Io));
    assert_eq!([web.name_of(0), web.name_of(1)], ["web.1", "web.2"]);
    assert_eq!(dom0.backend, Some(Ns::from_us(21)));
    assert_eq!(dom0.copies_mb_per_s, Some(1800.0));
    assert_eq!((dom0.name_of(0).as_str(), dom0.arm), ("dom0", false));
    assert_eq!(
        (sums.vcpus, sums.weight, sums.threads_per_vcpu),
        (4, 512, 2)
    );
    assert_eq!((&sums.pins, sums.arm), (&Pins::OneToOne, false));
    let DeviceKind::Hdd {
        seek, scheduler, ..
    } = scenario.devices[0].kind
    else {
        panic!("{:?}", scenario.devices);
    };
    assert_eq!(seek, Ns::from_ms(8));
    let cfq = Elevator::NonWorkConserving {
        wait: Ns::from_ms(7),
        turn: Ns::from_ms(100),
    };
    assert_eq!(scheduler, cfq);
    assert!(scenario.devices[0].behind_driver && !scenario.devices[1].behind_driver);
    let meets = &sums.loads.as_ref().unwrap()[0];
    let LoadKind::Simulated {
        program: Program::Parallel { threads, work, .. },
    } = &meets.kind
    else {
        panic!("{meets:?}");
    };
    let all = Threads {
        count: None,
        vcpu: 0,
        pinned: true,
        weight: None,
    };
    assert_eq!((*threads, *work), (all, Ns::from_ms(2)));
    // The VM under test names its loads: the first of them has the only phase. 11 vCPUs
    // share 4 pCPUs.
    assert_eq!(scenario.loads.len(), 1);
    assert_eq!(scenario.loads[0].name, "reads");
    assert_eq!(scenario.sharing.vms_per_pcpu, [3]);
    assert_eq!(scenario.vcpus(), 2);
    assert_eq!(scenario.sim.as_ref().unwrap().host, "cfs");
    // A result keeps all of it.
    let json = serde_json::to_string(&scenario).unwrap();
    assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
}

#[test]
fn loads_that_no_vm_names_have_phases() {
    let text = GOOD.replace("loads = [\"reads\", \"ping\"]\n", "");
    let scenario = one(&text).unwrap();
    let names: Vec<&str> = scenario
        .loads
        .iter()
        .map(|load| load.name.as_str())
        .collect();
    assert_eq!(names, ["reads", "ping"]);
    assert!(scenario.vms[0].loads.is_none());
}

#[test]
fn completions_arrive_on_a_vcpu_of_all_that_use_the_device() {
    let with = |vcpu: u32| GOOD.replace("wait = \"7 ms\"", &format!("completion_vcpu = {vcpu}"));
    assert!(one(&with(1)).is_ok());
    // VMs without loads of their own run those of the phases.
    let text = with(1).replace("loads = [\"meets\"]\n", "vcpus = 1\n");
    let text = text.replace("loads = [\"reads\", \"ping\"]\n", "");
    let error = one(&text).unwrap_err().to_string();
    assert!(error.contains("VM \"sums\" uses it"), "{error}");
}

/// What a real machine cannot do is refused where it stands.
/// Two devices of one name, and what names a device or a load that is not there.
#[test]
fn overlapping_devices_are_refused_with_line_and_field() {
    for (from, to, said) in [
        (
            "name = \"net\"\nkind",
            "name = \"disk\"\nkind",
            "own.toml:21: `device[1].name` is \"disk\"; give each device a name of its own",
        ),
        (
            "device = \"net\"",
            "device = \"lan\"",
            "own.toml:34: `load[1].device` is \"lan\"; write one of \"disk\", \"net\"",
        ),
        (
            "loads = [\"reads\", \"ping\"]",
            "loads = [\"reads\", \"pong\"]",
            "own.toml:47: `vm[0].loads` is \"pong\"; ",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = Scenario::parse_points(&text, "own.toml", &Known::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn only_the_simulator_reads_vms_devices_programs_and_sweeps() {
    let of = |text: &str| Scenario::parse(text, "s.toml").unwrap_err().to_string();
    let line = 1 + GOOD.lines().position(|line| line == "[[vm]]").unwrap();
    let error = of(GOOD);
    assert!(
        error.starts_with(&format!("s.toml:{line}: `vm` is set;")),
        "{error}"
    );
    assert!(error.contains("vlab sim"), "{error}");
    let plain = super::GOOD;
    assert!(Scenario::parse(plain, "s.toml").is_ok());
    let error = of(&format!("{plain}\n[sweep]\n\"sim.seed\" = [1]\n"));
    assert!(
        error.contains("`sweep` is set") && error.contains("vlab sweep"),
        "{error}"
    );
    let error = of(&format!(
        "{plain}\n[[device]]\nname = \"d\"\nkind = \"ssd\"\n"
    ));
    assert!(
        error.contains("`device` is set") && error.contains("simulator"),
        "{error}"
    );
    let error = of(&plain.replace("kind = \"pulse\"", "kind = \"parallel\""));
    assert!(
        error.contains("s.toml:14: `load[0].kind`") && error.contains("vlab sim"),
        "{error}"
    );
}

#[test]
fn every_error_names_line_field_value_and_what_is_right() {
    let cases: &[Case] = &[
        (
            "vcpus = 2",
            "vcpus = 0",
            &["s.toml:44:", "`vm[0].vcpus` is 0", "1 to 1024"],
        ),
        (
            "count = 2",
            "count = 0",
            &["s.toml:43:", "`vm[0].count` is 0", "1 to 256"],
        ),
        ("count = 2", "count = 300", &["`vm[0].count` is 300"]),
        ("vcpus = 3", "vcpus = 3\ncpus = 1", &["s.toml:52:", "cpus"]),
        (
            "pins = [1, 3]",
            "pins = [1, 4]",
            &["s.toml:45:", "`vm[0].pins` is 4", "0 to 3"],
        ),
        ("pins = [1, 3]", "pins = [-1]", &["`vm[0].pins` is -1"]),
        (
            "pins = [1, 3]",
            "pins = [1, 1]",
            &["`vm[0].pins` is 1", "once"],
        ),
        (
            "pins = [1, 3]",
            "pins = []",
            &["`vm[0].pins` is empty", "0 to 3"],
        ),
        (
            "pins = [1, 3]",
            "pins = [1]\nplacement = \"anywhere\"",
            &["s.toml:45:", "`vm[0].pins` is set", "one of the two"],
        ),
        (
            "weight = 512",
            "vcpus = 5",
            &[
                "s.toml:59:",
                "`vm[2].placement` is \"one-to-one\"",
                "topology.cpus is 4",
            ],
        ),
        (
            "weight = 512",
            "weight = 1",
            &["s.toml:58:", "`vm[2].weight` is 1", "2 to 262144"],
        ),
        (
            "vcpus = 3",
            "vcpus = 3\ncap = 0",
            &["s.toml:52:", "`vm[1].cap` is 0", "1 to 300"],
        ),
        (
            "vcpus = 3",
            "vcpus = 3\ncap = 301",
            &["`vm[1].cap` is 301", "all 3 vCPUs together"],
        ),
        (
            "weight = 512",
            "cap = -1",
            &["s.toml:58:", "`vm[2].cap` is -1", "1 to 400"],
        ),
        ("weight = 512", "cap = \"50\"", &["s.toml:58:"]),
        (
            "weight = 512",
            "weight = 8\ngroup = true",
            &["`vm[2].weight` is 8", "group"],
        ),
        (
            "weight = 512",
            "count = 255",
            &["s.toml:56:", "`vm` is 258 VMs with 1027 vCPUs", "256 VMs"],
        ),
        (
            "threads_per_vcpu = 2",
            "threads_per_vcpu = 17",
            &["`vm[2].threads_per_vcpu` is 17", "0 to 16"],
        ),
        (
            "class = \"latency-sensitive\"",
            "class = \"vip\"",
            &[
                "s.toml:46:",
                "`vm[0].class` is \"vip\"",
                "\"latency-sensitive\"",
            ],
        ),
        (
            "class = \"latency-sensitive\"",
            "class = \"driver-domain\"",
            &["s.toml:47:", "`vm[0].loads` is set", "driver domain"],
        ),
        (
            "threads_per_vcpu = 2\nloads = [\"meets\"]",
            "class = \"driver-domain\"",
            &["s.toml:60:", "`vm[2].class`", "one driver domain"],
        ),
        (
            "backend = \"21 us\"",
            "backend = \"3 days\"",
            &["`vm[1].backend` is \"3 days\"", "1 s"],
        ),
        (
            "weight = 512",
            "backend = \"1 us\"",
            &["`vm[2].backend` is \"1 us\"", "driver-domain"],
        ),
        (
            "weight = 512",
            "copies_mb_per_s = 5",
            &["`vm[2].copies_mb_per_s` is 5", "driver-domain"],
        ),
        (
            "weight = 512",
            "queues = \"per-stream\"",
            &["`vm[2].queues` is \"per-stream\"", "driver-domain"],
        ),
        (
            "backend = \"21 us\"",
            "queues = \"both\"",
            &["`vm[1].queues` is \"both\"", "per-vm", "per-stream"],
        ),
        (
            "threads_per_vcpu = 2\nloads = [\"meets\"]",
            "class = \"far-end\"\ncount = 2",
            &["s.toml:60:", "`vm[2].class`", "one far end"],
        ),
        (
            "copies_mb_per_s = 1800",
            "copies_mb_per_s = 0",
            &["`vm[1].copies_mb_per_s` is 0", "0.001"],
        ),
        (
            "class = \"driver-domain\"\nbackend = \"21 us\"\ncopies_mb_per_s = 1800",
            "",
            &[
                "s.toml:18:",
                "`device[0].path` is \"driver-domain\"",
                "vhost",
            ],
        ),
        (
            "[\"reads\", \"ping\"]",
            "[\"reads\", \"writes\"]",
            &["s.toml:47:", "`vm[0].loads` is \"writes\"", "\"ping\""],
        ),
        (
            "[\"reads\", \"ping\"]",
            "[\"reads\", \"reads\"]",
            &["\"reads\"", "once"],
        ),
        (
            "[\"reads\", \"ping\"]",
            "[]",
            &["`vm[0].loads` is empty", "under test"],
        ),
        (
            "[\"reads\", \"ping\"]",
            "[\"reads\"]",
            &["s.toml:32:", "`load[1].name` is \"ping\"", "no VM runs it"],
        ),
        (
            "name = \"sums\"",
            "name = \"web\"",
            &["s.toml:57:", "`vm[2].name`", "of its own"],
        ),
        (
            "wait = \"7 ms\"",
            "completion_vcpu = 2",
            &[
                "s.toml:17:",
                "`device[0].completion_vcpu` is 2",
                "VM \"web\"",
                "0 to 1",
            ],
        ),
        (
            "kind = \"hdd\"",
            "kind = \"tape\"",
            &["s.toml:16:", "`device[0].kind`", "\"ssd\""],
        ),
        (
            "name = \"net\"",
            "name = \"disk\"",
            &["s.toml:21:", "`device[1].name`", "of its own"],
        ),
        (
            "mb_per_s = 12.5",
            "mb_per_s = 0",
            &["s.toml:23:", "`device[1].mb_per_s` is 0", "0.001"],
        ),
        (
            "mb_per_s = 12.5",
            "mb_per_s = nan",
            &["`device[1].mb_per_s` is NaN"],
        ),
        (
            "kind = \"hdd\"\nwait = \"7 ms\"",
            "kind = \"ssd\"\nlatency = \"1 ms\"\nmean = \"1 ms\"",
            &["s.toml:18:", "`device[0].mean` is set", "one of the two"],
        ),
        (
            "kind = \"hdd\"\nwait = \"7 ms\"",
            "kind = \"ssd\"\nspread_permille = 3000\nmean = \"10 ns\"",
            &["s.toml:18:", "`device[0].mean` is \"10 ns\"", "below 1 ns"],
        ),
        (
            "mb_per_s = 12.5",
            "seek = \"1 ms\"",
            &["`device[1].seek` is set", "under_way"],
        ),
        (
            "wait = \"7 ms\"",
            "wait = \"-7 ms\"",
            &["s.toml:17:", "`device[0].wait`", "-7 ms"],
        ),
        (
            "wait = \"7 ms\"",
            "scheduler = \"work-conserving\"\nwait = \"1 ms\"",
            &["`device[0].wait` is set", "seek"],
        ),
        (
            "wait = \"7 ms\"",
            "scheduler = \"noop\"",
            &["\"noop\"", "\"non-work-conserving\""],
        ),
        (
            "path = \"driver-domain\"",
            "path = \"carrier-pigeon\"",
            &["`device[0].path`", "\"vhost\""],
        ),
        (
            "device = \"disk\"",
            "device = \"disc\"",
            &[
                "s.toml:28:",
                "`load[0].device` is \"disc\"",
                "\"disk\", \"net\"",
            ],
        ),
        (
            "device = \"disk\"\n",
            "",
            &["s.toml:27:", "`load[0].device` is missing", "\"net\""],
        ),
        (
            "kind = \"echo\"\ndevice = \"net\"",
            "kind = \"echo\"\ndevice = \"disk\"",
            &["s.toml:34:", "`load[1].device` is \"disk\"", "network"],
        ),
        (
            "device = \"disk\"\nthreads",
            "device = \"net\"\nthreads",
            &["`load[0].write` is false", "write = true"],
        ),
        (
            "threads = 2",
            "threads = 2000",
            &["`load[0].threads` is 2000", "1 to 1024"],
        ),
        (
            "threads = 2",
            "weight = 1",
            &["`load[0].weight` is 1", "2 to 88761"],
        ),
        (
            "threads = 2",
            "threads = 1000\narrivals = [{ at = \"1 s\", threads = 25 }]",
            &["s.toml:30:", "is 25", "1025 threads", "at most 1024"],
        ),
        (
            "threads = 2",
            "burst = \"1 ms\"",
            &["`load[0].pause` is missing", "both"],
        ),
        (
            "threads = 2",
            "work = \"1 ms\"",
            &["`load[0].work` is set", "no such key"],
        ),
        (
            "work = \"2 ms\"",
            "work = \"0 s\"",
            &["s.toml:39:", "`load[2].work` is \"0 s\""],
        ),
        (
            "work = \"2 ms\"",
            "spread_permille = 4000",
            &["`load[2].spread_permille`", "0 to 3000"],
        ),
        (
            "kind = \"parallel\"\nwork = \"2 ms\"",
            "kind = \"adversary\"",
            &["[2].trick` is missing"],
        ),
        (
            "kind = \"parallel\"\nwork = \"2 ms\"",
            "kind = \"adversary\"\ntrick = \"dodge\"\nearly = \"9 ms\"",
            &["`load[2].early` is \"9 ms\"", "2.5"],
        ),
        (
            "slice =",
            "vms_per_pcpu = [2]\nslice =",
            &["`sharing.vms_per_pcpu` is set", "[[vm]]"],
        ),
        (
            "[compute]",
            "[sim]\nothers = \"same\"\n[compute]",
            &["s.toml:12:", "`sim.others` is set", "[[vm]]"],
        ),
        (
            "cpus = 4",
            "cpus = 257",
            &["s.toml:6:", "`topology.cpus` is 257", "256"],
        ),
        (
            "cpus = 4\n",
            "cpus = 5\n[sim]\nthreads_per_core = 2\n",
            &["s.toml:8:", "`sim.threads_per_core` is 2", "even"],
        ),
        (
            "cpus = 4\n",
            "cpus = 4\n[sim]\ncpu_speed_permille = 99\n",
            &["s.toml:8:", "`sim.cpu_speed_permille` is 99", "100"],
        ),
        (
            "cpus = 4\n",
            "cpus = 4\n[sim]\nio_elsewhere_permille = 500\n",
            &["s.toml:8:", "`sim.io_elsewhere_permille` is set", "[[vm]]"],
        ),
    ];
    errors_say(GOOD, cases, error_of);
}

#[test]
fn a_far_end_needs_a_driver_domain_before_it() {
    let lone = GOOD
        .replace("class = \"driver-domain\"", "class = \"far-end\"")
        .replace("path = \"driver-domain\"", "path = \"vhost\"");
    let error = error_of(&lone);
    for part in ["`vm[1].class` is \"far-end\"", "driver-domain"] {
        assert!(error.contains(part), "{error}");
    }
    let both = GOOD.replace(
        "backend = \"21 us\"\n",
        "backend = \"21 us\"\nqueues = \"per-stream\"\n[[vm]]\nname = \"client\"\nclass = \"far-end\"\n",
    );
    let scenario = one(&both).unwrap();
    let of = |class| scenario.vms.iter().find(|vm| vm.class == Some(class));
    let driver = of(Class::DriverDomain).unwrap();
    let far_end = of(Class::FarEnd).unwrap();
    assert_eq!(driver.queues, Queues::PerStream);
    assert_eq!(far_end.backend, Some(Ns::from_us(20)));
    assert_eq!(far_end.loads, Some(Vec::new()));
}

/// Threads that differ for good.
#[test]
fn threads_may_have_more_to_do_than_others() {
    let with =
        |keys: &str| GOOD.replace("work = \"2 ms\"\n", &format!("work = \"2 ms\"\n{keys}\n"));
    let scenario = one(&with("skew_permille = 700")).unwrap();
    let sums = scenario.vms.last().unwrap();
    let kind = &sums.loads.as_ref().unwrap()[0].kind;
    let said = matches!(
        kind,
        LoadKind::Simulated {
            program: Program::Parallel {
                skew_permille: 700,
                ..
            }
        }
    );
    assert!(said, "{kind:?}");
    let much = error_of(&with("skew_permille = 3001"));
    assert!(much.contains("`load[2].skew_permille` is 3001"), "{much}");
}

/// How a barrier is left is one of two words.
#[test]
fn threads_leave_a_barrier_at_once_or_in_turn() {
    let with =
        |keys: &str| GOOD.replace("work = \"2 ms\"\n", &format!("work = \"2 ms\"\n{keys}\n"));
    let left = |text: &str| {
        let scenario = one(text).unwrap();
        let sums = scenario.vms.last().unwrap();
        match &sums.loads.as_ref().unwrap()[0].kind {
            LoadKind::Simulated {
                program: Program::Parallel { leave, .. },
            } => *leave,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(left(GOOD), Leave::AtOnce);
    assert_eq!(left(&with("leave = \"in-turn\"")), Leave::InTurn);
    let other = error_of(&with("leave = \"one by one\""));
    assert!(
        other.contains("`load[2].leave`") && other.contains("\"in-turn\""),
        "{other}"
    );
}

/// Sequential parts: both keys are read, the part alone says nothing.
#[test]
fn a_sequential_part_has_a_length() {
    let with =
        |keys: &str| GOOD.replace("work = \"2 ms\"\n", &format!("work = \"2 ms\"\n{keys}\n"));
    let parts = |text: &str| {
        let scenario = one(text).unwrap();
        let sums = scenario.vms.last().unwrap();
        match &sums.loads.as_ref().unwrap()[0].kind {
            LoadKind::Simulated {
                program:
                    Program::Parallel {
                        alone,
                        alone_permille,
                        ..
                    },
            } => (*alone, *alone_permille),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(parts(GOOD).0, Ns::ZERO);
    let both = with("alone = \"5 ms\"\nalone_permille = 200");
    assert_eq!(parts(&both), (Ns::from_ms(5), 200));
    let one_of_them = error_of(&with("alone_permille = 200"));
    let said = "`load[2].alone_permille` is 200; it is the part of the time";
    assert!(one_of_them.contains(said), "{one_of_them}");
    let too_much = error_of(&with("alone = \"5 ms\"\nalone_permille = 1000"));
    assert!(
        too_much.contains("`load[2].alone_permille` is 1000"),
        "{too_much}"
    );
}
