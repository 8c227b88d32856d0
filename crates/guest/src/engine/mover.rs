// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task Migrater, the hands: one thread per vCPU that carries out what the
//! monitor of the same vCPU orders.
//!
//! A thread of its own because `sched_setaffinity` can block: on a task that has
//! just become current on a vCPU that then went away it waits for that vCPU (490
//! ms were seen). The monitor must not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;

use policy::guest::view::Why;
use policy::guest::wakeup::Decider;
use policy::guest::wakeup::Lever;
use units::Ns;
use units::TaskKey;
use units::Tid;
use units::Time;
use units::VcpuId;

use super::core::Core;
use super::count::SLOWEST_REACTION;
use super::count::Wakeup;
use super::seat::Claim;
use super::seat::Deciding;
use super::seat::Seated;
use super::thread::Home;
use super::trials;
use crate::act::Held;
use crate::act::Refusal;
use crate::act::hold::ForeignChange;
use crate::act::hold::MoveError;
use crate::sense::SlotState;
use crate::sense::now;

/// What a monitor wants done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Look at the task in this slot and take hold of it.
    Seat(usize),
    /// Let go of it, undoing everything.
    Release(usize),
    /// Move it.
    Move(MoveOrder),
    /// Pull another lever.
    Lever { slot: usize, lever: Lever },
    /// Read what Linux says of this device's completions.
    Ask(u32),
    /// Widen what its new child inherited.
    Fork { slot: usize, child: Tid },
}

/// May it take as long as a vCPU is away? The lock of a held thread may be in the hands
/// of another vCPU's mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A mover: moves are queued behind this.
    ForNobody,
    /// The control thread.
    ForOthers,
}

/// One move, as decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoveOrder {
    pub(super) slot: usize,
    pub(super) key: TaskKey,
    pub(super) to: VcpuId,
    pub(super) why: Why,
    /// The right to make it.
    pub(super) claim: Claim,
    /// Gaps of this vCPU when it was decided.
    pub(super) gaps: u64,
    /// When the slice timer behind it was due; `None`: no timer asked for it.
    pub(super) due: Option<Time>,
}

impl MoveOrder {
    /// Has the time of this order passed? After a gap of our own the vCPUs are
    /// not what they were: the task may have been carried off, its slice may be
    /// fresh, the target gone. And a claim that has ended may be another's.
    fn has_expired(&self, core: &Core, me: VcpuId) -> bool {
        self.claim.is_over(now()) || core.sense.shared().vcpu(me).nr_gaps != self.gaps
    }
}

/// What became of an order to move.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// It was made, at this price; `None`: a dry run pays nothing.
    Made(Option<Ns>),
    /// It was not made.
    NotMade(Why),
}

pub(super) fn run(
    core: &Arc<Core>,
    me: VcpuId,
    orders: &Receiver<Order>,
    outcomes: &Sender<Outcome>,
) {
    let counters = &core.counters[me.index()];
    let mut home = Home::new(me);
    // Ends when the monitor drops its end of the channel.
    while let Ok(order) = orders.recv() {
        counters.woke(Wakeup::Mover);
        // Also from elsewhere: what a task's end asks for is done anyhow.
        home.stay();
        match order {
            Order::Seat(slot) => {
                seat(core, slot, Wait::ForNobody);
                core.pokes[me.index()].poke();
            }
            Order::Release(slot) => release(core, slot, Wait::ForNobody),
            Order::Move(order) => {
                let outcome = make(core, me, &order);
                core.seats[order.slot].unclaim(order.claim);
                // Gone only if the monitor is: then nobody counts any more.
                let _ = outcomes.send(outcome);
                if let Some(due) = order.due {
                    let caught = core.sense.shared().vcpu(me).nr_gaps != order.gaps;
                    let slowest = core.settings.here(SLOWEST_REACTION);
                    counters.reacted((!caught).then(|| now().since(due)), slowest);
                }
            }
            Order::Ask(dev) => core.priors.ask(core, dev),
            Order::Lever { slot, lever } => pull(core, slot, lever),
            Order::Fork { slot, child } => {
                if let Some(seated) = core.seats[slot].anyone() {
                    core.actor.on_fork(&seated.held, child);
                }
            }
        }
    }
}

