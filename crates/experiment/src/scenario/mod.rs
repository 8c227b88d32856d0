// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment measures.
//!
//! `file.rs` reads the TOML and knows only its shape, `parameters.rs` and `sweep.rs` what
//! is put into it before that; `validate.rs` knows what makes sense. A file that parses on one machine parses on every machine;
//! whether the machine can run it is the backend's question.

mod device;
mod error;
mod file;
mod host;
mod known;
mod load;
mod parameters;
mod part;
mod policy;
mod sim;
mod sweep;
mod validate;
mod vm;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

pub use device::Device;
pub use device::DeviceKind;
pub use device::Elevator;
pub use device::median_of_mean;
pub use error::ScenarioError;
pub use host::HostPolicy;
pub use known::Known;
pub use load::Arrival;
pub use load::Burst;
pub use load::Leave;
pub use load::Load;
pub use load::LoadKind;
pub use load::Pattern;
pub use load::Program;
pub use load::Threads;
pub use load::Trick;
pub use parameters::Parameters;
pub use parameters::amount;
pub use part::Part;
pub use policy::KnownPolicy;
pub use policy::PolicyKey;
pub use policy::PolicyKind;
pub use policy::PolicySettings;
pub use policy::PolicyValue;
pub use sim::Measured;
pub use sim::Others;
pub use sim::SimSpec;
pub use vm::Class;
pub use vm::Pins;
pub use vm::Queues;
pub use vm::Vm;

/// A validated experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Short name, `[a-z0-9-]+`; names the result.
    pub name: String,
    /// What question it answers, one line.
    pub title: String,
    /// Which point of a sweep it is: `field = value` for each axis; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub point: String,
    /// The VM under test; with [`Scenario::vms`] the machine.
    pub topology: Topology,
    /// How it shares its pCPUs with other VMs.
    pub sharing: Sharing,
    /// How it is measured.
    pub measure: Measure,
    /// Compute beside the I/O.
    pub compute: Compute,
    /// The I/O loads, measured one after the other.
    pub loads: Vec<Load>,
    /// What is compared.
    pub arms: Vec<Arm>,
    /// Text of the policy file (`scx_vcpu run --config`) of the arms that name a host
    /// policy, for real VMs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_config: Option<String>,
    /// For the simulator alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sim: Option<SimSpec>,
    /// The VMs one by one, simulated or real; the first is the one under test.
    /// Empty: as many alike as [`Sharing::vms_per_pcpu`] says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<Vm>,
    /// Devices of these VMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Figures measured elsewhere, to be shown beside simulated ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
}

/// The VM under test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// vCPUs, each on a pCPU of its own: 1..=1024. With [`Scenario::vms`]: pCPUs.
    pub cpus: u32,
    /// Hardware queues of its disk, for real VMs alone: 1 to its vCPUs; `None`: one per
    /// vCPU. With one, all requests complete on the same vCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_queues: Option<u32>,
}

/// Time sharing between VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// VMs per pCPU, the paper's consolidation rate N; 1 means no sharing. With
    /// [`Scenario::vms`] one number: vCPUs of all VMs for each pCPU, rounded up.
    pub vms_per_pcpu: Vec<u32>,
    /// How long one VM runs on a pCPU before the next one does.
    pub slice: Ns,
    /// How much longer the period of the last pCPU is than that of the first,
    /// in thousandths: 0..=500. Equal periods would lock the phase between the
    /// pCPUs, and the time in which at least one of them is on would be an
    /// accident.
    pub sweep_permille: u32,
}

/// How a phase is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// How often each arm is measured, arms interleaved.
    pub rounds: u32,
    /// Time under sharing before the window opens; nothing of it counts.
    pub warmup: Ns,
    /// The steady window, the only part that counts.
    pub window: Ns,
    /// What is measured beside the arms.
    #[serde(default, skip_serializing_if = "Baselines::is_all")]
    pub baselines: Baselines,
}

/// Which phases without sharing are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Baselines {
    /// All of them, the rate without sharing between rounds too: a machine that changes
    /// under the run is noticed.
    #[default]
    All,
    /// The rate without sharing, once, before the first round: for a backend on which a
    /// phase is expensive.
    Solo,
    /// None: no bound, and no guard against drift.
    None,
}

