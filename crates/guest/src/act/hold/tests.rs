// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real threads and processes as subjects. They need root, as the daemon does.

use std::io;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use super::super::counters::Counter;
use super::super::lever::LeverError;
use super::super::sched;
use super::super::sched::Attr;
use super::super::testing::Sleeper;
use super::super::testing::Stage;
use super::super::testing::Subject;
use super::super::testing::cpus;
use super::super::testing::wait_for;
use super::adopt::now_ticks;
use super::*;

mod anew;
mod cpuset;
mod waits;

fn fifo(priority: u32) -> Attr {
    Attr {
        policy: sched::SCHED_FIFO,
        priority,
        ..Attr::default()
    }
}

#[test]
fn root_moves_go_where_they_should_and_release_restores() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let subject = Subject::new();
    let before = subject.mask();
    let held = stage.actor.adopt(subject.key).unwrap();
    assert_eq!(subject.mask(), before, "adoption changes nothing");
    assert_eq!(stage.entries(), 1, "the journal comes first");
    for to in [a, b, b, a] {
        let cost = stage.actor.move_to(&held, to).unwrap();
        assert!(cost > units::Ns::ZERO);
        assert_eq!(subject.mask(), CpuSet::only(to));
        assert_eq!(held.at(), Some(to));
    }
    assert_eq!(stage.actor.release(&held).unwrap(), Released::Restored);
    assert_eq!(subject.mask(), before);
    assert!(held.is_over());
    assert!(matches!(
        stage.actor.move_to(&held, a),
        Err(MoveError::Over { .. })
    ));
    assert_eq!(stage.actor.release(&held).unwrap(), Released::AlreadyOver);
    stage.actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
    assert!(stage.actor.holds().is_empty());
    assert_eq!(stage.actor.counters().get(Counter::Moved), 4);
}

#[test]
fn root_a_partial_mask_comes_back_exactly() {
    let online = Roots::default().online().unwrap();
    let (a, b) = cpus();
    let subject = Subject::new();
    let part: CpuSet = [a, b].into_iter().collect();
    let stage = Stage::new();
    sched::set_affinity(subject.tid, &part).unwrap();
    let held = stage.actor.adopt(subject.key).unwrap();
    assert_eq!(held.original().whole_cpuset, part == online);
    stage.actor.move_to(&held, b).unwrap();
    drop(stage);
    assert_eq!(subject.mask(), part);
}

#[test]
fn root_levers_come_back_with_policy_slice_and_flag() {
    let stage = Stage::new();
    let probe = stage.actor.probe();
    let subject = Subject::new();
    let before = sched::attr(subject.tid).unwrap();
    let held = stage.actor.adopt(subject.key).unwrap();
    let slice = Lever::EevdfSlice(units::Ns::from_us(100));
    if probe.levers.eevdf_slice {
        stage.actor.set_lever(&held, slice).unwrap();
        let now = sched::attr(subject.tid).unwrap();
        assert_eq!((now.policy, now.runtime), (before.policy, 100_000));
        let child = subject.run(|| {
            std::thread::spawn(|| sched::attr(super::super::testing::this_tid()).unwrap())
                .join()
                .unwrap()
        });
        assert_eq!(
            child.runtime, probe.default_slice.0,
            "children must not inherit it"
        );
        assert!(!child.resets_on_fork());
    } else {
        assert!(matches!(
            stage.actor.set_lever(&held, slice),
            Err(LeverError::Unsupported)
        ));
    }
    if probe.levers.fifo {
        stage.actor.set_lever(&held, Lever::Fifo).unwrap();
        let now = sched::attr(subject.tid).unwrap();
        assert_eq!((now.policy, now.priority), (sched::SCHED_FIFO, 1));
        assert_eq!(held.lever(), Lever::Fifo);
        let child = subject.run(|| {
            std::thread::spawn(|| sched::attr(super::super::testing::this_tid()).unwrap())
                .join()
                .unwrap()
        });
        assert_eq!(child.policy, sched::SCHED_OTHER);
    }
    stage.actor.set_lever(&held, Lever::Off).unwrap();
    assert_eq!(sched::attr(subject.tid).unwrap(), before);
    stage.actor.set_lever(&held, Lever::Fifo).unwrap();
    assert_eq!(stage.actor.release(&held).unwrap(), Released::Restored);
    assert_eq!(sched::attr(subject.tid).unwrap(), before);
}

