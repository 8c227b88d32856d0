// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published profile as a whole: heartbeat, last slice, fixed margin, no lever.

use guest::settings::Settings;
use units::CpuSet;

use crate::Bed;
use crate::SECOND;
use crate::bed::CPUS;
use crate::bed::becomes;
use crate::io_bound;
use crate::io_bound_for_the_engine;

#[test]
fn root_the_published_profile_moves_tasks_and_gives_them_back() {
    let bed = Bed::new();
    let subjects = [io_bound(), io_bound()];
    let state = || subjects.each_ref().map(|s| (s.mask(), s.scheduling()));
    let before = state();
    let engine = bed.engine(Settings {
        priorities: bed.settings().priorities,
        ..Settings::published()
    });
    assert_eq!(engine.report().source, "heartbeat");
    let mut both_held = false;
    let good = becomes(20 * SECOND, || {
        let report = engine.report();
        both_held |= subjects
            .iter()
            .all(|subject| io_bound_for_the_engine(&report, subject));
        both_held && report.moves["push"] >= 20 && report.moves["soon-active"] >= 5
    });
    let report = engine.report();
    println!("{:?}, failed {:?}", report.moves, report.failed);
    assert!(good, "{report:#?}, failed: {:?}", engine.failed());
    let done = subjects.each_ref().map(|subject| subject.done());
    assert!(done.iter().all(|done| *done > 0), "{done:?}");
    let summary = engine.stop();
    assert_eq!((summary.failed, summary.foreign), (0, 0), "{summary}");
    assert_eq!(state(), before);
    assert!(before.iter().all(|(mask, _)| *mask == CpuSet::first(CPUS)));
    assert!(bed.journal_is_empty());
}
