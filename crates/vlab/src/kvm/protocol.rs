// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the parts of a lab say to each other: one JSON document per line.
//!
//! Three programs take part, all of them `vlab`: the one the user started, the
//! one on the KVM host (`vlab kvm-host`: a child of the first, or inside the
//! emulated host), and one in each guest (`vlab kvm-agent`).

use std::io::BufRead;
use std::io::Write;

use anyhow::Context;
use experiment::lab::LabPhase;
use experiment::result::Phase;
use experiment::scenario::Scenario;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use units::Ns;

use crate::run::environment::Inside;
use crate::run::in_guest::Recording;

/// What the host is to set up, its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// With dilated times.
    pub(crate) scenario: Scenario,
    /// Guests to boot.
    pub(crate) guests: u32,
    /// Memory of each in MiB.
    pub(crate) memory_mib: u32,
    /// Where the guests' kernel and initramfs are on the host.
    pub(crate) kernel: String,
    /// See `kernel`.
    pub(crate) initramfs: String,
    /// The host's CPU from which on vCPUs have theirs.
    pub(crate) first_cpu: u32,
    /// QEMU and its arguments before ours.
    pub(crate) qemu: Vec<String>,
    /// The scheduler's program.
    pub(crate) scx_vcpu: String,
    /// Device time of one request of the guests' disks.
    pub(crate) disk_latency: Ns,
    /// Added to the guests' kernel command line.
    pub(crate) append: String,
    /// `-cpu` of the guests.
    pub(crate) cpu: String,
    /// Deadline for all guests to boot.
    pub(crate) boot: Ns,
    /// A directory for sockets and logs on the host.
    pub(crate) dir: String,
    /// All times of the scenario have been multiplied by this.
    pub(crate) dilation: u32,
    /// Length of the timeline of each arm, dilated; zero: none.
    pub(crate) timeline: Ns,
}

impl Setup {
    /// vCPUs of the guest with this number.
    pub(crate) fn vcpus(&self, guest: u32) -> u32 {
        let named = self.scenario.each_vm().nth(guest as usize);
        named.map_or(self.scenario.topology.cpus, |(_, vm)| vm.vcpus)
    }
}

/// To the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToHost {
    /// First.
    Setup(Box<Setup>),
    /// Measure step so-and-so of the scenario's schedule.
    Measure(usize),
    /// Run a command in guest so-and-so.
    Exec(u32, Vec<String>),
    /// End.
    Quit,
}

/// From the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromHost {
    /// How far it is; at any time.
    Says(String),
    /// A guest is up.
    Up {
        /// Its number.
        guest: u32,
        /// Since the guests were started.
        seconds: u64,
    },
    /// A guest was lost while it booted and is started again.
    Restarted(String),
    /// All guests are up and scheduled.
    Ready {
        /// Host's kernel.
        kernel: String,
        /// The guest under test.
        guest: Inside,
        /// QEMU's version.
        qemu: String,
    },
    /// A step is done.
    Measured(Box<(Phase, LabPhase)>),
    /// A command has ended.
    Exit(Exit),
    /// What a lab needs cannot be had on this host; another lab would not have it either.
    CannotSetUp(String),
    /// Something failed; the lab cannot be used any more.
    Failed(String),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    /// Exit code; 128 + signal if a signal ended it.
    pub(crate) code: i32,
    /// Both outputs.
    pub(crate) output: String,
}

/// To a guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    /// First: the scenario, and what its times have been multiplied by.
    Scenario(Box<Scenario>, u32),
    /// What time is it, and how much was stolen?
    Time,
    /// Compute on every vCPU, or not.
    Compute(bool),
    /// Measure a step.
    Measure {
        /// Its number in the scenario's schedule.
        step: usize,
        /// Which of the scenario's VMs this guest is.
        guest: u32,
        /// Record what its I/O threads do, with room for what they do at full speed in
        /// that time.
        room: Option<Ns>,
    },
    /// All who measure have come so far, too: go on.
    Go,
    /// Run a command.
    Exec(Vec<String>),
}