impl Baselines {
    /// Their names in a scenario.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("all", Self::All),
        ("solo", Self::Solo),
        ("none", Self::None),
    ];

    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Compute beside the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Busy threads pinned to each CPU, at nice 0: 0..=16.
    pub threads_per_cpu: u32,
}

/// One thing that is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in the report.
    pub name: String,
    /// What is done.
    pub kind: ArmKind,
    /// Measured in the first so many rounds only; `None`: in all of them.
    pub rounds: Option<u32>,
    /// What schedules the VMs of a real host meanwhile; `None`: `fixed`, with the
    /// scenario's slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_policy: Option<HostPolicy>,
}

impl Arm {
    /// What schedules the VMs of a real host in this arm.
    #[must_use]
    pub fn host_policy(&self) -> HostPolicy {
        self.host_policy.unwrap_or_default()
    }
}

/// What is done in an arm. Every backend reads the same definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ArmKind {
    /// Nothing: the baseline of every ratio.
    Vanilla,
    /// The I/O threads are `SCHED_FIFO` 1, nothing else.
    Fifo,
    /// The I/O threads have nice -20, nothing else.
    Nice,
    /// The daemon.
    Vmigrater {
        /// Decides and records, but moves nothing.
        dry_run: bool,
        /// `--profile`, for instance `published`.
        profile: Option<String>,
        /// `--without`: parts that are left out, each named once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        without: Vec<Part>,
        /// Text of its configuration file.
        config: Option<String>,
    },
    /// The daemon as the system that it is compared with: `--mode xballoon`
    /// (XB1..XB7).
    Xballoon {
        /// Text of its configuration file.
        config: Option<String>,
    },
    /// Another host policy than the scenario's, by its name in the simulator; the
    /// guest does nothing. No other backend has it.
    Host {
        /// The policy.
        policy: String,
        /// What is set of it; the rest is as published.
        #[serde(default, skip_serializing_if = "PolicySettings::is_empty")]
        settings: PolicySettings,
    },
    /// Any command: another scheduler, a script that sets priorities.
    ///
    /// It is started before the phase in a process group of its own and must
    /// still run, or have ended well, when the window closes; anything else is
    /// an error of that phase. After the phase its whole group is asked to end
    /// (`SIGTERM`) and killed if it does not. `{tids}` in an argument becomes
    /// the I/O threads' ids, separated by commas.
    Command {
        /// Program and arguments.
        command: Vec<String>,
    },
}

impl ArmKind {
    /// Does it start the daemon, in whatever mode?
    #[must_use]
    pub const fn is_daemon(&self) -> bool {
        matches!(self, Self::Vmigrater { .. } | Self::Xballoon { .. })
    }
}

