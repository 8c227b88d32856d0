// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shape of a scenario file. No rule about values is here.
//!
//! Every leaf is a [`Spanned`], so that validation can name the line. Durations
//! are texts with a unit (`"11 ms"`): a bare number would leave the unit to
//! guesswork.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use super::error::Locator;
use super::error::ScenarioError;
use super::parameters;

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
    #[serde(rename = "vm", default)]
    pub(super) vms: Vec<Spanned<Vm>>,
    #[serde(rename = "device", default)]
    pub(super) devices: Vec<Spanned<Device>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    pub(super) cpus: Spanned<i64>,
    pub(super) disk_queues: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sharing {
    pub(super) vms_per_pcpu: Option<Spanned<Vec<Spanned<i64>>>>,
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
    pub(super) write: Option<Spanned<bool>>,
    pub(super) block_bytes: Option<Spanned<i64>>,
    pub(super) submit: Option<Spanned<String>>,
    pub(super) process: Option<Spanned<String>>,
    pub(super) further: Option<Spanned<String>>,
    pub(super) start_up: Option<Spanned<String>>,
    pub(super) spread_permille: Option<Spanned<i64>>,
    pub(super) skew_permille: Option<Spanned<i64>>,
    pub(super) work: Option<Spanned<String>>,
    pub(super) spin: Option<Spanned<String>>,
    pub(super) hold: Option<Spanned<String>>,
    pub(super) alone: Option<Spanned<String>>,
    pub(super) alone_permille: Option<Spanned<i64>>,
    pub(super) leave: Option<Spanned<String>>,
    pub(super) trick: Option<Spanned<String>>,
    pub(super) tick: Option<Spanned<String>>,
    pub(super) early: Option<Spanned<String>>,
    pub(super) every: Option<Spanned<String>>,
    pub(super) vcpu: Option<Spanned<i64>>,
    pub(super) pinned: Option<Spanned<bool>>,
    pub(super) weight: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vm {
    pub(super) name: Spanned<String>,
    pub(super) count: Option<Spanned<i64>>,
    pub(super) vcpus: Option<Spanned<i64>>,
    pub(super) weight: Option<Spanned<i64>>,
    pub(super) group: Option<Spanned<bool>>,
    pub(super) cap: Option<Spanned<i64>>,
    pub(super) pins: Option<Spanned<Vec<Spanned<i64>>>>,
    pub(super) placement: Option<Spanned<String>>,
    pub(super) class: Option<Spanned<String>>,
    pub(super) arm: Option<Spanned<bool>>,
    pub(super) threads_per_vcpu: Option<Spanned<i64>>,
    pub(super) loads: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) migration: Option<Spanned<String>>,
    pub(super) backend: Option<Spanned<String>>,
    pub(super) copies_mb_per_s: Option<Spanned<f64>>,
    pub(super) queues: Option<Spanned<String>>,
}

/// All keys of all kinds, as in [`Load`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Device {
    pub(super) name: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) completion_vcpu: Option<Spanned<i64>>,
    pub(super) latency: Option<Spanned<String>>,
    pub(super) mean: Option<Spanned<String>>,
    pub(super) spread_permille: Option<Spanned<i64>>,
    pub(super) parallelism: Option<Spanned<i64>>,
    pub(super) mb_per_s: Option<Spanned<f64>>,
    pub(super) turn: Option<Spanned<String>>,
    pub(super) seek: Option<Spanned<String>>,
    pub(super) scheduler: Option<Spanned<String>>,
    pub(super) wait: Option<Spanned<String>>,
    pub(super) under_way: Option<Spanned<String>>,
    pub(super) interval: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
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
    pub(super) settings: Option<Spanned<Settings>>,
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
    pub(super) cpu_speed_permille: Option<Spanned<i64>>,
    pub(super) timer_late: Option<Spanned<String>>,
    pub(super) heartbeat: Option<Spanned<String>>,
    pub(super) traced_switch: Option<Spanned<String>>,
    pub(super) traced_request: Option<Spanned<String>>,
    pub(super) io_elsewhere_permille: Option<Spanned<i64>>,
    pub(super) completion_vcpu: Option<Spanned<i64>>,
    pub(super) submit: Option<Spanned<String>>,
    pub(super) process: Option<Spanned<String>>,
    pub(super) further: Option<Spanned<String>>,
    pub(super) disk_latency: Option<Spanned<String>>,
    pub(super) disk_begin: Option<Spanned<String>>,
    pub(super) policy: Option<Settings>,
}

/// What is set of a host policy: which keys there are is the policy's question.
pub(super) type Settings = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

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

/// What is allowed in a whole file beside that; `sweep.rs` takes it out.
pub(super) const SWEEP: &str = "sweep";

/// Parses a file's text.
pub(super) fn parse(at: &Locator<'_>) -> Result<File, ScenarioError> {
    let tree = tree(at)?;
    if let Some((key, _)) = tree.get_ref().get_key_value(SWEEP) {
        return Err(at.not_here(key.span(), SWEEP));
    }
    parameters::none(tree.get_ref(), at)?;
    file(tree, at)
}

/// Parses a file's text; only its grammar.
pub(super) fn tree<'a>(at: &Locator<'a>) -> Result<Spanned<DeTable<'a>>, ScenarioError> {
    DeTable::parse(at.text).map_err(|error| at.shape(&error))
}

/// The file that a tree is.
pub(super) fn file(tree: Spanned<DeTable<'_>>, at: &Locator<'_>) -> Result<File, ScenarioError> {
    File::deserialize(toml::Deserializer::from(tree)).map_err(|error| at.shape(&error))
}
