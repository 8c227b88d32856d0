// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon with its files in a directory of its own, gone when the test is.

// Helpers of tests, where a panic is the report; not every test uses them all,
// and each test is a crate of its own that exports nothing.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

pub mod compute;
pub mod program;
pub mod scene;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use freezer::Freezer;
use freezer::Plan;
use guest::report::Report;
use rustix::process::Pid;
use rustix::process::Signal;
use tempfile::TempDir;
use units::CpuSet;
use units::Ns;

/// Longer than anything here takes, unless the host takes the CPUs away.
const DEADLINE: Duration = Duration::from_secs(60);

/// How a program ends that found another at work.
const LOCKED: i32 = 5;

/// Where one daemon keeps its files.
pub struct Home(TempDir);

impl Home {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `wrapper.. vmigrater --socket .. --journal .. --lock ..`; an empty wrapper
    /// is none.
    pub fn command(&self, wrapper: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_vmigrater"), wrapper)
    }

    /// The same with a copy of the program.
    pub fn command_of(&self, program: &str, wrapper: &[&str]) -> Command {
        let mut words = wrapper.iter().copied().chain([program]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        for name in ["socket", "journal", "lock"] {
            command.arg(format!("--{name}")).arg(self.path(name));
        }
        command
            .env_remove("NOTIFY_SOCKET")
            .env_remove("VMIGRATER_STEAL_MAP_ID");
        // There is one daemon for each network namespace, and tests run side by side.
        // Whoever may not have one of his own starts no daemon.
        // SAFETY: a system call, which allocates nothing.
        unsafe {
            command.pre_exec(|| {
                libc::unshare(libc::CLONE_NEWNET);
                Ok(())
            });
        }
        command
    }

    /// Runs to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(&[]).args(arguments).output().unwrap()
    }

    /// `vmigrater restore`, again and again while somebody has the lock: the last of two
    /// that were killed is on its way out.
    pub fn restore(&self) -> Output {
        let mut output = self.run(&["restore"]);
        until("the lock is free", || {
            if output.status.code() == Some(LOCKED) {
                output = self.run(&["restore"]);
            }
            output.status.code() != Some(LOCKED)
        });
        output
    }

    /// The report of whoever answers.
    pub fn report(&self) -> Option<Report> {
        let output = self.run(&["status", "--json"]);
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).unwrap())
    }
}

/// A daemon that is ready.
pub struct Daemon {
    supervisor: Child,
    /// Its first report.
    pub report: Report,
}

impl Daemon {
    pub fn start(home: &Home) -> Self {
        Self::spawn(home, home.command(&[]).arg("run"))
    }

    /// With this configuration, sensing what the freezer does.
    pub fn start_under(freezer: &Freezer, home: &Home, config: &str) -> Self {
        let path = home.path("config.toml");
        fs::write(&path, config).unwrap();
        let mut command = home.command(&[]);
        let steal_map = freezer.steal_map_id().unwrap();
        command
            .args(["run", "--config"])
            .arg(path)
            .arg(format!("--steal-map-id={steal_map}"));
        Self::spawn(home, &mut command)
    }

    pub fn spawn(home: &Home, command: &mut Command) -> Self {
        let log = fs::File::create(home.path("log")).unwrap();
        let mut supervisor = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let end = Instant::now() + DEADLINE;
        let report = loop {
            if let Some(report) = home.report() {
                break report;
            }
            let ended = supervisor.try_wait().unwrap();
            if ended.is_some() || Instant::now() > end {
                let _ = supervisor.kill();
                let log = fs::read_to_string(home.path("log")).unwrap();
                panic!("the daemon is not ready ({ended:?}): {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Self { supervisor, report }
    }

    /// The process that was started.
    pub fn supervisor_pid(&self) -> Pid {
        Pid::from_child(&self.supervisor)
    }

    /// The one that answers.
    pub fn daemon_pid(&self) -> Pid {
        Pid::from_raw(self.report.pid.cast_signed()).unwrap()
    }

    pub fn kill(&self, pid: Pid, signal: Signal) {
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops all threads of a process; when this returns they stand still, which they do
    /// some time after the signal was sent.
    pub fn hold(&self, pid: Pid) {
        self.kill(pid, Signal::STOP);
        until("it stands still", || stands_still(pid));
    }

    /// Kills the daemon and its supervisor, so that neither can do anything for the other.
    pub fn kill_both(&mut self) {
        self.hold(self.supervisor_pid());
        self.kill(self.daemon_pid(), Signal::KILL);
        self.kill(self.supervisor_pid(), Signal::KILL);
        self.wait();
    }

    /// How it ended.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the supervisor ends", || {
            status = self.supervisor.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub fn stop(&mut self) -> ExitStatus {
        self.kill(self.supervisor_pid(), Signal::TERM);
        self.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(self.supervisor_pid(), Signal::TERM);
            let _ = self.supervisor.wait();
        }
    }
}

/// Do all threads of a process stand still for a signal?
fn stands_still(pid: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    tasks.flatten().all(|task| {
        // One that has just ended is not there to be read.
        fs::read_to_string(task.path().join("stat")).is_ok_and(|stat| {
            let state = stat.rsplit(") ").next();
            state.is_some_and(|state| state.starts_with('T'))
        })
    })
}

/// Two VMs share each of the first CPUs in slices of this length, for a minute at most;
/// waits as long for a freezer that is there.
pub fn freeze(slice: Ns, cpus: u32) -> Freezer {
    let plan = Plan::shared(2, slice, &CpuSet::first(cpus)).unwrap();
    let minute = Ns::from_secs(60);
    let mut options = freezer::Options::new(minute);
    options.wait = minute;
    Freezer::start(&plan, &options).unwrap()
}

/// Waits for a condition, with a deadline.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What it said; exactly one line.
pub fn one_line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    text.trim_end().to_owned()
}
