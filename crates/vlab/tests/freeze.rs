// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab freeze` as a user starts it: what is written is what was asked for, and how it
//! ends. It stops this machine's CPUs for milliseconds and needs root.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

use std::fs;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use serde_json::Value;

const MS: u64 = 1_000_000;

fn freeze(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vlab"));
    command.arg("freeze").args(arguments);
    command
}

/// Waits until this thread, which never sleeps, has been away a few times for as long
/// as the CPUs are taken away for.
fn wait_for_gaps() {
    let give_up = Instant::now() + Duration::from_secs(10);
    let (mut last, mut gaps) = (Instant::now(), 0);
    while gaps < 3 {
        let now = Instant::now();
        assert!(now < give_up, "no CPU is taken away");
        gaps += u32::from(now.duration_since(last) >= Duration::from_millis(10));
        last = now;
    }
}

/// Is no CPU being taken away any more? Only one freezer can exist at a time.
fn machine_is_free() -> bool {
    let cpus = freezer::online_cpus().unwrap();
    let plan = freezer::Plan::shared(2, units::Ns::from_ms(5), &cpus).unwrap();
    let options = freezer::Options::new(units::Ns::from_ms(100));
    freezer::Freezer::start(&plan, &options).is_ok()
}

/// The rows of a CSV file below this header, as numbers.
fn rows<const N: usize>(file: &Path, header: &str) -> Vec<[u64; N]> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(header));
    let row = |line: &str| {
        let fields: Vec<u64> = line.split(',').map(|n| n.parse().unwrap()).collect();
        <[u64; N]>::try_from(fields).unwrap()
    };
    lines.map(row).collect()
}

fn median(of: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = of.collect();
    all.sort_unstable();
    all[all.len() / 2]
}

const LOG: &str = "cpu,planned_out_ns,out_ns,planned_back_ns,back_ns";

#[test]
fn root_freeze_writes_down_every_gap_as_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (log, record) = (file("log.csv"), file("record.csv"));
    let output = freeze(&["--on=4ms", "--off=12ms", "--sweep=0", "--for=1s", "--json"])
        .arg("--log")
        .arg(&log)
        .arg("--record")
        .arg(&record)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();

    let rows: Vec<[u64; 5]> = rows(&log, LOG);
    let cpus = freezer::online_cpus().unwrap();
    for (cpu, told) in cpus.iter().zip(report["cpus"].as_array().unwrap()) {
        let mine = rows.iter().filter(|row| row[0] == u64::from(cpu.0));
        let mine: Vec<[u64; 5]> = mine.copied().collect();
        // A second has room for 62 of 16 ms and a part; a busy host makes some of them longer.
        assert!((50..=63).contains(&mine.len()), "{} rows", mine.len());
        assert_eq!(told["counters"]["gaps"], mine.len() as u64, "{report}");
        assert_eq!(told["counters"]["dropped"], 0);
        assert_eq!(told["asked"]["on"], 4 * MS);
        assert_eq!(told["asked"]["off"], 12 * MS);
        // Exact as planned, near it as delivered; the run's end cut the last.
        let whole = &mine[..mine.len() - 1];
        for pair in mine.windows(2) {
            let [_, _, out, planned_back, back] = pair[0];
            assert!(out < back && back <= pair[1][1], "{pair:?}");
            assert!(planned_back <= back, "{pair:?}");
            assert_eq!(pair[1][1] - back, 4 * MS, "{pair:?}");
        }
        let off = median(whole.iter().map(|[_, _, out, _, back]| back - out));
        let late = median(whole.iter().map(|[_, planned, out, _, _]| out - planned));
        assert!(off.abs_diff(12 * MS) < MS && late < MS, "{off} {late}");
        let frozen: u64 = mine.iter().map(|[_, _, out, _, back]| back - out).sum();
        assert_eq!(told["counters"]["frozen"], frozen, "{report}");
    }
    // And the record can be repeated as it is.
    let pairs: Vec<[u64; 3]> = self::rows(&record, "cpu,on_ns,off_ns");
    assert!(pairs.len() as u64 >= 49 * u64::from(cpus.len()));
    let output = freeze(&["--for=100ms", "--json", "--replay"])
        .arg(&record)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let off = report["cpus"][0]["asked"]["off"].as_u64().unwrap();
    assert!(off.abs_diff(12 * MS) < MS, "{report}");
}

/// A run that would last for a minute, once it has started.
fn long_run(log: &Path, command: &[&str]) -> Child {
    let child = freeze(&["--for=60s", "--slice=5ms", "--log"])
        .arg(log)
        .arg("--")
        .args(command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_gaps();
    child
}

#[test]
fn root_freeze_ends_with_130_after_ctrl_c_and_has_written_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.csv");
    // The second is told to end, too, and does not count.
    for command in [&[][..], &["sleep", "1000"]] {
        let run = long_run(&log, command);
        kill_process(Pid::from_child(&run), Signal::INT).unwrap();
        let asked = Instant::now();
        let output = run.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{command:?}: {errors}");
        assert!(asked.elapsed() < Duration::from_secs(3));
        assert!(errors.contains("interrupted"), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("at least one CPU on"), "{text}");
        assert!(!rows::<5>(&log, LOG).is_empty());
        assert!(machine_is_free());
    }
}

#[test]
fn root_freeze_ends_as_its_command_does_and_a_command_that_it_ends_is_no_failure() {
    let code = |arguments: &[&str]| {
        let output = freeze(&["--slice=5ms"]).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), errors)
    };
    assert_eq!(code(&["--", "true"]).0, Some(0));
    let (failed, errors) = code(&["--", "false"]);
    assert_eq!(failed, Some(1));
    assert!(errors.contains("false ended with"), "{errors}");
    let (over, errors) = code(&["--for=200ms", "--", "sleep", "1000"]);
    assert_eq!(over, Some(0), "{errors}");
}
