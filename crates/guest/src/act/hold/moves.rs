// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hot path: moving a held thread.

use std::io;

use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::Ns;
use units::TaskKey;
use units::Tid;
use units::Time;
use units::VcpuId;

use super::Actor;
use super::Held;
use super::Inner;
use super::narrowed::CameUp;
use crate::act::counters::Counter;
use crate::act::journal::Position;
use crate::act::lever;
use crate::act::mask;
use crate::act::sched;
use crate::act::task::TaskDir;

/// Who changed a mask that we had set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignChange {
    /// A `sched_setaffinity` call. It stays exactly as it was made.
    Mask,
    /// The CPU left the thread's cpuset or went offline, so the kernel widened
    /// the mask. The owner's mask is in force again within what is left. Of a thread
    /// that was never moved: its cpuset or the online CPUs have changed.
    CpusetOrHotplug,
}

/// Why a thread was not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// It is gone. The hold is over.
    #[error("thread {key} is gone")]
    Vanished {
        /// The thread.
        key: TaskKey,
    },
    /// It is gone, and its id belongs to another thread, which is as it was.
    #[error("thread {key} is gone and its id has been reused")]
    Reused {
        /// The thread.
        key: TaskKey,
    },
    /// Somebody else changed its mask. The hold is over.
    #[error("somebody else changed the mask of thread {key} to {mask}")]
    Foreign {
        /// The thread.
        key: TaskKey,
        /// How.
        change: ForeignChange,
        /// What it was changed to.
        mask: Box<CpuSet>,
    },
    /// The kernel does not let us.
    #[error("not permitted to move thread {key}: CAP_SYS_NICE is needed")]
    NotPermitted {
        /// The thread.
        key: TaskKey,
    },
    /// The CPU is offline, or outside the thread's cpuset or its owner's mask.
    #[error("thread {key} may not run on CPU {cpu}, only on {allowed}")]
    Invalid {
        /// The thread.
        key: TaskKey,
        /// Where it was to go.
        cpu: VcpuId,
        /// Where it may go now.
        allowed: Box<CpuSet>,
    },
    /// Too many movers are at work on this thread: they were all descheduled.
    #[error("thread {key} is being moved already")]
    Busy {
        /// The thread.
        key: TaskKey,
    },
    /// The hold is over already.
    #[error("thread {key} is not held any more")]
    Over {
        /// The thread.
        key: TaskKey,
    },
    /// Something else.
    #[error("cannot move thread {key}: {source}")]
    Io {
        /// The thread.
        key: TaskKey,
        /// Why.
        source: io::Error,
    },
}

impl MoveError {
    const fn counter(&self) -> Counter {
        match self {
            Self::Vanished { .. } => Counter::Vanished,
            Self::Reused { .. } => Counter::Reused,
            Self::Foreign { .. } => Counter::Foreign,
            Self::NotPermitted { .. } => Counter::NotPermitted,
            Self::Invalid { .. } => Counter::Invalid,
            Self::Busy { .. } => Counter::Busy,
            Self::Over { .. } => Counter::Over,
            Self::Io { .. } => Counter::OtherError,
        }
    }

