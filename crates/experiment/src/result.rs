// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured: one versioned JSON document per run.
//!
//! Facts only. Ratios, intervals and verdicts are derived by [`crate::analysis`]
//! whenever they are shown, so that an old result profits from better
//! statistics and no two numbers in one file can contradict each other. What other
//! programs may want (P, CPU shares, fairness) is derived once more where the file is
//! written, and ignored where it is read.

mod books;
mod derived;
mod pool;
mod recorded;
mod work;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

use crate::scenario::Scenario;

pub use books::Books;
pub use books::VcpuBooks;
pub use books::VmBooks;
pub use pool::PoolError;
pub use recorded::IoTime;
pub use recorded::MoveMark;
pub use recorded::ParseSpellError;
pub use recorded::Spell;
pub use recorded::Spells;
pub use recorded::TaskState;
pub use recorded::TaskTrack;
pub use recorded::Timeline;
pub use recorded::VcpuTrack;
pub use work::LoadWork;
pub use work::VmWork;

/// Version of the document; changes when a field changes its meaning or a
/// reader of the old one would misread the new one.
///
/// 2 added what was recorded of the I/O threads, liveness, and the state of the
/// machine in each window; all of that is absent in a document of format 1.
pub const FORMAT: u32 = 2;

/// The oldest format that is still read.
pub const OLDEST_FORMAT: u32 = 1;

/// Name of the phases without sharing, with the compute threads: the
/// numerator of the bound, measured before the first round and after each.
pub const SOLO: &str = "solo";
/// As [`SOLO`], the I/O threads being `SCHED_FIFO`: what they do when they never
/// wait behind compute.
pub const SOLO_FIFO: &str = "solo-fifo";
/// Name of the phases without sharing and without compute.
pub const ALONE: &str = "alone";
/// Name of the phases without sharing and without I/O.
pub const COMPUTE_ONLY: &str = "compute-only";
/// The baselines: no arm may have such a name.
pub const BASELINES: [&str; 4] = [SOLO, SOLO_FIFO, ALONE, COMPUTE_ONLY];

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// What ran it: `freezer`, `kvm`, `sim`.
    pub backend: String,
    /// What was asked, after command-line overrides.
    pub scenario: Scenario,
    /// Where it ran.
    pub environment: Environment,
    /// In the order of measuring.
    pub phases: Vec<Phase>,
    /// What a reader must know before trusting it.
    pub warnings: Vec<String>,
    /// Only of a run on real VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<crate::lab::Lab>,
}

/// Where a run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// When it began, UTC, RFC 3339.
    pub date: String,
    /// `uname -r`.
    pub kernel: String,
    /// Preemption mode, from `uname -v` and the scheduler's debug file.
    pub preemption: String,
    /// Model name of the CPU.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// One-minute load average before the first phase.
    pub load_average: f64,
    /// By how much everything runs slower than on bare hardware of this kind:
    /// 1 where nothing is emulated, 20 or more under QEMU's TCG. `None`: unknown.
    #[serde(default)]
    pub dilation: Option<f64>,
    /// What this machine itself runs on, for instance `KVM`; empty: hardware, or
    /// unknown.
    #[serde(default)]
    pub hypervisor: String,
    /// The disk under the file that was read, if one was.
    pub disk: Option<Disk>,
    /// Versions of the programs that took part, by name.
    pub tools: BTreeMap<String, String>,
}

impl Environment {
    /// Other programs took part as well, in another part of the run.
    pub fn more_tools(&mut self, tools: &BTreeMap<String, String>) {
        for (tool, version) in tools {
            pool::join(self.tools.entry(tool.clone()).or_default(), version);
        }
    }

    /// Told if not all of a result was measured with the same programs.
    fn mixed(&self) -> Option<String> {
        let several = self.tools.iter().filter(|(_, told)| told.contains(", "));
        let several: Vec<String> = several
            .map(|(tool, told)| format!("{tool} {told}"))
            .collect();
        (!several.is_empty()).then(|| {
            format!(
                "not all of it was measured with the same programs: {}",
                several.join("; ")
            )
        })
    }
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name for it, for instance `vda`.
    pub name: String,
    /// Hardware queues.
    pub queues: u32,
    /// I/O scheduler in use.
    pub scheduler: String,
    /// File system of the file.
    pub file_system: String,
}

