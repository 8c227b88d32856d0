// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A result turned into the rows of a report. Pure.
//!
//! The baseline of every ratio is the first arm of kind `vanilla` under the same host
//! policy, phase by phase of the same load, the same number of VMs and the same round.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use units::Ns;

use crate::result::ALONE;
use crate::result::COMPUTE_ONLY;
use crate::result::Phase;
use crate::result::RunResult;
use crate::result::SOLO;
use crate::result::SOLO_FIFO;
use crate::result::TaskState;
use crate::scenario::ArmKind;
use crate::scenario::Scenario;
use crate::stats::DRIFT_LIMIT;
use crate::stats::Ratio;
use crate::stats::Summary;
use crate::stats::Trend;
use crate::stats::drift;
use crate::stats::paired_ratio;
use crate::stats::quantile;
use crate::stats::summarise;
use crate::stats::trend;

/// Share of a disk's interrupts that one CPU must take to count as its
/// completion CPU; the rest is other traffic of the same disk.
const ONE_CPU_SHARE: f64 = 0.95;

/// Interrupts below which nothing is concluded from them.
const MIN_INTERRUPTS: u64 = 100;

/// Where a load's requests complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Completion {
    /// On the CPU that submitted them.
    FollowsSubmitter,
    /// On this CPU, wherever they were submitted.
    OneCpu(usize),
}

/// One load without sharing.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Requests per second with compute beside it.
    pub solo: Option<Summary>,
    /// The same with `SCHED_FIFO`.
    pub solo_fifo: Option<f64>,
    /// Without compute.
    pub alone: Option<f64>,
    /// 99th percentile with compute.
    pub solo_p99: Option<Ns>,
    /// Last against first solo phase, as a fraction.
    pub drift: Option<f64>,
    /// Where requests complete.
    pub completion: Completion,
    /// Compute that one request costs, in work units.
    compute_per_op: Option<f64>,
}

impl Baseline {
    /// Did the machine change under the run by more than
    /// [`DRIFT_LIMIT`]?
    #[must_use]
    pub fn drifted(&self) -> bool {
        self.drift.is_some_and(|drift| drift.abs() > DRIFT_LIMIT)
    }
}

/// One arm under one load at one number of VMs, all rounds together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The arm.
    pub arm: String,
    /// VMs per pCPU.
    pub vms_per_pcpu: u32,
    /// Rounds measured.
    pub rounds: usize,
    /// Rounds in which something that should run made no progress; no figure
    /// contains them.
    pub lost: usize,
    /// What a steady drift of vanilla adds to [`Row::vs_vanilla`], because this
    /// arm is measured later or earlier in its rounds: 0.01 for one percent.
    pub drift_bias: Option<f64>,
    /// Requests per second.
    pub ops_per_s: Option<Summary>,
    /// 99th percentile of the latency, median of the rounds.
    pub p99: Option<Ns>,
    /// Requests against vanilla.
    pub vs_vanilla: Option<Ratio>,
    /// Requests against the bound of the same window.
    pub vs_bound: Option<Summary>,
    /// Compute against vanilla.
    pub compute: Option<Ratio>,
    /// Compute plus the I/O done, both in compute units, against vanilla: what
    /// the co-runners would have kept had both arms done the same I/O.
    pub compute_at_equal_io: Option<Ratio>,
    /// I/O inactivity time per second of the window, in seconds; with several
    /// I/O-bound tasks it can exceed 1.
    pub inactivity: Option<f64>,
    /// Moves per second.
    pub moves_per_s: Option<f64>,
    /// N_migrate / N_min over all rounds.
    pub p: Option<f64>,
    /// Charged CPU time of the daemon per second of window.
    pub daemon_cpu: Option<f64>,
    /// Of it, what was charged while the vCPU under it was off; `None` where a round does not
    /// say.
    pub daemon_stopped: Option<f64>,
    /// The daemon's wake-ups per second.
    pub wakeups_per_s: Option<f64>,
    /// Where the time of the I/O threads went, as shares of it: the mean of the
    /// rounds, in the order of [`TaskState::ALL`].
    pub io_time: Option<[f64; TaskState::ALL.len()]>,
    /// What part of that time, 0..=1, the threads were on the vCPU where all completions
    /// arrive; `None`: they do not arrive on one, or it was not recorded.
    pub near: Option<Summary>,
}

