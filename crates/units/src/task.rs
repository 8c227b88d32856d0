// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which thread is meant.

use std::fmt;

/// A thread id as the initial PID namespace counts it. The kernel reuses these,
/// so a stored reference to a thread is a [`TaskKey`], never a bare `Tid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Tid(pub u32);

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One thread, for good: its id and when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskKey {
    /// The thread id.
    pub tid: Tid,
    /// When the thread started, in clock ticks since boot (`USER_HZ`, 10 ms):
    /// field 22 of `/proc/<tid>/stat`, which every process can read again, also
    /// after the daemon that stored the key has died. The kernel derives it
    /// from `task_struct::start_boottime`.
    pub start_ticks: u64,
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.tid, self.start_ticks)
    }
}
