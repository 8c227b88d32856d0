// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can stand in a policy file beside plain numbers.

use serde::Deserialize;
use serde::Serialize;
use units::CpuSet;
use units::Ns;

/// Weight of a VM of which the file says nothing; Xen's.
pub const DEFAULT_WEIGHT: u32 = 256;

/// A length of time, written as `"10ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Ns);

impl Time {
    /// What is in force, and so many times as long.
    pub(crate) fn dilated(in_force: Ns, by: u32) -> Option<Self> {
        Some(Self(in_force * u64::from(by)))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = humantime::parse_duration(&text).map_err(|error| {
            serde::de::Error::custom(format!("{text:?} is no time ({error}); write \"10ms\""))
        })?;
        u64::try_from(time.as_nanos())
            .map(|ns| Self(Ns(ns)))
            .map_err(|_| serde::de::Error::custom(format!("{text:?} is too long")))
    }
}

/// What kind of VM it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// It computes.
    #[default]
    Cpu,
    /// It waits for devices and has to answer them soon.
    Io,
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::Io => "io",
        })
    }
}

/// What a VM is worth, as a user says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worth {
    /// More is more CPU time.
    pub weight: u32,
    /// Its kind.
    pub class: Class,
    /// Per cent of one pCPU, all vCPUs together; `None`: no limit.
    pub cap: Option<u32>,
    /// How long a turn of its vCPUs may last; `None`: as its policy says.
    pub slice: Option<Ns>,
    /// How long a vCPU of it may wait when it wakes; `None`: as its policy says.
    pub latency: Option<Ns>,
    /// Of the pCPUs that its owner allows, these only; `None`: all of them.
    pub cpus: Option<CpuSet>,
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            weight: DEFAULT_WEIGHT,
            class: Class::Cpu,
            cap: None,
            slice: None,
            latency: None,
            cpus: None,
        }
    }
}
