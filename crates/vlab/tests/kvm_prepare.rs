// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a lab needs is fetched, and that fails or is interrupted: nothing half-done is
//! left, and one line says what to do.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not take for tests"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::fs::FlockOperation;
use rustix::process::Pid;
use rustix::process::Signal;

const SCENARIO: &str = r#"
name = "prepare"
title = "Never measured"
topology = { cpus = 1 }
sharing = { vms_per_pcpu = [2], slice = "11 ms" }
measure = { rounds = 1, window = "100 ms" }
load = [{ name = "a", kind = "pulse" }]
arm = [{ name = "vanilla" }]
"#;

/// Leaves something half-done, says who it is, and never ends by itself.
const HANGS: &str = "echo half >half.deb; echo $$ >\"$FAKES/pid.new\"; mv \"$FAKES/pid.new\" \"$FAKES/pid\"; exec sleep 600";

/// An empty cache, and tools that `vlab` finds before those of the machine.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(tools: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        fs::create_dir(dir.path().join("fakes")).unwrap();
        fs::write(dir.path().join("s.toml"), SCENARIO).unwrap();
        for (name, script) in tools {
            let path = dir.path().join("fakes").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vlab"));
        let path = std::env::var("PATH").unwrap();
        command
            .args(["run", "--backend=kvm", "--nested"])
            .arg(self.at("s.toml"))
            .arg("--cache")
            .arg(self.at("cache"))
            .env("PATH", format!("{}:{path}", self.at("fakes").display()))
            .env("FAKES", self.at("fakes"))
            .env("TMPDIR", self.at("tmp"))
            // Fakes leave their files where they are.
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it, interrupts it when `ready` says so, and gives back how it ended.
    fn interrupt(&self, mut ready: impl FnMut() -> bool) -> Output {
        let mut run = self.command().spawn().unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while !ready() {
            let ended = run.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < give_up,
                "{:?}",
                run.wait_with_output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // Only the program itself, as `kill` does: the tools are its own business.
        rustix::process::kill_process(Pid::from_child(&run), Signal::INT).unwrap();
        let asked = Instant::now();
        let output = run.wait_with_output().unwrap();
        assert!(
            asked.elapsed() < Duration::from_secs(20),
            "it took its time"
        );
        output
    }

    /// The one line that it said.
    fn line(output: &Output) -> String {
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(said.trim().lines().count(), 1, "{said}");
        assert!(output.stdout.is_empty());
        said
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(dir)).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// A tool hangs in the middle of its work, `half` is there, and the run is interrupted:
    /// the tool is ended, and nothing is left in `dir`.
    fn assert_ctrl_c_leaves_nothing(&self, half: &str, dir: &str) {
        let pid = self.at("fakes/pid");
        let mut tool = String::new();
        let output = self.interrupt(|| {
            tool = fs::read_to_string(&pid).unwrap_or_default();
            assert!(
                tool.is_empty() || self.at(half).exists(),
                "nothing was begun"
            );
            !tool.is_empty()
        });
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(Self::line(&output).starts_with("vlab: interrupted"));
        let tool = tool.trim();
        assert!(tool.parse::<u32>().is_ok(), "{tool}");
        assert!(!Path::new(&format!("/proc/{tool}")).exists(), "it runs on");
        assert!(self.names(dir).is_empty(), "{:?}", self.names(dir));
        assert!(self.names("tmp").is_empty(), "{:?}", self.names("tmp"));
    }
}

/// apt-get of a machine with a network: lists come at once, packages when `packages` has
/// made them.
fn apt(packages: &str) -> String {
    format!("[ \"$1\" = update ] && exit 0\n{packages}")
}

/// apt-cache that knows one kernel.
const NAMES: (&str, &str) = (
    "apt-cache",
    "echo linux-image-6.12.99+deb12-cloud-amd64 - a kernel",
);

#[test]
fn ctrl_c_while_a_kernel_is_downloaded_leaves_nothing() {
    let bench = Bench::new(&[NAMES, ("apt-get", &apt(HANGS))]);
    bench.assert_ctrl_c_leaves_nothing("cache/kernels/6.12.new", "cache/kernels");
}

#[test]
fn ctrl_c_while_a_kernel_is_unpacked_leaves_nothing() {
    // Where `dpkg-deb -x a.deb ROOT` puts its files.
    let unpack = format!("cd \"$3\" || exit 1\n{HANGS}");
    let bench = Bench::new(&[
        NAMES,
        ("apt-get", &apt("touch a.deb")),
        ("dpkg-deb", &unpack),
    ]);
    bench.assert_ctrl_c_leaves_nothing("cache/kernels/6.12.new", "cache/kernels");
}

#[test]
fn ctrl_c_while_packages_are_downloaded_leaves_the_kernel_that_is_there() {
    let bench = Bench::new(&[("apt-get", &apt(HANGS))]);
    let root = bench.at("cache/kernels/6.12/root");
    for file in ["boot/vmlinuz-1-x", "lib/modules/1-x/modules.dep"] {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), "").unwrap();
    }
    fs::write(root.with_file_name("release"), "1-x").unwrap();
    let half = "cache/userland/trixie-backports-lab.new";
    bench.assert_ctrl_c_leaves_nothing(half, "cache/userland");
    assert_eq!(bench.names("cache/kernels"), ["6.12"]);
}

#[test]
fn ctrl_c_ends_the_wait_for_another_run_that_fills_the_cache() {
    let bench = Bench::new(&[]);
    fs::create_dir(bench.at("cache")).unwrap();
    let held = fs::File::create(bench.at("cache/lock")).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    // Made right before the lock is asked for.
    let output = bench.interrupt(|| bench.at("cache/kernels").exists());
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(Bench::line(&output).starts_with("vlab: interrupted"));
    assert!(bench.names("cache/kernels").is_empty());
}

#[test]
fn without_a_network_one_line_says_what_to_do() {
    // The real one, which nobody answers, whatever proxy the machine has.
    let real = "exec /usr/bin/apt-get -o Acquire::http::Proxy=http://127.0.0.1:9 -o Acquire::Retries=0 \"$@\"";
    let bench = Bench::new(&[("apt-get", real)]);
    let output = bench.command().output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = Bench::line(&output);
    let says = "vlab: kernel 6.12 is not in the cache and cannot be fetched: cannot fetch the Debian package lists; fix: check network and proxy, or copy a filled ";
    assert!(line.starts_with(says), "{line}");
    assert!(line.contains("127.0.0.1:9"), "{line}");
    assert!(bench.names("cache/kernels").is_empty());
    assert!(bench.names("tmp").is_empty());
}
