// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was done, counted by reason.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// One list makes the enum, the names and the array, so that they cannot drift.
macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        impl Counter {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As the metrics name it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// Threads taken hold of.
    Adopted => "adopted",
    /// Threads left alone.
    Refused => "refused",
    /// Moves made.
    Moved => "moved",
    /// Holds let go by us.
    Released => "released",
    /// Releases that failed; the journal keeps the entry.
    ReleaseFailed => "release-failed",
    /// Threads that had ended.
    Vanished => "vanished",
    /// Threads that had ended and whose id belongs to another one.
    Reused => "reused",
    /// Masks that somebody else had changed.
    Foreign => "foreign",
    /// Moves that the kernel did not permit.
    NotPermitted => "not-permitted",
    /// Moves to a CPU that is offline or outside the cpuset or the owner's mask.
    Invalid => "invalid-cpu",
    /// Moves given up because others were at work on the thread.
    Busy => "busy",
    /// Moves of a thread that was not held any more.
    Over => "over",
    /// Moves that failed in another way.
    OtherError => "other",
    /// Levers set.
    LeverSet => "lever-set",
    /// Levers whose policy or slice somebody else had changed.
    LeverForeign => "lever-foreign",
    /// CPUs that are back but could not be given back to their thread; tried again.
    RepayFailed => "repay-failed",
    /// Threads that ended before they could have all of their CPUs back.
    OwedGone => "owed-gone",
    /// Children that had inherited our mask and got their parent's.
    Widened => "widened",
    /// Children for which that failed.
    WidenFailed => "widen-failed",
}

/// All counters. Relaxed: each is true by itself, together they are a snapshot
/// of no single instant.
#[derive(Debug)]
pub struct Counters([AtomicU64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Counter::ALL.len()])
    }
}

impl Counters {
    pub(super) fn add(&self, counter: Counter) {
        self.0[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has happened.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    /// Moves that failed, by reason; reasons that have not occurred are left out.
    #[must_use]
    pub fn failed_moves(&self) -> BTreeMap<String, u64> {
        let reasons = [
            Counter::Vanished,
            Counter::Reused,
            Counter::Foreign,
            Counter::NotPermitted,
            Counter::Invalid,
            Counter::Busy,
            Counter::Over,
            Counter::OtherError,
        ];
        let counted = reasons.map(|reason| (reason.name().to_owned(), self.get(reason)));
        counted.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// All of them with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL
            .iter()
            .map(|counter| (counter.name(), self.get(*counter)))
    }
}
