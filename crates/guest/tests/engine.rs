// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine on this machine, under the freezer: what it does for a task, and
//! what it leaves alone. As root, `--test-threads=1`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

#[path = "engine/bed.rs"]
mod bed;
#[path = "engine/counted.rs"]
mod counted;
#[path = "engine/disk.rs"]
mod disk;
#[path = "engine/dry_run.rs"]
mod dry_run;
#[path = "engine/gain.rs"]
mod gain;
#[path = "engine/host.rs"]
mod host;
#[path = "engine/inactivity.rs"]
mod inactivity;
#[path = "engine/overdue.rs"]
mod overdue;
#[path = "engine/owners.rs"]
mod owners;
#[path = "engine/published.rs"]
mod published;
#[path = "engine/senses.rs"]
mod senses;
#[path = "engine/subject.rs"]
mod subject;
#[path = "engine/trials.rs"]
mod trials;

use std::time::Duration;

use bed::Bed;
use guest::report::Report;
use subject::Done;
use subject::Order;
use subject::STORM;
use subject::Subject;

const SECOND: Duration = Duration::from_secs(1);

/// Not a test: the program that the engine moves.
#[test]
#[ignore = "started by the tests"]
fn subject_program() {
    subject::run();
}

/// A subject that does I/O.
fn io_bound() -> Subject {
    let subject = Subject::start();
    subject.order(Order::Io);
    subject
}

fn io_bound_for_the_engine(report: &Report, subject: &Subject) -> bool {
    report.tasks.iter().any(|task| task.tid == subject.tid())
}

/// For claims about a gain: a hypervisor below this machine may take CPU away at
/// any time, which can hide a gain and never feigns one. So one good try of three
/// proves it, and each that failed is printed.
fn in_three_tries(attempt: impl Fn()) {
    for left in [2, 1] {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&attempt)) {
            Ok(()) => return,
            Err(_) => println!("failed, {left} tries left"),
        }
    }
    attempt();
}
