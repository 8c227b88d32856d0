// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user can set about placement.

use units::Ns;
use units::Permille;
use units::Time;

use crate::guest::view::Window;

/// How long before the expected end of a slice a task leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Margin {
    /// Always this much. Published: 2 * P_mon = 600 us (V17).
    Fixed(Ns),
    /// `base` + the task's I/O latency + (expected - earliest) of the slice's
    /// end: a request issued at the push point still completes where it was
    /// issued, and an early end is met in nine of ten cases.
    Adaptive {
        /// For the timer, the thread that it wakes and the move itself. 300 us:
        /// a loaded 2-vCPU VM was measured at 54 us (90 %: 82 us) for the timer,
        /// some 40 us for the decision and 50 us (90 %: 70 us) for the move;
        /// with 150 us every seventh move was caught by the end of the slice,
        /// which costs a whole gap, with 300 us hardly one (2.7 % of an 11 ms
        /// slice is the price).
        base: Ns,
        /// Never less than this. 300 us.
        min: Ns,
        /// Never more than this. 3 ms: slower devices (HDD, 5..10 ms) would eat
        /// up the slice, and lose less by a late completion.
        max: Ns,
        /// Never more than this share of the slice. 250: leaving earlier than
        /// three quarters into a slice wastes more than a lost request.
        max_of_slice: Permille,
    },
}

impl Margin {
    /// The margin of a task with this usual I/O latency on a vCPU whose slice
    /// began at `since` and ends at `ends`.
    #[must_use]
    pub fn of(&self, io_latency: Ns, since: Time, ends: &Window) -> Ns {
        match *self {
            Self::Fixed(margin) => margin,
            Self::Adaptive {
                base,
                min,
                max,
                max_of_slice,
            } => {
                let wanted = base + io_latency + ends.expected.since(ends.earliest);
                let slice = ends.expected.since(since);
                wanted
                    .max(min)
                    .min(max)
                    .min(slice.scaled(u64::from(max_of_slice.get()), 1000))
            }
        }
    }
}

/// The Task Migrater's rules and thresholds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Move tasks off a vCPU before its slice ends (V17).
    pub push: bool,
    /// Take tasks off a vCPU that is gone already (V22).
    pub pull: bool,
    /// Push to the vCPU that is back first where none runs on (V12). With two
    /// vCPUs this rule carries the gain.
    pub soon_active: bool,
    /// Let a vCPU that runs longer take one of several tasks that share another
    /// (V20). Not published as a rule of its own: with many vCPUs the ranking of
    /// V19 spreads them at each push.
    pub spread: bool,
    /// Keep tasks on the vCPU where all their completions arrive. Not published:
    /// its disk completed on the submitting vCPU or the paper does not say.
    pub completion: bool,
    /// How long before the end of a slice a task leaves.
    pub margin: Margin,
    /// What a target must offer beyond the margin. 500 us: the dearest usual
    /// migration; a shorter stay would not pay for itself. Published: zero.
    pub min_stay: Ns,
    /// A descheduled vCPU that is back within this keeps its tasks. 500 us, for
    /// the same reason. Published: zero.
    pub pull_unless_back_within: Ns,
    /// Pull also a task that is blocked with its completion due on the
    /// descheduled vCPU. Ours: no; the completion waits there anyway and finds
    /// the task at the start of a fresh slice. Published: yes, V22 does not ask.
    pub pull_in_flight: bool,
    /// How much earlier than its own vCPU the soon-active one must be back.
    /// 1 ms: a migration and the errors of two predictions. Not stated in V12.
    pub soon_lead: Ns,
    /// A task goes to a vCPU that is back within `pull_unless_back_within` rather than to
    /// one at hand that goes on for less than this (V12: when remaining slices are short,
    /// which lowers the number of moves; the threshold is not stated). Zero: only if none
    /// is at hand.
    pub soon_below: Ns,
    /// How much one I/O-bound task on a target counts against it, in
    /// thousandths: the remaining slice is divided by 1 + this per task (V21:
    /// the combination is not stated). 1000: each task takes an equal part.
    /// Zero: rank by remaining slice alone, as V19 has it.
    pub resident_penalty: u32,
    /// How much CPU the tasks that live on one completion vCPU may need together
    /// where that vCPU has half of its time, and in inverse proportion more where it
    /// has less; the heaviest I/O loads are served first. 300: beside compute a task
    /// gets half a vCPU when it asks for one, and one that needs more is better off
    /// where it also gets what other vCPUs have to give, but the less of them runs
    /// when its home is back, the less that is (docs/decisions/0014). Measured with a disk
    /// that completes within the submitting call (need 400 and 700): with 2 VMs per
    /// pCPU both do better elsewhere, with 4 the second, with 8 none.
    pub completion_cpu_max: Permille,
    /// A slice that goes on for this long after its latest expected end makes
    /// the estimate void: its vCPU is open-ended. 600 us, by which a heartbeat
    /// underestimates a slice (V11); before that it is just about to go.
    /// `None`, as published: the remaining slice stays below zero, and the vCPU
    /// about to go, for as long as it runs.
    pub overdue_after: Option<Ns>,
    /// A vCPU that is away for this long after the latest expected end of its gap is waited
    /// for no more: its tasks are pulled if another is at hand (V22: for slices that are not
    /// stable). 300 us: by no more is a gap's end seen late (V11). Not stated. `None`: for as
    /// long as it is away it is back any moment, and keeps them (decision 0035).
    pub back_overdue_after: Option<Ns>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            push: true,
            pull: true,
            soon_active: true,
            spread: true,
            completion: true,
            margin: Margin::Adaptive {
                base: Ns::from_us(300),
                min: Ns::from_us(300),
                max: Ns::from_ms(3),
                max_of_slice: Permille::new(250),
            },
            min_stay: Ns::from_us(500),
            pull_unless_back_within: Ns::from_us(500),
            pull_in_flight: false,
            soon_lead: Ns::from_ms(1),
            soon_below: Ns::ZERO,
            resident_penalty: 1000,
            completion_cpu_max: Permille::new(300),
            overdue_after: Some(Ns::from_us(600)),
            back_overdue_after: Some(Ns::from_us(300)),
        }
    }
}

impl Settings {
    /// The same thresholds, but nothing is moved: what the system with which ours is
    /// compared does (XB5).
    #[must_use]
    pub fn nothing(self) -> Self {
        Self {
            push: false,
            pull: false,
            soon_active: false,
            spread: false,
            completion: false,
            ..self
        }
    }

    /// As published, in the fuller version of the dissertation: PUSH, PULL and
    /// the soon-active rule, one fixed margin, no other threshold.
    #[must_use]
    pub fn published() -> Self {
        Self {
            push: true,
            pull: true,
            soon_active: true,
            spread: false,
            completion: false,
            margin: Margin::Fixed(Ns::from_us(600)),
            min_stay: Ns::ZERO,
            pull_unless_back_within: Ns::ZERO,
            pull_in_flight: true,
            soon_lead: Ns::ZERO,
            soon_below: Ns::ZERO,
            resident_penalty: 0,
            completion_cpu_max: Permille::ONE,
            overdue_after: None,
            back_overdue_after: Some(Ns::from_us(300)),
        }
    }
}
