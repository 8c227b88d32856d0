// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `[[vm]]`, `[[device]]` and programs say happens.

use experiment::analysis::Completion;
use experiment::result::VmWork;
use experiment::scenario::Known;
use experiment::scenario::Scenario;

const HEAD: &str = r#"
name = "vms"
title = "VMs one by one"
topology = { cpus = 2 }
sharing = { slice = "3 ms" }
measure = { rounds = 1, warmup = "200 ms", window = "1 s", baselines = "solo" }
compute = { threads_per_cpu = 0 }
sim = { platform = "paper-kvm" }
arm = [{ name = "vanilla" }, { name = "fifo" }]
"#;

/// What each VM did in an arm.
fn work(tables: &str, arm: &str) -> Vec<VmWork> {
    let scenarios = Scenario::parse_points(&format!("{HEAD}{tables}"), "s.toml", &Known::default());
    let mut scenarios = scenarios.unwrap_or_else(|error| panic!("{error}"));
    let (result, _) = vlab::sim::simulate(&scenarios.remove(0)).expect("it can be simulated");
    let mut phases = result.phases.into_iter();
    let phase = phases.find(|phase| phase.arm == arm);
    phase.expect("the arm is simulated").work
}

fn near(a: f64, b: f64, part: f64) -> bool {
    (a / b - 1.0).abs() < part
}

#[test]
fn weights_pins_and_groups_divide_the_machine() {
    let tables = r#"
        load = [{ name = "sums", kind = "compute" }]
        vm = [
            { name = "heavy", vcpus = 1, weight = 2048, pins = [0] },
            { name = "light", vcpus = 1, weight = 1024, pins = [0] },
            { name = "alone", vcpus = 1, pins = [1] },
        ]
    "#;
    let cpus: Vec<f64> = work(tables, "vanilla").iter().map(|vm| vm.cpus).collect();
    assert!(
        near(cpus[0] / cpus[1], 2.0, 0.05) && near(cpus[2], 1.0, 0.01),
        "{cpus:?}"
    );
    // A VM of two vCPUs weighs as much as one of one, if it is a group.
    let tables = |group: bool| {
        format!(
            r#"
            load = [{{ name = "sums", kind = "compute" }}]
            vm = [
                {{ name = "wide", vcpus = 2, group = {group}, pins = [0] }},
                {{ name = "narrow", vcpus = 1, pins = [0] }},
            ]
            "#
        )
    };
    let ratio = |group| {
        let vms = work(&tables(group), "vanilla");
        vms[0].cpus / vms[1].cpus
    };
    let (grouped, free) = (ratio(true), ratio(false));
    assert!(
        near(grouped, 1.0, 0.1) && near(free, 2.0, 0.1),
        "{grouped} {free}"
    );
}

/// Three threads that compute share the weight of one, for they are of one session, unless
/// each has one of its own.
#[test]
fn a_load_weighs_what_is_said_and_else_as_one_session() {
    let share = |weight: &str| {
        let tables = format!(
            r#"
            load = [
                {{ name = "one", kind = "locks", work = "1 ms", threads = 1, pinned = true }},
                {{ name = "sums", kind = "compute", threads = 3, pinned = true{weight} }},
            ]
            vm = [{{ name = "all", vcpus = 1, loads = ["one", "sums"] }}]
            "#
        );
        let all = work(&tables, "vanilla").remove(0);
        all.loads[1].ops_per_s / 1000.0
    };
    assert!(near(share(""), 0.5, 0.05), "{}", share(""));
    for (weight, part) in [(1024, 0.75), (2048, 6.0 / 7.0), (512, 0.6)] {
        let has = share(&format!(", weight = {weight}"));
        assert!(near(has, part, 0.05), "weight {weight}: {has}");
    }
}

