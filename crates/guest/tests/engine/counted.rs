// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the engine cannot take is counted.

use std::collections::BTreeSet;

use guest::sense::MAX_TASKS;

use crate::Bed;
use crate::Order;
use crate::SECOND;
use crate::Subject;
use crate::bed::eventually;
use crate::io_bound_for_the_engine;
use crate::subject::CROWD;

#[test]
fn root_io_bound_tasks_without_a_slot_are_counted() {
    assert!(CROWD > MAX_TASKS as u64);
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    let subject = Subject::start();
    assert_eq!(engine.report().lost_tasks, 0);
    subject.order(Order::Crowd);
    eventually(15 * SECOND, "more are I/O-bound than have room", || {
        engine.report().lost_tasks > 0
    });
    let report = engine.report();
    println!(
        "{} have room, {} not",
        report.tasks.len(),
        report.lost_tasks
    );
    assert!(report.tasks.len() <= MAX_TASKS, "{report:#?}");
    let summary = engine.stop();
    assert_eq!(summary.failed, 0, "{summary}");
}

/// A thread whose end takes longer than a window is judged once more after it has ended.
#[test]
fn root_threads_that_end_while_io_bound_leave_their_slots() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    let subject = Subject::start();
    subject.order(Order::Mayflies);
    let more_than_slots = MAX_TASKS as u64 + 16;
    let mut seen = BTreeSet::new();
    eventually(
        25 * SECOND,
        "more have ended than there is room for",
        || {
            seen.extend(engine.report().tasks.iter().map(|task| task.tid));
            subject.mayflies() >= more_than_slots
        },
    );
    // The claim says nothing of threads that nobody had found.
    assert!(seen.len() as u64 >= more_than_slots / 2, "{}", seen.len());
    assert_eq!(engine.report().lost_tasks, 0);
    subject.order(Order::Io);
    eventually(4 * SECOND, "there is room for one more", || {
        io_bound_for_the_engine(&engine.report(), &subject)
    });
    engine.stop();
}
