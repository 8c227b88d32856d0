// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured: one versioned JSON document per run.
//!
//! Facts only. Ratios, intervals and verdicts are derived by [`crate::analysis`]
//! whenever they are shown, so that an old result profits from better
//! statistics and no two numbers in one file can contradict each other.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

use crate::scenario::Scenario;

/// Version of the document; changes when a field changes its meaning or a
/// reader of the old one would misread the new one.
pub const FORMAT: u32 = 1;

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
    /// What ran it: `freezer`.
    pub backend: String,
    /// What was asked, after command-line overrides.
    pub scenario: Scenario,
    /// Where it ran.
    pub environment: Environment,
    /// In the order of measuring.
    pub phases: Vec<Phase>,
    /// What a reader must know before trusting it.
    pub warnings: Vec<String>,
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
    /// The disk under the file that was read, if one was.
    pub disk: Option<Disk>,
    /// Versions of the programs that took part, by name.
    pub tools: BTreeMap<String, String>,
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
    /// When the window opened, since the start of the run.
    pub at: Ns,
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
    /// A result of another version.
    #[error("{}: a result of format {found}, this program reads format {FORMAT}; measure again or use the program that wrote it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
}

impl RunResult {
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
        if head.format != u64::from(FORMAT) {
            return Err(ResultError::Version {
                path: path.to_owned(),
                found: head.format,
            });
        }
        serde_json::from_str(text).map_err(shape)
    }

    /// As JSON, indented, with a final newline.
    ///
    /// # Errors
    /// Never for a value that this crate made: all keys are strings.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes it as a whole or not at all: into a file beside it that is then
    /// renamed, so that a full disk cannot leave half a result behind.
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
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = std::fs::write(&beside, json).and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|source| {
            let _ = std::fs::remove_file(&beside);
            error(source)
        })
    }
}
