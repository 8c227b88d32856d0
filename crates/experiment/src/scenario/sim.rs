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
    /// What one heartbeat of the daemon takes from its vCPU, instead of the platform's: its
    /// CPU time, its timer's interrupts and what is cold after it. 0..=1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Ns>,
    /// CPU time of the daemon's BPF programs at a switch to a task, instead of the platform's.
    /// 0..=1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced_switch: Option<Ns>,
    /// The same where a request is issued and done. 0..=1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced_request: Option<Ns>,
    /// In how many rounds of a thousand, evenly spread, the first I/O task begins on another
    /// vCPU than the last one; each other task begins on the vCPU before. Beside compute on
    /// each vCPU a task stays where it begins, and whether that is where its completions
    /// arrive decides what it gets. 0..=1000.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub io_elsewhere_permille: u32,
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

const fn is_zero(permille: &u32) -> bool {
    *permille == 0
}

impl SimSpec {
    /// On which vCPU the first I/O task of a round begins, counted down from the last one,
    /// where there are `cpus`: 0 is the last one.
    #[must_use]
    pub fn begins_at(&self, round: u32, cpus: u32) -> u32 {
        let elsewhere = |rounds: u64| rounds * u64::from(self.io_elsewhere_permille) / 1000;
        let (before, now) = (elsewhere(round.into()), elsewhere(u64::from(round) + 1));
        if before == now || cpus < 2 {
            return 0;
        }
        1 + (before % u64::from(cpus - 1)) as u32
    }
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
            heartbeat: None,
            traced_switch: None,
            traced_request: None,
            io_elsewhere_permille: 0,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_begin_elsewhere_are_spread_evenly() {
        let begins = |permille, cpus, rounds| -> Vec<u32> {
            let spec = SimSpec {
                io_elsewhere_permille: permille,
                ..SimSpec::default()
            };
            (0..rounds)
                .map(|round| spec.begins_at(round, cpus))
                .collect()
        };
        assert_eq!(begins(0, 2, 4), [0; 4]);
        assert_eq!(begins(500, 2, 6), [0, 1, 0, 1, 0, 1]);
        assert_eq!(begins(1000, 3, 4), [1, 2, 1, 2], "on each of the others");
        assert_eq!(begins(1000, 1, 2), [0; 2], "there is no other");
        let third = begins(333, 2, 300);
        assert_eq!(third.iter().sum::<u32>(), 99);
    }
}
