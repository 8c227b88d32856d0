// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab sweep` and `vlab merge` as a user meets them: wrong words, Ctrl-C, a full disk,
//! another version.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

mod common;

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use common::wait_for;
use serde_json::Value;

/// Two VMs on one pCPU, simulated in a moment.
const SMALL: &str = r#"
name = "s"
title = "s"
topology = { cpus = 1 }
sharing = { slice = "3 ms" }
measure = { rounds = 2, warmup = "1 ms", window = "50 ms", baselines = "none" }
sim = { host = "cfs", platform = "bed" }
device = [{ name = "disk", kind = "ssd" }]
load = [{ name = "reads", kind = "reader" }]
vm = [{ name = "web", count = 2 }]
arm = [{ name = "vanilla" }, { name = "strict", kind = "host", policy = "credit2" }]
"#;

fn vlab() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("vlab"))
}

/// A directory with `s.toml`; sweeps go to `out` beside it.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(text: &str) -> Self {
        let bench = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        bench.write(text);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, text: &str) {
        fs::write(self.path("s.toml"), text).unwrap();
    }

    fn command(&self, out: &Path) -> Command {
        let mut command = vlab();
        command.arg("sweep").arg(self.path("s.toml"));
        command.arg("--out").arg(out);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn sweep(&self) -> Output {
        self.command(&self.path("out")).output().unwrap()
    }

    fn merge(&self, out: &Path, json: &str) -> Output {
        let mut command = vlab();
        command.arg("merge").arg(out);
        command.arg("--json").arg(self.path(json));
        command.output().unwrap()
    }

    fn edit_header(&self, change: impl FnOnce(&mut Value)) {
        let path = self.path("out/sweep.json");
        let mut header = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut header);
        fs::write(&path, header.to_string()).unwrap();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(output: &Output) -> String {
    let error = said(output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    error
}

fn steps(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut steps: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("step-"))
        .collect();
    steps.sort();
    steps
}

/// What only building the machines finds leaves no directory behind that would then
/// refuse the file when it is mended.
#[test]
fn a_sweep_that_cannot_be_simulated_claims_no_directory() {
    let text = r#"
name = "s"
title = "s"
topology = { cpus = 1 }
sharing = { vms_per_pcpu = [2], slice = "3 ms" }
measure = { rounds = 1, warmup = "1 ms", window = "50 ms", baselines = "none" }
sim = { host = "cfs", others = "phantom" }
load = [{ name = "pulse", kind = "pulse" }]
arm = [{ name = "vanilla" }]
"#;
    let bench = Bench::new(text);
    let error = refused(&bench.sweep());
    assert!(error.contains("sim.others"), "{error}");
    assert!(!error.contains("finished steps"), "{error}");
    assert!(!bench.path("out").exists());
    bench.write(&text.replace("phantom", "same"));
    let output = bench.sweep();
    assert!(output.status.success(), "{}", said(&output));
}

/// A wrong name is an error of the file: with its line, its field and the right ones.
#[test]
fn wrong_names_are_told_with_line_field_and_the_names_there_are() {
    for (from, to, told) in [
        (
            "host = \"cfs\"",
            "host = \"credti1\"",
            ["s.toml:7: `sim.host` is \"credti1\"", "credit1, "],
        ),
        (
            "\"bed\"",
            "\"bde\"",
            ["s.toml:7: `sim.platform` is \"bde\"", "bed, "],
        ),
        (
            "kind = \"reader\"",
            "kind = \"profile\", profile = \"haproxi\"",
            ["s.toml:9: `load[0].profile` is \"haproxi\"", "hdfs, "],
        ),
        (
            "name = \"reads\", kind = \"reader\"",
            "name = \"haproxi\", kind = \"profile\"",
            ["s.toml:9: `load[0].name` is \"haproxi\"", "hdfs, "],
        ),
        (
            "policy = \"credit2\"",
            "policy = \"credit3\"",
            ["s.toml:11: `arm[1].policy` is \"credit3\"", "credit2, "],
        ),
        (
            "name = \"strict\", kind = \"host\", policy = \"credit2\"",
            "name = \"credit4\", kind = \"host\"",
            ["s.toml:11: `arm[1].name` is \"credit4\"", "credit2, "],
        ),
    ] {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL);
        let error = refused(&Bench::new(&text).sweep());
        for told in told {
            assert!(error.contains(told), "{told}: {error}");
        }
    }
    // In a sweep it is the line of the value.
    let text = format!("{SMALL}[sweep]\n\"sim.host\" = [\n  \"cfs\",\n  \"cfz\",\n]\n");
    let error = refused(&Bench::new(&text).sweep());
    assert!(
        error.contains("s.toml:15: `sim.host` is \"cfz\""),
        "{error}"
    );
}