/// Takes hold of the task in a slot, unless it may not be touched.
pub(super) fn seat(core: &Core, slot: usize, wait: Wait) {
    let shared = core.sense.shared();
    let task = shared.task(slot);
    let seated = core.seats[slot].seated(&task);
    if task.state != SlotState::Live || seated.is_some_and(|seated| !seated.held.is_over()) {
        return;
    }
    core.seats[slot].look_at(&task);
    // Before it can be moved for want of it.
    core.priors.ask(core, task.dev);
    let key = TaskKey {
        tid: Tid(task.tid),
        start_ticks: task.start_ticks,
    };
    if core.trials.is_free(core, key.tid) {
        core.seats[slot].set_free(true);
        core.seats[slot].set_again(false);
        core.control_poke.poke();
        return;
    }
    // A dry run takes hold too: that changes nothing, and refuses the same tasks.
    let wanted = |comm: &str| core.settings.priority(comm).is_some();
    let held = match core.actor.adopt_if(key, wanted) {
        Ok(held) => held,
        Err(refusal) => {
            tracing::debug!(%key, %refusal, "left alone");
            if matches!(refusal, Refusal::Busy { .. }) {
                try_again(core, slot);
            }
            return;
        }
    };
    if core.seats[slot].holds(&held) {
        // Another mover was quicker. What it has done since stands in the seat.
        return;
    }
    let comm = held.original().comm.clone();
    tracing::debug!(%key, comm, allowed = %held.allowed(), "I/O-bound");
    let deciding = Deciding {
        decider: Decider::new(&core.settings.wakeup, core.support),
        at: now(),
        switches: task.nr_switches,
        queued: task.queued,
        on_cpu: task.on_cpu,
    };
    let priority = core.settings.priority(&comm).unwrap_or_default();
    let seated = Arc::new(Seated::new(held, task.tgid, comm, priority, deciding));
    sit_down(core, slot, &seated, wait);
}

/// A task that was taken hold of gets its seat.
fn sit_down(core: &Core, slot: usize, seated: &Arc<Seated>, wait: Wait) {
    // Of another task only if a mover was descheduled for so long that its slot was freed
    // and taken again: nobody else would give that one back.
    let before = core.seats[slot].take(seated);
    if let Some(before) = before.filter(|before| before.key != seated.key) {
        give_back(core, &before.held, wait);
    }
    core.phase_begins();
    if core.trials.wants(&seated.comm) {
        core.control_poke.poke();
    } else if core.trials.is_let_go(&seated.comm) {
        // Decided while we took hold.
        trials::free(core, slot, wait);
    }
    check_in(core, slot, seated, wait);
}

/// The phase may have ended, or the hold, while we took hold of the task: whoever ended it
/// found the seat empty, and nobody would come again.
fn check_in(core: &Core, slot: usize, seated: &Arc<Seated>, wait: Wait) {
    let seat = &core.seats[slot];
    let task = core.sense.shared().task(slot);
    match task.state {
        SlotState::Live if seated.is_of(&task) => {
            if seated.held.is_over() {
                seat_anew(core, slot, seated, wait);
            }
        }
        SlotState::Left | SlotState::Exited if seated.is_of(&task) => release(core, slot, wait),
        // The slot is not its any more.
        _ => {
            if seat.leave_of(seated) {
                give_back(core, &seated.held, wait);
                core.phase_may_end();
            }
        }
    }
}

/// The hold of a task that still does I/O has ended behind its seat's back.
fn seat_anew(core: &Core, slot: usize, seated: &Arc<Seated>, wait: Wait) {
    let seat = &core.seats[slot];
    let task = core.sense.shared().task(slot);
    // Of any other its end sees to the seat.
    if task.state == SlotState::Live && seated.is_of(&task) && seat.leave_of(seated) {
        tracing::debug!(key = %seated.key, "its hold has ended: taking another");
        // Stays so if it is refused.
        try_again(core, slot);
        self::seat(core, slot, wait);
    }
}

