// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only the simulator needs to be told: on a real machine it is there.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

use super::PolicySettings;

/// The `[sim]` table. Without one the simulator stands in for this machine under
/// the freezer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimSpec {
    /// The host's scheduling policy, by its name in the simulator.
    pub host: String,
    /// What is set of this policy; the rest is as published, or the platform's.
    #[serde(default, skip_serializing_if = "PolicySettings::is_empty")]
    pub policy: PolicySettings,
    /// What runs in the other VMs that share the pCPUs.
    pub others: Others,
    /// The guests' kernel and the bed's costs, by the name of the platform.
    pub platform: String,
    /// Seed of round 0; each other round has one that follows from it and its number.
    pub seed: u64,
    /// Hyperthreads per core: 1 or 2.
    pub threads_per_core: u32,
    /// How fast the CPUs are, in thousandths of those that the platform's costs were
    /// measured on: its CPU times, of guest kernel, request and daemon, are divided by that.
    /// 100..=10 000.
    #[serde(default = "same_speed", skip_serializing_if = "is_same_speed")]
    pub cpu_speed_permille: u32,
    /// How late the timer of a request without a device is, instead of the platform's.
    /// 0..=1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_late: Option<Ns>,
    /// Where the I/O tasks of a round begin.
    #[serde(default, skip_serializing_if = "IoStart::is_last")]
    pub io_start: IoStart,
    /// The vCPU on which all completions of the disk arrive; `None`: where they
    /// were submitted.
    pub completion_vcpu: Option<u32>,
    /// CPU time to submit one request, instead of the platform's.
    pub submit: Option<Ns>,
    /// CPU time to take one completion, instead of the platform's.
    pub process: Option<Ns>,
    /// CPU time of each further completion that one wake-up finds, with the request that
    /// follows it, instead of the platform's: `submit` and `process` are paid once for each
    /// wake-up. 0..=1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<Ns>,
    /// Median device time of one disk request, instead of the platform's.
    pub disk_latency: Option<Ns>,
    /// One thread of the host serves the disk: so long until it begins, then one request
    /// after the other, each in `disk_latency`; the guest is told when none is left. `None`:
    /// many at once, each told when it is done. 0..=1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_begin: Option<Ns>,
}

const fn same_speed() -> u32 {
    1000
}

const fn is_same_speed(permille: &u32) -> bool {
    *permille == same_speed()
}

impl Default for SimSpec {
    fn default() -> Self {
        Self {
            host: "fixed".to_owned(),
            policy: PolicySettings::new(),
            others: Others::Phantom,
            platform: "bed".to_owned(),
            seed: 1,
            threads_per_core: 1,
            cpu_speed_permille: same_speed(),
            timer_late: None,
            io_start: IoStart::Last,
            completion_vcpu: None,
            submit: None,
            process: None,
            further: None,
            disk_latency: None,
            disk_begin: None,
        }
    }
}

/// What runs in the other VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Others {
    /// Nothing is simulated; their slices pass by. What the freezer does.
    Phantom,
    /// The same as in the first, arm included.
    Same,
    /// Compute on every vCPU.
    Compute,
}

/// On which vCPU the first I/O task begins; each other one on the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IoStart {
    /// The last one, in all rounds.
    #[default]
    Last,
    /// Another one in each round. Beside compute on each vCPU a task stays where it
    /// begins, and whether that is where its completions arrive decides what it gets.
    InTurn,
}

impl IoStart {
    fn is_last(&self) -> bool {
        *self == Self::Last
    }
}

/// A figure that was measured elsewhere, to be shown beside the simulated one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`super::Load::name`].
    pub load: String,
    /// [`super::Arm::name`] or a baseline.
    pub arm: String,
    /// VMs per pCPU; 1 for a baseline.
    pub vms_per_pcpu: u32,
    /// Requests per second: median.
    pub ops_per_s: f64,
    /// Smallest measured, if several were.
    pub low: Option<f64>,
    /// Largest measured.
    pub high: Option<f64>,
    /// Where and when.
    pub source: String,
}
