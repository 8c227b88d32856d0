// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Levers, and letting go.

use std::io;
use std::sync::MutexGuard;

use policy::guest::wakeup::Lever;
use units::CpuSet;

use super::Actor;
use super::Held;
use super::Inner;
use super::ReleaseError;
use super::Released;
use crate::act::counters::Counter;
use crate::act::journal::Position;
use crate::act::lever;
use crate::act::lever::LeverError;
use crate::act::lever::Undone;
use crate::act::mask;
use crate::act::restore::Summary;
use crate::act::sched;
use crate::act::task::TaskDir;

impl Actor {
    /// Changes what is done for the thread's wake-ups; [`Lever::Off`] undoes it. Waits
    /// for nobody: [`LeverError::Busy`] if another thread has its hands on this one.
    pub fn set_lever(&self, held: &Held, lever: Lever) -> Result<(), LeverError> {
        let inner = &*held.0;
        let tid = inner.tid();
        let Some(guard) = inner.try_lock() else {
            return Err(LeverError::Busy { tid });
        };
        let set = self.set_lever_locked(inner, lever);
        drop(guard);
        self.undo_lever_of_ended(inner);
        set
    }

    /// The caller has the lock.
    fn set_lever_locked(&self, inner: &Inner, lever: Lever) -> Result<(), LeverError> {
        let tid = inner.tid();
        let lever = lever::within_range(lever);
        let ended = || LeverError::Ended { tid };
        if inner.slot.position().ended() || !inner.is_alive() {
            return Err(ended());
        }
        if inner.slot.lever() == lever {
            return Ok(());
        }
        let io = |source: io::Error| match source.raw_os_error() {
            Some(libc::ESRCH) => ended(),
            _ => LeverError::Io { tid, source },
        };
        if self.undo_lever(inner).map_err(io)? == Undone::Foreign {
            return Err(LeverError::OwnersChoice { tid });
        }
        inner.slot.set_lever(lever);
        // Noted first: if the hold had ended before, the thread may be held anew by now,
        // and if it ends from here on, that waits for the lever.
        if inner.slot.position().ended() {
            inner.slot.set_lever(Lever::Off);
            return Err(ended());
        }
        let applied = lever::apply(tid, lever, &inner.original, &self.probe);
        if applied.is_err() {
            inner.slot.set_lever(Lever::Off);
            return applied;
        }
        // The id may have been reused under our hands, or a mover may have ended
        // the hold.
        if inner.slot.position().ended() || !inner.is_alive() {
            self.undo_lever(inner).map_err(io)?;
            inner.retire_now(&self.settings.roots);
            return Err(ended());
        }
        self.counters.add(Counter::LeverSet);
        Ok(())
    }

    /// Undoes the lever; the caller has the lock. Should it fail, the journal
    /// still names it.
    pub(super) fn undo_lever(&self, inner: &Inner) -> io::Result<Undone> {
        let undone = lever::undo(inner.tid(), inner.slot.lever(), &inner.original)?;
        inner.slot.set_lever(Lever::Off);
        if undone == Undone::Foreign {
            self.counters.add(Counter::LeverForeign);
        }
        Ok(undone)
    }

