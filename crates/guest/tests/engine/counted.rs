// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the engine cannot take is counted.

use guest::sense::MAX_TASKS;

use crate::Bed;
use crate::Order;
use crate::SECOND;
use crate::Subject;
use crate::bed::eventually;
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