/// How vanilla changed over a run, at one number of VMs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// VMs per pCPU.
    pub vms_per_pcpu: u32,
    /// Its trend.
    pub trend: Trend,
}

/// One load: its baseline and its rows, in the order of the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadTable {
    /// The load.
    pub load: String,
    /// Without sharing.
    pub baseline: Baseline,
    /// With sharing.
    pub rows: Vec<Row>,
    /// How vanilla changed over the run.
    pub drifts: Vec<Drift>,
}

/// One arm over all loads with the same completion path, at one number of VMs.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    /// The arm.
    pub arm: String,
    /// VMs per pCPU.
    pub vms_per_pcpu: u32,
    /// Does the completion follow the submitter?
    pub follows_submitter: bool,
    /// Requests against vanilla, all pairs of all these loads.
    pub vs_vanilla: Option<Ratio>,
    /// Requests against the bound.
    pub vs_bound: Option<Summary>,
    /// Compute at equal I/O against vanilla.
    pub compute_at_equal_io: Option<Ratio>,
}

/// The shares of some phases' I/O time, each phase counting the same.
#[must_use]
pub fn io_shares<'a>(
    phases: impl IntoIterator<Item = &'a Phase>,
) -> Option<[f64; TaskState::ALL.len()]> {
    let mut sums = [0.0; TaskState::ALL.len()];
    let mut n = 0.0;
    for time in phases.into_iter().filter_map(|p| p.io_time.as_ref()) {
        let total = time.total().0 as f64;
        if total > 0.0 {
            n += 1.0;
            for (sum, state) in sums.iter_mut().zip(TaskState::ALL) {
                *sum += time.of(state).0 as f64 / total;
            }
        }
    }
    (n > 0.0).then(|| sums.map(|sum| sum / n))
}

/// Everything a report shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// One table per load.
    pub loads: Vec<LoadTable>,
    /// All loads together.
    pub pooled: Vec<Pooled>,
    /// The name of the first baseline arm, if there is one.
    pub vanilla: Option<String>,
}

/// The bound of one phase (see [`crate::bound`]); `None` without a baseline.
#[must_use]
pub fn bound_of(phase: &Phase, baseline: &Baseline) -> Option<f64> {
    let share = match baseline.completion {
        Completion::FollowsSubmitter => phase.host.union_share,
        Completion::OneCpu(cpu) => *phase.host.on_share.get(cpu)?,
    };
    Some(baseline.solo?.median * share)
}

/// Turns a result into rows.
#[must_use]
pub fn analyse(result: &RunResult) -> Analysis {
    let vanilla = vanilla_of(result).map(str::to_owned);
    let mut loads = Vec::new();
    let mut pools: BTreeMap<(bool, u32, usize), Pool> = BTreeMap::new();
    for load in &result.scenario.loads {
        let phases: Vec<&Phase> = result
            .phases
            .iter()
            .filter(|p| p.load == load.name)
            .collect();
        let baseline = baseline(&phases, &result.phases);
        let mut rows = Vec::new();
        let mut drifts = Vec::new();
        for &vms in &result.scenario.sharing.vms_per_pcpu {
            for (index, arm) in result.scenario.arms.iter().enumerate() {
                let of = |name: &str| -> Vec<&Phase> {
                    let same = |p: &&&Phase| p.arm == name && p.vms_per_pcpu == vms;
                    phases.iter().filter(same).copied().collect()
                };
                let (mine, lost): (Vec<&Phase>, Vec<&Phase>) =
                    of(&arm.name).into_iter().partition(|p| p.is_alive());
                if mine.is_empty() && lost.is_empty() {
                    continue;
                }
                let vanilla = reference_of(&result.scenario, &arm.name);
                let drift = vanilla.and_then(|vanilla| drift_of(&of(vanilla)));
                let reference = match vanilla {
                    Some(vanilla) if *vanilla != arm.name => of(vanilla),
                    Some(_) => {
                        drifts.extend(drift.map(|trend| Drift {
                            vms_per_pcpu: vms,
                            trend,
                        }));
                        Vec::new()
                    }
                    None => Vec::new(),
                };
                let cell = Cell {
                    mine,
                    lost: lost.len(),
                    reference: reference.into_iter().filter(|p| p.is_alive()).collect(),
                    baseline: &baseline,
                    drift,
                };
                let follows = baseline.completion == Completion::FollowsSubmitter;
                if load.kind != crate::scenario::LoadKind::Idle {
                    pools.entry((follows, vms, index)).or_default().add(&cell);
                }
                rows.push(cell.row(&arm.name, vms));
            }
        }
        loads.push(LoadTable {
            load: load.name.clone(),
            baseline,
            rows,
            drifts,
        });
    }
    let pooled = pools
        .into_iter()
        .map(|((follows_submitter, vms_per_pcpu, arm), pool)| Pooled {
            arm: result.scenario.arms[arm].name.clone(),
            vms_per_pcpu,
            follows_submitter,
            vs_vanilla: paired_ratio(&pool.ops),
            vs_bound: summarise(&pool.of_bound),
            compute_at_equal_io: paired_ratio(&pool.work),
        })
        .collect();
    Analysis {
        loads,
        pooled,
        vanilla,
    }
}

