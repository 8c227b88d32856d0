// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads: what is measured, and what runs beside it.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

/// One I/O load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Its name in the report.
    pub name: String,
    /// What it does.
    pub kind: LoadKind,
    /// The device that it uses, by [`super::Device::name`]; `None`: the backend's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// What a load does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LoadKind {
    /// Reads from a file, past the page cache.
    Disk {
        /// In which order.
        pattern: Pattern,
        /// Requests in flight: 1..=256.
        queue_depth: u32,
        /// Bytes of one request, in KiB: 1..=4096.
        block_kib: u32,
        /// Size of the file in MiB: 16..=65536.
        file_mib: u32,
        /// Threads that do this, each with its own queue: 1..=64.
        #[serde(default = "one")]
        threads: u32,
        /// For [`Pattern::Bursty`]: how long it reads, and how long it pauses.
        burst: Option<Burst>,
    },
    /// Writes one block after the other and waits until each is on the disk: the
    /// log of a database.
    Fsync {
        /// Bytes of one write, in KiB: 1..=4096.
        block_kib: u32,
        /// After so many MiB it begins at the start of its file again: 16..=65536.
        file_mib: u32,
        /// To a file that grows, so that the file system allocates blocks in each
        /// write, and not to one that was written before. What was recorded
        /// before there was this choice had appended.
        #[serde(default = "yes")]
        append: bool,
        /// Threads that do this, each with its own file: 1..=64.
        threads: u32,
    },
    /// Requests of a fixed device time, each completed on the CPU that
    /// submitted it: what a device with one queue per CPU does.
    Pulse {
        /// Requests in flight: 1..=256.
        queue_depth: u32,
        /// Device time of one request.
        device: Ns,
        /// Threads that do this from the start, each with its own queue: 1..=64.
        threads: u32,
        /// What a thread computes after each request, on a CPU of its own: a
        /// task that mixes I/O and computation (V24). 0..=100 ms.
        #[serde(default)]
        cpu: Ns,
        /// Threads that come later (Fig 14), in order of time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arrivals: Vec<Arrival>,
    },
    /// An application as a profile of the simulator describes it; no other
    /// backend has it.
    Profile {
        /// The profile's name.
        profile: String,
    },
    /// No I/O at all: what does the daemon cost then?
    Idle,
    /// A program of the simulator; no other backend has it.
    Simulated {
        /// Which.
        program: Program,
    },
}

/// A program of the simulator with the parameters that matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "program", rename_all = "kebab-case")]
pub enum Program {
    /// Keeps requests in flight and works on what they bring.
    Reader {
        /// One block after the other, or anywhere.
        sequential: bool,
        /// It writes, or sends.
        write: bool,
        /// Requests in flight: 1..=256.
        queue_depth: u32,
        /// Bytes of one request: 1..=16777216.
        block_bytes: u32,
        /// Each thread has a region of so many MiB: 1..=65536.
        file_mib: u32,
        /// Reads for so long, pauses for so long.
        burst: Option<Burst>,
        /// CPU time to make and submit a request; `None`: the platform's.
        submit: Option<Ns>,
        /// Median CPU time to work on a completion; `None`: the platform's.
        process: Option<Ns>,
        /// CPU time of each further completion that one wake-up finds; `None`: the
        /// platform's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        further: Option<Ns>,
        /// Spread of `process`: sigma of its logarithm in thousandths; `None`: the
        /// platform's.
        spread_permille: Option<u32>,
        /// Threads.
        threads: Threads,
        /// Threads that come within the window, in order of time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arrivals: Vec<Arrival>,
        /// CPU time of each of those before its first request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_up: Option<Ns>,
    },
    /// Answers the messages of a client behind a network.
    Echo {
        /// CPU time before an answer.
        work: Ns,
        /// Threads, each with a client of its own.
        threads: Threads,
    },
    /// Threads that compute for a while and meet.
    Parallel {
        /// Median work between two meetings.
        work: Ns,
        /// Its spread: sigma of the logarithm in thousandths.
        spread_permille: u32,
        /// That of how much a thread has in all rounds: some have more than others for good.
        skew_permille: u32,
        /// A thread spins so long before it blocks.
        spin: Ns,
        /// Sequential parts: how long each is, about; zero: none.
        alone: Ns,
        /// What part of the program's time they are, in thousandths.
        alone_permille: u32,
        /// How they leave a barrier.
        #[serde(default, skip_serializing_if = "Leave::is_at_once")]
        leave: Leave,
        /// Threads.
        threads: Threads,
    },
    /// Threads that take one lock again and again.
    Locks {
        /// Median work outside.
        work: Ns,
        /// Its spread: sigma of the logarithm in thousandths.
        spread_permille: u32,
        /// Work while it holds the lock.
        hold: Ns,
        /// A thread spins so long before it blocks.
        spin: Ns,
        /// Threads.
        threads: Threads,
    },
    /// Threads that compute for ever.
    Compute {
        /// Threads.
        threads: Threads,
    },
    /// Threads that cheat a host's scheduler.
    Adversary {
        /// How.
        trick: Trick,
        /// Threads.
        threads: Threads,
    },
}

