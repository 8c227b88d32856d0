// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nobody who moves waits: somebody who is descheduled in the middle of his work is
//! played by a test that stops there.

use super::*;

#[test]
fn root_a_thread_in_others_hands_is_moved_at_once_and_released_later() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let subject = Subject::new();
    let before = subject.mask();
    let held = stage.actor.adopt(subject.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();

    let hands = held.hands_on();
    stage.actor.move_to(&held, b).unwrap();
    let lever = stage.actor.set_lever(&held, Lever::Fifo);
    assert!(matches!(lever, Err(LeverError::Busy { .. })), "{lever:?}");
    assert!(stage.actor.try_release(&held).is_none());
    assert_eq!(subject.mask(), CpuSet::only(b), "nothing is half done");
    assert!(!held.is_over());
    assert_eq!(stage.entries(), 1, "a kill now loses nothing");
    drop(hands);

    let released = stage.actor.try_release(&held).unwrap();
    assert_eq!(released.unwrap(), Released::Restored);
    assert_eq!(subject.mask(), before);
}

#[test]
fn root_whoever_changes_the_tables_keeps_nobody_from_them() {
    let (a, _) = cpus();
    let stage = Stage::new();
    let (old, new, late) = (Subject::new(), Subject::new(), Subject::new());
    let before = old.mask();
    let held = stage.actor.adopt(old.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();

    let actor = &stage.actor;
    let (stands, standing) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut first = true;
            let late = actor.adopt(late.key).unwrap();
            actor.change(|registry| {
                if std::mem::take(&mut first) {
                    stands.send(()).unwrap();
                    goes_on.recv().unwrap();
                }
                registry.live.insert(late.key(), Arc::clone(&late.0));
            });
        });
        standing.recv().unwrap();
        // In this thread: it would hang.
        let fresh = actor.adopt(new.key).unwrap();
        actor.move_to(&fresh, a).unwrap();
        let released = actor.try_release(&held).unwrap();
        assert_eq!(released.unwrap(), Released::Restored);
        actor.sweep_inherited();
        assert_eq!(old.mask(), before);
        go_on.send(()).unwrap();
    });
    let tids = |held: &Held| held.key().tid;
    let mut holds: Vec<_> = stage.actor.holds().iter().map(tids).collect();
    holds.sort_unstable();
    let mut expected = [new.tid, late.tid];
    expected.sort_unstable();
    assert_eq!(holds, expected, "neither change is lost");
    stage.actor.release_all();
    assert_eq!(new.mask(), before);
}