/// How the rate of some phases of one arm changed over the run.
fn drift_of(phases: &[&Phase]) -> Option<Trend> {
    // `at` begins anew with each boot: what was measured in a later one was measured later.
    let mut last_of: BTreeMap<u32, f64> = BTreeMap::new();
    for phase in phases {
        let last = last_of.entry(phase.boot).or_default();
        *last = last.max((phase.at + phase.window).as_secs_f64());
    }
    let begins = |boot: u32| -> f64 { last_of.range(..boot).map(|(_, last)| last).sum() };
    let rates: Vec<(f64, f64)> = phases
        .iter()
        .filter(|p| p.is_alive())
        .filter_map(|p| Some((begins(p.boot) + p.at.as_secs_f64(), ops(p)?)))
        .collect();
    trend(&rates)
}

fn baseline(phases: &[&Phase], all: &[Phase]) -> Baseline {
    let named = |name: &str| -> Vec<&Phase> {
        let alive = phases.iter().filter(|p| p.arm == name && p.is_alive());
        alive.copied().collect()
    };
    let solo_phases = named(SOLO);
    let rates = |phases: &[&Phase]| -> Vec<f64> { phases.iter().filter_map(|p| ops(p)).collect() };
    let solo_rates = rates(&solo_phases);
    let solo = summarise(&solo_rates);
    let drift = match solo_rates.as_slice() {
        [first, .., last] => drift(*first, *last),
        _ => None,
    };
    let mut interrupts: Vec<u64> = Vec::new();
    for phase in phases {
        interrupts.resize(interrupts.len().max(phase.completions.len()), 0);
        for (sum, count) in interrupts.iter_mut().zip(&phase.completions) {
            *sum += count;
        }
    }
    let total: u64 = interrupts.iter().sum();
    let most = interrupts
        .iter()
        .enumerate()
        .max_by_key(|(_, count)| **count);
    let completion = match most {
        Some((cpu, count))
            if total >= MIN_INTERRUPTS && *count as f64 >= ONE_CPU_SHARE * total as f64 =>
        {
            Completion::OneCpu(cpu)
        }
        _ => Completion::FollowsSubmitter,
    };
    let compute_only: Vec<f64> = all
        .iter()
        .filter(|p| p.arm == COMPUTE_ONLY)
        .filter_map(compute)
        .collect();
    let with_io: Vec<f64> = solo_phases.iter().filter_map(|p| compute(p)).collect();
    let compute_per_op = match (quantile(&compute_only, 0.5), quantile(&with_io, 0.5), solo) {
        // Noise can make it negative; work that costs less than nothing does not exist.
        (Some(without), Some(with), Some(solo)) if solo.median > 0.0 => {
            Some(((without - with) / solo.median).max(0.0))
        }
        _ => None,
    };
    Baseline {
        solo,
        solo_fifo: quantile(&rates(&named(SOLO_FIFO)), 0.5),
        alone: quantile(&rates(&named(ALONE)), 0.5),
        solo_p99: p99(&solo_phases),
        drift,
        completion,
        compute_per_op,
    }
}

