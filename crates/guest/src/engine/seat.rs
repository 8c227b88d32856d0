// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What we know about the task in each slot beyond what the programs write: our
//! hold on it, where we put it, and its wake-up lever.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use arc_swap::ArcSwapOption;
use policy::guest::wakeup::Decider;
use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::Ns;
use units::TaskKey;
use units::Time;
use units::VcpuId;

use crate::act::Held;
use crate::sense::TaskSlot;

/// No home: never moved.
const NOWHERE: u32 = u32::MAX;

/// A task that has been looked at and may be moved.
#[derive(Debug)]
pub(super) struct Seated {
    pub(super) key: TaskKey,
    pub(super) tgid: u32,
    pub(super) comm: String,
    pub(super) priority: i32,
    allowed: ArcSwap<CpuSet>,
    lever: ArcSwap<Lever>,
    /// Tried, never waited for: whoever has it sees to the lever.
    pub(super) deciding: Mutex<Deciding>,
    pub(super) held: Held,
}

impl Seated {
    pub(super) fn new(
        held: Held,
        tgid: u32,
        comm: String,
        priority: i32,
        deciding: Deciding,
    ) -> Self {
        Self {
            key: held.key(),
            tgid,
            comm,
            priority,
            allowed: ArcSwap::from_pointee(held.allowed()),
            lever: ArcSwap::from_pointee(Lever::Off),
            deciding: Mutex::new(deciding),
            held,
        }
    }

    /// Is it the one that the slot speaks of?
    pub(super) fn is_of(&self, slot: &TaskSlot) -> bool {
        self.key.tid.0 == slot.tid && self.key.start_ticks == slot.start_ticks
    }

    /// Where it may be moved, as of the last look.
    pub(super) fn allowed(&self) -> CpuSet {
        **self.allowed.load()
    }

    /// Its cpuset or the online CPUs may have changed.
    pub(super) fn allow(&self, cpus: CpuSet) {
        if self.allowed() != cpus {
            self.allowed.store(Arc::new(cpus));
        }
    }

    /// The lever that we have pulled; its owner may have undone that.
    pub(super) fn lever(&self) -> Lever {
        **self.lever.load()
    }

    pub(super) fn pulled(&self, lever: Lever) {
        self.lever.store(Arc::new(lever));
    }
}

/// Sums at the last look of the lever's decider.
#[derive(Debug)]
pub(super) struct Deciding {
    pub(super) decider: Decider,
    pub(super) at: Time,
    pub(super) switches: u64,
    pub(super) queued: Ns,
    pub(super) on_cpu: Ns,
}

/// One word for a vCPU and a gap of it, never zero.
fn dry_key(vcpu: VcpuId, gap: u64) -> u64 {
    (u64::from(vcpu.0) + 1) << 48 | gap & 0xffff_ffff_ffff
}

/// The right to move a task, until this instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim(Time);

impl Claim {
    pub(super) fn is_over(self, now: Time) -> bool {
        now >= self.0
    }
}

/// One slot's seat. Nobody waits for whoever reads or changes it.
#[derive(Debug, Default)]
pub(super) struct Seat {
    seated: ArcSwapOption<Seated>,
    /// Nobody is held here because its program is let go, see `trials`.
    free: AtomicBool,
    /// Nobody is held here because its CPU was taken and too few were left: to be
    /// tried again.
    again: AtomicBool,
    home: AtomicU32,
    /// Until when a mover has claimed the task, `CLOCK_MONOTONIC` nanoseconds. A
    /// claim ends by itself, because its holder may be descheduled with it.
    claimed_until: AtomicU64,
    /// When the slot was taken by the task that was last looked at here, held or not.
    looked_at: AtomicU64,
    moves: AtomicU64,
    moved_at: AtomicU64,
    /// In a dry run, the end of a slice that the task would not have met: see
    /// [`Seat::would_have_left`].
    dry: AtomicU64,
}

impl Seat {
    /// Whoever sat here before has to be let go.
    #[must_use]
    pub(super) fn take(&self, seated: &Arc<Seated>) -> Option<Arc<Seated>> {
        self.home.store(NOWHERE, Ordering::Relaxed);
        self.moves.store(0, Ordering::Relaxed);
        self.moved_at.store(0, Ordering::Relaxed);
        self.dry.store(0, Ordering::Relaxed);
        self.claimed_until.store(0, Ordering::Relaxed);
        self.free.store(false, Ordering::Relaxed);
        self.again.store(false, Ordering::Relaxed);
        self.seated.swap(Some(Arc::clone(seated)))
    }