/// From a guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromGuest {
    /// The agent runs, in this guest.
    Up(Inside),
    /// The guest's `CLOCK_MONOTONIC`.
    Time(u64),
    /// Done as told.
    Done,
    /// The I/O load and the arm of a step run, and nothing computes yet; the guest waits for
    /// [`ToGuest::Go`].
    Armed,
    /// All that a step wants runs; the guest waits for [`ToGuest::Go`], then warms up and opens
    /// its window.
    Started,
    /// The window has closed and all still runs, for others' windows; the guest waits for
    /// [`ToGuest::Go`].
    Closed,
    /// The window of a step, on the guest's clock.
    Measured(Box<Measured>),
    /// A command has ended.
    Exit(Exit),
    /// It did not work.
    Failed(String),
}

/// A measured step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// With a host that is to be filled in.
    pub(crate) phase: Phase,
    /// First instant of the window, guest clock.
    pub(crate) from: u64,
    /// The instant after it, guest clock.
    pub(crate) to: u64,
    /// Steal time of each vCPU when the window opened.
    pub(crate) steal_from: Vec<Stolen>,
    /// The same when it had closed.
    pub(crate) steal_to: Vec<Stolen>,
    /// What its I/O threads did, guest clock.
    pub(crate) recording: Option<Recording>,
}

/// Steal time of one vCPU as the guest's kernel shows it, and when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stolen {
    /// Guest clock.
    pub(crate) at: u64,
    /// Since boot.
    pub(crate) stolen: Ns,
}

/// Sends one document.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    to.write_all(line.as_bytes())
        .and_then(|()| to.flush())
        .context("the other side of the lab has gone")
}

/// Receives one; `None` at the end.
pub(crate) fn receive<M: DeserializeOwned>(from: &mut impl BufRead) -> anyhow::Result<Option<M>> {
    let mut line = String::new();
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if !line.trim().is_empty() {
            let message = serde_json::from_str(&line);
            return message
                .with_context(|| format!("a part of the lab says `{}`", line.trim()))
                .map(Some);
        }
    }
}

/// Runs a command to its end: exit code and both outputs.
pub(crate) fn execute(words: &[String]) -> Exit {
    let Some((program, arguments)) = words.split_first() else {
        return Exit {
            code: 2,
            output: "no command".to_owned(),
        };
    };
    let done = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output();
    match done {
        Ok(done) => Exit {
            code: done.status.code().unwrap_or_else(|| {
                use std::os::unix::process::ExitStatusExt;
                128 + done.status.signal().unwrap_or(0)
            }),
            output: String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        },
        Err(error) => Exit {
            code: 127,
            output: format!("{program}: {error}"),
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two guests of two vCPUs, with nothing that could run.
    pub(in crate::kvm) fn setup() -> Setup {
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 2 }
            sharing = { vms_per_pcpu = [2], slice = "11 ms" }
            measure = { rounds = 1, window = "100 ms" }
            load = [{ name = "a", kind = "pulse" }]
            arm = [{ name = "vanilla" }]
        "#;
        Setup {
            scenario: Scenario::parse(text, "s.toml").unwrap(),
            guests: 2,
            memory_mib: 1,
            kernel: String::new(),
            initramfs: String::new(),
            first_cpu: 0,
            qemu: Vec::new(),
            scx_vcpu: String::new(),
            disk_latency: Ns::ZERO,
            append: String::new(),
            cpu: String::new(),
            boot: Ns::from_secs(300),
            dir: String::new(),
            dilation: 20,
            timeline: Ns::ZERO,
        }
    }

    #[test]
    fn a_document_survives_its_line() {
        let mut line = Vec::new();
        send(&mut line, &ToGuest::Exec(vec!["a\nb".to_owned()])).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let back: Option<ToGuest> = receive(&mut line.as_slice()).unwrap();
        assert!(matches!(back, Some(ToGuest::Exec(words)) if words == ["a\nb"]));
        let end: Option<ToGuest> = receive(&mut &b""[..]).unwrap();
        assert!(end.is_none());
    }

    #[test]
    fn an_exit_code_comes_back_also_from_a_signal() {
        let run = |script: &str| execute(&["sh", "-c", script].map(str::to_owned));
        assert_eq!(
            run("echo a; echo b >&2; exit 3"),
            Exit {
                code: 3,
                output: "a\nb\n".to_owned()
            }
        );
        assert_eq!(run("kill -9 $$").code, 137);
        assert_eq!(execute(&["/no/such".to_owned()]).code, 127);
    }
}
