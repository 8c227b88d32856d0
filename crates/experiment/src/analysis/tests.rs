// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::result::Daemon;
use crate::result::Environment;
use crate::result::FORMAT;
use crate::result::Host;
use crate::result::Io;
use crate::result::IoTime;
use crate::result::Liveness;
use crate::result::MoveMark;
use crate::result::TaskTrack;
use crate::result::Timeline;
use crate::result::VcpuTrack;
use crate::scenario::HostPolicy;
use crate::scenario::Scenario;

/// Numbers chosen so that every derived value is exact: solo 8000 /s, compute
/// 1000 units alone and 900 beside 8000 requests (0.0125 units a request).
pub(crate) fn fixture() -> RunResult {
    let scenario = Scenario::parse(
        r#"
        name = "fixture"
        title = "Fixed numbers"
        topology = { cpus = 2 }
        sharing = { vms_per_pcpu = [2], slice = "11 ms" }
        measure = { rounds = 2 }
        [[load]]
        name = "pulse"
        kind = "pulse"
        [[load]]
        name = "disk"
        kind = "disk"
        pattern = "random-read"
        [[arm]]
        name = "vanilla"
        [[arm]]
        name = "ours"
        kind = "vmigrater"
        "#,
        "fixture.toml",
    )
    .unwrap();
    let phase = |load: &str, arm: &str, round, ops: f64, compute: f64| Phase {
        load: load.to_owned(),
        arm: arm.to_owned(),
        vms_per_pcpu: if crate::result::BASELINES.contains(&arm) {
            1
        } else {
            2
        },
        round,
        at: Ns::from_secs(1),
        boot: 0,
        work: Vec::new(),
        window: Ns::from_secs(2),
        io: (ops > 0.0).then(|| Io {
            ops_per_s: ops,
            ..Io::default()
        }),
        compute_per_s: if compute > 0.0 {
            vec![compute / 2.0; 2]
        } else {
            Vec::new()
        },
        host: Host {
            on_share: vec![0.5, 0.4],
            union_share: 0.75,
            slices: 180,
            ..Host::default()
        },
        completions: if load == "disk" {
            vec![3, 997]
        } else {
            Vec::new()
        },
        daemon: (arm == "ours").then(|| Daemon {
            interval: Ns::from_secs(2),
            io_inactivity: Ns::from_ms(500),
            cpu: Ns::from_ms(10),
            stopped: Some(Ns::from_ms(4)),
            wakeups: 600,
            moves: BTreeMap::from([("push".to_owned(), 150), ("pull".to_owned(), 30)]),
            n_migrate: 180,
            n_min: 150,
            ..Daemon::default()
        }),
        liveness: Vec::new(),
        machine: crate::result::Machine {
            stolen: Some(Ns::from_ms(20)),
            ..crate::result::Machine::default()
        },
        io_time: (load == "pulse" && ops > 0.0).then(|| time_of(arm)),
        timeline: (load == "pulse" && arm == "ours" && round == 0).then(timeline),
        books: None,
    };
    RunResult {
        format: FORMAT,
        backend: "freezer".to_owned(),
        scenario,
        environment: Environment {
            date: "2026-01-02T03:04:05Z".to_owned(),
            kernel: "6.18.0".to_owned(),
            preemption: "PREEMPT_DYNAMIC".to_owned(),
            cpu_model: "Some CPU".to_owned(),
            cpus: 2,
            load_average: 0.5,
            dilation: Some(1.0),
            hypervisor: String::new(),
            disk: None,
            tools: BTreeMap::from([("fio".to_owned(), "3.33".to_owned())]),
        },
        phases: vec![
            phase("", COMPUTE_ONLY, 0, 0.0, 1000.0),
            phase("pulse", ALONE, 0, 9000.0, 0.0),
            phase("pulse", SOLO, 0, 8000.0, 900.0),
            phase("disk", SOLO, 0, 20000.0, 800.0),
            phase("pulse", "vanilla", 0, 4000.0, 450.0),
            phase("pulse", "ours", 0, 5400.0, 432.5),
            phase("pulse", "vanilla", 1, 3000.0, 450.0),
            phase("pulse", "ours", 1, 6000.0, 432.5),
            phase("disk", "vanilla", 0, 6000.0, 400.0),
            phase("disk", "ours", 0, 7200.0, 400.0),
            phase("pulse", SOLO, 1, 8000.0, 900.0),
            phase("disk", SOLO, 1, 17000.0, 800.0),
        ],
        warnings: vec!["one guest was lost".to_owned()],
        lab: None,
    }
}