/// Has the control thread try to take hold of the task in this slot.
fn try_again(core: &Core, slot: usize) {
    core.seats[slot].set_again(true);
    core.control_poke.poke();
}

/// Gives a task back that has left a seat, if need be later, but not while it has another
/// one: the programs gave it a new slot when who had to empty the old one was descheduled.
/// Whoever takes that seat just now looks afterwards whether the hold goes on.
pub(super) fn give_back(core: &Core, held: &Held, wait: Wait) {
    // Of two who leave the last two seats at once the second sees that both are left.
    fence(Ordering::SeqCst);
    let is_seated = core.slots().any(|slot| core.seats[slot].holds(held));
    if !is_seated && !let_go(core, held, wait) {
        core.put_off_unseated(held);
    }
}

/// Gives a task back as it was. A failure leaves it in the journal, from which
/// the next start or `vmigrater restore` tries again. False: nothing was done yet, since
/// that would mean to wait; the control thread does it.
pub(super) fn let_go(core: &Core, held: &Held, wait: Wait) -> bool {
    let released = match wait {
        Wait::ForOthers => Some(core.actor.release(held)),
        Wait::ForNobody => core.actor.try_release(held),
    };
    let Some(released) = released else {
        core.put_off();
        return false;
    };
    if let Err(error) = released {
        tracing::warn!("{error}");
    }
    note_debts(core);
    true
}

/// Of a task that was given back while a vCPU is offline the control thread takes
/// care.
fn note_debts(core: &Core) {
    if core.actor.owes() {
        core.control_poke.poke();
    }
}

/// Lets go of the task in a slot whose I/O phase is over and gives the slot back to the
/// programs. What is put off leaves everything as it is: should the next phase begin
/// before the control thread gets there, the task simply stays.
pub(super) fn release(core: &Core, slot: usize, wait: Wait) {
    let shared = core.sense.shared();
    let state = shared.slot_state(slot);
    if !matches!(state, SlotState::Left | SlotState::Exited) {
        return;
    }
    let inactive = shared.task(slot).inactive;
    let seat = &core.seats[slot];
    let seated = seat.anyone();
    // Its hold is that of its new seat, unless that is left as well.
    let shared_hold = seated.as_ref().is_some_and(|seated| {
        core.slots()
            .any(|other| other != slot && core.seats[other].holds(&seated.held))
    });
    // First, so that nobody takes hold anew of a task that is about to be given back.
    if let Some(seated) = &seated
        && !shared_hold
        && !let_go(core, &seated.held, wait)
    {
        return;
    }
    let was_held = seated.as_ref().is_some_and(|seated| seat.leave_of(seated));
    if let Some(seated) = seated.filter(|_| shared_hold) {
        give_back(core, &seated.held, wait);
    }
    let past = if seat.end_free() || was_held {
        inactive.as_ns()
    } else {
        0
    };
    // First, so that what is reported does not go back meanwhile.
    core.past_inactivity_ns.fetch_add(past, Ordering::Relaxed);
    seat.set_again(false);
    if seat.anyone().is_some() {
        // We were descheduled, and the slot is another task's by now.
        return;
    }
    free(core, slot, state, past, wait);
    core.phase_may_end();
}

/// Gives the slot back, unless the task's next I/O phase has begun meanwhile: then the slot
/// goes on counting from the inactivity that it has, and that is not past.
fn free(core: &Core, slot: usize, seen: SlotState, past: u64, wait: Wait) {
    if !core.sense.shared().free_slot(slot, seen) {
        core.past_inactivity_ns.fetch_sub(past, Ordering::Relaxed);
        self::seat(core, slot, wait);
    }
}

