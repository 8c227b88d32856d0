// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mover and the control thread over programs that are loaded but not attached: the
//! test says who does I/O.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;

use policy::guest::trial;
use tempfile::TempDir;
use units::CpuSet;

use super::super::control;
use super::super::thread::Waiter;
use super::*;
use crate::act;
use crate::act::Actor;
use crate::act::testing::DEADLINE;
use crate::act::testing::Sleeper;
use crate::act::testing::cpus;
use crate::act::testing::wait_for;
use crate::sense::Sense;
use crate::settings::Settings;
use crate::settings::SourceChoice;

fn core() -> (Arc<Core>, TempDir) {
    let settings = Settings {
        source: SourceChoice::Heartbeat,
        trial: trial::Settings::published(),
        ..Settings::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let sense = Sense::load(&settings).unwrap();
    let (actor, _) = Actor::start(act::Settings {
        journal: dir.path().join("journal"),
        ..act::Settings::default()
    })
    .unwrap();
    let support = actor.probe().levers;
    let core = Core::new(settings, sense, actor, support, Ns::ZERO, None).unwrap();
    (Arc::new(core), dir)
}

/// A process in this slot, held and on that vCPU.
fn seated(core: &Core, slot: usize, on: VcpuId) -> Sleeper {
    let sleeper = Sleeper::new();
    core.sense.put_live(slot, sleeper.key());
    seat(core, slot, Wait::ForNobody);
    let seated = core.seats[slot].anyone().unwrap();
    core.actor.move_to(&seated.held, on).unwrap();
    assert_eq!(sleeper.mask(), CpuSet::only(on));
    sleeper
}

fn move_to(core: &Core, me: VcpuId, slot: usize, to: VcpuId) -> Order {
    let seat = &core.seats[slot];
    Order::Move(MoveOrder {
        slot,
        key: seat.anyone().unwrap().key,
        to,
        why: Why::Push,
        claim: seat.claim(now(), Ns::from_secs(60)).unwrap(),
        gaps: core.sense.shared().vcpu(me).nr_gaps,
        due: None,
    })
}

#[test]
fn root_a_mover_waits_for_no_other_vcpus_and_nothing_is_forgotten() {
    let (a, b) = cpus();
    let (core, _dir) = core();
    let before = Sleeper::new().mask();
    let leaving = seated(&core, 0, a);
    let moving = seated(&core, 1, a);
    let held = core.seats[0].anyone().unwrap();

    // The mover of another vCPU has its hands on the first, and is descheduled.
    let hands = held.held.hands_on();
    let (orders, inbox) = mpsc::channel();
    let (outcomes, done) = mpsc::channel();
    let movers_core = Arc::clone(&core);
    let mover = std::thread::spawn(move || run(&movers_core, b, &inbox, &outcomes));
    assert!(core.sense.shared().demote(0));
    let pulled = Order::Lever {
        slot: 0,
        lever: Lever::Fifo,
    };
    for order in [pulled, Order::Release(0), move_to(&core, b, 1, b)] {
        orders.send(order).unwrap();
    }
    let outcome = done.recv_timeout(DEADLINE).unwrap();
    assert!(matches!(outcome, Outcome::Made(Some(_))), "{outcome:?}");
    assert_eq!(moving.mask(), CpuSet::only(b));
    assert_eq!(leaving.mask(), CpuSet::only(a), "not yet");
    assert_eq!(core.sense.shared().slot_state(0), SlotState::Left);

    // Whoever waits is the control thread.
    let its_core = Arc::clone(&core);
    let control = std::thread::spawn(move || control::run(&its_core));
    orders.send(move_to(&core, b, 1, a)).unwrap();
    done.recv_timeout(DEADLINE).unwrap();
    assert_eq!(moving.mask(), CpuSet::only(a));
    drop(hands);
    wait_for("the first is as it was", || {
        leaving.mask() == before && core.sense.shared().slot_state(0) == SlotState::Free
    });
    assert!(core.seats[0].anyone().is_none());
    assert_eq!(*core.failed.lock().unwrap(), None);

    drop(orders);
    mover.join().unwrap();
    core.stop.store(true, Ordering::Release);
    core.control_poke.poke();
    control.join().unwrap();
    core.actor.release_all();
    assert_eq!(moving.mask(), before);
}

#[test]
fn root_what_was_put_off_is_moot_if_the_next_phase_has_begun() {
    let (a, b) = cpus();
    let (core, _dir) = core();
    let sleeper = seated(&core, 0, a);
    let seated = core.seats[0].anyone().unwrap();
    let hands = seated.held.hands_on();
    assert!(core.sense.shared().demote(0));
    core.control_poke.clear();
    release(&core, 0, Wait::ForNobody);
    let woken = Waiter::new(&[core.control_poke.as_fd()]).unwrap();
    assert_ne!(woken.wait(Some(Duration::ZERO)), 0, "the control thread");
    assert!(core.took_put_off());
    core.sense.put_live(0, sleeper.key());
    drop(hands);
    release(&core, 0, Wait::ForOthers);
    assert!(!seated.held.is_over(), "it does I/O again");
    core.actor.move_to(&seated.held, b).unwrap();
    core.actor.release_all();
}

/// The control thread waits for the hands of somebody else, and meanwhile the next phase
/// begins: its bell was for a mover that found the task still held.
#[test]
fn root_whoever_does_io_again_while_it_is_let_go_is_taken_hold_of_anew() {
    let (a, b) = cpus();
    let (core, _dir) = core();
    let sleeper = seated(&core, 0, a);
    let first = core.seats[0].anyone().unwrap();
    let hands = first.held.hands_on();
    assert!(core.sense.shared().demote(0));
    let (tell, told) = mpsc::channel();
    let its_core = Arc::clone(&core);
    let control = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero())
            .unwrap();
        release(&its_core, 0, Wait::ForOthers);
    });
    let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    wait_for("it waits", || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    });
    core.sense.put_live(0, sleeper.key());
    drop(hands);
    control.join().unwrap();
    assert!(first.held.is_over());
    let again = core.seats[0].anyone().unwrap();
    core.actor.move_to(&again.held, b).unwrap();
    assert_eq!(sleeper.mask(), CpuSet::only(b));
    core.actor.release_all();
}