/// Two seconds of one thread.
fn time_of(arm: &str) -> IoTime {
    let ms = |vanilla, ours| Ns::from_ms(if arm == "ours" { ours } else { vanilla });
    IoTime {
        threads: 1,
        running: ms(100, 150),
        device: ms(800, 1100),
        pending: ms(700, 300),
        queued: ms(200, 350),
        queued_off: ms(100, 60),
        current_off: ms(100, 40),
        asleep: Ns::ZERO,
        by_vcpu: Vec::new(),
    }
}

/// Pushed at 7.5 ms from vCPU 0, which is off from 8 to 14 ms, to vCPU 1.
fn timeline() -> Timeline {
    let ms = Ns::from_ms;
    Timeline {
        from: Ns::ZERO,
        length: ms(20),
        vcpus: vec![
            VcpuTrack {
                id: 0,
                gaps: vec![(ms(8), ms(14))],
                halts: Vec::new(),
            },
            VcpuTrack {
                id: 1,
                gaps: vec![(ms(0), ms(3)), (ms(15), ms(20))],
                halts: Vec::new(),
            },
        ],
        tasks: vec![TaskTrack {
            tid: 4711,
            name: "pulse-<0>".to_owned(),
            spells: "R0:1000000 D0:5000000 Q0:1000000 R1:3000000 D1:5000000 P1:2000000 O1:2000000 C1:1000000"
                .parse()
                .unwrap(),
        }],
        moves: vec![MoveMark {
            at: Ns::from_us(7500),
            cost: Ns::from_us(600),
            tid: 4711,
            to: 1,
            why: "push".to_owned(),
        }],
    }
}

#[test]
fn where_time_goes_is_the_mean_of_the_rounds() {
    let analysis = analyse(&fixture());
    let shares = analysis.loads[0].rows[1].io_time.unwrap();
    let of = |state| shares[TaskState::ALL.iter().position(|s| *s == state).unwrap()];
    assert!((of(TaskState::Pending) - 0.15).abs() < 1e-12);
    assert!((of(TaskState::Device) - 0.55).abs() < 1e-12);
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(analysis.loads[1].rows[1].io_time, None, "nobody looked");
}

#[test]
fn a_phase_in_which_something_died_is_counted_and_left_out() {
    let mut result = fixture();
    let dead = result
        .phases
        .iter_mut()
        .find(|p| p.load == "pulse" && p.arm == "ours")
        .unwrap();
    dead.liveness = vec![Liveness {
        who: "guest 2".to_owned(),
        alive: false,
        per_s: 0.0,
    }];
    let row = &analyse(&result).loads[0].rows[1];
    assert_eq!((row.rounds, row.lost), (1, 1));
    assert!((row.vs_vanilla.unwrap().centre - 2.0).abs() < 1e-12);
}

#[test]
fn an_arm_that_is_always_later_gets_the_drift_on_top() {
    let mut result = fixture();
    // Vanilla falls from 4000 to 3000 within 10 s; ours is 2 s later each time.
    for phase in result.phases.iter_mut().filter(|p| p.load == "pulse") {
        let round = Ns::from_secs(10) * u64::from(phase.round);
        phase.at = round
            + if phase.arm == "ours" {
                Ns::from_secs(2)
            } else {
                Ns::ZERO
            };
    }
    let table = &analyse(&result).loads[0];
    let bias = table.rows[1].drift_bias.unwrap();
    assert!((bias - (0.75f64.powf(0.2) - 1.0)).abs() < 1e-9, "{bias}");
    assert_eq!(table.rows[0].drift_bias, None);
    let trend = table.drifts[0].trend;
    assert!((trend.change + 0.25).abs() < 1e-9);
    assert!(!trend.is_drift(), "two rounds cannot tell");
}