/// How many threads a program has, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Threads {
    /// So many: 1..=1024; `None`: one per vCPU.
    pub count: Option<u32>,
    /// The vCPU on which the first one starts; the others are spread from there.
    pub vcpu: u32,
    /// Each stays on the vCPU on which it starts.
    pub pinned: bool,
    /// Weight of each in its guest, in the units of Linux: 2..=88761; `None`: that of nice 0,
    /// and compute shares one among its threads where the kernel has `SCHED_AUTOGROUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// How an adversary cheats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "trick", rename_all = "kebab-case")]
pub enum Trick {
    /// Computes, but sleeps over each tick at which a host charges who runs.
    Dodge {
        /// From tick to tick.
        tick: Ns,
        /// Asleep so long before and after each.
        early: Ns,
    },
    /// Computes, and makes I/O events with requests whose data it does not need.
    FakeIo {
        /// Computes so long from request to request.
        every: Ns,
    },
}

impl Program {
    /// Its threads.
    #[must_use]
    pub const fn threads(&self) -> Threads {
        match self {
            Self::Reader { threads, .. }
            | Self::Echo { threads, .. }
            | Self::Parallel { threads, .. }
            | Self::Locks { threads, .. }
            | Self::Compute { threads }
            | Self::Adversary { threads, .. } => *threads,
        }
    }
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// More threads from some instant of the window on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// After the window has opened; within it.
    pub at: Ns,
    /// How many: 1..=64.
    pub threads: u32,
}

impl LoadKind {
    /// Threads that arrive within the window; empty for loads that do not change.
    #[must_use]
    pub fn arrivals(&self) -> &[Arrival] {
        match self {
            Self::Pulse { arrivals, .. }
            | Self::Simulated {
                program: Program::Reader { arrivals, .. },
            } => arrivals,
            Self::Disk { .. }
            | Self::Fsync { .. }
            | Self::Profile { .. }
            | Self::Simulated { .. }
            | Self::Idle => &[],
        }
    }
}

/// Order of disk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Uniformly random blocks.
    RandomRead,
    /// One block after the other.
    SequentialRead,
    /// Random blocks in bursts with pauses between them.
    Bursty,
}

/// Lengths of a burst and of the pause after it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Reading.
    pub on: Ns,
    /// Pausing.
    pub off: Ns,
}

/// How threads that wait at a barrier go on once the last has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// All of them at once.
    #[default]
    AtOnce,
    /// One after another: each lets the next go once it runs, as those do that wait for a
    /// condition with a C library that moves them over to its mutex (glibc up to 2.24).
    InTurn,
}

impl Leave {
    /// Their names in a scenario.
    pub const NAMES: [(&'static str, Self); 2] =
        [("at-once", Self::AtOnce), ("in-turn", Self::InTurn)];

    fn is_at_once(&self) -> bool {
        *self == Self::AtOnce
    }
}
