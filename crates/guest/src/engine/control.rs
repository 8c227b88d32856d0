// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread that switches everything on when vCPUs are taken away, and off
//! when they are not. It is not bound to a vCPU and not in a hurry.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use super::bells::ring;
use super::core::Core;
use super::count::Wakeup;
use super::mover;
use super::mover::Wait;
use super::preferred;
use super::steal_stat::Seen;
use super::steal_stat::StealStat;
use super::thread::Waiter;
use super::trials;
use super::trials::Programs;
use crate::sense::Bell;
use crate::sense::Mode;
use crate::sense::SenseError;
use crate::sense::now;

/// Between two looks whether vCPUs are back that a thread was to be given back.
const OFFLINE_LOOK: Duration = Duration::from_millis(500);

/// While tasks are held: between two looks whether they are as we left them, where they
/// may go, and which vCPUs are there. Some ten microseconds a task.
const HOLDS_LOOK: Duration = Duration::from_millis(500);

/// After lost events, children are looked for this often at most: a look takes
/// milliseconds.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

pub(super) fn run(core: &Arc<Core>) {
    if let Err(error) = try_run(core) {
        core.fail(format!("the control thread stopped: {error:#}"));
    }
}

fn try_run(core: &Arc<Core>) -> Result<(), SenseError> {
    let bells = Rc::new(RefCell::new(Vec::<u64>::new()));
    let ring = ring(core.sense.control_ring(), Rc::clone(&bells))?;
    // SAFETY: the ring buffer owns this descriptor and lives until the end of
    // this function, like the waiter that uses it.
    let ring_fd = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    let waiter = Waiter::new(&[ring_fd, core.control_poke.as_fd()]).map_err(|source| {
        SenseError::System {
            call: "epoll",
            source,
        }
    })?;
    let mut steal = (!core.sense.has_tick()).then(|| StealStat::new(&core.settings));
    let mut swept = Instant::now();
    let mut looked = Instant::now();
    let mut programs = Programs::default();
    while !core.stopping() {
        let asleep = core.sense.shared().mode() == Mode::Asleep;
        let active = core.sense.shared().mode() == Mode::Active;
        let advised = active && core.preferred.is_offered();
        let sweep = core
            .sweep_is_due()
            .then(|| SWEEP_PERIOD.saturating_sub(swept.elapsed()));
        let timeout = steal
            .iter()
            .map(StealStat::due_in)
            .chain(advised.then_some(preferred::PERIOD))
            .chain(sweep)
            .chain(cares(core).then(|| HOLDS_LOOK.saturating_sub(looked.elapsed())))
            .chain(core.actor.owes().then_some(OFFLINE_LOOK))
            .chain(core.has_put_off().then_some(Duration::ZERO))
            .chain(programs.look(core, now()))
            .min();
        waiter.wait(timeout);
        if core.sense.shared().mode() == Mode::Active {
            core.preferred.refresh();
        }
        if core.sweep_is_due() && swept.elapsed() >= SWEEP_PERIOD {
            core.sweep();
            swept = Instant::now();
        }
        if core.took_put_off() {
            catch_up(core);
        }
        if core.actor.owes() {
            repay(core);
        }
        if cares(core) && looked.elapsed() >= HOLDS_LOOK {
            look_at_holds(core);
            looked = Instant::now();
        }
        core.counters[0].woke(Wakeup::Control);
        core.control_poke.clear();
        let _ = ring.consume();
        match steal.as_mut().map(StealStat::look) {
            Some(Seen::Sharing) => wake(core)?,
            Some(Seen::Quiet) if !asleep => sleep(core),
            _ => {}
        }
        for word in bells.borrow_mut().drain(..) {
            match Bell::decode(word) {
                Some(Bell::Shared) => wake(core)?,
                Some(Bell::Quiet) => sleep(core),
                Some(Bell::Io) => arm(core)?,
                Some(Bell::Calm) => disarm(core),
                _ => {}
            }
        }
        core.came_round();
    }
    Ok(())
}

/// Is anybody held, or to be held as soon as its CPUs are back?
fn cares(core: &Core) -> bool {
    core.sense.shared().mode() == Mode::Active
        || core.slots().any(|slot| core.seats[slot].wants_again())
}

/// What nobody tells us of: owners who change what is theirs, cpusets, hotplug.
fn look_at_holds(core: &Core) {
    let absent: Vec<_> = core
        .vcpus()
        .filter(|vcpu| !core.online.contains(*vcpu))
        .collect();
    core.online.refresh();
    for vcpu in absent {
        if core.online.contains(vcpu) {
            core.pokes[vcpu.index()].poke();
        }
    }
    for slot in core.slots() {
        mover::look_again(core, slot);
    }
}

/// vCPUs are being taken away: look for whoever does I/O.
fn wake(core: &Core) -> Result<(), SenseError> {
    let shared = core.sense.shared();
    if shared.mode() == Mode::Asleep {
        core.sense.forget();
        shared.set_mode(Mode::Watching);
        tracing::info!("vCPUs are being taken away: watching for I/O-bound tasks");
        if !core.sense.has_tick() {
            // Nothing that would ring for a candidate, or when calm is back.
            arm(core)?;
        }
    }
    Ok(())
}

/// They are not any more: let go of everything.
fn sleep(core: &Core) {
    let shared = core.sense.shared();
    shared.set_mode(Mode::Asleep);
    let_go(core);
    core.sense.forget();
    for poke in &core.pokes {
        poke.poke();
    }
    core.wake_balloons();
    tracing::info!("no vCPU has been taken away for a while: asleep");
    if !core.sense.has_tick() {
        disarm(core);
    }
}

fn let_go(core: &Core) {
    let shared = core.sense.shared();
    for slot in core.slots() {
        shared.demote(slot);
    }
    release_ended(core);
}

/// Does what movers have put off.
pub(super) fn catch_up(core: &Core) {
    for held in core.take_left_over().iter() {
        mover::give_back(core, held, Wait::ForOthers);
    }
    release_ended(core);
    trials::catch_up(core);
}

/// Lets go of all whose I/O phase is over.
fn release_ended(core: &Core) {
    for slot in core.slots() {
        mover::release(core, slot, Wait::ForOthers);
    }
}

/// Gives back what is online again. Whoever could not be taken hold of for lack of
/// vCPUs can be now.
fn repay(core: &Core) {
    let paid = core.actor.repay();
    for slot in core.slots() {
        let task = core.sense.shared().task(slot);
        if paid.iter().any(|tid| tid.0 == task.tid) {
            mover::seat(core, slot, Wait::ForOthers);
        }
    }
}

/// Somebody does I/O: have a closer look. It takes until every vCPU has been back
/// a few times, and nothing can be moved before it is done.
fn arm(core: &Core) -> Result<(), SenseError> {
    let start = now();
    core.sense.arm()?;
    let took = now().since(start);
    tracing::info!(%took, "somebody does I/O: the detector is attached");
    Ok(())
}

/// Nobody has been I/O-bound for long: context switches shall cost nothing.
fn disarm(core: &Core) {
    let shared = core.sense.shared();
    if shared.mode() == Mode::Active {
        // Somebody was just found.
        shared.stay_armed(now());
        return;
    }
    core.sense.disarm();
    // A task that became I/O-bound in this very moment would stay so for ever; it
    // will be found again.
    let_go(core);
    tracing::info!("no task has been I/O-bound for a while: the detector is detached");
}