/// K1: half of a pCPU for a VM of two vCPUs that would take both, and no more though they
/// are idle; beside another VM it leaves it the rest.
#[test]
fn a_capped_vm_has_its_cap_and_no_more() {
    let tables = |cap: &str, other: &str| {
        format!(
            r#"
            load = [{{ name = "sums", kind = "compute" }}]
            vm = [
                {{ name = "capped", vcpus = 2{cap} }},
                {other}
            ]
            [sim]
            host = "HOST"
            "#
        )
    };
    let head = HEAD.replace("sim = { platform = \"paper-kvm\" }\n", "");
    let cpus = |host: &str, cap: &str, other: &str| {
        let text = format!("{head}{}", tables(cap, other).replace("HOST", host));
        let points = Scenario::parse_points(&text, "s.toml", &vlab::reproduce::known().unwrap());
        let mut points = points.unwrap_or_else(|error| panic!("{error}"));
        let result = vlab::sim::simulate(&points.remove(0)).map(|(result, _)| result)?;
        let mut phases = result.phases.into_iter();
        let phase = phases.find(|phase| phase.arm == "vanilla").unwrap();
        anyhow::Ok(phase.work.iter().map(|vm| vm.cpus).collect::<Vec<f64>>())
    };
    let other = "{ name = \"other\", vcpus = 2 },";
    for host in ["credit1", "ische"] {
        let free = cpus(host, "", "").unwrap();
        assert!(near(free[0], 2.0, 0.01), "{host}: {free:?}");
        let alone = cpus(host, ", cap = 50", "").unwrap();
        assert!(near(alone[0], 0.5, 0.04), "{host}: {alone:?}");
        let beside = cpus(host, ", cap = 50", other).unwrap();
        assert!(
            beside[0] < 0.52 && near(beside[0] + beside[1], 2.0, 0.02),
            "{host}: {beside:?}"
        );
    }
    let error = cpus("credit2", ", cap = 50", "").unwrap_err().to_string();
    assert!(
        error.contains("VM capped: cap = 50") && error.contains("credit1, "),
        "{error}"
    );
}

#[test]
fn an_arm_applies_where_it_is_asked_for_and_baselines_have_the_first_vm_alone() {
    let tables = r#"
        device = [{ name = "disk", kind = "ssd" }]
        load = [{ name = "reads", kind = "reader", process = "200 us" }]
        vm = [
            { name = "first", vcpus = 1, pins = [0], threads_per_vcpu = 1 },
            { name = "second", vcpus = 1, pins = [1], threads_per_vcpu = 1 },
        ]
    "#;
    let (vanilla, fifo) = (work(tables, "vanilla"), work(tables, "fifo"));
    let ops = |vms: &[VmWork], n: usize| vms[n].loads[0].ops_per_s;
    assert!(
        ops(&fifo, 0) > 1.2 * ops(&vanilla, 0),
        "{vanilla:?} {fifo:?}"
    );
    assert!(
        near(ops(&fifo, 1), ops(&vanilla, 1), 0.02),
        "{vanilla:?} {fifo:?}"
    );
    let solo = work(tables, "solo");
    assert_eq!((solo.len(), solo[0].vm.as_str()), (1, "first"));
}

#[test]
fn every_program_gets_something_done() {
    let tables = r#"
        device = [
            { name = "disk", kind = "hdd", scheduler = "work-conserving", path = "driver-domain" },
            { name = "net", kind = "network" },
        ]
        load = [
            { name = "reads", kind = "reader", device = "disk" },
            { name = "more", kind = "reader", device = "disk", arrivals = [{ at = "500 ms", threads = 3 }] },
            { name = "sends", kind = "reader", device = "net", write = true },
            { name = "ping", kind = "echo", device = "net" },
            { name = "meets", kind = "parallel" },
            { name = "locks", kind = "locks" },
            { name = "dodges", kind = "adversary", trick = "dodge" },
            { name = "fakes", kind = "adversary", trick = "fake-io", device = "disk" },
        ]
        vm = [
            { name = "all", vcpus = 8, loads = ["reads", "more", "sends", "ping", "meets", "locks", "dodges", "fakes"] },
            { name = "dom0", vcpus = 1, class = "driver-domain" },
        ]
    "#;
    let vms = work(tables, "vanilla");
    let threads: Vec<u32> = vms[0].loads.iter().map(|load| load.threads).collect();
    assert_eq!(threads, [1, 4, 1, 1, 8, 8, 8, 8]);
    for load in &vms[0].loads {
        assert!(load.ops_per_s > 10.0, "{load:?}");
    }
    let (reads, more) = (&vms[0].loads[0], &vms[0].loads[1]);
    assert!(more.ops_per_s > 1.2 * reads.ops_per_s, "{reads:?} {more:?}");
    assert!(vms[0].loads[3].trip > units::Ns::ZERO);
    // The driver domain works for those who use the disk.
    assert!(
        vms[1].cpus > 0.001 && vms[1].loads.is_empty(),
        "{:?}",
        vms[1]
    );
}

