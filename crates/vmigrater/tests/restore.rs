// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmigrater restore` when there is something to restore: daemon and supervisor were
//! both killed while they held a task, under the freezer.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::Daemon;
use common::Home;
use common::freeze;
use common::program::Program;
use common::program::one_request_after_another;
use common::program::state;
use common::until;
use rustix::process::Signal;
use units::Ns;

/// Never lets a task go to compare; SCHED_FIFO, so that more than a mask has to be
/// given back.
const CONFIG: &str = r#"
[trial]
enabled = false
[wakeup]
mode = "fifo"
"#;

/// Not a test: one request after another.
#[test]
#[ignore = "started by the tests"]
fn io_program() {
    one_request_after_another();
}

#[test]
fn root_restore_gives_back_what_a_killed_daemon_and_its_supervisor_held() {
    let program = Program::start("io_program");
    let tid = program.threads("pulse-", 1)[0];
    let before = state(tid);
    let freezer = freeze(Ns::from_ms(11), 2);
    let home = Home::new();
    let mut daemon = Daemon::start_under(&freezer, &home, CONFIG);
    until("the task is held, with a lever", || {
        let now = state(tid);
        now.mask != before.mask && now.attr != before.attr
    });
    // Neither can do anything for the other.
    daemon.hold(daemon.supervisor_pid());
    daemon.kill(daemon.daemon_pid(), Signal::KILL);
    daemon.kill(daemon.supervisor_pid(), Signal::KILL);
    daemon.wait();
    let left = state(tid);
    assert_ne!(left.mask, before.mask, "nobody has restored yet");
    assert_ne!(left.attr, before.attr, "nobody has restored yet");

    let mut output = home.run(&["restore"]);
    until("the lock is free", || {
        // 5: the last of both is on its way out.
        if output.status.code() == Some(5) {
            output = home.run(&["restore"]);
        }
        output.status.code() != Some(5)
    });
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Somebody else on this machine may have been held as well.
    let said = String::from_utf8(output.stdout).unwrap();
    let (restored, rest) = said.split_once(" restored, ").unwrap();
    assert!(restored.parse::<u32>().unwrap() >= 1, "{said}");
    assert!(rest.contains("0 changed by others, 0 failed"), "{said}");
    assert_eq!(state(tid), before);
    assert!(!home.path("journal").exists(), "the journal stays");

    let again = home.run(&["restore"]);
    assert_eq!(again.status.code(), Some(0));
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.starts_with("nothing to restore"), "{said}");
}
