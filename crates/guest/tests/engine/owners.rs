// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose threads they are: what the engine takes it gives back, and what is not its
//! own it leaves alone.

use guest::settings::Settings;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use crate::Bed;
use crate::Order;
use crate::SECOND;
use crate::STORM;
use crate::Subject;
use crate::bed::CPUS;
use crate::bed::eventually;
use crate::bed::moves;
use crate::bed::moving;
use crate::bed::throughout;
use crate::io_bound;
use crate::io_bound_for_the_engine;
use crate::subject;
use crate::subject::BURST;
use crate::subject::PAUSE;

#[test]
fn root_the_end_of_a_burst_releases_the_task() {
    let bed = Bed::new();
    let subject = Subject::start();
    let original = subject.mask();
    let engine = bed.engine(bed.settings());
    for end in [Order::Compute, Order::Sleep] {
        subject.order(Order::Io);
        moving(&engine, 10);
        eventually(SECOND, "moved", || subject.mask().len() == 1);
        subject.order(end);
        eventually(SECOND, "released", || {
            subject.mask() == original && !io_bound_for_the_engine(&engine.report(), &subject)
        });
        let moved = moves(&engine.report());
        throughout(SECOND / 2, || {
            assert_eq!(subject.mask(), original, "after {end:?}");
        });
        assert_eq!(moves(&engine.report()), moved, "after {end:?}");
    }
    engine.stop();
}

/// Its timer is where it fell asleep: moved meanwhile it would be woken towards a vCPU
/// that may be away. What a burst needs are one or two moves.
#[test]
fn root_a_task_is_not_moved_while_it_sleeps_for_its_own_timer() {
    let bed = Bed::new();
    let moves_in = |stay: Ns| {
        let subject = Subject::start();
        subject.order(Order::Bursts);
        let mut settings = bed.settings();
        settings.iobound.stay = stay;
        settings.trial.enabled = false;
        let engine = bed.engine(settings);
        moving(&engine, 4);
        let before = moves(&engine.report());
        throughout(3 * SECOND, || {});
        let made = moves(&engine.report()) - before;
        engine.stop();
        made
    };
    let (asleep, awake) = (
        moves_in(Ns::ZERO),
        moves_in(Settings::default().iobound.stay),
    );
    let bursts = 3 * SECOND.as_nanos() / (BURST + PAUSE).as_nanos();
    eprintln!("{asleep} moves, {awake} without those in sleep, {bursts} bursts");
    assert!(
        awake > 0 && awake * 2 < asleep,
        "{asleep} moves, {awake} without those in sleep"
    );
}

#[test]
fn root_masks_and_policies_are_back_after_stop() {
    let bed = Bed::new();
    let subjects = [io_bound(), io_bound()];
    let state = || {
        subjects
            .each_ref()
            .map(|subject| (subject.mask(), subject.scheduling()))
    };
    let before = state();
    assert_eq!(before[0].0, CpuSet::first(CPUS));
    let engine = bed.engine(bed.settings());
    moving(&engine, 20);
    eventually(2 * SECOND, "both are held", || {
        subjects.iter().all(|subject| subject.mask().len() == 1)
    });
    assert!(!bed.journal_is_empty());
    let summary = engine.stop();
    assert_eq!(state(), before);
    assert!(bed.journal_is_empty());
    assert_eq!((summary.failed, summary.foreign), (0, 0), "{summary}");
    assert!(summary.restored >= 2, "{summary}");
}

#[test]
fn root_a_task_pinned_by_its_owner_never_moves() {
    let bed = Bed::new();
    let pinned = Subject::start();
    let here = CpuSet::only(VcpuId(0));
    pinned.set_mask(&here);
    pinned.order(Order::Io);
    // Another one shows that the engine is at work.
    let free = io_bound();
    let engine = bed.engine(bed.settings());
    moving(&engine, 10);
    let (moved, done) = (moves(&engine.report()), pinned.done());
    throughout(2 * SECOND, || assert_eq!(pinned.mask(), here));
    let report = engine.report();
    assert!(io_bound_for_the_engine(&report, &free));
    assert!(!io_bound_for_the_engine(&report, &pinned));
    assert!(moves(&report) > moved, "{report:#?}");
    assert!(pinned.done() > done + 500, "it was I/O-bound all along");
    engine.stop();
    assert_eq!(pinned.mask(), here);
}

#[test]
fn root_a_fork_storm_leaks_nothing() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(bed.settings());
    moving(&engine, 20);
    let before = moves(&engine.report());
    subject.order(Order::Storm);
    eventually(15 * SECOND, "the storm is over", || {
        subject.storm().0 >= STORM
    });
    let moved = moves(&engine.report()) - before;
    let (_, inherited) = subject.storm();
    println!("{inherited} of {STORM} threads inherited a narrowed mask, {moved} moves");
    // Few or none, if children are widened before they run: what was inherited
    // shows only in what is left behind.
    assert!(moved > 0, "the task was not moved meanwhile");
    // Children are widened while the phase goes on, for it may never end.
    let all = CpuSet::first(CPUS);
    let others_are_wide = || {
        let mut others = subject.threads();
        others.retain(|tid| *tid != subject.tid());
        others
            .into_iter()
            .all(|tid| subject::mask(tid).is_none_or(|mask| mask == all))
    };
    eventually(
        3 * SECOND,
        "all children have the owner's mask",
        others_are_wide,
    );
    assert!(io_bound_for_the_engine(&engine.report(), &subject));
    // And the rest, also what nobody has noticed, when it ends.
    subject.order(Order::Sleep);
    eventually(2 * SECOND, "all threads have their masks back", || {
        subject
            .threads()
            .into_iter()
            .all(|tid| subject::mask(tid).is_none_or(|mask| mask == all))
    });
    assert!(subject.threads().len() > 10, "some stay");
    let report = engine.report();
    let summary = engine.stop();
    assert_eq!(summary.failed, 0, "{summary}");
    assert!(bed.journal_is_empty());
    assert_eq!(report.failed["foreign"], 0, "{report:#?}");
}

#[test]
fn root_a_foreign_mask_wins() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(bed.settings());
    moving(&engine, 10);
    eventually(SECOND, "moved", || subject.mask().len() == 1);
    // No mask that the engine ever sets, so that there is no mistaking it.
    let wanted = CpuSet::first(CPUS);
    subject.set_mask(&wanted);
    eventually(2 * SECOND, "the engine has noticed", || {
        !io_bound_for_the_engine(&engine.report(), &subject)
    });
    assert_eq!(subject.mask(), wanted);
    let moved = moves(&engine.report());
    throughout(SECOND, || assert_eq!(subject.mask(), wanted));
    let report = engine.report();
    assert_eq!(moves(&report), moved);
    assert!(report.failed["foreign"] >= 1, "{report:#?}");
    engine.stop();
    assert_eq!(subject.mask(), wanted);
    assert!(bed.journal_is_empty());
}
