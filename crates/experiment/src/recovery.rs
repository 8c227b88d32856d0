// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a change of load does to the throughput, and how long it takes until it
//! is steady again (V25, Fig 14). Pure.
//!
//! Each arrival of threads begins a step, which lasts until the next one or the
//! end of the window. The level of a step is the median rate of its second half.
//! It has recovered when the rate, averaged over [`SMOOTH`] pieces, first comes
//! within [`NEAR`] of that level and stays there for as long again. Limits: a
//! step in whose second half the throughput still changes has a level that means
//! little, and times are as exact as a piece is long.

use units::Ns;

use crate::result::Phase;
use crate::result::RunResult;
use crate::result::Series;
use crate::scenario::Arrival;
use crate::scenario::LoadKind;
use crate::scenario::Scenario;
use crate::stats::Summary;
use crate::stats::quantile;
use crate::stats::summarise;

/// Pieces of a series that are averaged before they are compared: one alone
/// shows where in the sharing's cycle it fell.
pub const SMOOTH: usize = 3;

/// A rate of at least this share of the level counts as recovered.
pub const NEAR: f64 = 0.9;

/// One change of load within a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// When, after the window opened.
    pub at: Ns,
    /// Threads from then on.
    pub threads: u32,
    /// Requests per second before it: the level of the step before.
    pub before: f64,
    /// The lowest smoothed rate between the change and the recovery (or the end
    /// of the step).
    pub lowest: f64,
    /// Requests per second once it is steady.
    pub level: f64,
    /// From the change until it has recovered; `None` if it never does.
    pub recovery: Option<Ns>,
}

/// The same step of the same arm in all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// The arm, or a baseline.
    pub arm: String,
    /// VMs per pCPU.
    pub vms_per_pcpu: u32,
    /// When, after the window opened.
    pub at: Ns,
    /// Threads from then on.
    pub threads: u32,
    /// Requests per second before it.
    pub before: Summary,
    /// The lowest rate until it was steady again.
    pub lowest: Summary,
    /// Requests per second once it was.
    pub level: Summary,
    /// Seconds until then, of the rounds in which it became steady.
    pub recovery_s: Option<Summary>,
    /// Rounds in which it did not.
    pub never: usize,
}