/// Requests per second of a phase.
pub(crate) fn ops(phase: &Phase) -> Option<f64> {
    Some(phase.io.as_ref()?.ops_per_s)
}

/// Compute of a phase, all CPUs together.
fn compute(phase: &Phase) -> Option<f64> {
    (!phase.compute_per_s.is_empty()).then(|| phase.compute_per_s.iter().sum())
}

fn p99(phases: &[&Phase]) -> Option<Ns> {
    let values: Vec<f64> = phases
        .iter()
        .filter_map(|p| Some(p.io.as_ref()?.latency.p99.0 as f64))
        .collect();
    quantile(&values, 0.5).map(|ns| Ns(ns as u64))
}

/// A value of some phases and of their reference, paired by round. Rounds that a
/// second boot of a lab began in the middle of are no pairs: it is another machine.
pub(crate) fn pairs(
    mine: &[&Phase],
    reference: &[&Phase],
    value: impl Fn(&Phase) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let pair = |mine: &&Phase| {
        let other = reference.iter().find(|p| are_paired(p, mine))?;
        Some((value(mine)?, value(other)?))
    };
    mine.iter().filter_map(pair).collect()
}

fn are_paired(a: &Phase, b: &Phase) -> bool {
    (a.round, a.boot) == (b.round, b.boot)
}

/// Phases of one arm under one load at one number of VMs in which everything was
/// alive.
pub(crate) fn phases_of<'a>(
    result: &'a RunResult,
    load: &str,
    vms_per_pcpu: u32,
    arm: &str,
) -> Vec<&'a Phase> {
    let mine = |p: &&Phase| {
        p.load == load && p.vms_per_pcpu == vms_per_pcpu && p.arm == arm && p.is_alive()
    };
    result.phases.iter().filter(mine).collect()
}

/// Ratios of the rate to vanilla's, round by round; none for vanilla itself.
pub(crate) fn gains(result: &RunResult, load: &str, vms_per_pcpu: u32, arm: &str) -> Vec<f64> {
    let vanilla = reference_of(&result.scenario, arm).filter(|vanilla| *vanilla != arm);
    let Some(vanilla) = vanilla else {
        return Vec::new();
    };
    let of = |arm| phases_of(result, load, vms_per_pcpu, arm);
    pairs(&of(arm), &of(vanilla), ops)
        .into_iter()
        .filter(|(_, vanilla)| *vanilla > 0.0)
        .map(|(mine, vanilla)| mine / vanilla)
        .collect()
}

/// The name of the arm that an arm is compared with, which may be itself: the first
/// that does nothing in the guest, under the same host policy.
pub(crate) fn reference_of<'a>(scenario: &'a Scenario, arm: &str) -> Option<&'a str> {
    let policy = scenario.arms.iter().find(|a| a.name == arm)?.host_policy();
    let mut arms = scenario.arms.iter();
    let reference = arms.find(|a| a.kind == ArmKind::Vanilla && a.host_policy() == policy)?;
    Some(&reference.name)
}

/// The name of the first baseline arm.
fn vanilla_of(result: &RunResult) -> Option<&str> {
    let mut arms = result.scenario.arms.iter();
    let vanilla = arms.find(|arm| arm.kind == ArmKind::Vanilla)?;
    Some(&vanilla.name)
}

/// One arm's phases with what they are compared to.
struct Cell<'a> {
    mine: Vec<&'a Phase>,
    /// Phases that are not in `mine` because something had died in them.
    lost: usize,
    reference: Vec<&'a Phase>,
    baseline: &'a Baseline,
    drift: Option<Trend>,
}