    /// Nobody sits here any more, if it was still this one.
    pub(super) fn leave_of(&self, seated: &Arc<Seated>) -> bool {
        let mine = Some(Arc::clone(seated));
        let was = self.seated.compare_and_swap(&mine, None);
        was.as_ref().is_some_and(|was| Arc::ptr_eq(was, seated))
    }

    /// Shall it be tried again to take hold of whoever is here?
    pub(super) fn set_again(&self, again: bool) {
        self.again.store(again, Ordering::Relaxed);
    }

    pub(super) fn wants_again(&self) -> bool {
        self.again.load(Ordering::Relaxed)
    }

    /// The task, if it is the one that the slot speaks of.
    pub(super) fn seated(&self, slot: &TaskSlot) -> Option<Arc<Seated>> {
        self.seated.load_full().filter(|seated| seated.is_of(slot))
    }

    /// Whoever is in the slot now is being looked at.
    pub(super) fn look_at(&self, slot: &TaskSlot) {
        self.looked_at.store(slot.taken.as_ns(), Ordering::Relaxed);
    }

    /// Has it been? If not, nobody has heard that it came.
    pub(super) fn was_looked_at(&self, slot: &TaskSlot) -> bool {
        self.looked_at.load(Ordering::Relaxed) == slot.taken.as_ns()
    }

    /// The task here is left as it is for the time being.
    pub(super) fn set_free(&self, free: bool) {
        self.free.store(free, Ordering::Relaxed);
    }

    /// Was it? Not any more.
    pub(super) fn end_free(&self) -> bool {
        self.free.swap(false, Ordering::Relaxed)
    }

    /// Is the task here held, or only let go to compare?
    pub(super) fn is_ours(&self) -> bool {
        self.free.load(Ordering::Relaxed) || self.seated.load().is_some()
    }

    /// In a dry run: would the task have been moved off this vCPU already, for the gap
    /// with this number? It stays there, and each later look finds it there again.
    pub(super) fn would_have_left(&self, vcpu: VcpuId, gap: u64) -> bool {
        self.dry.load(Ordering::Relaxed) == dry_key(vcpu, gap)
    }

    /// In a dry run: it would have been moved now.
    pub(super) fn would_leave(&self, vcpu: VcpuId, gap: u64) {
        self.dry.store(dry_key(vcpu, gap), Ordering::Relaxed);
    }

    /// Does whoever sits here sit by this hold?
    pub(super) fn holds(&self, held: &Held) -> bool {
        let seated = self.seated.load();
        seated.as_ref().is_some_and(|seated| seated.held.is(held))
    }

    pub(super) fn anyone(&self) -> Option<Arc<Seated>> {
        self.seated.load_full()
    }

    pub(super) fn home(&self) -> Option<VcpuId> {
        match self.home.load(Ordering::Relaxed) {
            NOWHERE => None,
            vcpu => Some(VcpuId(vcpu)),
        }
    }

    pub(super) fn moved_to(&self, vcpu: VcpuId, now: Time) {
        self.moved_at.store(now.as_ns(), Ordering::Relaxed);
        self.home.store(vcpu.0, Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Was it on its present vCPU at that time already?
    pub(super) fn was_here(&self, at: Time) -> bool {
        self.moved_at.load(Ordering::Relaxed) <= at.as_ns()
    }

    /// Claims the task for one move; `None` if somebody else has.
    pub(super) fn claim(&self, now: Time, length: Ns) -> Option<Claim> {
        let until = self.claimed_until.load(Ordering::Relaxed);
        let claim = Claim(now + length);
        (until <= now.as_ns()
            && self
                .claimed_until
                .compare_exchange(until, claim.0.as_ns(), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok())
        .then_some(claim)
    }

    /// Gives a claim back, unless it has ended and somebody else has one now.
    pub(super) fn unclaim(&self, claim: Claim) {
        // Not ours any more: nothing to give back.
        let _ = self.claimed_until.compare_exchange(
            claim.0.as_ns(),
            0,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_excludes_others_until_it_ends() {
        let seat = Seat::default();
        let first = seat.claim(Time(1_000), Ns(500)).unwrap();
        assert_eq!(seat.claim(Time(1_499), Ns(500)), None);
        assert!(!first.is_over(Time(1_499)) && first.is_over(Time(1_500)));
        let second = seat.claim(Time(1_500), Ns(500)).unwrap();
        // The first is over: to give it back takes nothing from the second.
        seat.unclaim(first);
        assert_eq!(seat.claim(Time(1_501), Ns(500)), None);
        seat.unclaim(second);
        assert!(seat.claim(Time(1_502), Ns(500)).is_some());
    }
}
