// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon is like: the policy's own settings, and what it costs.

use policy::guest::budget;
use policy::guest::iobound;
use policy::guest::placement;
use policy::guest::slice;
use policy::guest::trial;
use policy::guest::wakeup;
use units::Ns;

/// Where knowledge of slices comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The steal page: exact, seen at the first event after a resume.
    StealPage,
    /// The published heartbeat (V7, V8).
    Heartbeat {
        /// P_mon: 300 us as published.
        period: Ns,
        /// A beat later than the period plus this is a gap (V8: not stated).
        tolerance: Ns,
    },
}

/// Which slice estimator to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// As published (V10).
    LastValue,
    /// A distribution with a confidence.
    Distribution,
}

/// What the daemon's own work takes, as measured (docs/performance.md) or as a
/// paper's platform may have had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonCosts {
    /// From a bell or a timer until the monitor thinks. A pull was decided 200 us
    /// after the event that made it possible, a slice timer fires 54 us late.
    pub bell: Ns,
    /// From the return of a vCPU until its monitor has decided: 263, 288 and 296 us with
    /// 2, 4 and 8 VMs.
    pub resume: Ns,
    /// For so long of that the monitor, a `SCHED_FIFO` thread that the first tick wakes,
    /// has its vCPU and whoever waits there does not go on: it begins when the kernel has
    /// caught up, after 138 us, and finds its caches cold. Zero: as any other look.
    pub first_look: Ns,
    /// See `bell`.
    pub timer: Ns,
    /// From the decision until the task is moved: 107 us.
    pub react: Ns,
    /// CPU time of one look: 58 us for each wake-up, the mover's included.
    pub think: Ns,
    /// What one heartbeat takes from its vCPU: the monitor's look and what is charged to
    /// nobody or to others, the timer's interrupt, arming the next and what it finds and
    /// leaves cold. 16 us on CPUs 1.84 times as fast, by what compute and the reader together
    /// do less than under the same daemon without heartbeats (docs/check-freezer.md).
    pub beat: Ns,
    /// CPU time of the BPF programs at a switch to a task, the wake-up before it and the
    /// switch away included. Zero: a bed where it was measured says it.
    pub traced_switch: Ns,
    /// CPU time of those where a request is issued and done. Zero likewise.
    pub traced_request: Ns,
    /// CPU time of holding what computes, or of letting it go (mode xballoon): a
    /// write to `cgroup.freeze` takes 0.1 ms (docs/decisions/0005).
    pub hold: Ns,
}

impl Default for DaemonCosts {
    fn default() -> Self {
        Self {
            bell: Ns::from_us(200),
            resume: Ns::from_us(288),
            first_look: Ns::from_us(150),
            timer: Ns::from_us(54),
            react: Ns::from_us(107),
            think: Ns::from_us(58),
            beat: Ns(29_400),
            traced_switch: Ns::ZERO,
            traced_request: Ns::ZERO,
            hold: Ns::from_us(100),
        }
    }
}

/// Everything about one guest's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigraterSettings {
    /// Slice source.
    pub source: Source,
    /// Slice estimator.
    pub estimator: Estimator,
    /// What counts as a gap, and when slices are stable.
    pub slice: slice::Settings,
    /// Task Detector.
    pub iobound: iobound::Settings,
    /// Task Migrater.
    pub placement: placement::Settings,
    /// The wake-up lever.
    pub wakeup: wakeup::Settings,
    /// Is a program better off without us?
    pub trial: trial::Settings,
    /// Migration budget.
    pub budget: budget::Settings,
    /// What it costs.
    pub costs: DaemonCosts,
}

impl Default for MigraterSettings {
    /// Ours.
    fn default() -> Self {
        Self {
            source: Source::StealPage,
            estimator: Estimator::Distribution,
            slice: slice::Settings::default(),
            iobound: iobound::Settings::default(),
            placement: placement::Settings::default(),
            wakeup: wakeup::Settings::default(),
            trial: trial::Settings::default(),
            budget: budget::Settings::default(),
            costs: DaemonCosts::default(),
        }
    }
}

impl MigraterSettings {
    /// As published: heartbeat, last value, fixed margin, no lever, no budget.
    #[must_use]
    pub fn published() -> Self {
        Self {
            source: Source::Heartbeat {
                period: Ns::from_us(300),
                tolerance: Ns::from_us(600),
            },
            estimator: Estimator::LastValue,
            slice: slice::Settings::published(),
            iobound: iobound::Settings::published(),
            placement: placement::Settings::published(),
            wakeup: wakeup::Settings::published(),
            trial: trial::Settings::published(),
            budget: budget::Settings::published(),
            costs: DaemonCosts::default(),
        }
    }
}