/// All steps of a load, by number of VMs and arm in the order of measuring.
#[must_use]
pub fn rows(result: &RunResult, load: &str) -> Vec<StepRow> {
    let phases = || result.phases.iter().filter(|phase| phase.load == load);
    let mut groups: Vec<(u32, &str)> = Vec::new();
    for phase in phases() {
        let group = (phase.vms_per_pcpu, phase.arm.as_str());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.sort_by_key(|(vms, _)| *vms);
    let mut rows = Vec::new();
    for (vms, arm) in groups {
        let all: Vec<Vec<Step>> = phases()
            .filter(|phase| (phase.vms_per_pcpu, phase.arm.as_str()) == (vms, arm))
            .map(|phase| steps(phase, &result.scenario))
            .collect();
        let longest = all.iter().map(Vec::len).max().unwrap_or(0);
        for nth in 0..longest {
            let same: Vec<Step> = all
                .iter()
                .filter_map(|steps| steps.get(nth))
                .copied()
                .collect();
            rows.extend(row(arm, vms, &same));
        }
    }
    rows
}

fn row(arm: &str, vms_per_pcpu: u32, same: &[Step]) -> Option<StepRow> {
    let of = |value: fn(&Step) -> f64| summarise(&same.iter().map(value).collect::<Vec<f64>>());
    let recoveries: Vec<f64> = same
        .iter()
        .filter_map(|step| Some(step.recovery?.as_secs_f64()))
        .collect();
    Some(StepRow {
        arm: arm.to_owned(),
        vms_per_pcpu,
        at: same.first()?.at,
        threads: same.first()?.threads,
        before: of(|step| step.before)?,
        lowest: of(|step| step.lowest)?,
        level: of(|step| step.level)?,
        never: same.len() - recoveries.len(),
        recovery_s: summarise(&recoveries),
    })
}

/// The changes within one phase of this load; empty if it has none or was not
/// counted in pieces.
#[must_use]
pub fn steps(phase: &Phase, scenario: &Scenario) -> Vec<Step> {
    let load = scenario.loads.iter().find(|load| load.name == phase.load);
    let series = phase.io.as_ref().and_then(|io| io.series.as_ref());
    match (load.map(|load| &load.kind), series) {
        (
            Some(LoadKind::Pulse {
                threads, arrivals, ..
            }),
            Some(series),
        ) => steps_of(series, *threads, arrivals),
        _ => Vec::new(),
    }
}

/// The same on the bare series.
#[must_use]
pub fn steps_of(series: &Series, at_start: u32, arrivals: &[Arrival]) -> Vec<Step> {
    let seconds = series.bucket.0 as f64 / 1e9;
    if seconds <= 0.0 {
        return Vec::new();
    }
    let rates: Vec<f64> = series.ops.iter().map(|n| *n as f64 / seconds).collect();
    let index = |at: Ns| {
        let index = usize::try_from(at.0.div_ceil(series.bucket.0)).unwrap_or(usize::MAX);
        index.min(rates.len())
    };
    let ends: Vec<usize> = arrivals
        .iter()
        .skip(1)
        .map(|arrival| index(arrival.at))
        .chain([rates.len()])
        .collect();
    let mut before = arrivals
        .first()
        .map_or(0.0, |first| level(&rates[..index(first.at)]));
    let mut threads = at_start;
    let mut steps = Vec::new();
    for (arrival, end) in arrivals.iter().zip(ends) {
        threads += arrival.threads;
        let part = &rates[index(arrival.at).min(end)..end];
        let level = level(part);
        let smooth: Vec<f64> = part
            .windows(SMOOTH)
            .map(|few| few.iter().sum::<f64>() / SMOOTH as f64)
            .collect();
        let good = |rate: &f64| *rate >= NEAR * level;
        let recovered = (0..smooth.len()).find(|&i| {
            let stays = &smooth[i..(i + SMOOTH).min(smooth.len())];
            stays.len() == SMOOTH && stays.iter().all(good)
        });
        let until = recovered.map_or(smooth.len(), |i| i + 1);
        steps.push(Step {
            at: arrival.at,
            threads,
            before,
            lowest: smooth[..until]
                .iter()
                .copied()
                .fold(f64::INFINITY, f64::min),
            level,
            recovery: recovered.map(|i| series.bucket * i as u64),
        });
        before = level;
    }
    steps.retain(|step| step.lowest.is_finite());
    steps
}

/// The median of the second half.
fn level(rates: &[f64]) -> f64 {
    quantile(&rates[rates.len() / 2..], 0.5).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(ops: &[u64]) -> Series {
        Series {
            bucket: Ns::from_ms(100),
            ops: ops.to_vec(),
        }
    }

    fn arrival(ms: u64, threads: u32) -> Arrival {
        Arrival {
            at: Ns::from_ms(ms),
            threads,
        }
    }

    #[test]
    fn a_dip_has_a_depth_and_an_end() {
        // 100 per piece, then a dip to 40 for four pieces, then 150.
        let mut ops = vec![100; 10];
        ops.extend([40; 4]);
        ops.extend([150; 16]);
        let steps = steps_of(&series(&ops), 2, &[arrival(1000, 4)]);
        let [step] = steps.as_slice() else {
            panic!("{steps:?}")
        };
        assert_eq!((step.at, step.threads), (Ns::from_secs(1), 6));
        assert!((step.before - 1000.0).abs() < 1e-9, "{step:?}");
        assert!((step.lowest - 400.0).abs() < 1e-9, "{step:?}");
        assert!((step.level - 1500.0).abs() < 1e-9, "{step:?}");
        // The first smoothed rate without a piece of the dip is 4 pieces later.
        assert_eq!(step.recovery, Some(Ns::from_ms(400)));
    }

    #[test]
    fn a_change_that_costs_nothing_recovers_at_once() {
        let steps = steps_of(&series(&[100; 20]), 1, &[arrival(1000, 1)]);
        assert_eq!(steps[0].recovery, Some(Ns::ZERO));
        assert!((steps[0].lowest - steps[0].level).abs() < 1e-9);
    }

    #[test]
    fn rounds_of_a_step_are_put_together_and_shown() {
        let scenario = r#"
            name = "s"
            title = "s"
            topology = { cpus = 2 }
            sharing = { vms_per_pcpu = [2], slice = "11 ms" }
            measure = { window = "2 s" }
            load = [{ name = "clients", kind = "pulse", arrivals = [{ at = "1 s", threads = 3 }] }]
            arm = [{ name = "vanilla" }]
        "#;
        let phase = |dip: usize| {
            let mut ops = vec![100; 10];
            ops.extend(vec![10; dip]);
            ops.extend(vec![200; 10 - dip]);
            Phase {
                load: "clients".to_owned(),
                arm: "vanilla".to_owned(),
                vms_per_pcpu: 2,
                round: 0,
                at: Ns::ZERO,
                boot: 0,
                work: Vec::new(),
                window: Ns::from_secs(2),
                io: Some(crate::result::Io {
                    series: Some(series(&ops)),
                    ..crate::result::Io::default()
                }),
                compute_per_s: Vec::new(),
                host: crate::result::Host::default(),
                completions: Vec::new(),
                daemon: None,
                liveness: Vec::new(),
                machine: crate::result::Machine::default(),
                io_time: None,
                timeline: None,
                books: None,
            }
        };
        let result = RunResult {
            format: crate::result::FORMAT,
            backend: "test".to_owned(),
            scenario: Scenario::parse(scenario, "s.toml").unwrap(),
            environment: crate::result::Environment::default(),
            phases: vec![phase(0), phase(3), phase(4)],
            warnings: Vec::new(),
            lab: None,
        };
        let rows = rows(&result, "clients");
        assert_eq!((rows.len(), rows[0].threads, rows[0].never), (1, 4, 0));
        let recovery = rows[0].recovery_s.unwrap();
        assert!((recovery.median - 0.3).abs() < 1e-9, "{recovery:?}");
        assert!((recovery.max - 0.4).abs() < 1e-9, "{recovery:?}");
        let text = crate::report::text(&result);
        assert!(text.contains("0.3 [0.0..0.4]"), "{text}");
    }

    #[test]
    fn each_step_ends_where_the_next_begins() {
        let mut ops = vec![100; 10];
        ops.extend([200; 10]);
        ops.extend([300; 10]);
        let steps = steps_of(&series(&ops), 1, &[arrival(1000, 1), arrival(2000, 2)]);
        let levels: Vec<(f64, f64, u32)> = steps
            .iter()
            .map(|step| (step.before, step.level, step.threads))
            .collect();
        assert_eq!(levels, [(1000.0, 2000.0, 2), (2000.0, 3000.0, 4)]);
    }

    #[test]
    fn what_only_touches_its_level_has_not_recovered() {
        // Good for three pieces, bad for three, then good for good.
        let mut ops = vec![100; 10];
        ops.extend([0, 0, 0, 100, 100, 100, 0, 0, 0]);
        ops.extend([100; 12]);
        let steps = steps_of(&series(&ops), 1, &[arrival(1000, 1)]);
        assert_eq!(steps[0].recovery, Some(Ns::from_ms(900)), "{steps:?}");
        let short = steps_of(&series(&[100; 10]), 1, &[arrival(900, 1)]);
        assert_eq!(short, [], "a step of one piece tells nothing");
        assert_eq!(steps_of(&series(&[]), 1, &[]), []);
    }
}
