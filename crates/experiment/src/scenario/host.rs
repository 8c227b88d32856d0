// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What schedules the VMs of a real KVM host.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

/// A scheduler of the host, by the name that `scx_vcpu run --policy` has for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostPolicy {
    /// The kernel's own: nothing is loaded.
    Eevdf,
    /// Round robin with the scenario's slices: the default.
    #[default]
    Fixed,
    /// Xen's credit scheduler (K1..K8).
    Credit1,
    /// Its successor (K9..K15).
    Credit2,
    /// Short slices for latency-sensitive VMs (SL1..SL7).
    Vslicer,
    /// I/O cores and general cores (S1..S9).
    Ische,
    /// Credit2 with I/O strength (I1..I19).
    Isacs,
}

impl HostPolicy {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Eevdf,
        Self::Fixed,
        Self::Credit1,
        Self::Credit2,
        Self::Vslicer,
        Self::Ische,
        Self::Isacs,
    ];

    /// Its name in a scenario.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eevdf => "eevdf",
            Self::Fixed => "fixed",
            Self::Credit1 => "credit1",
            Self::Credit2 => "credit2",
            Self::Vslicer => "vslicer",
            Self::Ische => "ische",
            Self::Isacs => "isacs",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Does it choose the pCPU of a vCPU by the VM's class (S2)? The others have a vCPU
    /// of each VM on each pCPU.
    #[must_use]
    pub const fn chooses_cores(self) -> bool {
        matches!(self, Self::Ische)
    }
}

impl fmt::Display for HostPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