    /// The reason in one word, as the metrics name it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.counter().name()
    }
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Time(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Actor {
    /// Narrows a held thread to one CPU. Returns what the call cost the caller,
    /// one migration's share of C_avg in equation (2).
    ///
    /// Callable from any number of threads at once, without locks; the last
    /// system call wins. The caller must not name a thread that is the current
    /// one of a descheduled vCPU: the kernel would wait until that is back.
    ///
    /// The thread is known to be the right one before and after the change, and
    /// its mask to be ours before it; otherwise the hold ends as the error says.
    pub fn move_to(&self, held: &Held, to: VcpuId) -> Result<Ns, MoveError> {
        let result = self.move_with(held, to, sched::set_affinity);
        self.counters.add(match &result {
            Ok(_) => Counter::Moved,
            Err(error) => error.counter(),
        });
        result
    }

    /// The same with the system call as an argument, so that tests can do
    /// something nasty right before it.
    pub(super) fn move_with(
        &self,
        held: &Held,
        to: VcpuId,
        set: impl FnOnce(Tid, &CpuSet) -> io::Result<()>,
    ) -> Result<Ns, MoveError> {
        let inner = &*held.0;
        let (tid, key) = (inner.tid(), inner.original.key);
        let start = now();
        if !mask::owners(&inner.original).contains(to) {
            return Err(MoveError::Invalid {
                key,
                cpu: to,
                allowed: Box::new(self.allowed(held)),
            });
        }
        inner.slot.touch(to);
        take_off(inner, to)?;
        // Mask first, life second: the mask was then that of our thread.
        let seen = observe(inner, Some(to));
        if !inner.is_alive() {
            self.land(inner, to, Call::Refused);
            return Err(self.vanished(inner));
        }
        match seen {
            Ok(Seen::Ours) => {}
            Ok(Seen::Over) => {
                self.land(inner, to, Call::Refused);
                return Err(MoveError::Over { key });
            }
            Ok(Seen::Foreign(position, mask)) => {
                let change = self.end_foreign(inner, position, &mask);
                self.land(inner, to, Call::Refused);
                return Err(MoveError::Foreign {
                    key,
                    change,
                    mask: Box::new(mask),
                });
            }
            Err(source) => {
                self.land(inner, to, Call::Refused);
                return Err(MoveError::Io { key, source });
            }
        }
        self.check_lever(inner);
        let narrow = CpuSet::only(to);
        let came_up = CameUp::of(&self.settings.roots, to);
        if let Err(source) = set(tid, &narrow) {
            self.land(inner, to, Call::Refused);
            return Err(match source.raw_os_error() {
                Some(libc::ESRCH) => self.vanished(inner),
                Some(libc::EPERM | libc::EACCES) => MoveError::NotPermitted { key },
                Some(libc::EINVAL) => MoveError::Invalid {
                    key,
                    cpu: to,
                    allowed: Box::new(self.allowed(held)),
                },
                _ => MoveError::Io { key, source },
            });
        }
        inner.narrowed.to(came_up);
        if !inner.is_alive() {
            if let Err(error) = mask::undo_reuse(&self.settings.roots, tid, &narrow) {
                tracing::debug!(%tid, %error, "no thread with this id to repair");
            }
            self.land(inner, to, Call::Refused);
            return Err(self.vanished(inner));
        }
        let cost = now().since(start);
        match self.land(inner, to, Call::Made) {
            None => Ok(cost),
            Some((position, mask)) => {
                let change = self.end_foreign(inner, position, &mask);
                self.land(inner, to, Call::Made);
                Err(MoveError::Foreign {
                    key,
                    change,
                    mask: Box::new(mask),
                })
            }
        }
    }

    /// Takes our flight out of the position and notes where the thread is now.
    ///
    /// Returns its mask if that is not ours, and the position then. Our flight stays in
    /// that until the hold has been ended: the CPU may be gone to which we have narrowed
    /// the thread, and if we are killed, the next process has to know of it. If the hold
    /// has ended meanwhile, what we may have set too late is taken back.
    fn land(&self, inner: &Inner, to: VcpuId, call: Call) -> Option<(Position, CpuSet)> {
        let mut position = inner.slot.position();
        while !position.ended() {
            let mask = sched::affinity(inner.tid()).ok();
            let mask = mask.filter(|_| inner.is_alive());
            let owned = mask.filter(|mask| position.owns(mask));
            let untouched = position.at().is_none() && mask == Some(inner.seen);
            let next = match mask {
                Some(mask) if call == Call::Made && owned.is_none() && !untouched => {
                    let now = inner.slot.position();
                    if now == position {
                        return Some((position, mask));
                    }
                    Err(now)
                }
                _ => {
                    let at = owned.and_then(|mask| mask.iter().next()).or(position.at());
                    inner.slot.change(position, position.land(to, at))
                }
            };
            match next {
                Ok(()) => return None,
                Err(now) => position = now,
            }
        }
        // Before the flight leaves the journal.
        self.take_back_late(inner, to, call);
        // Of an ended hold `at` stays what it was, until it is settled.
        inner.update(|position| position.land(to, position.at()));
        inner.retire_now(&self.settings.roots);
        None
    }

    /// The hold has ended, perhaps before our system call.
    fn take_back_late(&self, inner: &Inner, to: VcpuId, call: Call) {
        let tid = inner.tid();
        let narrow = CpuSet::only(to);
        let Ok(mask) = sched::affinity(tid) else {
            return;
        };
        let ours = mask == narrow || (call == Call::Made && self.fell_back(inner, &narrow, &mask));
        if ours && inner.is_alive() {
            let back = inner.leave_as.load_full();
            let back = back.map_or_else(|| mask::owners(&inner.original), |mask| *mask);
            if let Err(error) = sched::set_affinity(tid, &back) {
                tracing::debug!(%tid, %error, "late move not taken back");
            }
        }
    }

    /// The thread has gone: ends the hold.
    fn vanished(&self, inner: &Inner) -> MoveError {
        let key = inner.original.key;
        inner.update(|position| position.end().settle());
        self.undo_lever_of_ended(inner);
        inner.retire_now(&self.settings.roots);
        match self.settings.roots.key(key.tid) {
            Ok(_) => MoveError::Reused { key },
            Err(_) => MoveError::Vanished { key },
        }
    }

    /// Somebody else has set the mask: ends the hold.
    fn end_foreign(&self, inner: &Inner, position: Position, mask: &CpuSet) -> ForeignChange {
        let untouched = position.cpus().is_empty();
        let taken = if untouched {
            self.cpus_changed(inner)
        } else {
            self.fell_back(inner, &position.cpus(), mask)
        };
        let change = if taken {
            ForeignChange::CpusetOrHotplug
        } else {
            ForeignChange::Mask
        };
        self.end_as(inner, position, mask, change);
        change
    }

    /// The same, when it is known how.
    pub(super) fn end_as(
        &self,
        inner: &Inner,
        position: Position,
        mask: &CpuSet,
        change: ForeignChange,
    ) {
        let tid = inner.tid();
        // Of a hold that has moved nothing there is nothing to undo.
        let untouched = position.cpus().is_empty();
        let is_done = if change == ForeignChange::Mask || (untouched && !inner.owed) {
            inner.leave_as(*mask);
            inner.end()
        } else if inner.end() {
            let left = self.give_back(tid, &inner.original);
            match &left {
                Ok(left) => inner.leave_as(*left),
                // The entry stays, and `restore` tries again.
                Err(error) => tracing::warn!(%tid, %error, "mask not given back"),
            }
            left.is_ok()
        } else {
            // The thread may be held anew by now.
            false
        };
        if is_done {
            inner.update(Position::settle);
        }
        // Whoever has the lock will see the end when he has given it back.
        self.undo_lever_of_ended(inner);
        inner.retire_now(&self.settings.roots);
    }

    /// Is what an untouched thread may use now another set because its cpuset or the online
    /// CPUs are others than when it was adopted? If its mask is listed as it was, nobody has
    /// chosen anything, and a CPU is on its way: `online` is behind then.
    fn cpus_changed(&self, inner: &Inner) -> bool {
        let roots = &self.settings.roots;
        let Ok(dir) = TaskDir::open(roots, inner.tid()) else {
            return inner.permitted.is_some();
        };
        roots.permitted(&dir) != inner.permitted
            || dir.facts().is_ok_and(|facts| facts.mask == inner.listed)
    }

    /// Drops a lever that somebody else has changed.
    fn check_lever(&self, inner: &Inner) {
        let lever = inner.slot.lever();
        if lever == Lever::Off || lever::holds(inner.tid(), lever, &inner.original).unwrap_or(true)
        {
            return;
        }
        if let Some(guard) = inner.try_lock() {
            if inner.slot.lever() == lever
                && let Err(error) = self.undo_lever(inner)
            {
                tracing::warn!(tid = %inner.tid(), %error, "lever not undone");
            }
            drop(guard);
            self.undo_lever_of_ended(inner);
        }
    }

    /// Looks whether the thread is still as we left it, without moving it:
    /// `Ok` if so, else the hold has ended as the error says.
    pub fn verify(&self, held: &Held) -> Result<(), MoveError> {
        let inner = &*held.0;
        let key = inner.original.key;
        if inner.slot.position().ended() {
            return Err(MoveError::Over { key });
        }
        let seen = observe(inner, None);
        if !inner.is_alive() {
            return Err(self.vanished(inner));
        }
        match seen.map_err(|source| MoveError::Io { key, source })? {
            Seen::Ours => {
                self.check_lever(inner);
                Ok(())
            }
            Seen::Over => Err(MoveError::Over { key }),
            Seen::Foreign(position, mask) => {
                let change = self.end_foreign(inner, position, &mask);
                Err(MoveError::Foreign {
                    key,
                    change,
                    mask: Box::new(mask),
                })
            }
        }
    }
}

/// What became of a mover's system call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// It has changed the mask.
    Made,
    /// It has failed, or there was none.
    Refused,
}

