// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator beside reality: what the freezer gave is what it must give.

use std::path::Path;

use experiment::result::Phase;
use experiment::result::RunResult;
use experiment::result::TaskState;
use experiment::scenario::Arm;
use experiment::scenario::ArmKind;
use experiment::scenario::Baselines;
use experiment::scenario::Measured;
use experiment::scenario::Part;
use experiment::scenario::Scenario;
use units::Ns;
use vlab::sim::rate;
use vlab::sim::simulate;
use vlab::sim::simulate_with;

/// How far a simulated rate may be from a measured median.
const TOLERANCE: f64 = 0.10;
/// With the daemon the simulator is nearer to the bound than reality, the more VMs and
/// not the same on each day: known misses, see docs/check-freezer.md. They may not grow.
fn known_miss(arm: &str, vms: u32, source: &str) -> f64 {
    match (arm, vms, source) {
        ("vmigrater", 4, "2026-11-22") => 0.15,
        ("vmigrater", 8, "2026-11-22") => 0.40,
        ("vmigrater", 4, "2026-11-23") => 0.20,
        (_, 8, "2026-11-23") => 0.25,
        _ => TOLERANCE,
    }
}

/// Rounds begin at different phases of the host's slices, and one of 4 s with 8 VMs
/// scatters by a quarter: so many, that the simulator's own scatter is no part of what is
/// compared.
const ROUNDS: u32 = 40;

fn scenario(name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(name);
    Scenario::load(&path).expect("a scenario of this project")
}

/// What is simulated of a measured rate, and how far that is from it: 0.1 is a tenth above.
fn beside(result: &RunResult, row: &Measured) -> (f64, f64) {
    let simulated = rate(result, &row.load, &row.arm, row.vms_per_pcpu);
    let simulated = simulated.expect("every measured phase is simulated");
    (simulated, simulated / row.ops_per_s - 1.0)
}

/// The day of which ratios are compared: [`ratios_to_solo_are_within_what_was_measured`].
const BY_RATIO: &str = "2026-11-24";

#[test]
fn the_simulator_is_within_ten_percent_of_the_freezer_but_for_known_misses() {
    let mut scenario = scenario("check-freezer.toml");
    scenario.measure.rounds = ROUNDS;
    scenario.measured.retain(|row| row.source != BY_RATIO);
    let measured = scenario.measured.clone();
    let is_measured = |arm: &str| measured.iter().any(|row| row.arm == arm);
    scenario.arms.retain(|arm| is_measured(&arm.name));
    scenario.loads.retain(|load| load.name == "pulse-qd1");
    let (result, _) = simulate(&scenario).unwrap();
    assert!(
        scenario.measured.len() >= 14,
        "there is something to compare"
    );
    let mut misses = Vec::new();
    for measured in &scenario.measured {
        let (simulated, error) = beside(&result, measured);
        println!(
            "{} {} {}: {:.0} measured, {simulated:.0} simulated, {:+.1} %",
            measured.load,
            measured.vms_per_pcpu,
            measured.arm,
            measured.ops_per_s,
            error * 100.0
        );
        let tolerance = match measured.arm.as_str() {
            "solo" | "vanilla" => TOLERANCE,
            arm => known_miss(arm, measured.vms_per_pcpu, &measured.source),
        };
        if error.abs() > tolerance {
            misses.push((measured, simulated));
        }
    }
    assert!(misses.is_empty(), "{misses:#?}");
}