#[test]
fn root_whoever_sat_in_a_slot_that_is_another_tasks_by_now_is_given_back() {
    let (a, _) = cpus();
    let (core, _dir) = core();
    let before = Sleeper::new().mask();
    let first = seated(&core, 0, a);
    let second = Sleeper::new();
    core.sense.put_live(0, second.key());
    seat(&core, 0, Wait::ForNobody);
    assert_eq!(first.mask(), before);
    let now = core.seats[0].anyone().unwrap();
    assert_eq!(now.key, second.key());
    // The same once more takes nothing from it.
    seat(&core, 0, Wait::ForNobody);
    assert!(!now.held.is_over());
    core.actor.release_all();
}

/// No seat names it any more, so nobody who looks at the seats would find it.
#[test]
fn root_whoever_sat_there_in_others_hands_is_given_back_later() {
    let (a, _) = cpus();
    let (core, _dir) = core();
    let before = Sleeper::new().mask();
    let first = seated(&core, 0, a);
    let held = core.seats[0].anyone().unwrap();
    let second = Sleeper::new();
    core.sense.put_live(0, second.key());
    let hands = held.held.hands_on();
    seat(&core, 0, Wait::ForNobody);
    assert_eq!(first.mask(), CpuSet::only(a), "not yet");
    assert_eq!(core.seats[0].anyone().unwrap().key, second.key());
    drop(hands);
    assert!(core.took_put_off());
    control::catch_up(&core);
    assert_eq!(first.mask(), before);
    assert!(!core.seats[0].anyone().unwrap().held.is_over());
    core.actor.release_all();
}