/// A line for each VM and load, under the arm that it belongs to.
#[test]
fn a_report_says_what_each_vm_did() {
    let tables = r#"
        device = [{ name = "disk", kind = "ssd" }]
        load = [{ name = "reads", kind = "reader" }, { name = "sums", kind = "compute" }]
        vm = [
            { name = "web", count = 2, vcpus = 2, loads = ["reads"] },
            { name = "busy", vcpus = 1, loads = ["sums"] },
        ]
    "#;
    let scenarios = Scenario::parse_points(&format!("{HEAD}{tables}"), "s.toml", &Known::default());
    let length = units::Ns::from_ms(10);
    let (result, _) = vlab::sim::simulate_with(&scenarios.unwrap()[0], length).unwrap();
    let trace = experiment::chrome::trace(&result).expect("there are timelines");
    let title = &trace.events[0].args["name"];
    assert_eq!(title, "reads, 3 vCPUs / pCPU, vanilla");
    let text = experiment::report::text(&result);
    let (_, table) = text
        .split_once("Each VM, in phases of reads")
        .expect("a table");
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |first: &str, vm: &str| {
        let begins = lines.iter().position(|line| line.first() == Some(&first));
        let begins = begins.unwrap_or_else(|| panic!("no {first} in {table}"));
        let found = lines[begins..].iter().find(|line| line.contains(&vm));
        found
            .unwrap_or_else(|| panic!("no {vm} in {table}"))
            .clone()
    };
    for arm in ["vanilla", "fifo"] {
        for (vm, load) in [("web.1", "reads"), ("web.2", "reads"), ("busy", "sums")] {
            assert!(row(arm, vm).contains(&load), "{arm} {vm}: {table}");
        }
    }
    // CPUs, what it computed, its load, how often, bytes, latency.
    let own = row("vanilla", "web.1");
    let rate: f64 = own[own.len() - 5].parse().unwrap();
    let vms = &result
        .phases
        .iter()
        .find(|p| p.arm == "vanilla")
        .unwrap()
        .work;
    assert!(near(rate, vms[0].loads[0].ops_per_s, 0.001), "{own:?}");
    // So are they called in the host's books.
    let books = result.phases.iter().filter(|p| p.arm == "vanilla");
    let books = books.flat_map(|p| &p.books).flat_map(|books| &books.vms);
    let names: Vec<&str> = books.map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web.1", "web.2", "busy"]);
    // The page says the same, and nothing of VMs that are all alike.
    let page = experiment::report::html::page(&result).unwrap();
    for shown in [
        "3 VM(s) with 5 vCPUs in all share 2 pCPUs under cfs; web.1 with 2 vCPU(s) is under test",
        "3 vCPUs / pCPU",
        "<td>web.2</td>",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains("VMs per CPU") && !text.contains("independent phases"));
}

/// A device whose completions arrive on one vCPU: what could be reached is counted from
/// that one, whatever program sends the requests.
#[test]
fn completions_on_one_vcpu_bound_what_a_program_can_reach() {
    let completion = |more: &str| {
        let tables = format!(
            r#"
            device = [{{ name = "disk", kind = "ssd"{more} }}]
            load = [{{ name = "reads", kind = "reader", threads = 2 }}]
            vm = [{{ name = "web", vcpus = 2 }}]
            "#
        );
        let scenarios =
            Scenario::parse_points(&format!("{HEAD}{tables}"), "s.toml", &Known::default());
        let (result, _) = vlab::sim::simulate(&scenarios.unwrap()[0]).unwrap();
        experiment::analysis::analyse(&result).loads[0]
            .baseline
            .completion
    };
    assert_eq!(completion(", completion_vcpu = 1"), Completion::OneCpu(1));
    assert_eq!(completion(""), Completion::FollowsSubmitter);
}