/// One measured window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// [`crate::scenario::Load::name`]; empty for [`COMPUTE_ONLY`].
    pub load: String,
    /// [`crate::scenario::Arm::name`] or one of [`BASELINES`].
    pub arm: String,
    /// VMs per pCPU; 1 means no sharing.
    pub vms_per_pcpu: u32,
    /// Round, from 0; for a baseline the number of rounds before it.
    pub round: u32,
    /// When the window opened, since the start of the run; on real VMs since that
    /// of their lab.
    pub at: Ns,
    /// In which boot of the lab of a run on real VMs, from 1; on this machine how often the
    /// run had been ended and resumed; else 0. Phases of two boots are not paired.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub boot: u32,
    /// What each VM got done, where the scenario names its VMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<VmWork>,
    /// How long it was open.
    pub window: Ns,
    /// The load's I/O, if it does any.
    pub io: Option<Io>,
    /// Work units per second and CPU of the compute threads; empty without.
    pub compute_per_s: Vec<f64>,
    /// When the CPUs were on, by the host's own log.
    pub host: Host,
    /// Interrupts of the disk in the window, per CPU; empty for other loads.
    pub completions: Vec<u64>,
    /// What the daemon said and cost, if the arm has one.
    pub daemon: Option<Daemon>,
    /// Did everything that should run make progress? Empty: nobody looked.
    #[serde(default)]
    pub liveness: Vec<Liveness>,
    /// How the machine was while the window was open.
    #[serde(default)]
    pub machine: Machine,
    /// Where the time of the I/O threads went, if that was recorded.
    #[serde(default)]
    pub io_time: Option<IoTime>,
    /// A part of the window in detail, if that was recorded.
    #[serde(default)]
    pub timeline: Option<Timeline>,
    /// Where the time of all vCPUs went, if somebody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub books: Option<Books>,
}

// A reference: serde asks for one.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Phase {
    /// Did everything that should run make progress in it? A phase that did not
    /// is counted and shown, but no figure is made of it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.liveness.iter().all(|one| one.alive)
    }
}

/// Whether one thing that should run did: a guest, a load, a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Liveness {
    /// For instance `compute on CPU 1` or `guest 2`.
    pub who: String,
    /// Did it make progress in the window?
    pub alive: bool,
    /// How much, in its own units per second.
    pub per_s: f64,
}

/// The machine while a window was open: what a neighbour did to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// One-minute load average at the end; it counts the loads themselves.
    pub load_average: Option<f64>,
    /// CPU time that this machine's own host took from it, all CPUs together.
    /// `None` where the kernel does not say.
    pub stolen: Option<Ns>,
    /// CPU time of processes that are not part of the experiment.
    pub others: Option<Ns>,
}

/// What an I/O load got done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Io {
    /// Requests completed per second.
    pub ops_per_s: f64,
    /// Bytes per second; 0 if the load moves none.
    pub bytes_per_s: f64,
    /// From submission until the thread saw the completion.
    pub latency: Latency,
    /// Requests completed in each piece of the window, for loads that change
    /// within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// Requests over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of a piece; the last one may be cut short by the window's end.
    pub bucket: Ns,
    /// Requests completed in each.
    pub ops: Vec<u64>,
}

/// Latency percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the requests were faster.
    pub p50: Ns,
    /// 99 of 100.
    pub p99: Ns,
    /// 999 of 1000.
    pub p999: Ns,
    /// The slowest.
    pub max: Ns,
}

/// What the host did in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Fraction of the window in which each CPU was on.
    pub on_share: Vec<f64>,
    /// Fraction of the window in which at least one was on.
    pub union_share: f64,
    /// Slices that ended in the window, over all CPUs.
    pub slices: u64,
    /// The latest that a slice ended after its planned end, since the start of
    /// the phase: what the machine's own host or a disabled interrupt did.
    #[serde(default)]
    pub late_max: Ns,
    /// Likewise for the end of a gap.
    #[serde(default)]
    pub overrun_max: Ns,
}