/// As the programs see it: the task's old slot was freed, and whoever took hold of it there
/// was descheduled before he could write so into the seat.
fn with_a_second_slot(core: &Core, on: VcpuId) -> Sleeper {
    let sleeper = seated(core, 0, on);
    core.sense.put_live(1, sleeper.key());
    seat(core, 1, Wait::ForNobody);
    let (old, new) = (core.seats[0].anyone(), core.seats[1].anyone());
    assert!(
        old.unwrap().held.is(&new.unwrap().held),
        "there is one hold"
    );
    sleeper
}

#[test]
fn root_whoever_has_a_new_slot_is_not_given_back_with_the_old() {
    let (a, b) = cpus();
    let (core, _dir) = core();
    let before = Sleeper::new().mask();
    let sleeper = with_a_second_slot(&core, a);
    assert!(core.sense.shared().demote(0));
    release(&core, 0, Wait::ForNobody);
    assert!(core.seats[0].anyone().is_none());
    assert_eq!(core.sense.shared().slot_state(0), SlotState::Free);
    assert_eq!(sleeper.mask(), CpuSet::only(a));
    let seated = core.seats[1].anyone().unwrap();
    core.actor.move_to(&seated.held, b).unwrap();

    // Another task takes the old slot.
    let sleeper_too = with_a_second_slot(&core, b);
    let third = Sleeper::new();
    core.sense.put_live(0, third.key());
    seat(&core, 0, Wait::ForNobody);
    assert_eq!(sleeper.mask(), before, "it had the second slot before");
    assert_eq!(sleeper_too.mask(), CpuSet::only(b));

    // And the last seat gives it back.
    assert!(core.sense.shared().demote(1));
    release(&core, 1, Wait::ForNobody);
    assert_eq!(sleeper_too.mask(), before);
    assert_eq!(core.sense.shared().slot_state(1), SlotState::Free);
    assert!(!core.seats[0].anyone().unwrap().held.is_over());
    core.actor.release_all();
}

#[test]
fn root_what_was_put_off_is_moot_if_it_has_a_new_slot() {
    let (a, _) = cpus();
    let (core, _dir) = core();
    let before = Sleeper::new().mask();
    let first = seated(&core, 0, a);
    let held = core.seats[0].anyone().unwrap();
    let second = Sleeper::new();
    core.sense.put_live(0, second.key());
    let hands = held.held.hands_on();
    seat(&core, 0, Wait::ForNobody);
    core.sense.put_live(1, first.key());
    seat(&core, 1, Wait::ForNobody);
    drop(hands);
    assert!(core.took_put_off());
    control::catch_up(&core);
    assert_eq!(first.mask(), CpuSet::only(a));
    assert!(!core.seats[1].anyone().unwrap().held.is_over());
    core.actor.release_all();
    assert_eq!(first.mask(), before);
}

/// Whoever took hold is descheduled between that and what he writes into the seat.
#[test]
fn root_whoever_takes_a_seat_too_late_leaves_it() {
    let (a, _) = cpus();
    let (core, _dir) = core();
    let before = Sleeper::new().mask();
    let sleeper = seated(&core, 0, a);
    let seated = core.seats[0].anyone().unwrap();
    assert!(core.seats[0].leave_of(&seated));
    assert!(core.sense.shared().demote(0));
    // Nobody is in the seat yet.
    release(&core, 0, Wait::ForNobody);
    assert_eq!(core.sense.shared().slot_state(0), SlotState::Free);
    assert_eq!(sleeper.mask(), CpuSet::only(a), "nobody names it");
    sit_down(&core, 0, &seated, Wait::ForNobody);
    assert!(core.seats[0].anyone().is_none());
    assert_eq!(sleeper.mask(), before);

    // The same where its phase has ended and nobody has been there yet.
    core.sense.put_live(0, sleeper.key());
    seat(&core, 0, Wait::ForNobody);
    let seated = core.seats[0].anyone().unwrap();
    assert!(core.seats[0].leave_of(&seated));
    assert!(core.sense.shared().demote(0));
    sit_down(&core, 0, &seated, Wait::ForNobody);
    assert!(core.seats[0].anyone().is_none() && seated.held.is_over());
    assert_eq!(core.sense.shared().slot_state(0), SlotState::Free);
}

