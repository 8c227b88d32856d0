// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the detector that every context switch pays for is attached while
//! somebody does I/O, and not for longer. As root, `--test-threads=1`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

#[path = "engine/bed.rs"]
#[allow(dead_code, reason = "shared with the tests of the engine")]
mod bed;
#[path = "engine/subject.rs"]
#[allow(dead_code, reason = "shared with the tests of the engine")]
mod subject;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use bed::Bed;
use bed::eventually;
use bed::moving;
use guest::engine::Engine;
use guest::report::Mode;
use guest::settings::Settings;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process_group;
use subject::Order;
use subject::Subject;
use units::Ns;

const SECOND: Duration = Duration::from_secs(1);

/// Not a test: the program that the engine moves.
#[test]
#[ignore = "started by the tests"]
fn subject_program() {
    subject::run();
}

/// An engine that watches, after its first minute as it were: a second here.
fn watching(bed: &Bed) -> Engine {
    let engine = bed.engine(Settings {
        calm_after: Ns::from_secs(1),
        ..bed.settings()
    });
    assert!(engine.report().detector_attached, "attached at the start");
    // Others on this machine may do some I/O, so not at once perhaps.
    eventually(20 * SECOND, "watching, detached", || {
        let report = engine.report();
        report.mode == Mode::Watching && !report.detector_attached
    });
    engine
}

#[test]
fn root_waits_that_no_block_request_announces_attach_the_detector() {
    let bed = Bed::new();
    let engine = watching(&bed);
    let subject = Subject::start();
    subject.order(Order::Io);
    eventually(8 * SECOND, "attached", || engine.report().detector_attached);
    moving(&engine, 10);
    // For as long as there is somebody, however long that is.
    bed::throughout(2 * SECOND, || {
        assert!(engine.report().detector_attached);
    });
    drop(subject);
    eventually(20 * SECOND, "detached again", || {
        !engine.report().detector_attached
    });
    engine.stop();
}

/// Reads a file past the page cache, again and again; ended by being dropped.
struct Reader(Child);

impl Reader {
    fn start(file: &std::path::Path) -> Self {
        let script = "while dd if=\"$0\" of=/dev/null bs=4k iflag=direct 2>/dev/null; do :; done";
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(file)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The shell and its dd.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn root_block_requests_attach_the_detector() {
    // In the checkout's target directory: memory has no block requests.
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&vec![1; 8 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    let bed = Bed::new();
    let engine = watching(&bed);
    let reader = Reader::start(file.path());
    eventually(8 * SECOND, "attached", || engine.report().detector_attached);
    drop(reader);
    eventually(20 * SECOND, "detached again", || {
        !engine.report().detector_attached
    });
    engine.stop();
}

#[test]
fn root_who_ends_a_tasks_waits_is_told() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    let subject = Subject::start();
    let tid = subject.tid();
    let completion = |order: Order| {
        subject.order(order);
        let before = subject.done();
        eventually(10 * SECOND, "I/O-bound, after 200 requests", || {
            let ours = |task: &guest::report::Task| task.tid == tid;
            subject.done() > before + 200 && engine.report().tasks.iter().any(ours)
        });
        let report = engine.report();
        let task = report.tasks.iter().find(|task| task.tid == tid);
        task.map(|task| task.completion.clone())
    };
    assert_ne!(completion(Order::Io).as_deref(), Some("by-kernel-thread"));
    eventually(10 * SECOND, "a kernel thread ends its waits", || {
        completion(Order::Terminal).as_deref() == Some("by-kernel-thread")
    });
    // And interrupts again.
    eventually(10 * SECOND, "timers end its waits", || {
        completion(Order::Io).is_some_and(|path| path != "by-kernel-thread")
    });
    engine.stop();
}