#[test]
fn root_an_owners_priority_keeps_levers_away() {
    let stage = Stage::new();
    for attr in [
        fifo(20),
        Attr {
            nice: -5,
            ..Attr::default()
        },
        Attr {
            policy: sched::SCHED_BATCH,
            ..Attr::default()
        },
        Attr {
            runtime: 700_000,
            ..Attr::default()
        },
    ] {
        let subject = Subject::new();
        sched::set_attr(subject.tid, &attr).unwrap();
        let before = sched::attr(subject.tid).unwrap();
        let held = stage.actor.adopt(subject.key).unwrap();
        for lever in [Lever::EevdfSlice(units::Ns::from_us(500)), Lever::Fifo] {
            let error = stage.actor.set_lever(&held, lever).unwrap_err();
            assert!(
                matches!(error, LeverError::OwnersChoice { .. }),
                "{attr:?}: {error}"
            );
        }
        assert_eq!(held.lever(), Lever::Off);
        stage.actor.move_to(&held, cpus().1).unwrap();
        stage.actor.release(&held).unwrap();
        assert_eq!(sched::attr(subject.tid).unwrap(), before);
    }
}

#[test]
fn root_a_foreign_policy_wins_over_a_lever() {
    let stage = Stage::new();
    let subject = Subject::new();
    let held = stage.actor.adopt(subject.key).unwrap();
    stage.actor.set_lever(&held, Lever::Fifo).unwrap();
    sched::set_attr(subject.tid, &fifo(33)).unwrap();
    stage.actor.move_to(&held, cpus().0).unwrap();
    assert_eq!(held.lever(), Lever::Off, "noticed at the next move");
    assert_eq!(stage.actor.counters().get(Counter::LeverForeign), 1);
    stage.actor.release(&held).unwrap();
    let now = sched::attr(subject.tid).unwrap();
    assert_eq!((now.policy, now.priority), (sched::SCHED_FIFO, 33));
}

#[test]
fn root_a_nice_value_set_under_a_lever_stays() {
    let stage = Stage::new();
    for lever in [Lever::Fifo, Lever::EevdfSlice(units::Ns::from_us(300))] {
        let subject = Subject::new();
        let held = stage.actor.adopt(subject.key).unwrap();
        stage.actor.set_lever(&held, lever).unwrap();
        let pid = rustix::process::Pid::from_raw(subject.tid.0.cast_signed());
        rustix::process::setpriority_process(pid, 7).unwrap();
        stage.actor.release(&held).unwrap();
        let now = sched::attr(subject.tid).unwrap();
        assert_eq!((now.policy, now.nice), (sched::SCHED_OTHER, 7));
        assert_eq!(now.runtime, stage.actor.probe().default_slice.0);
    }
}

#[test]
fn root_who_must_be_left_alone_is() {
    let stage = Stage::new();
    let (a, _) = cpus();
    let pinned = Subject::new();
    sched::set_affinity(pinned.tid, &CpuSet::only(a)).unwrap();
    let refusal = stage.actor.adopt(pinned.key).unwrap_err();
    assert!(matches!(&refusal, Refusal::Pinned { cpus, .. } if **cpus == CpuSet::only(a)));

    let kthreadd = Roots::default().key(Tid(2)).unwrap();
    let refusal = stage.actor.adopt(kthreadd).unwrap_err();
    assert!(matches!(refusal, Refusal::KernelThread { .. }), "{refusal}");

    let deadline = Subject::new();
    let ms = 1_000_000;
    sched::set_attr(
        deadline.tid,
        &Attr {
            policy: sched::SCHED_DEADLINE,
            runtime: ms,
            deadline: 50 * ms,
            period: 50 * ms,
            ..Attr::default()
        },
    )
    .unwrap();
    let refusal = stage.actor.adopt(deadline.key).unwrap_err();
    assert!(matches!(refusal, Refusal::Deadline { .. }), "{refusal}");

    let other = TaskKey {
        start_ticks: pinned.key.start_ticks + 1,
        ..pinned.key
    };
    assert!(matches!(
        stage.actor.adopt(other),
        Err(Refusal::Vanished { .. })
    ));
    assert_eq!(stage.actor.counters().get(Counter::Refused), 4);
    assert_eq!(stage.entries(), 0);
}

