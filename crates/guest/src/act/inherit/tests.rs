// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::io::BufRead;
use std::io::BufReader;
use std::process::Command;
use std::process::Stdio;

use super::super::testing::Stage;
use super::super::testing::Subject;
use super::super::testing::cpus;
use super::super::testing::wait_for;
use super::*;

#[test]
fn root_a_child_gets_its_parents_original_mask() {
    let (a, _) = cpus();
    let stage = Stage::new();
    let parent = Subject::new();
    let before = parent.mask();
    let held = stage.actor.adopt(parent.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let child = parent.run(Subject::new);
    assert_eq!(child.mask(), CpuSet::only(a), "inherited");
    assert_eq!(stage.actor.on_fork(&held, child.tid), Child::Widened);
    assert_eq!(child.mask(), before);
    assert_eq!(stage.actor.on_fork(&held, child.tid), Child::Clean);
    assert_eq!(parent.mask(), CpuSet::only(a), "the parent stays held");
}

#[test]
fn root_a_child_that_forks_before_it_is_widened_is_followed() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let parent = Subject::new();
    let before = parent.mask();
    let held = stage.actor.adopt(parent.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let child = parent.run(Subject::new);
    let grandchild = child.run(Subject::new);
    let great = grandchild.run(Subject::new);
    stage.actor.move_to(&held, b).unwrap();
    assert_eq!(stage.actor.on_fork(&held, child.tid), Child::Widened);
    for subject in [&child, &grandchild, &great] {
        assert_eq!(subject.mask(), before);
    }
}

#[test]
fn root_a_sweep_finds_the_children_of_a_hold_that_is_over() {
    let (a, b) = cpus();
    let stage = Stage::new();
    let parent = Subject::new();
    let before = parent.mask();
    let held = stage.actor.adopt(parent.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let child = parent.run(Subject::new);
    stage.actor.move_to(&held, b).unwrap();
    stage.actor.release(&held).unwrap();
    assert_eq!(child.mask(), CpuSet::only(a));
    assert_eq!(
        stage.entries(),
        1,
        "kept until the children have been looked at"
    );
    let sweep = stage.actor.sweep_inherited();
    assert_eq!(
        sweep,
        Sweep {
            widened: 1,
            failed: 0
        }
    );
    assert_eq!(child.mask(), before);
    assert_eq!(stage.entries(), 0);
}

#[test]
fn root_older_threads_and_other_masks_are_not_taken_for_children() {
    let (a, b) = cpus();
    let older = Subject::new();
    let stage = Stage::new();
    sched::set_affinity(older.tid, &CpuSet::only(a)).unwrap();
    let parent = Subject::new();
    // Start times count in ticks.
    let start = parent.key.start_ticks;
    wait_for("a tick", || Subject::new().key.start_ticks > start);
    let held = stage.actor.adopt(parent.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let child = parent.run(Subject::new);
    sched::set_affinity(child.tid, &CpuSet::only(b)).unwrap();
    assert_eq!(stage.actor.on_fork(&held, child.tid), Child::Clean);
    assert_eq!(stage.actor.on_fork(&held, older.tid), Child::Clean);
    assert_eq!(stage.actor.sweep_inherited(), Sweep::default());
    assert_eq!(child.mask(), CpuSet::only(b));
    assert_eq!(older.mask(), CpuSet::only(a));
    // Do not leave the others pinned for the tests that follow.
    drop(child);
}

/// A shell that is held starts a process that starts another in a session of
/// its own and ends, as daemons do.
#[test]
fn root_a_daemon_whose_parent_has_ended_is_found() {
    let (a, _) = cpus();
    let stage = Stage::new();
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "read go; setsid sh -c 'sleep 600 & echo $$ $!' & wait; read end",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let key = Roots::default().key(Tid(shell.id())).unwrap();
    let before = sched::affinity(key.tid).unwrap();
    let held = stage.actor.adopt(key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    let mut stdin = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pids: Vec<u32> = line
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    let (middle, daemon) = (Tid(pids[0]), Tid(pids[1]));
    wait_for("the middle process ends", || {
        sched::affinity(middle).is_err()
    });
    assert_eq!(sched::affinity(daemon).unwrap(), CpuSet::only(a));
    assert_eq!(stage.actor.on_fork(&held, middle), Child::Gone);
    let sweep = stage.actor.sweep_inherited();
    let mask = sched::affinity(daemon).unwrap();
    // SAFETY: a plain signal to a process that this test has started.
    unsafe { libc::kill(daemon.0.cast_signed(), libc::SIGKILL) };
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert_eq!(sweep.widened, 1);
    assert_eq!(mask, before);
}
