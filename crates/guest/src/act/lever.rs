// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wake-up lever: a short EEVDF slice or a real-time priority for a thread
//! that waits behind compute, and how to take it back.
//!
//! Both are set with `SCHED_FLAG_RESET_ON_FORK`, so that children get neither.
//! That flag also resets a negative nice value of children, and under a
//! real-time policy any nice value: a thread whose owner chose such a value is
//! refused instead (its owner's priority wins).

use std::io;

use policy::guest::wakeup;
use policy::guest::wakeup::Lever;
use units::Ns;
use units::Tid;

use super::journal::Original;
use super::sched;
use super::sched::Attr;
use super::sched::FLAG_RESET_ON_FORK;
use super::sched::SCHED_FIFO;
use super::sched::SCHED_OTHER;

/// The only priority that [`Lever::Fifo`] uses.
const FIFO_PRIORITY: u32 = 1;

/// A lever as one word of the journal: kind in the top byte, nanoseconds below.
pub(super) const fn pack(lever: Lever) -> u64 {
    match lever {
        Lever::Off => 0,
        Lever::EevdfSlice(slice) => 1 << 56 | (slice.0 & ((1 << 56) - 1)),
        Lever::Fifo => 2 << 56,
    }
}

/// From a word of the journal; what is not a lever is none.
pub(super) const fn unpack(word: u64) -> Lever {
    match word >> 56 {
        1 => Lever::EevdfSlice(Ns(word & ((1 << 56) - 1))),
        2 => Lever::Fifo,
        _ => Lever::Off,
    }
}

/// Within the kernel's range: it would clamp the slice, and what we then read
/// back would not look like ours.
pub(super) fn within_range(lever: Lever) -> Lever {
    match lever {
        Lever::EevdfSlice(slice) => {
            Lever::EevdfSlice(slice.clamp(wakeup::MIN_SLICE, wakeup::MAX_SLICE))
        }
        other => other,
    }
}

/// Is this what the lever does, as far as it is ours?
fn is_on(lever: Lever, attr: &Attr, original: &Original) -> bool {
    match lever {
        Lever::Off => false,
        Lever::EevdfSlice(slice) => {
            attr.policy == original.policy && attr.is_fair() && attr.runtime == slice.0
        }
        Lever::Fifo => {
            attr.policy == SCHED_FIFO && attr.priority == FIFO_PRIORITY && attr.resets_on_fork()
        }
    }
}

/// Why a lever was not set.
#[derive(Debug, thiserror::Error)]
pub enum LeverError {
    /// The kernel has no per-thread slice, or does not reset it on fork.
    #[error("this kernel has no per-thread EEVDF slice (it came with Linux 6.12)")]
    Unsupported,
    /// Its owner chose a policy, a nice value or a slice, which wins.
    #[error("thread {tid} has a policy, nice value or slice of its owner's choice")]
    OwnersChoice {
        /// The thread.
        tid: Tid,
    },
    /// Somebody else has his hands on the thread, perhaps descheduled.
    #[error("thread {tid} is being changed or released by another thread; to be tried again")]
    Busy {
        /// The thread.
        tid: Tid,
    },
    /// The thread has gone, or is not held any more.
    #[error("thread {tid} is gone or not held any more")]
    Ended {
        /// The thread.
        tid: Tid,
    },
    /// The kernel does not let us.
    #[error(
        "not permitted to change the policy of thread {tid}: CAP_SYS_NICE is needed, and for \
         SCHED_FIFO a cgroup with real-time bandwidth"
    )]
    NotPermitted {
        /// The thread.
        tid: Tid,
    },
    /// Something else.
    #[error("cannot change the policy of thread {tid}: {source}")]
    Io {
        /// The thread.
        tid: Tid,
        /// Why.
        source: io::Error,
    },
}

/// What became of a lever that was to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// It is gone, or had never been applied.
    Clean,
    /// Somebody else has changed the policy or the slice since: left alone.
    Foreign,
}

/// What this kernel offers, found out on a thread of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The levers that work. `fifo` says so of our own cgroup; a thread in a
    /// cgroup without real-time bandwidth is refused when it is tried.
    pub levers: wakeup::Support,
    /// The kernel's default slice; zero if it does not tell.
    pub default_slice: Ns,
}