#[test]
fn own_and_excluded_threads_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        journal: dir.path().join("journal"),
        capacity: 1,
        excluded_comms: vec!["slee".into()],
        ..Settings::default()
    };
    let (actor, _) = Actor::start(settings).unwrap();
    let own = Subject::new();
    assert!(matches!(actor.adopt(own.key), Err(Refusal::Own { .. })));
    let sleeper = Sleeper::new();
    assert!(matches!(
        actor.check(sleeper.key()),
        Err(Refusal::Excluded { .. })
    ));
}

#[test]
fn root_a_foreign_mask_wins_and_stays() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let all = Subject::new().mask();
    for foreign in [CpuSet::only(b), all] {
        let subject = Subject::new();
        let held = stage.actor.adopt(subject.key).unwrap();
        stage.actor.move_to(&held, a).unwrap();
        sched::set_affinity(subject.tid, &foreign).unwrap();
        let error = stage.actor.move_to(&held, b).unwrap_err();
        assert!(
            matches!(error, MoveError::Foreign { change: ForeignChange::Mask, ref mask, .. } if **mask == foreign),
            "{error}"
        );
        assert_eq!(subject.mask(), foreign);
        assert!(held.is_over());
        assert_eq!(stage.actor.release(&held).unwrap(), Released::AlreadyOver);
        assert_eq!(subject.mask(), foreign);
    }
    // Without a move in between, the release notices.
    let subject = Subject::new();
    let held = stage.actor.adopt(subject.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    sched::set_affinity(subject.tid, &CpuSet::only(b)).unwrap();
    assert_eq!(stage.actor.release(&held).unwrap(), Released::Foreign);
    assert_eq!(subject.mask(), CpuSet::only(b));
    stage.actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
}

#[test]
fn root_verify_notices_a_foreign_mask_and_an_end() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let subject = Subject::new();
    let held = stage.actor.adopt(subject.key).unwrap();
    stage.actor.verify(&held).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    stage.actor.verify(&held).unwrap();
    sched::set_affinity(subject.tid, &CpuSet::only(b)).unwrap();
    assert!(matches!(
        stage.actor.verify(&held),
        Err(MoveError::Foreign { .. })
    ));
    let sleeper = Sleeper::new();
    let held = stage.actor.adopt(sleeper.key()).unwrap();
    sleeper.end();
    assert!(matches!(
        stage.actor.verify(&held),
        Err(MoveError::Vanished { .. })
    ));
}

#[test]
fn root_errors_are_counted_by_reason() {
    let stage = Stage::new();
    let subject = Subject::new();
    let before = subject.mask();
    let held = stage.actor.adopt(subject.key).unwrap();
    let nowhere = VcpuId(1000);
    let error = stage.actor.move_to(&held, nowhere).unwrap_err();
    assert!(
        matches!(error, MoveError::Invalid { cpu, .. } if cpu == nowhere),
        "{error}"
    );
    assert_eq!(subject.mask(), before);
    let error = stage
        .actor
        .move_with(&held, cpus().0, |_, _| {
            Err(io::Error::from_raw_os_error(libc::EPERM))
        })
        .unwrap_err();
    assert!(matches!(error, MoveError::NotPermitted { .. }), "{error}");
    let failed = stage.actor.counters().failed_moves();
    assert_eq!(failed.get("invalid-cpu"), Some(&1), "{failed:?}");
    // The hold goes on.
    stage.actor.move_to(&held, cpus().1).unwrap();
}

