// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon tells the outside: one snapshot, the body of `status --json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Permille;
use units::Tid;
use units::VcpuId;

/// What the daemon is doing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No vCPU has been taken away lately: nothing is armed.
    Asleep,
    /// vCPUs are taken away, but no task is I/O-bound: nothing is armed.
    Watching,
    /// I/O-bound tasks are being kept on running vCPUs.
    Active,
}

/// One vCPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Its number.
    pub id: u32,
    /// `running`, `descheduled`, `idle` or `unknown`.
    pub state: String,
    /// False if the kernel advises against it (preferred CPUs of Linux 7.4).
    /// `None` where the kernel has no such mask.
    #[serde(default)]
    pub preferred: Option<bool>,
    /// Estimated slice length, if the estimator does not abstain.
    pub slice_ns: Option<Ns>,
    /// Estimated gap length, likewise.
    pub gap_ns: Option<Ns>,
    /// Confidence of the estimate.
    pub confidence_permille: Permille,
    /// Gaps seen since the start.
    pub gaps: u64,
    /// Time it has been descheduled since the start.
    pub stolen_ns: Ns,
}

/// One I/O-bound task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Thread id.
    pub tid: Tid,
    /// Process id.
    pub tgid: u32,
    /// Thread name.
    pub comm: String,
    /// Where it is.
    pub vcpu: VcpuId,
    /// I/O load level (V15).
    pub load_permille: Permille,
    /// Time it was ready, or had a completion pending, on a descheduled vCPU.
    pub inactivity_ns: Ns,
    /// How often it was moved.
    pub moves: u64,
    /// `off`, `eevdf-slice` or `fifo`.
    pub wakeup: String,
    /// `follows-task`, `vcpu N`, `by-kernel-thread` or `unknown`.
    pub completion: String,
}

/// A block device whose requests were seen to complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its number, `major:minor`.
    pub dev: String,
    /// Requests that have completed.
    pub completions: u64,
    /// Where they do, as of a task.
    pub completion: String,
    /// False: that is what Linux says of its queues and interrupts, and nothing that was
    /// seen yet proves it.
    pub learnt: bool,
}

/// The balloon of one vCPU, in mode xballoon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Balloon {
    /// Its vCPU.
    pub vcpu: VcpuId,
    /// Computation is held just now.
    pub inflated: bool,
    /// Threads that it holds, now or when it is inflated.
    pub threads: u64,
    /// How often it was inflated since the start.
    pub inflations: u64,
    /// How long it was inflated since the start, gaps of the vCPU included.
    pub inflated_ns: Ns,
    /// Threads that could not be held or given back, since the start.
    pub failed: u64,
}

/// A program that was compared with itself, held and let go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Name of its threads.
    pub comm: String,
    /// False: its tasks are left alone at this moment.
    pub held: bool,
    /// What is believed to be better for it: `held` or `free`.
    pub believed: String,
    /// What it gets done when free to what it gets done when held, as last
    /// compared; `None` before the first comparison.
    pub free_to_held: Option<f64>,
    /// Comparisons made.
    pub trials: u32,
}

/// A snapshot of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of this document; changes when a field changes its meaning.
    pub format: u32,
    /// The daemon's version.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Since the start.
    pub uptime_ns: Ns,
    /// Moves nothing if true.
    pub dry_run: bool,
    /// What it is doing.
    pub mode: Mode,
    /// `steal-page`, `steal-map` or `heartbeat`.
    pub source: String,
    /// Accuracy of that source: typical error of an instant, as measured at the start and
    /// with what the heartbeat's period has grown by since.
    pub source_accuracy_ns: Ns,
    /// Are the programs attached that every context switch pays for?
    pub detector_attached: bool,
    /// Timers armed at this moment.
    pub timers_armed: u64,
    /// Wake-ups of the daemon's threads since the start, by cause.
    pub wakeups: BTreeMap<String, u64>,
    /// Wake-ups per second over the last second or since the last snapshot.
    pub wakeups_per_s: f64,
    /// Time since the start in which one of the daemon's threads was current on a vCPU that
    /// was descheduled. A kernel without `CONFIG_PARAVIRT_TIME_ACCOUNTING` charges it to the
    /// daemon as CPU time. `None` where it is not known: with the source `heartbeat`.
    #[serde(default)]
    pub stopped_ns: Option<Ns>,
    /// Time between a due timer and its thread running, 99th percentile.
    pub loop_lag_p99_ns: Ns,
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// The tasks that are I/O-bound now.
    pub tasks: Vec<Task>,
    /// I/O inactivity time of all I/O-bound tasks since the start.
    pub io_inactivity_ns: Ns,
    /// What dry run would have saved of it, estimated: per gap of a vCPU and task one
    /// move, and of its gain what fits into the present slice of the vCPU it goes to.
    pub would_have_saved_ns: Ns,
    /// Time during which at least one task was I/O-bound.
    pub io_phase_ns: Ns,
    /// Moves made, by reason: `push`, `pull`, `soon-active`, `completion`,
    /// `spread`.
    pub moves: BTreeMap<String, u64>,
    /// Moves wanted but not made, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Moves tried that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// N_migrate of equation (2).
    pub n_migrate: u64,
    /// N_min of equation (2): slices that ended under an I/O-bound task.
    pub n_min: u64,
    /// P = N_migrate / N_min; `None` before the first slice end.
    pub p: Option<f64>,
    /// C_avg of equation (2): mean measured cost of one migration.
    pub c_avg_ns: Ns,
    /// BPF events that did not reach the daemon.
    pub lost_events: u64,
    /// I/O-bound tasks that found no slot.
    pub lost_tasks: u64,
    /// The disks in use.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// Programs with an I/O-bound task, now or lately.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// What it does for I/O-bound tasks: `vmigrater` or `xballoon`.
    #[serde(default)]
    pub does: String,
    /// The balloons; empty in mode vmigrater.
    #[serde(default)]
    pub balloons: Vec<Balloon>,
}