    /// Whoever ended a hold in the meantime could not undo its lever, since we had the
    /// lock: to be called by everybody who has just given the lock back.
    pub(super) fn undo_lever_of_ended(&self, inner: &Inner) {
        let is_left = || inner.slot.position().ended() && inner.slot.lever() != Lever::Off;
        // Without the lock there is somebody else who will call this.
        if is_left()
            && let Some(_guard) = inner.try_lock()
            && is_left()
        {
            match self.undo_lever_of_living(inner) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    inner.slot.set_lever(Lever::Off);
                }
                Err(error) => tracing::warn!(tid = %inner.tid(), %error, "lever not undone"),
                Ok(_) => {}
            }
            inner.retire_now(&self.settings.roots);
        }
    }

    /// Lets a thread go: its owner's mask, policy and slice come back, and its
    /// entry leaves the journal, at once or with the next
    /// [`Actor::sweep_inherited`] if threads have been started meanwhile. Waits for
    /// whoever is changing a lever of it, who may be descheduled: not for a mover.
    pub fn release(&self, held: &Held) -> Result<Released, ReleaseError> {
        self.release_with(&held.0, held.0.lock())
    }

    /// The same without waiting. `None`: nothing was done, because somebody has his
    /// hands on the thread; it has to be tried again, or [`Actor::release`] be called
    /// by who has time.
    pub fn try_release(&self, held: &Held) -> Option<Result<Released, ReleaseError>> {
        let guard = held.0.try_lock()?;
        Some(self.release_with(&held.0, guard))
    }

    fn release_with(
        &self,
        inner: &Inner,
        guard: MutexGuard<'_, ()>,
    ) -> Result<Released, ReleaseError> {
        let released = self.release_inner(inner);
        drop(guard);
        self.undo_lever_of_ended(inner);
        match released {
            Ok(Released::Restored) => self.counters.add(Counter::Released),
            Ok(Released::Foreign) => self.counters.add(Counter::Foreign),
            Ok(_) => {}
            Err(_) => self.counters.add(Counter::ReleaseFailed),
        }
        self.change(|_| ());
        released
    }

    /// The caller has the lock.
    fn release_inner(&self, inner: &Inner) -> Result<Released, ReleaseError> {
        let tid = inner.tid();
        let error = |source| ReleaseError { tid, source };
        let is_gone = |source: &io::Error| source.raw_os_error() == Some(libc::ESRCH);
        let mut position = inner.slot.position();
        if position.ended() {
            return Ok(Released::AlreadyOver);
        }
        match self.undo_lever_of_living(inner) {
            Err(source) if is_gone(&source) => return Ok(self.gone(inner)),
            Err(source) => return Err(error(source)),
            Ok(_) => {}
        }
        // The end comes before the mask is given back, or a mover would take
        // the owner's mask for a foreign one. Should we be killed in between,
        // the position still says what is ours.
        let mask = loop {
            let mask = sched::affinity(tid);
            if !inner.is_alive() {
                return Ok(self.gone(inner));
            }
            match inner.slot.change(position, position.end()) {
                Ok(()) => break mask,
                Err(now) if now.ended() => return Ok(Released::AlreadyOver),
                Err(now) => position = now,
            }
        };
        match mask.and_then(|mask| self.restore_mask(inner, position, &mask)) {
            Ok((released, left)) => {
                inner.leave_as(left);
                inner.update(Position::settle);
                inner.retire_now(&self.settings.roots);
                Ok(released)
            }
            Err(source) if is_gone(&source) => Ok(self.gone(inner)),
            Err(source) => {
                inner.update(Position::revive);
                Err(error(source))
            }
        }
    }

    /// The thread has ended: so does the hold. The caller has the lock.
    fn gone(&self, inner: &Inner) -> Released {
        inner.slot.set_lever(Lever::Off);
        inner.update(|position| position.end().settle());
        inner.retire_now(&self.settings.roots);
        Released::Gone
    }

    /// Undoes the lever of a thread that is known to exist before and after.
    fn undo_lever_of_living(&self, inner: &Inner) -> io::Result<Undone> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        if !inner.is_alive() {
            return Err(gone());
        }
        let undone = self.undo_lever(inner)?;
        if inner.is_alive() {
            Ok(undone)
        } else {
            Err(gone())
        }
    }

    /// Gives the owner's mask back if `now` is ours. Returns the mask that the
    /// thread is left with, for a mover that comes too late to put back.
    fn restore_mask(
        &self,
        inner: &Inner,
        position: Position,
        now: &CpuSet,
    ) -> io::Result<(Released, CpuSet)> {
        let untouched = position.at().is_none() && *now == inner.seen;
        if untouched && !inner.owed {
            return Ok((Released::Restored, mask::owners(&inner.original)));
        }
        if !untouched && !position.owns(now) && !self.fell_back(inner, &position.cpus(), now) {
            return Ok((Released::Foreign, *now));
        }
        let given = self.give_back(inner.tid(), &inner.original)?;
        if inner.is_alive() {
            return Ok((Released::Restored, given));
        }
        // Its id may have been reused under our hands. The new thread has its
        // owner's mask unless we have just changed it; it cannot be told what
        // it was, but it was not narrowed.
        Ok((Released::Gone, given))
    }

    /// Has the kernel made this mask because a CPU of `ours` was taken? See
    /// [`mask::fell_back`].
    pub(super) fn fell_back(&self, inner: &Inner, ours: &CpuSet, now: &CpuSet) -> bool {
        let roots = &self.settings.roots;
        let back: CpuSet = inner.narrowed.been_away(roots).into_iter().collect();
        TaskDir::open(roots, inner.tid())
            .is_ok_and(|dir| mask::fell_back(roots, &dir, ours, &back, now))
    }

    /// Lets all threads go and looks after their children; what could not be
    /// undone stays in the journal. If nothing is left there, the file goes.
    pub fn release_all(&self) -> Summary {
        let mut summary = Summary::default();
        for held in self.holds() {
            match self.release(&held) {
                Ok(Released::Restored) => summary.restored += 1,
                Ok(Released::Gone) => summary.gone += 1,
                Ok(Released::Foreign) => summary.foreign += 1,
                Ok(Released::AlreadyOver) => {}
                Err(error) => {
                    tracing::error!("{error}");
                    summary.failed += 1;
                }
            }
        }
        summary.widened = self.sweep_inherited().widened;
        self.write_off();
        self.journal.remove_if_empty();
        summary
    }
}
