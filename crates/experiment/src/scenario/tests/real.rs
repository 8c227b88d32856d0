// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[vm]]` and `[sweep]` on real VMs.

use super::super::Scenario;
use super::Case;
use super::errors_say;

const GOOD: &str = r#"
name = "s"
title = "s"
topology = { cpus = 2 }
sharing = { slice = "11 ms" }
load = [{ name = "reads", kind = "disk", pattern = "random-read", queue_depth = 1 }, { name = "beside", kind = "pulse" }]
arm = [{ name = "vanilla", host_policy = "eevdf" }]
[[vm]]
name = "first"
placement = "one-to-one"
threads_per_vcpu = 2
[[vm]]
name = "other"
count = 2
placement = "one-to-one"
loads = ["beside"]
arm = true
[sweep]
"vm.first.weight, vm.other.weight" = [[1843, 205], [1229, 819]]
"#;

fn error_of(text: &str) -> String {
    let points = Scenario::parse_real_points(text, "s.toml");
    points.unwrap_err().to_string()
}

#[test]
fn a_sweep_is_a_scenario_for_each_point() {
    let points = Scenario::parse_real_points(GOOD, "s.toml").unwrap();
    let weights = |point: &Scenario| point.each_vm().map(|(_, vm)| vm.weight).collect::<Vec<_>>();
    assert_eq!(
        points.iter().map(weights).collect::<Vec<_>>(),
        [[1843, 205, 205], [1229, 819, 819]]
    );
    let names = points[0].each_vm().map(|(name, _)| name);
    assert_eq!(names.collect::<Vec<_>>(), ["first", "other.1", "other.2"]);
    let loads = points[0].all_loads().map(|load| load.name.as_str());
    assert_eq!(loads.collect::<Vec<_>>(), ["reads", "beside"]);
    assert_eq!(points[0].compute.threads_per_cpu, 2);
}

/// What is measured can be simulated as well.
#[test]
fn the_simulator_reads_the_same_file() {
    let real = Scenario::parse_real_points(GOOD, "s.toml").unwrap();
    let simulated = Scenario::parse_points(GOOD, "s.toml", &super::super::Known::default());
    assert_eq!(real, simulated.unwrap());
}

#[test]
fn what_real_vms_do_not_have_is_named_with_its_place() {
    let cases: &[Case] = &[
        (
            "count = 2",
            "vcpus = 1",
            &["s.toml:14: `vm[1].vcpus` is 1", "write 2 or more"],
        ),
        (
            "count = 2",
            "vcpus = 3",
            &["`vm[1].placement` is \"one-to-one\"", "round-robin"],
        ),
        (
            "threads_per_vcpu = 2",
            "cap = 50",
            &["`vm[0].cap` is set", "host_config"],
        ),
        (
            "threads_per_vcpu = 2",
            "class = \"io\"",
            &["`vm[0].class` is set", "host_config"],
        ),
        (
            "threads_per_vcpu = 2",
            "group = true",
            &["`vm[0].group` is set", "vlab sim"],
        ),
        (
            "threads_per_vcpu = 2",
            "migration = \"1 us\"",
            &["`vm[0].migration` is set", "vlab sim"],
        ),
        (
            "placement = \"one-to-one\"\nthreads",
            "threads",
            &["`vm[0].placement` is missing", "one-to-one"],
        ),
        (
            "placement = \"one-to-one\"\nloads",
            "placement = \"anywhere\"\nloads",
            &["`vm[1].placement` is \"anywhere\"", "one-to-one"],
        ),
        (
            "loads = [\"beside\"]",
            "loads = [\"beside\", \"reads\"]",
            &["`vm[1].loads` is 2 loads", "name one"],
        ),
        (
            "kind = \"pulse\"",
            "kind = \"parallel\"",
            &["`load[1].kind` is \"parallel\"", "vlab sim"],
        ),
        (
            "[[vm]]",
            "[[device]]\nname = \"d\"\nkind = \"ssd\"\n[[vm]]",
            &["`device` is set", "--disk-latency"],
        ),
        ("weight, vm", "weights, vm", &["weights"]),
    ];
    errors_say(GOOD, cases, error_of);
}

const ON_NETWORK: &str = r#"
name = "s"
title = "s"
topology = { cpus = 2 }
sharing = { slice = "11 ms" }
arm = [{ name = "vanilla", host_policy = "isacs" }]
[[device]]
name = "net"
kind = "network"
interval = "2 ms"
[[load]]
name = "ping"
kind = "echo"
device = "net"
[[load]]
name = "stream"
kind = "reader"
device = "net"
write = true
[[vm]]
name = "first"
placement = "one-to-one"
threads_per_vcpu = 0
"#;

#[test]
fn real_vms_and_simulated_ones_have_the_same_network() {
    let real = Scenario::parse_real_points(ON_NETWORK, "s.toml").unwrap();
    let known = super::super::Known::default();
    let simulated = Scenario::parse_points(ON_NETWORK, "s.toml", &known);
    assert_eq!(real, simulated.unwrap());
    let cases: &[Case] = &[
        (
            "interval = \"2 ms\"",
            "path = \"driver-domain\"",
            &["`device[0].path` is set", "vlab sim"],
        ),
        (
            "interval = \"2 ms\"",
            "completion_vcpu = 0",
            &["`device[0].completion_vcpu` is set", "vlab sim"],
        ),
        (
            "kind = \"echo\"",
            "kind = \"echo\"\npinned = true",
            &["s.toml:14: `load[0].pinned` is set", "vlab sim"],
        ),
        (
            "write = true",
            "write = true\nburst = \"1 ms\"\npause = \"1 ms\"",
            &["`load[1].burst` is set", "vlab sim"],
        ),
    ];
    errors_say(ON_NETWORK, cases, error_of);
}

/// Under the freezer there is one VM.
#[test]
fn this_machine_alone_has_none_of_it() {
    let cases: &[Case] = &[
        ("name", "name", &["`sweep` is set", "--backend kvm"]),
        (
            "[sweep]\n\"vm.first.weight, vm.other.weight\" = [[1843, 205], [1229, 819]]",
            "",
            &["`vm` is set", "--backend kvm"],
        ),
    ];
    errors_say(GOOD, cases, |text| {
        Scenario::parse(text, "s.toml").unwrap_err().to_string()
    });
}
