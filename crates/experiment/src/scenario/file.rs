// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shape of a scenario file. No rule about values is here.
//!
//! Every leaf is a [`Spanned`], so that validation can name the line. Durations
//! are texts with a unit (`"11 ms"`): a bare number would leave the unit to
//! guesswork.

use serde::Deserialize;
use toml::Spanned;

use super::error::Locator;
use super::error::ScenarioError;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    pub(super) title: Spanned<String>,
    pub(super) host_config: Option<Spanned<String>>,
    pub(super) topology: Topology,
    pub(super) sharing: Sharing,
    #[serde(default)]
    pub(super) measure: Measure,
    #[serde(default)]
    pub(super) compute: Compute,
    pub(super) sim: Option<Sim>,
    #[serde(rename = "load", default)]
    pub(super) loads: Vec<Load>,
    #[serde(rename = "arm", default)]
    pub(super) arms: Vec<Arm>,
    #[serde(default)]
    pub(super) measured: Vec<Measured>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    pub(super) cpus: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sharing {
    pub(super) vms_per_pcpu: Spanned<Vec<Spanned<i64>>>,
    pub(super) slice: Spanned<String>,
    pub(super) sweep_permille: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measure {
    pub(super) rounds: Option<Spanned<i64>>,
    pub(super) warmup: Option<Spanned<String>>,
    pub(super) window: Option<Spanned<String>>,
    pub(super) baselines: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compute {
    pub(super) threads_per_cpu: Option<Spanned<i64>>,
}

/// All keys of all kinds: which of them belong to a kind is validation's
/// question, since its errors can say so better than serde's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) name: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) pattern: Option<Spanned<String>>,
    pub(super) queue_depth: Option<Spanned<i64>>,
    pub(super) block_kib: Option<Spanned<i64>>,
    pub(super) file_mib: Option<Spanned<i64>>,
    pub(super) burst: Option<Spanned<String>>,
    pub(super) pause: Option<Spanned<String>>,
    pub(super) device: Option<Spanned<String>>,
    pub(super) threads: Option<Spanned<i64>>,
    pub(super) cpu: Option<Spanned<String>>,
    pub(super) arrivals: Option<Spanned<Vec<Arrival>>>,
    pub(super) profile: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arrival {
    pub(super) at: Spanned<String>,
    pub(super) threads: Spanned<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arm {
    pub(super) name: Spanned<String>,
    pub(super) kind: Option<Spanned<String>>,
    pub(super) rounds: Option<Spanned<i64>>,
    pub(super) profile: Option<Spanned<String>>,
    pub(super) without: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) config: Option<Spanned<String>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) policy: Option<Spanned<String>>,
    pub(super) host_policy: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sim {
    pub(super) host: Option<Spanned<String>>,
    pub(super) others: Option<Spanned<String>>,
    pub(super) platform: Option<Spanned<String>>,
    pub(super) seed: Option<Spanned<i64>>,
    pub(super) threads_per_core: Option<Spanned<i64>>,
    pub(super) completion_vcpu: Option<Spanned<i64>>,
    pub(super) submit: Option<Spanned<String>>,
    pub(super) process: Option<Spanned<String>>,
    pub(super) disk_latency: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    pub(super) load: Spanned<String>,
    pub(super) arm: Spanned<String>,
    pub(super) vms_per_pcpu: Spanned<i64>,
    pub(super) ops_per_s: Spanned<f64>,
    pub(super) low: Option<Spanned<f64>>,
    pub(super) high: Option<Spanned<f64>>,
    pub(super) source: Spanned<String>,
}

/// Parses a file's text.
pub(super) fn parse(at: &Locator<'_>) -> Result<File, ScenarioError> {
    toml::from_str(at.text).map_err(|error| at.shape(&error))
}