#[test]
fn what_a_later_boot_measured_was_later_though_its_clock_begins_anew() {
    let mut result = fixture();
    // Vanilla falls from 4000 at 10 s of the first boot to 3000 at 5 s of the second.
    for phase in result.phases.iter_mut().filter(|p| p.load == "pulse") {
        phase.boot = 1 + phase.round;
        phase.at = Ns::from_secs(10 - 5 * u64::from(phase.round));
    }
    let trend = analyse(&result).loads[0].drifts[0].trend;
    assert!((trend.change + 0.25).abs() < 1e-9, "{trend:?}");
    // The first boot ends with its last window, of 2 s: 7 s lie between.
    assert!((trend.per_s - 0.75f64.ln() / 7.0).abs() < 1e-9, "{trend:?}");
}

#[test]
fn a_row_holds_what_the_phases_say() {
    let analysis = analyse(&fixture());
    let pulse = &analysis.loads[0];
    assert_eq!(pulse.baseline.completion, Completion::FollowsSubmitter);
    assert_eq!(pulse.baseline.alone, Some(9000.0));
    assert_eq!(pulse.baseline.drift, Some(0.0));
    let [vanilla, ours] = &pulse.rows[..] else {
        panic!("{:?}", pulse.rows)
    };
    assert_eq!(
        vanilla.vs_vanilla, None,
        "vanilla is not compared with itself"
    );
    // 4000 and 3000 of 8000 * 0.75.
    assert!((vanilla.vs_bound.unwrap().median - 3500.0 / 6000.0).abs() < 1e-12);
    // sqrt(5400/4000 * 6000/3000)
    let ratio = ours.vs_vanilla.unwrap();
    assert_eq!(ratio.n, 2);
    assert!((ratio.centre - (1.35f64 * 2.0).sqrt()).abs() < 1e-12);
    assert_eq!(ours.inactivity, Some(0.25));
    assert_eq!(ours.moves_per_s, Some(90.0));
    assert_eq!(ours.p, Some(1.2));
    assert_eq!(ours.wakeups_per_s, Some(300.0));
    assert!((ours.daemon_cpu.unwrap() - 0.005).abs() < 1e-12);
    assert!((ours.daemon_stopped.unwrap() - 0.002).abs() < 1e-12);
}

#[test]
fn compute_at_equal_io_adds_the_cost_of_the_requests() {
    let analysis = analyse(&fixture());
    let ours = &analysis.loads[0].rows[1];
    // Round 0: (432.5 + 5400 * 0.0125) / (450 + 4000 * 0.0125) = 500 / 500;
    // round 1: (432.5 + 6000 * 0.0125) / (450 + 3000 * 0.0125) = 507.5 / 487.5.
    let expected = (507.5f64 / 487.5).sqrt();
    assert!((ours.compute_at_equal_io.unwrap().centre - expected).abs() < 1e-12);
    assert!((ours.compute.unwrap().centre - 432.5 / 450.0).abs() < 1e-12);
}

#[test]
fn a_one_queue_disk_is_bound_by_its_completion_cpu() {
    let analysis = analyse(&fixture());
    let disk = &analysis.loads[1];
    assert_eq!(disk.baseline.completion, Completion::OneCpu(1));
    // Solo is the median of 20000 and 17000, CPU 1 was on for 0.4.
    assert!((disk.rows[1].vs_bound.unwrap().median - 7200.0 / (18500.0 * 0.4)).abs() < 1e-12);
    assert!(disk.baseline.drifted(), "20000 to 17000 is more than 10 %");
    assert!(!analysis.loads[0].baseline.drifted());
}