impl Cell<'_> {
    fn pairs(&self, value: impl Fn(&Phase) -> Option<f64>) -> Vec<(f64, f64)> {
        pairs(&self.mine, &self.reference, value)
    }

    /// Compute plus I/O in units of compute.
    fn work(&self, phase: &Phase) -> Option<f64> {
        Some(compute(phase)? + ops(phase).unwrap_or(0.0) * self.baseline.compute_per_op?)
    }

    fn of_bound(&self) -> Vec<f64> {
        self.mine
            .iter()
            .filter_map(|p| {
                Some(ops(p)? / bound_of(p, self.baseline).filter(|bound| *bound > 0.0)?)
            })
            .collect()
    }

    /// By how much a drift of the reference changes the mean of the pairs.
    fn drift_bias(&self) -> Option<f64> {
        let later = |mine: &&Phase| {
            let other = self.reference.iter().find(|p| are_paired(p, mine))?;
            Some(mine.at.as_secs_f64() - other.at.as_secs_f64())
        };
        let later: Vec<f64> = self.mine.iter().filter_map(later).collect();
        let mean = later.iter().sum::<f64>() / later.len() as f64;
        (!later.is_empty()).then(|| Some(self.drift?.bias(mean)))?
    }

    fn row(&self, arm: &str, vms_per_pcpu: u32) -> Row {
        // Of what some rounds do not say there is no median.
        let said_per_second = |value: &dyn Fn(&crate::result::Daemon) -> Option<f64>| {
            let values: Option<Vec<f64>> = self
                .mine
                .iter()
                .filter_map(|p| p.daemon.as_ref())
                .filter(|d| d.interval > Ns::ZERO)
                .map(|d| Some(value(d)? / d.interval.as_secs_f64()))
                .collect();
            quantile(&values?, 0.5)
        };
        let per_second = |value: &dyn Fn(&crate::result::Daemon) -> f64| {
            said_per_second(&|daemon| Some(value(daemon)))
        };
        let sum = |value: &dyn Fn(&crate::result::Daemon) -> u64| -> u64 {
            self.mine
                .iter()
                .filter_map(|p| p.daemon.as_ref())
                .map(value)
                .sum()
        };
        let n_min = sum(&|d| d.n_min);
        let rates: Vec<f64> = self.mine.iter().filter_map(|p| ops(p)).collect();
        Row {
            arm: arm.to_owned(),
            vms_per_pcpu,
            rounds: self.mine.len(),
            lost: self.lost,
            drift_bias: self.drift_bias(),
            ops_per_s: summarise(&rates),
            p99: p99(&self.mine),
            vs_vanilla: paired_ratio(&self.pairs(ops)),
            vs_bound: summarise(&self.of_bound()),
            compute: paired_ratio(&self.pairs(compute)),
            compute_at_equal_io: paired_ratio(&self.pairs(|p| self.work(p))),
            inactivity: per_second(&|d| d.io_inactivity.as_secs_f64()),
            moves_per_s: per_second(&|d| d.moves.values().sum::<u64>() as f64),
            p: (n_min > 0).then(|| sum(&|d| d.n_migrate) as f64 / n_min as f64),
            daemon_cpu: per_second(&|d| d.cpu.as_secs_f64()),
            daemon_stopped: said_per_second(&|d| Some(d.stopped?.as_secs_f64())),
            wakeups_per_s: per_second(&|d| d.wakeups as f64),
            io_time: io_shares(self.mine.iter().copied()),
            near: self.near(),
        }
    }

    fn near(&self) -> Option<Summary> {
        let Completion::OneCpu(cpu) = self.baseline.completion else {
            return None;
        };
        let times = self.mine.iter().filter_map(|p| p.io_time.as_ref());
        let shares: Vec<f64> = times.filter_map(|time| time.share_on(cpu)).collect();
        summarise(&shares)
    }
}

/// The pairs of several loads.
#[derive(Default)]
struct Pool {
    ops: Vec<(f64, f64)>,
    work: Vec<(f64, f64)>,
    of_bound: Vec<f64>,
}

impl Pool {
    fn add(&mut self, cell: &Cell<'_>) {
        self.ops.extend(cell.pairs(ops));
        self.work.extend(cell.pairs(|p| cell.work(p)));
        self.of_bound.extend(cell.of_bound());
    }
}
