// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a killed daemon held, under the freezer: its supervisor gives it back, or
//! `vmigrater restore` if that was killed as well. And what one held that cannot go on.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::Daemon;
use common::Home;
use common::freeze;
use common::program::Program;
use common::program::one_request_after_another;
use common::program::state;
use common::until;
use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::Signal;
use units::Ns;

/// Never lets a task go to compare; a lever, so that more than a mask has to be
/// given back.
fn config(lever: &str) -> String {
    format!("trial.enabled = false\nwakeup.mode = \"{lever}\"\n")
}

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
    let mut daemon = Daemon::start_under(&freezer, &home, &config("fifo"));
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

#[test]
fn root_a_killed_daemons_supervisor_gives_back_masks_policies_and_slices() {
    let program = Program::start("io_program");
    let tid = program.threads("pulse-", 1)[0];
    let before = state(tid);
    let freezer = freeze(Ns::from_ms(11), 2);
    for lever in ["fifo", "eevdf-slice"] {
        let home = Home::new();
        let mut daemon = Daemon::start_under(&freezer, &home, &config(lever));
        let held = || {
            let now = state(tid);
            now.mask != before.mask && now.attr != before.attr
        };
        // Stopped when it is killed, so that what was seen is what it leaves.
        until(&format!("the task is held, with {lever}"), || {
            if !held() {
                return false;
            }
            daemon.hold(daemon.daemon_pid());
            let sure = held();
            if !sure {
                daemon.kill(daemon.daemon_pid(), Signal::CONT);
            }
            sure
        });
        daemon.kill(daemon.daemon_pid(), Signal::KILL);
        daemon.wait();
        until(&format!("{lever}: everything is as before"), || {
            state(tid) == before
        });
        assert!(!home.path("journal").exists(), "{lever}: the journal stays");
    }
}

/// Somebody takes the descriptors away from a daemon that runs: the kernel lets it open
/// none, and wait for none either (`poll`, EINVAL).
#[test]
fn root_a_daemon_that_cannot_go_on_ends_with_1_and_its_tasks_are_as_before() {
    let program = Program::start("io_program");
    let tid = program.threads("pulse-", 1)[0];
    let before = state(tid);
    let freezer = freeze(Ns::from_ms(11), 2);
    let home = Home::new();
    let mut daemon = Daemon::start_under(&freezer, &home, &config("fifo"));
    until("the task is held, with a lever", || {
        let now = state(tid);
        now.mask != before.mask && now.attr != before.attr
    });
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::prlimit(Some(daemon.daemon_pid()), Resource::Nofile, none).unwrap();
    // Whoever asks wakes its main thread.
    assert_ne!(home.run(&["status"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(1));
    let log = fs::read_to_string(home.path("log")).unwrap();
    let last = log.lines().last().unwrap();
    assert!(last.contains("cannot wait") && last.contains(';'), "{log}");
    until("everything is as before", || state(tid) == before);
    assert!(!home.path("journal").exists(), "the journal stays");
    assert!(!home.path("socket").exists(), "the socket stays");
}
