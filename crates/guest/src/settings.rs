// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything a user can set, already validated. The file format, its errors
//! and its help texts live in the daemon's crate.

use std::path::PathBuf;

use policy::guest::budget;
use policy::guest::iobound;
use policy::guest::placement;
use policy::guest::slice;
use policy::guest::trial;
use policy::guest::wakeup;
use policy::guest::xballoon;
use units::Ns;

/// What the daemon does for I/O-bound tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeChoice {
    /// Moves them to vCPUs that run.
    Vmigrater,
    /// Moves nothing and holds computation back instead (XB1..XB7).
    Xballoon,
}

/// Where knowledge of the vCPUs' slices comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChoice {
    /// The best one that this machine offers.
    Auto,
    /// KVM's steal page (or a map with the same layout), by BPF.
    StealPage,
    /// The published heartbeat on every vCPU (V7, V8).
    Heartbeat,
}

/// Which slice estimator to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimatorChoice {
    /// As published: this slice is as long as the last one (V10).
    LastValue,
    /// A distribution with a confidence, which abstains when unstable.
    Distribution,
}

/// The published heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// P_mon of V7: 300 us as published.
    pub period: Ns,
    /// A wake-up later than the period plus this is a gap (V8; not stated there).
    pub tolerance: Ns,
}

/// A user-defined priority (V18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityRule {
    /// The thread name (`/proc/<tid>/comm`) must begin with this.
    pub comm_prefix: String,
    /// Higher goes first; `None` means: never touch these threads.
    pub priority: Option<i32>,
}

/// Everything a user can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it does.
    pub mode: ModeChoice,
    /// Slice source.
    pub source: SourceChoice,
    /// The id of a BPF map that stands in for KVM's steal pages (test beds).
    pub steal_map_id: Option<u32>,
    /// A file that stands in for /proc/stat as the wake-up switch, as if no program
    /// could look at the timer interrupt (test beds).
    pub steal_stat: Option<PathBuf>,
    /// The published heartbeat, profile and fallback.
    pub heartbeat: Heartbeat,
    /// Slice estimator.
    pub estimator: EstimatorChoice,
    /// What counts as a gap, and when slices are stable.
    pub slice: slice::Settings,
    /// Task Detector.
    pub iobound: iobound::Settings,
    /// Task Migrater.
    pub placement: placement::Settings,
    /// Believe what Linux says of where a disk's completions arrive until it is seen. Not
    /// published, where nothing asks.
    pub completion_prior: bool,
    /// The wake-up lever.
    pub wakeup: wakeup::Settings,
    /// Migration budget.
    pub budget: budget::Settings,
    /// Whether programs are better off with us.
    pub trial: trial::Settings,
    /// The balloon of [`ModeChoice::Xballoon`].
    pub xballoon: xballoon::Settings,
    /// Priorities and exclusions, first match wins.
    pub priorities: Vec<PriorityRule>,
    /// Decide and record, but move nothing.
    pub dry_run: bool,
    /// On a machine that is emulated at a fraction of its speed, how often longer everything
    /// takes there; 1 on a real one. The durations above are as they are: who sets this has
    /// multiplied them. See [`Settings::here`] for those that nobody can set.
    pub dilation: u32,
    /// Block I/O requests (bios) that are followed at once from their submission to their
    /// completion, of all threads together. Those beyond do not count as waiting for I/O
    /// unless their threads sleep for them.
    pub bios_in_flight: u32,
    /// Without steal for this long, everything that ticks is switched off.
    pub quiet_after: Ns,
    /// Without an I/O-bound task for this long, the programs that every context
    /// switch pays for are detached, until I/O is seen again.
    pub calm_after: Ns,
}

impl Default for Settings {
    /// Ours.
    fn default() -> Self {
        Self {
            mode: ModeChoice::Vmigrater,
            source: SourceChoice::Auto,
            steal_map_id: None,
            steal_stat: None,
            heartbeat: Heartbeat {
                period: Ns::from_us(300),
                // Twice the period: a timer on a loaded VM is late by tens of
                // microseconds often and by hundreds sometimes, while the
                // shortest slice of another VM is above a millisecond.
                tolerance: Ns::from_us(600),
            },
            estimator: EstimatorChoice::Distribution,
            slice: slice::Settings::default(),
            iobound: iobound::Settings::default(),
            placement: placement::Settings::default(),
            completion_prior: true,
            wakeup: wakeup::Settings::default(),
            budget: budget::Settings::default(),
            trial: trial::Settings::default(),
            xballoon: xballoon::Settings::default(),
            priorities: Vec::new(),
            dry_run: false,
            dilation: 1,
            // 128 threads with 128 requests each, in 2 MiB of the kernel's memory.
            bios_in_flight: 16384,
            quiet_after: Ns::from_secs(10),
            // To attach them again takes up to seconds: not between two bursts.
            calm_after: Ns::from_secs(60),
        }
    }
}

