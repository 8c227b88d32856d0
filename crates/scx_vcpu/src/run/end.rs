// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why and when a scheduler ends.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::ended::Ended;
use crate::table::State;
use crate::table::Vcpu;

/// Why a scheduler has ended that did nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its owner wanted it.
    Over,
    /// No vCPU has been there for [`super::EMPTY`].
    Empty,
    /// No vCPU has wanted CPU time for [`super::Options::rest_after`].
    Idle,
    /// A CPU came or went.
    Hotplug,
}

impl End {
    /// What it was by what the kernel says when the scheduler has left it: the kernel may have
    /// ended it in the very moment in which we were going to.
    ///
    /// # Errors
    /// The kernel ended it for reasons that are not ours. Whoever wants the end has it then.
    pub(super) fn by(self, kernel: Option<Ended>) -> Result<Self, Ended> {
        match kernel.filter(|_| self != Self::Over) {
            Some(ended) if ended.by_hotplug => Ok(Self::Hotplug),
            Some(ended) if !ended.by_owner => Err(ended),
            _ => Ok(self),
        }
    }
}

/// When its owner wants it to end.
pub(super) struct Until<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) end: Option<Instant>,
}

impl Until<'_> {
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// Does no vCPU run or wait? The kernel counts a wait when it ends. Without any vCPU nobody
/// knows: when the kernel ends a scheduler it takes them from it first.
pub(super) fn all_sleep(table: &[Vcpu]) -> bool {
    !table.is_empty() && table.iter().all(|vcpu| vcpu.state == State::Asleep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_the_kernels_is_none_of_ours() {
        let ended = |by_hotplug, by_owner| Ended {
            by_hotplug,
            by_owner,
            ..Ended::default()
        };
        for end in [End::Idle, End::Empty] {
            assert_eq!(end.by(None).unwrap(), end, "it was not attached");
            assert_eq!(end.by(Some(ended(false, true))).unwrap(), end);
            assert_eq!(end.by(Some(ended(true, false))).unwrap(), End::Hotplug);
            assert!(end.by(Some(ended(false, false))).is_err());
        }
        let over = End::Over.by(Some(ended(false, false)));
        assert_eq!(over.unwrap(), End::Over, "it was to end");
    }

    #[test]
    fn a_table_without_vcpus_is_none_in_which_all_sleep() {
        let of = |states: &[State]| {
            let vcpu = |state: &State| Vcpu {
                state: *state,
                ..crate::policy::vcpu(1, 0)
            };
            all_sleep(&states.iter().map(vcpu).collect::<Vec<_>>())
        };
        assert!(!of(&[]));
        assert!(of(&[State::Asleep, State::Asleep]));
        assert!(!of(&[State::Asleep, State::Waits]));
        assert!(!of(&[State::Runs]));
    }
}