#[test]
fn pools_are_kept_apart_by_completion_path() {
    let analysis = analyse(&fixture());
    let of = |follows, arm: &str| {
        analysis
            .pooled
            .iter()
            .find(|p| p.follows_submitter == follows && p.arm == arm)
            .unwrap()
    };
    assert_eq!(of(true, "ours").vs_vanilla.unwrap().n, 2);
    assert!((of(false, "ours").vs_vanilla.unwrap().centre - 1.2).abs() < 1e-12);
}

/// The fixture on real VMs: two policies, each with and without the daemon.
pub(crate) fn under_two_policies() -> RunResult {
    let mut result = fixture();
    let scenario = &mut result.scenario;
    scenario.arms[1].host_policy = Some(HostPolicy::Fixed);
    let mut other = scenario.arms.clone();
    for arm in &mut other {
        arm.name = format!("{}-c2", arm.name);
        arm.host_policy = Some(HostPolicy::Credit2);
    }
    scenario.arms.extend(other);
    let phases = std::mem::take(&mut result.phases);
    for phase in phases {
        let shared = phase.vms_per_pcpu > 1;
        result.phases.push(phase.clone());
        if shared {
            let mut phase = phase;
            phase.arm = format!("{}-c2", phase.arm);
            // Twice as much, and the daemon makes it half of that.
            let by = if phase.arm == "ours-c2" { 1.0 } else { 2.0 };
            phase.io.as_mut().unwrap().ops_per_s *= by;
            result.phases.push(phase);
        }
    }
    result
}

#[test]
fn an_arm_is_compared_with_the_one_that_does_nothing_under_its_host_policy() {
    let result = under_two_policies();
    let of = |arm| reference_of(&result.scenario, arm);
    assert_eq!(of("ours"), Some("vanilla"));
    assert_eq!(of("ours-c2"), Some("vanilla-c2"));
    assert_eq!(of("vanilla-c2"), Some("vanilla-c2"));
    let rows = &analyse(&result).loads[0].rows;
    let gain = |arm| rows.iter().find(|row| row.arm == arm).unwrap().vs_vanilla;
    let ours = gain("ours").unwrap().centre;
    assert!((gain("ours-c2").unwrap().centre - ours / 2.0).abs() < 1e-12);
    assert_eq!(
        gain("vanilla-c2"),
        None,
        "policies have a table of their own"
    );
    // A policy of which nothing is there to compare with.
    let mut alone = result;
    alone.scenario.arms.retain(|arm| arm.name != "vanilla-c2");
    assert_eq!(reference_of(&alone.scenario, "ours-c2"), None);
}

#[test]
fn phases_of_two_boots_are_no_pair() {
    let mut result = fixture();
    let mut phases = result.phases.iter_mut();
    let second = phases.find(|p| p.load == "pulse" && p.arm == "ours" && p.round == 1);
    second.unwrap().boot = 2;
    let row = &analyse(&result).loads[0].rows[1];
    assert_eq!((row.rounds, row.vs_vanilla.unwrap().n), (2, 1));
    assert!((row.vs_vanilla.unwrap().centre - 1.35).abs() < 1e-12);
}

#[test]
fn near_is_where_all_completions_arrive_and_only_there() {
    let mut result = fixture();
    let disk = result.phases.iter_mut().filter(|p| p.load == "disk");
    for phase in disk.filter(|p| p.arm == "vanilla") {
        phase.io_time = Some(IoTime {
            by_vcpu: vec![Ns::from_ms(1500), Ns::from_ms(500)],
            ..time_of("vanilla")
        });
    }
    let near = |load: &str, arm: &str| {
        let analysis = analyse(&result);
        let table = analysis.loads.iter().find(|table| table.load == load);
        let row = table.unwrap().rows.iter().find(|row| row.arm == arm);
        row.unwrap().near.map(|near| near.median)
    };
    assert_eq!(near("disk", "vanilla"), Some(0.25));
    assert_eq!(near("disk", "ours"), None, "nobody recorded it");
    assert_eq!(near("pulse", "vanilla"), None, "completions follow");
    let text = crate::report::text(&result);
    assert!(
        text.contains("25 [25..25] %") && text.contains("near  "),
        "{text}"
    );
}