/// Steps of two versions are not one result, whatever their format.
#[test]
fn steps_of_another_version_are_not_gone_on_with() {
    let bench = Bench::new(SMALL);
    assert!(bench.sweep().status.success());
    bench.edit_header(|header| header["vlab"] = "0.0.1".into());
    for output in [bench.sweep(), bench.merge(&bench.path("out"), "r.json")] {
        let error = refused(&output);
        assert!(error.contains("vlab 0.0.1"), "{error}");
        assert!(!error.contains("another sweep"), "{error}");
    }
    // Another format is told as that, also where nothing else of it can be read.
    bench.edit_header(|header| {
        header["sweep_format"] = 1.into();
        header["points"] = "elsewhere".into();
    });
    for output in [bench.sweep(), bench.merge(&bench.path("out"), "r.json")] {
        let error = refused(&output);
        assert!(error.contains("format"), "{error}");
        assert!(!error.contains("another sweep"), "{error}");
    }
}

/// Ctrl-C keeps finished steps; the same command goes on, and what comes out is what
/// one go gives.
#[test]
fn ctrl_c_costs_the_steps_under_way_and_changes_nothing() {
    let text = SMALL
        .replace("rounds = 2", "rounds = 40")
        .replace("window = \"50 ms\"", "window = \"2 s\"");
    let bench = Bench::new(&text);
    let out = bench.path("out");
    let child = bench.command(&out).spawn().unwrap();
    wait_for("a step", || !steps(&out).is_empty());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    let error = said(&output);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("finished steps are kept"), "{error}");
    let done = steps(&out).len();
    assert!((1..80).contains(&done), "{done} steps");
    let output = bench.merge(&out, "early.json");
    assert!(refused(&output).contains("steps are missing"));
    assert!(!bench.path("early.json").exists());

    let output = bench.sweep();
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        line.contains(&format!("{} simulated now", 80 - done)),
        "{line}"
    );
    let whole = bench.path("whole");
    assert!(bench.command(&whole).output().unwrap().status.success());
    for (out, json) in [(&out, "resumed.json"), (&whole, "whole.json")] {
        let output = bench.merge(out, json);
        assert!(output.status.success(), "{}", said(&output));
    }
    let read = |name| fs::read(bench.path(name)).unwrap();
    assert_eq!(read("resumed.json"), read("whole.json"));
}

/// A small file system that is gone when the test is over.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(path: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        assert!(mount.arg(&path).status().unwrap().success());
        Self(path)
    }

    fn grow(&self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,size=64m"]);
        assert!(mount.arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A step that does not fit is not there; the others are whole, and with more room the
/// same command goes on.
#[test]
fn root_a_full_disk_leaves_whole_steps() {
    let text = SMALL.replace("rounds = 2", "rounds = 20");
    let bench = Bench::new(&text);
    let disk = Tmpfs::mount(bench.path("disk"), "size=64k");
    let output = bench.command(&disk.0).output().unwrap();
    let error = said(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("cannot write") && error.contains("No space left"),
        "{error}"
    );
    assert!(error.contains("finished steps are kept"), "{error}");
    let kept = steps(&disk.0);
    assert!((1..40).contains(&kept.len()), "{kept:?}");
    for step in &kept {
        let text = fs::read_to_string(step).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{step:?}");
    }
    // Nothing half-written keeps the disk full.
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), kept.len() + 1);
    disk.grow();
    let output = bench.command(&disk.0).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        line.contains(&format!("{} simulated now", 40 - kept.len())),
        "{line}"
    );
    assert!(bench.merge(&disk.0, "r.json").status.success());
}