/// Ends a process and starts another with its id, at a later clock tick.
fn reuse(sleeper: Sleeper) -> Sleeper {
    let (tid, start) = (sleeper.tid(), sleeper.key().start_ticks);
    sleeper.end();
    wait_for("a clock tick", || now_ticks() > start + 1);
    let second = Sleeper::with_tid(tid);
    assert_ne!(second.key().start_ticks, start);
    second
}

#[test]
fn root_a_reused_id_is_never_touched() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let first = Sleeper::new();
    let old = first.key();
    let held = stage.actor.adopt(old).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let second = reuse(first);
    // Pinned by its owner to the very CPU that the first one was on.
    sched::set_affinity(second.tid(), &CpuSet::only(a)).unwrap();
    let error = stage.actor.move_to(&held, b).unwrap_err();
    assert!(matches!(error, MoveError::Reused { .. }), "{error}");
    assert_eq!(sched::affinity(second.tid()).unwrap(), CpuSet::only(a));
    assert!(matches!(
        stage.actor.adopt(old),
        Err(Refusal::Vanished { .. })
    ));
    stage.actor.sweep_inherited();
    assert_eq!(sched::affinity(second.tid()).unwrap(), CpuSet::only(a));
    assert_eq!(stage.entries(), 0);
}

#[test]
fn root_release_and_lever_leave_a_reused_id_alone() {
    let (a, _) = cpus();
    let stage = Stage::new();
    let first = Sleeper::new();
    let held = stage.actor.adopt(first.key()).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    stage.actor.set_lever(&held, Lever::Fifo).unwrap();
    let second = reuse(first);
    sched::set_affinity(second.tid(), &CpuSet::only(a)).unwrap();
    sched::set_attr(
        second.tid(),
        &Attr {
            flags: 1,
            ..fifo(1)
        },
    )
    .unwrap();
    let before = sched::attr(second.tid()).unwrap();
    assert!(matches!(
        stage.actor.set_lever(&held, Lever::Off),
        Err(LeverError::Ended { .. })
    ));
    assert_eq!(stage.actor.release(&held).unwrap(), Released::Gone);
    assert_eq!(sched::affinity(second.tid()).unwrap(), CpuSet::only(a));
    assert_eq!(sched::attr(second.tid()).unwrap(), before);
}

#[test]
fn root_an_id_reused_within_a_move_gets_its_mask_back() {
    let (_, b) = cpus();
    let stage = Stage::new();
    let first = Sleeper::new();
    let held = stage.actor.adopt(first.key()).unwrap();
    let before = sched::affinity(first.tid()).unwrap();
    let mut second = None;
    let error = stage
        .actor
        .move_with(&held, b, |tid, mask| {
            // Between the check and the system call.
            second = Some(reuse(first));
            sched::set_affinity(tid, mask)
        })
        .unwrap_err();
    assert!(matches!(error, MoveError::Reused { .. }), "{error}");
    assert_eq!(sched::affinity(second.unwrap().tid()).unwrap(), before);
}

#[test]
fn root_a_mover_that_comes_after_the_release_undoes_itself() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let subject = Subject::new();
    let before = subject.mask();
    let held = stage.actor.adopt(subject.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let (actor, tid) = (&stage.actor, subject.tid);
    // As if this mover's vCPU had been descheduled before the system call.
    let _ = actor.move_with(&held, b, |tid, mask| {
        assert_eq!(actor.release(&held).unwrap(), Released::Restored);
        assert_eq!(stage.entries(), 1, "the late mover is still in the journal");
        sched::set_affinity(tid, mask)
    });
    assert_eq!(sched::affinity(tid).unwrap(), before);
    actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
}