impl Probe {
    /// Asks the kernel, by doing it: versions lie where patches are carried back.
    pub fn run() -> io::Result<Self> {
        in_thread(probe_here)
    }
}

fn in_thread<T: Send>(body: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(body).join())
        .map_err(|_| io::Error::other("the probing thread panicked"))?
}

fn this_thread() -> Tid {
    Tid(rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned())
}

/// Runs on a thread that ends afterwards.
fn probe_here() -> io::Result<Probe> {
    let tid = this_thread();
    let plain = Attr {
        policy: SCHED_OTHER,
        ..Attr::default()
    };
    sched::set_attr(tid, &plain)?;
    let default = sched::attr(tid)?.runtime;
    // Neither a default nor a round number.
    let slice = 1_234_567;
    let flags = FLAG_RESET_ON_FORK;
    sched::set_attr(
        tid,
        &Attr {
            runtime: slice,
            flags,
            ..plain
        },
    )?;
    let sticks = sched::attr(tid)?.runtime == slice;
    let child = in_thread(|| sched::attr(this_thread()))?;
    let fifo = Attr {
        policy: SCHED_FIFO,
        priority: FIFO_PRIORITY,
        flags,
        ..plain
    };
    Ok(Probe {
        levers: wakeup::Support {
            eevdf_slice: sticks && child.runtime == default,
            fifo: sched::set_attr(tid, &fifo).is_ok(),
        },
        default_slice: Ns(default),
    })
}

/// Applies a lever to a thread that has none. The journal knows it already.
pub(super) fn apply(
    tid: Tid,
    lever: Lever,
    original: &Original,
    probe: &Probe,
) -> Result<(), LeverError> {
    let now = sched::attr(tid).map_err(|error| error_of(tid, error))?;
    let same = now.policy == original.policy
        && now.nice == original.nice
        && now.resets_on_fork() == original.reset_on_fork;
    let unchosen = now.policy == SCHED_OTHER && original.slice_ns == 0 && now.nice >= 0;
    let flags = FLAG_RESET_ON_FORK;
    let wanted = match lever {
        Lever::Off => return Ok(()),
        _ if !same || !unchosen => return Err(LeverError::OwnersChoice { tid }),
        Lever::EevdfSlice(_) if !probe.levers.eevdf_slice => return Err(LeverError::Unsupported),
        Lever::EevdfSlice(slice) => Attr {
            flags,
            runtime: slice.0,
            ..now
        },
        Lever::Fifo if now.nice != 0 => return Err(LeverError::OwnersChoice { tid }),
        Lever::Fifo => Attr {
            policy: SCHED_FIFO,
            flags,
            priority: FIFO_PRIORITY,
            ..Attr::default()
        },
    };
    sched::set_attr(tid, &wanted).map_err(|error| error_of(tid, error))
}

/// Is the lever still what is in force?
pub(super) fn holds(tid: Tid, lever: Lever, original: &Original) -> io::Result<bool> {
    Ok(lever == Lever::Off || is_on(lever, &sched::attr(tid)?, original))
}

/// Undoes a lever, whoever set it: this process or one that was killed before
/// or after the system call. What others have changed since stays: all of it if
/// they changed the policy or the slice, and always their nice value.
pub(super) fn undo(tid: Tid, lever: Lever, original: &Original) -> io::Result<Undone> {
    if lever == Lever::Off {
        return Ok(Undone::Clean);
    }
    let now = sched::attr(tid)?;
    if !is_on(lever, &now, original) {
        let untouched = now.policy == original.policy
            && (original.slice_ns == 0 || now.runtime == original.slice_ns);
        return Ok(if untouched {
            Undone::Clean
        } else {
            Undone::Foreign
        });
    }
    let flags = if original.reset_on_fork {
        FLAG_RESET_ON_FORK
    } else {
        0
    };
    let back = Attr {
        policy: original.policy,
        flags,
        nice: sched::nice(tid)?,
        priority: original.priority,
        // 0 gives the kernel's default back, not just its present value.
        runtime: original.slice_ns,
        ..Attr::default()
    };
    sched::set_attr(tid, &back)?;
    Ok(Undone::Clean)
}

fn error_of(tid: Tid, source: io::Error) -> LeverError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => LeverError::Ended { tid },
        Some(libc::EPERM | libc::EACCES) => LeverError::NotPermitted { tid },
        _ => LeverError::Io { tid, source },
    }
}
