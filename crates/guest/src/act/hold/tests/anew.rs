// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread is taken hold of while another hold of it begins or ends. Whoever is
//! descheduled in between is played by a test that acts there.

use super::*;

fn is_busy(adopted: &Result<Held, Refusal>) -> bool {
    matches!(adopted, Err(Refusal::Busy { .. }))
}

#[test]
fn root_a_thread_that_is_being_let_go_is_neither_taken_nor_refused_for_good() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let before = subject.mask();
    let first = actor.adopt(subject.key).unwrap();
    actor.move_to(&first, a).unwrap();
    // As `release` does, which is descheduled after the first step.
    assert!(first.0.end());
    let adopted = actor.adopt(subject.key);
    assert!(
        is_busy(&adopted),
        "ours looks like its owner's: {adopted:?}"
    );
    // Between the mask and the end of the release: what is set now is our owner's mask,
    // but who lets go still has his hands on the thread.
    actor.give_back(subject.tid, first.original()).unwrap();
    assert!(is_busy(&actor.adopt(subject.key)));
    assert_eq!(stage.entries(), 1);
    first.0.update(Position::settle);

    let second = actor.adopt(subject.key).unwrap();
    assert!(!second.is(&first));
    assert_eq!(second.original().mask, first.original().mask);
    actor.move_to(&second, b).unwrap();
    assert_eq!(actor.release(&second).unwrap(), Released::Restored);
    assert_eq!(subject.mask(), before);
}

#[test]
fn root_a_mover_that_comes_after_the_release_undoes_no_later_hold() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let before = subject.mask();
    let first = actor.adopt(subject.key).unwrap();
    let _ = actor.move_with(&first, b, |tid, mask| {
        assert_eq!(actor.release(&first).unwrap(), Released::Restored);
        // It would be moved to where the late mover believes to have put it.
        let adopted = actor.adopt(subject.key);
        assert!(is_busy(&adopted), "{adopted:?}");
        sched::set_affinity(tid, mask)
    });
    assert_eq!(subject.mask(), before);
    let second = actor.adopt(subject.key).unwrap();
    actor.move_to(&second, a).unwrap();
    actor.verify(&second).unwrap();
    actor.release(&second).unwrap();
    assert_eq!(subject.mask(), before);
}

/// Two see that the CPU was taken; one of them is descheduled before he does anything
/// about it.
#[test]
fn root_a_late_end_undoes_no_later_hold() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let first = actor.adopt(subject.key).unwrap();
    actor.move_to(&first, a).unwrap();
    let late = first.0.slot.position();
    assert_eq!(actor.release(&first).unwrap(), Released::Restored);
    let second = actor.adopt(subject.key).unwrap();
    actor.move_to(&second, b).unwrap();
    let both: CpuSet = [a, b].into_iter().collect();
    actor.end_as(&first.0, late, &both, ForeignChange::CpusetOrHotplug);
    assert_eq!(subject.mask(), CpuSet::only(b));
    actor.verify(&second).unwrap();
}

#[test]
fn root_facts_that_are_older_than_another_hold_are_read_again() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let owners = sched::attr(subject.tid).unwrap();
    let before = subject.mask();
    // The name is asked for between what /proc says and the rest.
    let looks = std::cell::Cell::new(0);
    let second = actor
        .adopt_if(subject.key, |_| {
            if looks.replace(looks.get() + 1) == 0 {
                let first = actor.adopt(subject.key).unwrap();
                actor.move_to(&first, a).unwrap();
                actor.set_lever(&first, Lever::Fifo).unwrap();
                // What the first has read so far is void, and so is a refusal.
                let held = actor.adopt_if(subject.key, |_| false).unwrap();
                assert!(held.is(&first));
                assert_eq!(actor.release(&first).unwrap(), Released::Restored);
                actor.sweep_inherited();
            }
            looks.get() > 1
        })
        .unwrap();
    assert_eq!(looks.get(), 2, "its first look was at another's hold");
    assert_eq!(second.original().policy, owners.policy);
    actor.verify(&second).unwrap();
    actor.move_to(&second, b).unwrap();
    actor.set_lever(&second, Lever::Fifo).unwrap();
    assert_eq!(actor.release(&second).unwrap(), Released::Restored);
    assert_eq!(subject.mask(), before);
    assert_eq!(sched::attr(subject.tid).unwrap(), owners);
    actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
}

#[test]
fn root_whoever_is_always_too_slow_gives_up() {
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let adopted = actor.adopt_if(subject.key, |_| {
        let quicker = actor.adopt(subject.key).unwrap();
        actor.release(&quicker).unwrap();
        true
    });
    assert!(is_busy(&adopted), "{adopted:?}");
    actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
}

/// Its owner's mask came while somebody had his hands on the thread, who so could not be
/// waited for.
#[test]
fn root_a_lever_outlives_no_hold_and_is_taken_for_nobodys_choice() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let owners = sched::attr(subject.tid).unwrap();
    let first = actor.adopt(subject.key).unwrap();
    actor.move_to(&first, a).unwrap();
    actor.set_lever(&first, Lever::Fifo).unwrap();
    let hands = first.hands_on();
    let all: CpuSet = [a, b].into_iter().collect();
    sched::set_affinity(subject.tid, &all).unwrap();
    assert!(actor.verify(&first).is_err());
    assert!(first.is_over());
    assert!(is_busy(&actor.adopt(subject.key)));
    drop(hands);
    // Each of the two is what had its hands on it.
    let lever = actor.set_lever(&first, Lever::Fifo);
    assert!(matches!(lever, Err(LeverError::Ended { .. })), "{lever:?}");
    assert_eq!(sched::attr(subject.tid).unwrap(), owners);
    assert_eq!(
        actor.adopt(subject.key).unwrap().original().policy,
        owners.policy
    );
}

#[test]
fn root_many_who_take_and_let_go_at_once_leave_the_owners_mask() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    let subject = Subject::new();
    let before = subject.mask();
    let key = subject.key;
    let held = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let held = &held;
            scope.spawn(move || {
                let to = if n % 2 == 0 { a } else { b };
                while held.load(Ordering::Relaxed) < 2_000 {
                    match actor.adopt(key) {
                        Ok(hold) => {
                            match actor.move_to(&hold, to) {
                                Ok(_) | Err(MoveError::Over { .. } | MoveError::Busy { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                            let _ = actor.release(&hold).unwrap();
                            held.fetch_add(1, Ordering::Relaxed);
                        }
                        // Never as pinned: that would be our own mask.
                        Err(Refusal::Busy { .. } | Refusal::JournalFull { .. }) => {}
                        Err(refusal) => panic!("{refusal}"),
                    }
                }
            });
        }
    });
    assert_eq!(subject.mask(), before);
    actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
    assert_eq!(actor.counters().get(Counter::Foreign), 0);
}