impl Scenario {
    /// Reads and validates a file that a real machine can run.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML of this shape, asks for something that
    /// makes no sense, or for what only the simulator has; the error names file,
    /// line, field, value and what would be right.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        Self::parse(&read(path)?, &path.display().to_string())
    }

    /// Parses and validates a text; `file` is the name that errors use.
    ///
    /// # Errors
    /// As [`Scenario::load`], except for reading.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let at = error::Locator { file, text };
        let raw = file::parse(&at)?;
        validate::on_this_machine(&raw, &at)?;
        validate::validate(raw, &Known::default(), &at)
    }

    /// Reads and validates a file for real VMs: a scenario for each point of its
    /// `[sweep]`, or the only one.
    ///
    /// # Errors
    /// As [`Scenario::load`], but for `[[vm]]`, `[[device]]` and `[sweep]`, of which
    /// real VMs have a part.
    pub fn load_real_points(path: &Path) -> Result<Vec<Self>, ScenarioError> {
        Self::parse_real_points(&read(path)?, &path.display().to_string())
    }

    /// Parses and validates a text for real VMs; `file` is the name that errors use.
    ///
    /// # Errors
    /// As [`Scenario::load_real_points`], except for reading.
    pub fn parse_real_points(text: &str, file: &str) -> Result<Vec<Self>, ScenarioError> {
        let at = error::Locator { file, text };
        let tree = file::tree(&at)?;
        parameters::none(tree.get_ref(), &at)?;
        sweep::points(tree, &at, &mut |raw| {
            validate::on_real_vms(&raw, &at)?;
            validate::validate(raw, &Known::default(), &at)
        })
    }

    /// Reads and validates a file for the simulator: a scenario for each
    /// point of its `[sweep]`, or the only one. `known` is what it can name.
    ///
    /// # Errors
    /// As [`Scenario::load`], but for what only the simulator has; a name that is not
    /// known.
    pub fn load_points(path: &Path, known: &Known) -> Result<Vec<Self>, ScenarioError> {
        Self::parse_points(&read(path)?, &path.display().to_string(), known)
    }

    /// Parses and validates a text for the simulator; `file` is the name that errors
    /// use.
    ///
    /// # Errors
    /// As [`Scenario::load_points`], except for reading.
    pub fn parse_points(text: &str, file: &str, known: &Known) -> Result<Vec<Self>, ScenarioError> {
        let at = error::Locator { file, text };
        let mut tree = file::tree(&at)?;
        let computed = parameters::computed(tree.get_ref(), &known.parameters, &at)?;
        parameters::put(tree.get_mut(), &computed);
        sweep::points(tree, &at, &mut |raw| validate::validate(raw, known, &at))
    }

    /// What each text of a file with `$` gives, by that text, as TOML writes it.
    ///
    /// # Errors
    /// The file cannot be read or is no TOML; a parameter that does not exist.
    pub fn computed(
        path: &Path,
        parameters: &Parameters,
    ) -> Result<BTreeMap<String, String>, ScenarioError> {
        let (file, text) = (path.display().to_string(), read(path)?);
        let at = error::Locator {
            file: &file,
            text: &text,
        };
        parameters::computed(file::tree(&at)?.get_ref(), parameters, &at)
    }

    /// vCPUs of the VM under test.
    #[must_use]
    pub fn vcpus(&self) -> u32 {
        self.vms.first().map_or(self.topology.cpus, |vm| vm.vcpus)
    }

    /// All loads: those that have phases, and those that single VMs run beside them.
    pub fn all_loads(&self) -> impl Iterator<Item = &Load> {
        let named = self.vms.iter().filter_map(|vm| vm.loads.as_ref());
        self.loads.iter().chain(named.flatten())
    }

    /// Each of [`Scenario::vms`] with its name, as often as it counts.
    pub fn each_vm(&self) -> impl Iterator<Item = (String, &Vm)> {
        let all = |vm: &'_ Vm| (0..vm.count).map(|n| vm.name_of(n)).collect::<Vec<_>>();
        let with = move |vm| all(vm).into_iter().map(move |name| (name, vm));
        self.vms.iter().flat_map(with)
    }

    /// How many share a pCPU, in words: one of [`Sharing::vms_per_pcpu`].
    #[must_use]
    pub fn sharing_of(&self, vms_per_pcpu: u32) -> String {
        if self.vms.is_empty() {
            format!("{vms_per_pcpu} VMs per CPU")
        } else {
            format!("{vms_per_pcpu} vCPUs / pCPU")
        }
    }

    /// The arms measured in round `round` (from 0), in the order of that round:
    /// it is rotated by one from round to round, so that no arm always follows
    /// the same other arm. Arms with the same host policy follow each other, since
    /// policies are not exchanged for nothing; these groups are rotated, and the
    /// arms in each.
    #[must_use]
    pub fn order_of_round(&self, round: u32) -> Vec<&Arm> {
        let mut groups: Vec<Vec<&Arm>> = Vec::new();
        for arm in &self.arms {
            let same = |group: &&mut Vec<&Arm>| group[0].host_policy == arm.host_policy;
            match groups.iter_mut().find(same) {
                Some(group) => group.push(arm),
                None => groups.push(vec![arm]),
            }
        }
        let by = |length: usize| round as usize % length.max(1);
        let first = by(groups.len());
        groups.rotate_left(first);
        for group in &mut groups {
            let first = by(group.len());
            group.rotate_left(first);
        }
        let mut arms = groups.concat();
        arms.retain(|arm| arm.rounds.is_none_or(|limit| round < limit));
        arms
    }

    /// Does any arm name a host policy?
    #[must_use]
    pub fn names_host_policies(&self) -> bool {
        self.arms.iter().any(|arm| arm.host_policy.is_some())
    }
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    std::fs::read_to_string(path).map_err(|source| ScenarioError::Read {
        path: path.to_owned(),
        source,
    })
}