/// The daemon in the window. Counters are differences between its report at
/// the start and at the end; `interval` is the time between the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// Between the two reports.
    pub interval: Ns,
    /// Time in which I/O-bound tasks were ready, or had a completion pending,
    /// on a descheduled vCPU.
    pub io_inactivity: Ns,
    /// Time in which at least one task was I/O-bound.
    pub io_phase: Ns,
    /// CPU time charged to its processes. Without steal accounting the kernel
    /// charges time in which a CPU was off to the thread that was current.
    pub cpu: Ns,
    /// Of it, that time. `None` in files of older programs, where the daemon does not know it
    /// (source `heartbeat`), and where the daemon is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Ns>,
    /// Wake-ups of its threads.
    pub wakeups: u64,
    /// Moves by reason.
    pub moves: BTreeMap<String, u64>,
    /// Moves that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// N_migrate of equation (2).
    pub n_migrate: u64,
    /// N_min of equation (2).
    pub n_min: u64,
    /// BPF events that did not reach it.
    pub lost_events: u64,
    /// Where it saw slices: `steal-page`, `steal-map` or `heartbeat`. `None` in files of older
    /// programs and where the daemon is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What it saw of each vCPU, by number. Empty where `source` is `None`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vcpus: Vec<SeenVcpu>,
}

/// What a daemon saw of one vCPU between its two reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenVcpu {
    /// Its number.
    pub id: u32,
    /// Times that it was away. What is below 100 us, longer on an emulated host, is none.
    pub gaps: u64,
    /// Their length in all.
    pub stolen: Ns,
}

/// Why a result cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// Reading or writing failed.
    #[error("{}: cannot {action} the result", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Not JSON of this shape.
    #[error("{}:{}: not a result of `vlab run`", path.display(), source.line())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Not JSON of the other shape.
    #[error("{}:{}: not a file of `vlab reproduce --json`", path.display(), source.line())]
    Reproduction {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A reproduction of another version.
    #[error("{}: a reproduction of format {found}, this program reads format {}; simulate again or use the program that wrote it", path.display(), crate::reproduction::FORMAT)]
    ReproductionVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A result of another version.
    #[error("{}: a result of format {found}, this program reads formats {OLDEST_FORMAT} to {FORMAT}; measure again or use the program that wrote it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
}

impl RunResult {
    /// What its reader has to know: its warnings, and whether several builds of a program
    /// took part.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        let warnings = self.warnings.iter().cloned();
        warnings.chain(self.environment.mixed())
    }

    /// Reads a result.
    ///
    /// # Errors
    /// Unreadable, not a result, or one of another format.
    pub fn load(path: &Path) -> Result<Self, ResultError> {
        let text = std::fs::read_to_string(path).map_err(|source| ResultError::Io {
            path: path.to_owned(),
            action: "read",
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Parses a result; `path` is for errors.
    ///
    /// # Errors
    /// As [`RunResult::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ResultError> {
        let shape = |source| ResultError::Shape {
            path: path.to_owned(),
            source,
        };
        // The version first: a document of another format would otherwise fail
        // with a missing field, which helps nobody.
        #[derive(Deserialize)]
        struct Head {
            format: u64,
        }
        let head: Head = serde_json::from_str(text).map_err(shape)?;
        if !(u64::from(OLDEST_FORMAT)..=u64::from(FORMAT)).contains(&head.format) {
            return Err(ResultError::Version {
                path: path.to_owned(),
                found: head.format,
            });
        }
        serde_json::from_str(text).map_err(shape)
    }

    /// As JSON, indented, with a final newline, and with figures that follow from the facts
    /// in `derived`, which no reader of ours looks at.
    ///
    /// # Errors
    /// Never for a value that this crate made: all keys are strings.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(&derived::Written::new(self))? + "\n")
    }

    /// Writes it as a whole or not at all: a full disk must not leave half a
    /// result behind.
    ///
    /// # Errors
    /// Cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ResultError> {
        let error = |source: io::Error| ResultError::Io {
            path: path.to_owned(),
            action: "write",
            source,
        };
        let json = self.to_json().map_err(|e| error(e.into()))?;
        write_whole(path, &json).map_err(error)
    }
}

/// Writes a file as a whole or not at all: beside it first, then renamed.
///
/// # Errors
/// Cannot be written; what was there before is still there.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}