#[test]
fn root_a_hold_that_ended_behind_its_seats_back_is_replaced() {
    let (a, b) = cpus();
    let (core, _dir) = core();
    let sleeper = seated(&core, 0, a);
    let fresh = |before: &Arc<Seated>| {
        let now = core.seats[0].anyone().unwrap();
        assert!(!now.held.is_over() && !now.held.is(&before.held));
        assert!(!core.seats[0].wants_again());
        core.actor.move_to(&now.held, b).unwrap();
        assert_eq!(sleeper.mask(), CpuSet::only(b));
    };
    let order = || {
        let Order::Move(order) = move_to(&core, a, 0, a) else {
            unreachable!("that is what it makes");
        };
        order
    };
    let end = || {
        let seated = core.seats[0].anyone().unwrap();
        core.actor.release(&seated.held).unwrap();
        seated
    };
    // Found by a move, by the control thread, at the end of a seating, and at the next.
    let before = end();
    assert!(matches!(make(&core, a, &order()), Outcome::NotMade(_)));
    fresh(&before);
    let before = end();
    look_again(&core, 0);
    fresh(&before);
    let before = end();
    check_in(&core, 0, &before, Wait::ForNobody);
    fresh(&before);
    let before = end();
    seat(&core, 0, Wait::ForNobody);
    fresh(&before);
    // Not of one whose phase is over: its end sees to that.
    let before = end();
    assert!(core.sense.shared().demote(0));
    look_again(&core, 0);
    assert!(
        core.seats[0]
            .anyone()
            .is_some_and(|now| now.held.is(&before.held))
    );
    core.actor.release_all();
}

#[test]
fn root_whoever_is_in_others_hands_is_taken_later() {
    let (a, b) = cpus();
    let (core, _dir) = core();
    let sleeper = seated(&core, 0, a);
    let seated = core.seats[0].anyone().unwrap();
    core.actor.set_lever(&seated.held, Lever::Fifo).unwrap();
    // A hold whose lever could not be undone yet, for another has his hands on it.
    let hands = seated.held.hands_on();
    let all: CpuSet = [a, b].into_iter().collect();
    sleeper.choose(&all);
    look_again(&core, 0);
    assert!(core.seats[0].anyone().is_none(), "its owner has his way");
    core.sense.put_live(1, sleeper.key());
    core.control_poke.clear();
    seat(&core, 1, Wait::ForNobody);
    assert!(core.seats[1].anyone().is_none() && core.seats[1].wants_again());
    let woken = Waiter::new(&[core.control_poke.as_fd()]).unwrap();
    assert_ne!(woken.wait(Some(Duration::ZERO)), 0, "the control thread");
    drop(hands);
    core.actor.release(&seated.held).unwrap();
    look_again(&core, 1);
    assert!(core.seats[1].anyone().is_some() && !core.seats[1].wants_again());

    // Nobody is waited for any longer than the phase lasts.
    core.seats[0].set_again(true);
    assert!(core.sense.shared().demote(0));
    look_again(&core, 0);
    assert!(!core.seats[0].wants_again());
    core.actor.release_all();
}

#[test]
fn root_inactivity_of_a_phase_that_goes_on_is_not_past() {
    let (a, _) = cpus();
    let (core, _dir) = core();
    let past = || core.past_inactivity_ns.load(Ordering::Relaxed);
    let _sleeper = seated(&core, 0, a);
    // Whoever releases has seen that it left, and it is back.
    core.past_inactivity_ns.fetch_add(7, Ordering::Relaxed);
    free(&core, 0, SlotState::Left, 7, Wait::ForNobody);
    assert_eq!(past(), 0);
    assert_eq!(core.sense.shared().slot_state(0), SlotState::Live);
    assert!(core.sense.shared().demote(0));
    core.past_inactivity_ns.fetch_add(7, Ordering::Relaxed);
    free(&core, 0, SlotState::Left, 7, Wait::ForNobody);
    assert_eq!(past(), 7);
    assert_eq!(core.sense.shared().slot_state(0), SlotState::Free);
    core.actor.release_all();
}
