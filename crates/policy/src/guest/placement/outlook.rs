// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU offers to a task.

use units::Ns;
use units::Time;

use super::Settings;
use crate::guest::view::TaskView;
use crate::guest::view::VcpuState;
use crate::guest::view::VcpuView;
use crate::guest::view::Window;

/// One vCPU as one task sees it. The table in the module documentation says
/// what each condition means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Runs on for this long, which is enough.
    Stays(Ns),
    /// Halted by the guest.
    Idle,
    /// Runs, its end unknown: the estimator abstains, or the slice is overdue.
    OpenEnded,
    /// Runs, between "too short to go there" and "about to leave".
    Brief,
    /// About to be descheduled.
    Leaving {
        /// End of the gap that follows; `None` if unknown.
        back: Option<Time>,
    },
    /// Descheduled.
    Gone {
        /// End of the gap.
        back: Back,
    },
    /// No data.
    Unknown,
}

/// When a vCPU that is gone is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// Nobody can say.
    Unknown,
    /// Then; now if it is a little late.
    At(Time),
    /// It is overdue for longer than `back_overdue_after`: it may be back any moment, which
    /// is no reason to wait for it while another vCPU is at hand.
    Overdue,
}

impl Outlook {
    /// Can a task that is moved there run there now, or at the price of a
    /// wake-up?
    #[must_use]
    pub const fn at_hand(self) -> bool {
        matches!(self, Self::Stays(_) | Self::Idle | Self::OpenEnded)
    }
}

/// What `vcpu` offers to `task` at `now`.
#[must_use]
pub fn outlook(now: Time, vcpu: &VcpuView, task: &TaskView, settings: &Settings) -> Outlook {
    match vcpu.state {
        VcpuState::Running { ends: None, .. } => Outlook::OpenEnded,
        VcpuState::Running {
            since,
            ends: Some(ends),
            gap,
        } => {
            let overdue = |after: Ns| now > ends.latest + after;
            if settings.overdue_after.is_some_and(overdue) {
                return Outlook::OpenEnded;
            }
            let margin = settings.margin.of(task.io_latency, since, &ends);
            let remaining = ends.expected.since(now);
            if remaining < margin {
                // The gap begins when the slice ends; an overdue slice has not.
                let end = ends.expected.max(now);
                Outlook::Leaving {
                    back: gap.map(|gap| end + gap),
                }
            } else if remaining > margin + settings.min_stay {
                Outlook::Stays(remaining)
            } else {
                Outlook::Brief
            }
        }
        VcpuState::Descheduled { back, .. } => Outlook::Gone {
            back: match back {
                None => Back::Unknown,
                Some(back) if overdue_from(&back, settings).is_some_and(|from| now >= from) => {
                    Back::Overdue
                }
                Some(back) => Back::At(back.expected.max(now)),
            },
        },
        VcpuState::Idle => Outlook::Idle,
        VcpuState::Unknown => Outlook::Unknown,
    }
}

/// From when on a vCPU whose gap was to end then is overdue; `None`: never.
pub(super) fn overdue_from(back: &Window, settings: &Settings) -> Option<Time> {
    let after = settings.back_overdue_after?;
    Some(back.latest + after + Ns(1))
}
