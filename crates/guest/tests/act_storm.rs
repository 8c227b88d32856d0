// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A held thread starts ten thousand others: nothing may be left of them.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;

use guest::act;
use guest::act::Actor;
use guest::act::counters::Counter;
use guest::act::journal::Journal;
use guest::act::task::Roots;
use units::CpuSet;
use units::Tid;
use units::VcpuId;

const THREADS: usize = 10_000;
const AT_ONCE: usize = 50;
/// Threads that stay.
const STAY: usize = 20;

/// Not a test: the other program, the one that is held.
#[test]
#[ignore = "started by the other test"]
fn other_program() {
    if std::env::var_os("ACT_STORM").is_none() {
        return;
    }
    let tid = rustix::thread::gettid();
    println!("\ntid {tid:?} {}", tid.as_raw_nonzero());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let end = std::sync::Barrier::new(STAY + 1);
    let end = &end;
    std::thread::scope(|scope| {
        for round in 0..THREADS / AT_ONCE {
            let batch: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| ())).collect();
            batch.into_iter().for_each(|thread| thread.join().unwrap());
            if round % (THREADS / AT_ONCE / STAY) == 0 {
                scope.spawn(|| end.wait());
            }
        }
        println!("\ndone");
        line.clear();
        std::io::stdin().read_line(&mut line).unwrap();
        end.wait();
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn tids(pid: u32) -> Vec<Tid> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(|task| Some(Tid(task.ok()?.file_name().to_str()?.parse().ok()?)))
        .collect()
}

fn mask(tid: Tid) -> Option<CpuSet> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.parse().ok()
}

fn journal_size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn root_a_fork_storm_under_a_held_parent_leaks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let roots = Roots::default();
    let (actor, _) = Actor::start(act::Settings {
        journal: journal.clone(),
        capacity: 16,
        ..act::Settings::default()
    })
    .unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "other_program",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("ACT_STORM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut stdin = program.stdin.take().unwrap();
    let mut said = |start: &str| {
        lines
            .find_map(|line| line.unwrap().strip_prefix(start).map(str::to_owned))
            .unwrap()
    };
    let tid: u32 = said("tid ")
        .split_whitespace()
        .last()
        .unwrap()
        .parse()
        .unwrap();
    let before = mask(Tid(tid)).unwrap();
    let (size, open) = (journal_size(&journal), descriptors());

    let online = roots.online().unwrap();
    let held = actor.adopt(roots.key(Tid(tid)).unwrap()).unwrap();
    actor.move_to(&held, online.iter().next().unwrap()).unwrap();
    stdin.write_all(b"go\n").unwrap();
    // As the daemon does it: moves, fork events (some late, some for threads
    // that have ended), and a sweep now and then.
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| said("done"));
        let cpus: Vec<VcpuId> = online.iter().collect();
        for cpu in cpus.iter().copied().cycle() {
            actor.move_to(&held, cpu).unwrap();
            for child in tids(program.id()) {
                actor.on_fork(&held, child);
            }
            if cpu.0 == 0 {
                actor.sweep_inherited();
            }
            if storm.is_finished() {
                break;
            }
        }
    });
    actor.release(&held).unwrap();
    actor.sweep_inherited();
    drop(held);

    let left = tids(program.id());
    assert!(left.len() > STAY, "{} threads are still there", left.len());
    for tid in left {
        assert_eq!(mask(tid), Some(before), "thread {tid}");
    }
    assert!(
        actor.counters().get(Counter::Widened) > 0,
        "the storm has been seen"
    );
    assert_eq!(actor.counters().get(Counter::WidenFailed), 0);
    assert_eq!(actor.counters().get(Counter::Foreign), 0);
    assert!(Journal::list(&journal, &roots).unwrap().is_empty());
    assert_eq!(journal_size(&journal), size);
    assert_eq!(descriptors(), open);
    stdin.write_all(b"end\n").unwrap();
    assert!(program.wait().unwrap().success());
}