/// On another bed, whose CPUs are nearly twice as fast: their speed and how late timers are
/// are set from what was measured without sharing at depth 1, and nothing else.
#[test]
fn on_faster_cpus_rates_are_within_ten_percent() {
    let mut scenario = scenario("check-freezer-faster.toml");
    scenario.measure.rounds = ROUNDS;
    let (result, _) = simulate(&scenario).unwrap();
    let mut wrong = Vec::new();
    for row in &scenario.measured {
        let (simulated, error) = beside(&result, row);
        println!(
            "| {} | {} | {} | {:.0} [{:.0}..{:.0}] | {simulated:.0} | {:+.1} % |",
            row.load,
            row.vms_per_pcpu,
            row.arm,
            row.ops_per_s,
            row.low.unwrap_or_default(),
            row.high.unwrap_or_default(),
            error * 100.0
        );
        if error.abs() > TOLERANCE {
            wrong.push((row, simulated));
        }
    }
    assert_eq!(scenario.measured.len(), 32);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// How far out of the measured range, widened by [`TOLERANCE`], a ratio is: 0 inside,
/// 0.1 if it is a tenth above its upper end, -0.1 below its lower one.
fn out_of_range(ratio: f64, low: f64, high: f64) -> f64 {
    let (low, high) = (low * (1.0 - TOLERANCE), high * (1.0 + TOLERANCE));
    (ratio / high - 1.0).max(0.0) + (ratio / low - 1.0).min(0.0)
}

/// Rounds of the comparison of ratios: with five, as measured, one bad round is a fifth.
const RATIO_ROUNDS: u32 = 10;

/// Simulated rates against that without sharing, and the same measured on 2026-11-24:
/// none is out of the range of its five rounds, widened by a tenth.
fn ratios_to_solo(file: &str) {
    let mut scenario = scenario(file);
    scenario.measure.rounds = RATIO_ROUNDS;
    scenario.measure.baselines = Baselines::Solo;
    scenario.measured.retain(|row| row.source == BY_RATIO);
    let measured = scenario.measured.clone();
    let is_measured = |arm: &str| measured.iter().any(|row| row.arm == arm);
    scenario.arms.retain(|arm| is_measured(&arm.name));
    let (result, _) = simulate(&scenario).expect("the simulator has all of it");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for row in measured.iter().filter(|row| row.arm != "solo") {
        let solo = measured
            .iter()
            .find(|solo| (&solo.load, solo.arm.as_str()) == (&row.load, "solo"));
        let solo = solo
            .expect("each load is measured without sharing")
            .ops_per_s;
        let of = |arm: &str, vms| rate(&result, &row.load, arm, vms).expect("it is simulated");
        let ratio = of(&row.arm, row.vms_per_pcpu) / of("solo", 1);
        let range = row.low.zip(row.high).expect("several rounds were measured");
        let (low, high) = (range.0 / solo, range.1 / solo);
        let out = out_of_range(ratio, low, high);
        println!(
            "| {} | {} | {} | {:.3} [{low:.3}..{high:.3}] | {ratio:.3} | {:+.0} % |",
            row.load,
            row.vms_per_pcpu,
            row.arm,
            row.ops_per_s / solo,
            out * 100.0
        );
        if out != 0.0 {
            wrong.push((row, ratio, out));
        }
        compared += 1;
    }
    assert_eq!(compared, 24, "two loads, three numbers of VMs, four arms");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn ratios_to_solo_are_within_what_was_measured() {
    ratios_to_solo("check-freezer.toml");
}

/// All completions on one vCPU.
#[test]
fn ratios_to_solo_are_within_what_was_measured_on_a_disk_with_one_queue() {
    ratios_to_solo("check-freezer-disk.toml");
}

/// Mean of rates and its standard error.
fn mean(rates: &[f64]) -> (f64, f64) {
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

/// Rounds of one configuration.
fn rounds<'a>(result: &'a RunResult, row: &'a Measured) -> impl Iterator<Item = &'a Phase> {
    result.phases.iter().filter(|phase| {
        (&phase.load, &phase.arm, phase.vms_per_pcpu) == (&row.load, &row.arm, row.vms_per_pcpu)
    })
}

/// Their rates.
fn rates(result: &RunResult, row: &Measured) -> Vec<f64> {
    let rates = rounds(result, row).map(|phase| phase.io.as_ref().map(|io| io.ops_per_s));
    rates.flatten().collect()
}

/// A result of this project.
fn result(name: &str) -> RunResult {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    RunResult::load(&path.join(name)).expect("a result of this project")
}

/// A rate of [`means`]: measured, with its standard error, and simulated.
struct Means {
    row: Measured,
    real: f64,
    se: f64,
    simulated: f64,
}

impl Means {
    /// Of measured rounds and the mean of simulated ones; printed as a row of a table.
    fn of(row: &Measured, measured: &[f64], simulated: f64) -> Self {
        let (real, se) = mean(measured);
        let means = Self {
            row: row.clone(),
            real,
            se,
            simulated,
        };
        println!(
            "| {} | {} | {} | {real:.0} ± {se:.0} | {simulated:.0} | {:+.0} % |",
            row.load,
            row.vms_per_pcpu,
            row.arm,
            means.error() * 100.0
        );
        means
    }

    /// Within a tenth, or within two standard errors?
    fn is_within(&self) -> bool {
        self.error().abs() <= TOLERANCE.max(2.0 * self.se / self.real)
    }

    /// 0.1: simulated is a tenth above.
    fn error(&self) -> f64 {
        self.simulated / self.real - 1.0
    }
}

/// Rounds on a disk with one queue are of two kinds, so that means are compared, not medians:
/// those of all rounds of these results with simulated ones of this scenario.
fn means(file: &str, results: &[&str]) -> Vec<Means> {
    let mut scenario = scenario(file);
    scenario.measure.rounds = ROUNDS;
    let (simulated, _) = simulate(&scenario).expect("the simulator has all of it");
    let results: Vec<RunResult> = results.iter().map(|name| result(name)).collect();
    let beside = |row: &Measured| {
        let measured: Vec<f64> = results.iter().flat_map(|r| rates(r, row)).collect();
        let (simulated, _) = mean(&rates(&simulated, row));
        Means::of(row, &measured, simulated)
    };
    scenario.measured.iter().map(beside).collect()
}

/// The same where the measured rounds say on which vCPU the readers were, and for how long:
/// of a simulated reader that is where its completions arrive all the time, and one that
/// never is, as much of each.
fn means_by_place(file: &str, measured: &str) -> Vec<Means> {
    let mut scenario = scenario(file);
    scenario.measure.rounds = ROUNDS / 2;
    let arrives = scenario.sim.as_ref().and_then(|sim| sim.completion_vcpu);
    let arrives = arrives.expect("all completions arrive on one vCPU") as usize;
    let mut beginning = |elsewhere_permille| {
        let sim = scenario.sim.as_mut().expect("it is simulated");
        sim.io_elsewhere_permille = elsewhere_permille;
        simulate(&scenario).expect("the simulator has all of it").0
    };
    let (here, elsewhere) = (beginning(0), beginning(1000));
    let measured = result(measured);
    let beside = |row: &Measured| {
        let share = |phase: &Phase| {
            let time = phase.io_time.as_ref()?;
            time.share_on(arrives)
        };
        let shares: Vec<f64> = rounds(&measured, row).filter_map(share).collect();
        let real = rates(&measured, row);
        assert_eq!(shares.len(), real.len(), "each round says where: {row:?}");
        let (share, _) = mean(&shares);
        let at = |result: &RunResult| mean(&rates(result, row)).0;
        let simulated = share * at(&here) + (1.0 - share) * at(&elsewhere);
        print!("| {:.0} % ", share * 100.0);
        Means::of(row, &real, simulated)
    };
    scenario.measured.iter().map(beside).collect()
}

/// All completions on one vCPU, both days on the faster bed: a simulated mean is within a tenth
/// of the measured one or within two of its standard errors. Known misses: the published
/// profile with 8 VMs and vanilla with 4 at depth 8 (docs/check-freezer.md).
#[test]
fn on_a_disk_with_one_queue_means_are_as_measured_but_for_known_misses() {
    let days = [
        "check-freezer-disk-2026-11-27.json",
        "check-freezer-disk-2026-11-28.json",
    ];
    let all = means("check-freezer-disk-faster.toml", &days);
    assert_eq!(all.len(), 26);
    for m in &all {
        let known = match (m.row.load.as_str(), m.row.arm.as_str(), m.row.vms_per_pcpu) {
            ("randread-qd1", "published", 8) => 0.28,
            ("randread-qd8", "published", 8) => 0.18,
            ("randread-qd8", "vanilla", 4) => 0.35,
            (_, "solo", _) => 0.18,
            _ => TOLERANCE.max(2.0 * m.se / m.real),
        };
        assert!(m.error().abs() <= known, "{:?}: {}", m.row, m.simulated);
    }
}

/// The same on a machine whose kernel takes twice as long for a request, where heartbeats take
/// 45 us each: the published profile comes out with all numbers of VMs and at both depths. Of
/// all rates under sharing 15 of 24 do, and not fewer; others go by where readers begin
/// (docs/check-freezer.md).
#[test]
fn what_heartbeats_take_is_what_the_published_profile_lacks() {
    let days = ["check-freezer-disk-2026-11-29.json"];
    let all = means("check-freezer-disk-slower.toml", &days);
    assert_eq!(all.len(), 26);
    let published = |m: &&Means| m.row.arm == "published";
    assert_eq!(all.iter().filter(published).count(), 6);
    for m in all.iter().filter(published) {
        assert!(m.error().abs() <= TOLERANCE, "{:?}: {}", m.row, m.simulated);
    }
    let shared = all.iter().filter(|m| m.row.arm != "solo");
    assert!(shared.filter(|m| m.is_within()).count() >= 15);
}

/// A third day on a machine as the faster bed, with every setting of that one: where readers were
/// is measured as well, and what they get there is predicted. What vanilla and SCHED_FIFO get,
/// which is decided by that, all comes out within a tenth. Known misses: the published profile,
/// which loses more moves than a simulated one, our daemon with 8 VMs at depth 8, and the rate
/// without sharing at depth 8 (docs/check-freezer.md).
#[test]
fn where_readers_were_being_known_means_are_as_measured() {
    let all = means_by_place(
        "check-freezer-disk-faster.toml",
        "check-freezer-disk-2026-11-29b.json",
    );
    assert_eq!(all.len(), 26);
    for m in &all {
        let most = match (m.row.load.as_str(), m.row.arm.as_str(), m.row.vms_per_pcpu) {
            ("randread-qd1", "published", 8) => 0.28,
            (_, "published", _) | ("randread-qd8", "vmigrater" | "solo", 1 | 8) => 0.14,
            ("randread-qd1", "solo", _) => TOLERANCE.max(2.0 * m.se / m.real),
            _ => TOLERANCE,
        };
        assert!(m.error().abs() <= most, "{:?}: {}", m.row, m.simulated);
    }
    let shared = all.iter().filter(|m| m.row.arm != "solo");
    assert!(shared.filter(|m| m.is_within()).count() >= 19);
}

/// Beside compute on each vCPU a reader stays on the one on which it began, and either all its
/// completions arrive there or none. Measured with SCHED_FIFO and 4 VMs, eight rounds, of which
/// three have 943 to 1269 requests/s and five 5818 to 6591.
#[test]
fn where_a_reader_begins_decides_what_it_gets_of_a_disk_with_one_queue() {
    let mut scenario = scenario("check-freezer-disk-faster.toml");
    scenario.measure.rounds = 6;
    let sim = scenario.sim.as_mut().expect("it is simulated");
    sim.io_elsewhere_permille = 500;
    scenario.sharing.vms_per_pcpu = vec![4];
    scenario.loads.retain(|load| load.name == "randread-qd1");
    scenario.arms.retain(|arm| arm.name == "fifo");
    let (result, _) = simulate(&scenario).expect("the simulator has all of it");
    let phases = result.phases.iter().filter(|phase| phase.arm == "fifo");
    let rates: Vec<f64> = phases
        .map(|phase| phase.io.as_ref().expect("it reads").ops_per_s)
        .collect();
    println!("{rates:?}");
    assert_eq!(rates.len(), 6);
    for pair in rates.chunks(2) {
        assert!(out_of_range(pair[0], 5818.0, 6591.0) == 0.0, "{rates:?}");
        assert!(out_of_range(pair[1], 943.0, 1269.0) == 0.0, "{rates:?}");
    }
}

/// What prices and times of several requests in flight are set from: eight without sharing
/// against one, and nothing else.
#[test]
fn depth_eight_without_sharing_is_as_many_times_depth_one_as_measured() {
    for (file, one, eight) in [
        ("check-freezer.toml", "pulse-qd1", "pulse-qd8"),
        ("check-freezer-disk.toml", "randread-qd1", "randread-qd8"),
    ] {
        let mut scenario = scenario(file);
        scenario.measure.rounds = RATIO_ROUNDS;
        scenario.measure.baselines = Baselines::Solo;
        scenario.sharing.vms_per_pcpu = vec![2];
        scenario.arms.retain(|arm| arm.name == "vanilla");
        let (result, _) = simulate(&scenario).expect("the simulator has all of it");
        let simulated = |load: &str| rate(&result, load, "solo", 1).expect("it is simulated");
        let measured = |load: &str| {
            let mut rows = scenario.measured.iter();
            let row = rows.find(|row| {
                (row.load.as_str(), row.arm.as_str(), row.source.as_str())
                    == (load, "solo", BY_RATIO)
            });
            row.expect("it was measured").ops_per_s
        };
        let (ours, real) = (
            simulated(eight) / simulated(one),
            measured(eight) / measured(one),
        );
        println!("{eight}: {ours:.3} simulated, {real:.3} measured");
        assert!((ours / real - 1.0).abs() < 0.02, "{ours} {real}");
    }
}

/// Two compute threads on each vCPU: a queue of three, in which the lag that a task may
/// keep decides. With 4 VMs the reader is all but starved, measured (96, 121 and 173 in
/// three rounds) and simulated, where rounds are from 88 to 351: three of them do not fix a
/// median.
#[test]
fn beside_two_compute_threads_vanilla_is_within_a_fifth() {
    let mut scenario = scenario("co-runners.toml");
    scenario.arms.retain(|arm| arm.name == "vanilla");
    scenario.measure.rounds = ROUNDS;
    let (result, _) = simulate(&scenario).unwrap();
    let simulated = |arm: &str, vms| rate(&result, "pulse-qd1", arm, vms).unwrap();
    let mut compared = 0;
    for measured in scenario.measured.iter().filter(|m| m.vms_per_pcpu < 4) {
        let error = simulated(&measured.arm, measured.vms_per_pcpu) / measured.ops_per_s - 1.0;
        println!("{} {error:+.3}", measured.arm);
        assert!(error.abs() < 0.2, "{}: {error:+.3}", measured.arm);
        compared += 1;
    }
    assert_eq!(compared, 3);
    let starved = simulated("vanilla", 4) / simulated("solo", 1);
    assert!(starved < 0.05, "a fifth of its quarter at most: {starved}");
}

/// Who waits on a vCPU when it comes back goes on after the kernel has caught up and the
/// daemon's monitor has looked: measured after 204 to 336 us (docs/results/demo.json, 22
/// returns with 2, 4 and 8 VMs, median 277, three of them out of that).
#[test]
fn after_a_gap_the_monitor_comes_first() {
    let mut scenario = scenario("check-freezer.toml");
    scenario.measure.rounds = 1;
    scenario.arms.retain(|arm| arm.name == "vmigrater");
    let (result, _) = simulate_with(&scenario, Ns::from_secs(4)).unwrap();
    for vms in [2, 4, 8] {
        let mut phases = result.phases.iter();
        let phase = phases.find(|p| p.arm == "vmigrater" && p.vms_per_pcpu == vms);
        let timeline = phase.and_then(|p| p.timeline.as_ref()).unwrap();
        let spells = timeline.tasks[0].spells.0.as_slice();
        let returns = spells.windows(2).filter(|pair| {
            (pair[0].state, pair[1].state) == (TaskState::QueuedOff, TaskState::Queued)
        });
        let mut waits: Vec<Ns> = returns.map(|pair| pair[1].length).collect();
        waits.sort_unstable();
        assert!(waits.len() > 20, "{vms}: {waits:?}");
        let median = waits[waits.len() / 2];
        let measured = Ns::from_us(204)..=Ns::from_us(336);
        assert!(measured.contains(&median), "{vms} VMs: {median}");
    }
}

/// Bursts with pauses on a disk of one queue (docs/results/pauses.json, 2 VMs). Those of
/// 50 ms come out as measured, and in none is the daemon harmful, also beside one that
/// only watches, since it moves nobody out of his sleep. Bursts of 5 ms come out too high: docs/check-freezer.md.
#[test]
fn bursts_with_pauses() {
    let mut scenario = scenario("pauses.toml");
    scenario.sharing.vms_per_pcpu = vec![2];
    scenario
        .arms
        .retain(|arm| ["vanilla", "vmigrater"].contains(&arm.name.as_str()));
    scenario.arms.push(Arm {
        name: "watches".to_owned(),
        kind: ArmKind::Vmigrater {
            dry_run: false,
            profile: None,
            without: Part::ALL.to_vec(),
            config: None,
        },
        rounds: None,
        host_policy: None,
    });
    scenario.measure.rounds = ROUNDS;
    let (result, _) = simulate(&scenario).unwrap();
    let rate = |load: &str, arm: &str| rate(&result, load, arm, 2).unwrap();
    for load in &scenario.loads {
        for beside in ["watches", "vanilla"] {
            let ratio = rate(&load.name, "vmigrater") / rate(&load.name, beside);
            println!("{} {beside} {ratio:.3}", load.name);
            assert!(ratio > 0.95, "{} beside {beside}: {ratio}", load.name);
        }
    }
    let mut compared = 0;
    let of = |m: &&experiment::scenario::Measured| {
        m.load == "burst-50-pause-150" && m.vms_per_pcpu == 2 && m.source.ends_with("24b.json")
    };
    for measured in scenario.measured.iter().filter(of) {
        let error = rate(&measured.load, &measured.arm) / measured.ops_per_s - 1.0;
        println!("{} {error:+.3}", measured.arm);
        // A known miss, +0.103, of 16 rounds that scatter by a third.
        let bound = match measured.arm.as_str() {
            "vmigrater" => 0.11,
            _ => TOLERANCE,
        };
        assert!(error.abs() < bound, "{}: {error:+.3}", measured.arm);
        compared += 1;
    }
    assert_eq!(compared, 2);
}

#[test]
fn a_scenario_gives_the_same_bytes_every_time() {
    let mut scenario = scenario("check-freezer.toml");
    scenario.measure.rounds = 1;
    let json = |(result, events): (experiment::result::RunResult, u64)| {
        (result.to_json().unwrap(), events)
    };
    let first = json(simulate(&scenario).unwrap());
    assert_eq!(first, json(simulate(&scenario).unwrap()));
}

fn with_arm(kind: ArmKind) -> Scenario {
    let mut scenario = scenario("check-freezer.toml");
    scenario.measure.rounds = 1;
    scenario.sharing.vms_per_pcpu = vec![2];
    scenario.arms.push(Arm {
        name: "other".to_owned(),
        kind,
        rounds: None,
        host_policy: None,
    });
    scenario
}

#[test]
fn arms_that_cannot_be_simulated_are_refused_by_name() {
    let xballoon = ArmKind::Xballoon {
        config: Some("other.toml".into()),
    };
    let of_a_command = ArmKind::Command {
        command: vec!["chrt".to_owned()],
    };
    let configured = |config: &str| ArmKind::Vmigrater {
        dry_run: false,
        profile: None,
        without: Vec::new(),
        config: Some(config.to_owned()),
    };
    for (kind, part) in [
        (xballoon, "configuration file"),
        (of_a_command, "no commands"),
        (configured("placement.pull = false"), "placement"),
        (configured("iobound.leave_windows = 2"), "leave_windows"),
        (configured("iobound.leave = 0.2"), "is no percentage"),
        (configured("iobound.enter = '0 %'"), "from \"0.1 %\""),
        (configured("iobound.leave = '40 %'"), "above iobound.enter"),
        (configured("iobound.idle = 50"), "is no time"),
        (
            configured("placement.back_overdue_after = 'ever'"),
            "is no time",
        ),
    ] {
        let error = simulate(&with_arm(kind)).unwrap_err().to_string();
        assert!(
            error.contains("arm other") && error.contains(part),
            "{error}"
        );
    }
}

/// Mode xballoon of the daemon, simulated as the freezer shows it beside two compute
/// threads, whose slices end by the clock: no moves (XB5), compute pays for what I/O gains
/// (XB4; measured 0.91 for 1.52 times the requests), and one may compare it with vMigrater.
#[test]
fn xballoon_is_an_arm_like_any_other() {
    let mut scenario = scenario("co-runners.toml");
    let compared = ["vanilla", "vmigrater", "xballoon"];
    scenario
        .arms
        .retain(|arm| compared.contains(&arm.name.as_str()));
    scenario.sharing.vms_per_pcpu = vec![2];
    let (result, _) = simulate(&scenario).unwrap();
    let load = "pulse-qd1";
    let phase = |arm: &str| {
        let mut phases = result.phases.iter();
        let of = phases.find(|p| p.load == load && p.arm == arm && p.vms_per_pcpu == 2);
        of.expect("every arm is simulated")
    };
    let (vanilla, xballoon) = (phase("vanilla"), phase("xballoon"));
    let compute = |phase: &experiment::result::Phase| phase.compute_per_s.iter().sum::<f64>();
    let rate = |arm: &str| rate(&result, load, arm, 2).unwrap();
    println!(
        "vanilla {:.0}, xballoon {:.0}, vmigrater {:.0}; compute {:.3}",
        rate("vanilla"),
        rate("xballoon"),
        rate("vmigrater"),
        compute(xballoon) / compute(vanilla)
    );
    assert!(rate("xballoon") > 1.3 * rate("vanilla"));
    assert!(rate("vmigrater") > 1.3 * rate("xballoon"));
    assert!(compute(xballoon) < 0.95 * compute(vanilla));
    let daemon = xballoon.daemon.as_ref().unwrap();
    assert_eq!(daemon.n_migrate, 0);
    assert!(daemon.wakeups > 0);
    // Away by the clock, idle or not: half of the time, of both vCPUs.
    for on in &xballoon.host.on_share {
        assert!((on - 0.5).abs() < 0.02, "{on}");
    }
}

/// The slices of VMs that are not simulated mean nothing to a policy that chooses
/// between vCPUs: that must not look like a result.
#[test]
fn phantoms_are_refused_beside_a_policy_that_chooses() {
    let mut scenario = scenario("check-freezer.toml");
    scenario.sim.get_or_insert_default().host = "credit1".to_owned();
    let error = simulate(&scenario).unwrap_err().to_string();
    for part in ["sim.others", "phantom", "credit1", "same"] {
        assert!(error.contains(part), "{error}");
    }
}