impl Settings {
    /// The priority of threads with this name; `None`: they are never touched.
    #[must_use]
    pub fn priority(&self, comm: &str) -> Option<i32> {
        self.priorities
            .iter()
            .find(|rule| comm.starts_with(&rule.comm_prefix))
            .map_or(Some(0), |rule| rule.priority)
    }

    /// As published: heartbeat, last value, fixed margin, no lever, no budget.
    #[must_use]
    pub fn published() -> Self {
        Self {
            source: SourceChoice::Heartbeat,
            estimator: EstimatorChoice::LastValue,
            slice: slice::Settings::published(),
            iobound: iobound::Settings::published(),
            placement: placement::Settings::published(),
            completion_prior: false,
            wakeup: wakeup::Settings::published(),
            budget: budget::Settings::published(),
            trial: trial::Settings::published(),
            ..Self::default()
        }
    }

    /// A duration that a real machine would take, on this one: of a claim, until somebody
    /// looks again, and whatever else is no knob.
    #[must_use]
    pub fn here(&self, real: Ns) -> Ns {
        real * u64::from(self.dilation)
    }

    /// What is in force in this mode: xBalloon uses no other vCPU (XB5) and raises
    /// the priority of I/O-bound tasks (XB1) by what this kernel offers, whatever
    /// else is configured.
    #[must_use]
    pub fn in_force(self, support: wakeup::Support) -> Self {
        match self.mode {
            ModeChoice::Vmigrater => self,
            ModeChoice::Xballoon => Self {
                placement: self.placement.nothing(),
                wakeup: wakeup::Settings {
                    mode: if support.eevdf_slice {
                        wakeup::Mode::EevdfSlice
                    } else {
                        wakeup::Mode::Fifo
                    },
                    ..self.wakeup
                },
                // Its rules compare nothing.
                trial: trial::Settings::published(),
                ..self
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Permille;

    use super::*;

    /// Where the paragraphs state a value, and off where they know of no such thing. Each
    /// part is compared, so that nothing of ours slips in with a default.
    #[test]
    fn the_published_profile_has_nothing_of_ours() {
        let published = Settings::published();
        // V7, V8: a heartbeat of 300 us on every vCPU.
        assert_eq!(published.source, SourceChoice::Heartbeat);
        assert_eq!(published.heartbeat.period, Ns::from_us(300));
        // V10: this slice is as long as the last.
        assert_eq!(published.estimator, EstimatorChoice::LastValue);
        assert_eq!(published.slice.min_gap, Ns::ZERO);
        // V15: T_det of 5 ms, one period decides.
        assert_eq!(published.iobound.window, Ns::from_ms(5));
        assert_eq!(published.iobound.min_accounted, Ns::ZERO);
        assert_eq!(published.iobound.enter, Permille::new(501));
        assert_eq!(published.iobound.leave, Permille::new(501));
        assert_eq!(published.iobound.leave_windows, 1);
        assert_eq!(published.iobound.idle, Ns::ZERO);
        assert_eq!(published.iobound.stay, Ns::ZERO);
        // V17: two heartbeats before the end.
        let placement = &published.placement;
        let margin = placement::Margin::Fixed(published.heartbeat.period * 2);
        assert_eq!(placement.margin, margin);
        assert!(placement.push && placement.pull && placement.soon_active);
        assert!(!placement.spread && !placement.completion);
        assert!(!published.completion_prior);
        // No lever, no budget, nobody is let go to compare, nothing is held back.
        assert_eq!(published.wakeup.mode, wakeup::Mode::Off);
        let budget = &published.budget;
        assert_eq!((budget.per_slice_end, budget.worth), (0, 0));
        assert!(!published.trial.enabled);
        assert_eq!(published.mode, ModeChoice::Vmigrater);
        assert!(!published.dry_run);
    }
}
