// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a killed daemon held, under the freezer: its supervisor gives it back, or
//! `vmigrater restore` if that was killed as well. And what one held that cannot go on.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::program::one_request_after_another;
use common::program::state;
use common::scene::Scene;
use common::until;
use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::Signal;

const PROGRAM: &str = "io_program";

/// Not a test: one request after another.
#[test]
#[ignore = "started by the tests"]
fn io_program() {
    one_request_after_another();
}

#[test]
fn root_restore_gives_back_what_a_killed_daemon_and_its_supervisor_held() {
    let scene = Scene::new(PROGRAM);
    scene.daemon_that_holds("fifo").kill_both();
    let left = state(scene.io);
    assert_ne!(left.mask, scene.before.mask, "nobody has restored yet");
    assert_ne!(left.attr, scene.before.attr, "nobody has restored yet");

    let output = scene.home.restore();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Somebody else on this machine may have been held as well.
    let said = String::from_utf8(output.stdout).unwrap();
    let (restored, rest) = said.split_once(" restored, ").unwrap();
    assert!(restored.parse::<u32>().unwrap() >= 1, "{said}");
    assert!(rest.contains("0 changed by others, 0 failed"), "{said}");
    assert_eq!(state(scene.io), scene.before);
    assert!(!scene.home.path("journal").exists(), "the journal stays");

    let again = scene.home.run(&["restore"]);
    assert_eq!(again.status.code(), Some(0));
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.starts_with("nothing to restore"), "{said}");
}

#[test]
fn root_a_killed_daemons_supervisor_gives_back_masks_policies_and_slices() {
    let scene = Scene::new(PROGRAM);
    for lever in ["fifo", "eevdf-slice"] {
        let mut daemon = scene.daemon(lever);
        // Stopped when it is killed, so that what was seen is what it leaves.
        until(&format!("the task is held, with {lever}"), || {
            if !scene.is_held() {
                return false;
            }
            daemon.hold(daemon.daemon_pid());
            let sure = scene.is_held();
            if !sure {
                daemon.kill(daemon.daemon_pid(), Signal::CONT);
            }
            sure
        });
        daemon.kill(daemon.daemon_pid(), Signal::KILL);
        daemon.wait();
        scene.all_is_restored(lever);
    }
}

/// Somebody takes the descriptors away from a daemon that runs: the kernel lets it open
/// none, and wait for none either (`poll`, EINVAL).
#[test]
fn root_a_daemon_that_cannot_go_on_ends_with_1_and_its_tasks_are_as_before() {
    let scene = Scene::new(PROGRAM);
    let mut daemon = scene.daemon_that_holds("fifo");
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::prlimit(Some(daemon.daemon_pid()), Resource::Nofile, none).unwrap();
    // Whoever asks wakes its main thread.
    assert_ne!(scene.home.run(&["status"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(1));
    let log = fs::read_to_string(scene.home.path("log")).unwrap();
    let last = log.lines().last().unwrap();
    assert!(last.contains("cannot wait") && last.contains(';'), "{log}");
    scene.all_is_restored("after its end");
    assert!(!scene.home.path("socket").exists(), "the socket stays");
}