fn make(core: &Core, me: VcpuId, order: &MoveOrder) -> Outcome {
    let MoveOrder {
        slot, key, to, why, ..
    } = *order;
    let counters = &core.counters[me.index()];
    let seat = &core.seats[slot];
    let Some(seated) = seat.anyone().filter(|seated| seated.key == key) else {
        return Outcome::NotMade(why);
    };
    if order.has_expired(core, me) {
        counters.orders_expired.fetch_add(1, Ordering::Relaxed);
        tracing::trace!(%key, %to, ?why, "too late");
        // The bell of a gap has it look again in any case; this is for a claim
        // that ended by itself.
        core.pokes[me.index()].poke();
        return Outcome::NotMade(why);
    }
    if core.settings.dry_run {
        counters.moved(why);
        return Outcome::Made(None);
    }
    let stolen = || core.sense.shared().vcpu(me).stolen;
    let stolen_before = stolen();
    match core.actor.move_to(&seated.held, to) {
        Ok(wall) => {
            // What was stolen meanwhile is not the price of a move; one such gap
            // would outweigh a thousand moves.
            let cost = wall - (stolen() - stolen_before);
            seat.moved_to(to, now());
            counters.moved(why);
            tracing::trace!(%key, %to, ?why, %cost, "moved");
            Outcome::Made(Some(cost))
        }
        Err(error) => {
            tracing::debug!(%key, %to, %error, "a move failed");
            match error {
                MoveError::Foreign { change, .. } => {
                    ended(core, slot, &seated, change, Wait::ForNobody);
                }
                MoveError::Over { .. } => seat_anew(core, slot, &seated, Wait::ForNobody),
                MoveError::Invalid { allowed, .. } => {
                    core.online.refresh();
                    seated.allow(*allowed);
                }
                _ => {}
            }
            Outcome::NotMade(why)
        }
    }
}

/// Is whoever is held in this slot still as we left it, and where may it go now? Also
/// finds out for one that is never moved. For the control thread.
pub(super) fn look_again(core: &Core, slot: usize) {
    let seat = &core.seats[slot];
    let Some(seated) = seat.anyone() else {
        if core.sense.shared().slot_state(slot) != SlotState::Live {
            // Its phase ended first.
            seat.set_again(false);
        } else if seat.wants_again() {
            self::seat(core, slot, Wait::ForOthers);
        }
        return;
    };
    match core.actor.verify(&seated.held) {
        Ok(()) => seated.allow(core.actor.allowed(&seated.held)),
        Err(MoveError::Foreign { change, .. }) => {
            ended(core, slot, &seated, change, Wait::ForOthers);
        }
        Err(MoveError::Over { .. }) => seat_anew(core, slot, &seated, Wait::ForOthers),
        // Gone: its end sees to the seat.
        Err(error) => tracing::debug!(key = %seated.key, %error, "not as it was left"),
    }
}

/// Somebody else has set the mask of the one held here, and our hold has ended. An owner
/// who wants it elsewhere gets his way. Where its CPU was taken nobody wants anything of
/// the task: it has been given what is left of its owner's mask, and is taken hold of
/// again within that.
fn ended(core: &Core, slot: usize, seated: &Arc<Seated>, change: ForeignChange, wait: Wait) {
    tracing::debug!(key = %seated.key, ?change, "its mask was changed: letting go");
    let seat = &core.seats[slot];
    if seat.leave_of(seated) && change == ForeignChange::CpusetOrHotplug {
        core.online.refresh();
        // Stays so if it is refused.
        try_again(core, slot);
        self::seat(core, slot, wait);
    }
    note_debts(core);
    core.phase_may_end();
}

fn pull(core: &Core, slot: usize, lever: Lever) {
    let Some(seated) = core.seats[slot].anyone() else {
        return;
    };
    if core.settings.dry_run {
        return;
    }
    match core.actor.set_lever(&seated.held, lever) {
        Ok(()) => seated.pulled(lever),
        // Busy as well: the monitor asks again at the end of the next slice.
        Err(error) => tracing::debug!(key = %seated.key, ?lever, %error, "no lever"),
    }
}

#[cfg(test)]
mod tests;