/// Enters our target. Before anything is done, so that it survives us.
fn take_off(inner: &Inner, to: VcpuId) -> Result<(), MoveError> {
    let key = inner.original.key;
    let mut position = inner.slot.position();
    loop {
        if position.ended() {
            return Err(MoveError::Over { key });
        }
        let next = position.take_off(to).ok_or(MoveError::Busy { key })?;
        match inner.slot.change(position, next) {
            Ok(()) => return Ok(()),
            Err(now) => position = now,
        }
    }
}

/// Whose mask a thread has.
enum Seen {
    /// The one that we set last, or the owner's if we have set none.
    Ours,
    /// That of a hold that is over.
    Over,
    /// Somebody else's, while the position was this.
    Foreign(Position, CpuSet),
}

/// Looks at the thread's mask. Other movers may change it meanwhile: a mask is
/// foreign only if the position stood still while it was read. `own` is our
/// own flight, which has not set anything yet.
fn observe(inner: &Inner, own: Option<VcpuId>) -> io::Result<Seen> {
    let without_own =
        |position: Position| own.map_or(position, |to| position.land(to, position.at()));
    let mut before = inner.slot.position();
    loop {
        let mask = sched::affinity(inner.tid())?;
        let after = inner.slot.position();
        let ours = |position: Position| {
            let position = without_own(position);
            position.owns(&mask) || (position.at().is_none() && mask == inner.seen)
        };
        // An ended hold is not judged: whoever ended it sees to the mask.
        if after.ended() {
            return Ok(Seen::Over);
        }
        if ours(before) || ours(after) {
            return Ok(Seen::Ours);
        }
        if before == after {
            return Ok(Seen::Foreign(without_own(before), mask));
        }
        before = after;
    }
}
