// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a thread is left alone, and how a release went.

use std::io;

use units::CpuSet;
use units::TaskKey;
use units::Tid;

use crate::act::journal::JournalError;
use crate::act::task::TaskError;

/// Why an actor could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal cannot be had.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The levers could not be tried.
    #[error("cannot try the scheduler's settings on a thread of our own: {0}")]
    Probe(#[source] io::Error),
}

/// Why a thread is left alone.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is gone, or its id belongs to another thread.
    #[error("thread {key} is gone")]
    Vanished {
        /// The thread.
        key: TaskKey,
    },
    /// It belongs to the kernel.
    #[error("{comm} ({tid}) is a kernel thread")]
    KernelThread {
        /// The thread.
        tid: Tid,
        /// Its name.
        comm: String,
    },
    /// The kernel does not allow its mask to change.
    #[error("{comm} ({tid}) cannot be moved: the kernel has fixed its mask")]
    Immovable {
        /// The thread.
        tid: Tid,
        /// Its name.
        comm: String,
    },
    /// It has a deadline, with a bandwidth that was admitted for its CPUs.
    #[error("{comm} ({tid}) runs under SCHED_DEADLINE")]
    Deadline {
        /// The thread.
        tid: Tid,
        /// Its name.
        comm: String,
    },
    /// It may run on one CPU only: nowhere to move it, and not ours to widen.
    #[error("{comm} ({tid}) may only run on CPU {cpus}")]
    Pinned {
        /// The thread.
        tid: Tid,
        /// Its name.
        comm: String,
        /// What it may use.
        cpus: Box<CpuSet>,
    },
    /// It is one of our own.
    #[error("thread {tid} is the daemon's own")]
    Own {
        /// The thread.
        tid: Tid,
    },
    /// The user said so.
    #[error("{comm} ({tid}) is excluded by the configuration")]
    Excluded {
        /// The thread.
        tid: Tid,
        /// Its name.
        comm: String,
    },
    /// Another thread is letting go of it, or was quicker again and again.
    #[error("thread {tid} is being let go or taken by another thread; to be tried again")]
    Busy {
        /// The thread.
        tid: Tid,
    },
    /// No slot left.
    #[error("thread {tid} is not held: all {capacity} slots of the journal are in use")]
    JournalFull {
        /// The thread.
        tid: Tid,
        /// Slots.
        capacity: usize,
    },
    /// Its facts cannot be had.
    #[error(transparent)]
    Task(TaskError),
    /// A system call failed.
    #[error("cannot read the scheduling of thread {tid}: {source}")]
    Io {
        /// The thread.
        tid: Tid,
        /// Why.
        source: io::Error,
    },
}

/// How a release went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The owner's mask and policy are back.
    Restored,
    /// The thread had ended.
    Gone,
    /// Somebody else had changed the mask, which stays.
    Foreign,
    /// The hold was over already.
    AlreadyOver,
}

/// Why a release failed. The journal keeps the entry: `restore` tries again.
#[derive(Debug, thiserror::Error)]
#[error("cannot give thread {tid} its mask back: {source}; run `vmigrater restore` as root")]
pub struct ReleaseError {
    /// The thread.
    pub tid: Tid,
    /// Why.
    pub source: io::Error,
}