#[test]
fn root_an_overtaken_mover_is_not_taken_for_a_stranger() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let subject = Subject::new();
    let before = subject.mask();
    let held = stage.actor.adopt(subject.key).unwrap();
    let actor = &stage.actor;
    actor
        .move_with(&held, a, |tid, mask| {
            actor.move_to(&held, b).unwrap();
            sched::set_affinity(tid, mask)
        })
        .unwrap();
    assert_eq!(held.at(), Some(a), "the last system call wins");
    actor
        .move_with(&held, b, |tid, mask| {
            sched::set_affinity(tid, mask)?;
            // Descheduled right after it: another mover finds the new mask.
            actor.move_to(&held, a).map(drop).map_err(io::Error::other)
        })
        .unwrap();
    assert_eq!(subject.mask(), CpuSet::only(a));
    assert_eq!(held.at(), Some(a));
    assert_eq!(actor.release(&held).unwrap(), Released::Restored);
    assert_eq!(subject.mask(), before);
}

#[test]
fn root_too_many_movers_give_up_instead_of_waiting() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let subject = Subject::new();
    let held = stage.actor.adopt(subject.key).unwrap();
    let actor = &stage.actor;
    let result = actor.move_with(&held, a, |_, _| {
        actor
            .move_with(&held, b, |_, _| {
                actor
                    .move_with(&held, a, |_, _| {
                        let fourth = actor.move_to(&held, b);
                        assert!(matches!(fourth, Err(MoveError::Busy { .. })));
                        Ok(())
                    })
                    .map(drop)
                    .map_err(io::Error::other)
            })
            .map(drop)
            .map_err(io::Error::other)
    });
    result.unwrap();
}

#[test]
fn root_many_movers_and_a_release_end_with_the_owners_mask() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let actor = &stage.actor;
    for _ in 0..50 {
        let subject = Subject::new();
        let before = subject.mask();
        let held = actor.adopt(subject.key).unwrap();
        let moves = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (held, moves) = (&held, &moves);
                scope.spawn(move || {
                    for step in 0.. {
                        let to = if (n + step) % 2 == 0 { a } else { b };
                        match actor.move_to(held, to) {
                            Ok(_) => _ = moves.fetch_add(1, Ordering::Relaxed),
                            Err(MoveError::Busy { .. }) => {}
                            Err(MoveError::Over { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            wait_for("some moves", || moves.load(Ordering::Relaxed) > 200);
            assert_eq!(actor.release(&held).unwrap(), Released::Restored);
        });
        assert_eq!(subject.mask(), before);
    }
    actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
    assert_eq!(actor.counters().get(Counter::Foreign), 0);
}

#[test]
fn root_two_actors_cannot_share_a_journal() {
    let stage = Stage::new();
    let error = Actor::start(stage.actor.settings.clone()).unwrap_err();
    assert!(
        error.to_string().contains(&std::process::id().to_string()),
        "{error}"
    );
    assert!(restore::restore_all(&stage.actor.settings.journal, &Roots::default()).is_err());
}

#[test]
fn root_a_full_journal_refuses_the_next_thread() {
    let stage = Stage::new();
    let subjects: Vec<Subject> = (0..17).map(|_| Subject::new()).collect();
    let held: Vec<Held> = subjects[..16]
        .iter()
        .map(|s| stage.actor.adopt(s.key).unwrap())
        .collect();
    let refusal = stage.actor.adopt(subjects[16].key).unwrap_err();
    assert!(
        matches!(refusal, Refusal::JournalFull { capacity: 16, .. }),
        "{refusal}"
    );
    for held in held {
        stage.actor.release(&held).unwrap();
        // The handle keeps its slot; dropping it does not.
    }
    stage.actor.adopt(subjects[16].key).unwrap();
}

#[test]
fn root_the_journal_file_goes_with_the_actor() {
    let (a, _) = cpus();
    let stage = Stage::new();
    let sleeper = Sleeper::new();
    let before = sched::affinity(sleeper.tid()).unwrap();
    let held = stage.actor.adopt(sleeper.key()).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let Stage { actor, dir, .. } = stage;
    drop(actor);
    assert_eq!(sched::affinity(sleeper.tid()).unwrap(), before);
    assert!(!dir.path().join("journal").exists());
}

#[test]
fn a_program_run_by_a_held_thread_does_not_keep_our_descriptors() {
    let stage = Stage::new();
    let list = Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(!list.contains(stage.dir.path().to_str().unwrap()), "{list}");
}
