// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs one by one, for the simulator.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

use super::Load;

/// One `[[vm]]`, or several alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// Its name; with a count above 1 the n-th is `name.n`, from 1.
    pub name: String,
    /// How many of them: 1..=256.
    pub count: u32,
    /// vCPUs of each: 1..=1024.
    pub vcpus: u32,
    /// Weight of each vCPU, in the units of Linux: 2..=262144.
    pub weight: u32,
    /// It is a control group, as libvirt makes one: all of it weighs as much as one vCPU
    /// alone.
    pub group: bool,
    /// The most CPU time that all its vCPUs have together, in equal parts, even if pCPUs are
    /// idle: per cent of one pCPU (Xen's `cap`, K1), 1..=100 for each vCPU; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// Where its vCPUs may run.
    pub pins: Pins,
    /// What policies are told of it; `None`: nothing.
    pub class: Option<Class>,
    /// Does what an arm does in the guest happen here?
    pub arm: bool,
    /// Busy threads pinned to each vCPU: 0..=16.
    pub threads_per_vcpu: u32,
    /// What it runs, all at once; `None`: the load of the phase.
    pub loads: Option<Vec<Load>>,
    /// What a task loses when it runs on another vCPU than before; `None`: the
    /// platform's or the application's.
    pub migration: Option<Ns>,
    /// Of a driver domain and a far end: its work for each entry of its ring, by a task per
    /// vCPU.
    pub backend: Option<Ns>,
    /// Of them: how fast they copy what goes through a network, in MB/s; `None`: at once.
    #[serde(default)]
    pub copies_mb_per_s: Option<f64>,
    /// Of a driver domain: which of its tasks serves what.
    #[serde(default, skip_serializing_if = "Queues::is_per_vm")]
    pub queues: Queues,
}

/// Which of a driver domain's tasks serves what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// All that a VM asks for is in one ring.
    #[default]
    PerVm,
    /// Each of a VM's tasks has a ring of its own: several queues of one interface.
    PerStream,
}

impl Queues {
    /// Their names in a scenario.
    pub const NAMES: [(&'static str, Self); 2] =
        [("per-vm", Self::PerVm), ("per-stream", Self::PerStream)];

    fn is_per_vm(&self) -> bool {
        *self == Self::PerVm
    }
}

impl Vm {
    /// The name of the n-th of them, from 0.
    #[must_use]
    pub fn name_of(&self, n: u32) -> String {
        if self.count == 1 {
            self.name.clone()
        } else {
            format!("{}.{}", self.name, n + 1)
        }
    }
}

/// Where vCPUs may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pins {
    /// On every pCPU.
    Anywhere,
    /// vCPU n on pCPU n.
    OneToOne,
    /// vCPU n on pCPU n modulo their number: a VM may have more vCPUs than there are pCPUs.
    RoundRobin,
    /// Each of them on any of these.
    On(Vec<u32>),
}

/// What an administrator declares of a VM (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing special.
    General,
    /// I/O-intensive, or latency-sensitive: the policies that ask do not tell the two
    /// apart.
    Io,
    /// It serves the others' I/O (6.1, S3).
    DriverDomain,
    /// The other end of the networks behind the driver domain is here, and not outside of
    /// the host: what guests send goes through it before it is answered.
    FarEnd,
}

impl Class {
    /// It serves what others ask for, and has no load of its own.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::DriverDomain | Self::FarEnd)
    }

    /// Their names in a scenario.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("general", Self::General),
        ("io", Self::Io),
        ("latency-sensitive", Self::Io),
        ("driver-domain", Self::DriverDomain),
        ("far-end", Self::FarEnd),
    ];
}
