// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy file: parameters of a policy, and what each VM is worth.
//!
//! ```toml
//! [credit1]
//! slice = "30ms"
//!
//! [[vm]]
//! match = "guest=web"   # a part of the VMM's command line
//! weight = 512
//! class = "io"
//! cap = 150             # per cent of one pCPU, all vCPUs together
//! ```

mod check;
mod place;
mod value;
mod written;

use std::path::Path;

use serde::Deserialize;
use units::CpuSet;

pub use check::CAP_RANGE;
pub use check::ConfigError;
pub use check::LATENCY_RANGE;
pub use check::MAX_WEIGHT;
pub use check::SLICE_RANGE;
pub use value::Class;
pub use value::DEFAULT_WEIGHT;
pub use value::Time;
pub use value::Worth;

use crate::policy::credit::Credit1;
use crate::policy::credit::Credit2;
use crate::policy::isacs::Isacs;
use crate::policy::ische::Ische;
use crate::policy::vslicer::Vslicer;
pub(crate) use written::Written;

/// A policy file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Parameters of policy `credit1`.
    #[serde(default)]
    pub credit1: Credit1,
    /// Parameters of policy `credit2`.
    #[serde(default)]
    pub credit2: Credit2,
    /// Parameters of policy `vslicer`.
    #[serde(default)]
    pub vslicer: Vslicer,
    /// Parameters of policy `ische`.
    #[serde(default)]
    pub ische: Ische,
    /// Parameters of policy `isacs`.
    #[serde(default)]
    pub isacs: Isacs,
    /// VMs that are not like all others; the first that matches counts.
    #[serde(default)]
    pub vm: Vec<Vm>,
    /// The keys that are written there, by line.
    #[serde(skip)]
    written: Vec<Written>,
}

/// What a VM is worth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// A part of the VMM's command line, whose words are joined by blanks.
    #[serde(rename = "match")]
    pub pattern: String,
    /// More is more CPU time.
    pub weight: Option<u32>,
    /// Its kind.
    pub class: Option<Class>,
    /// Most that it may use, in per cent of one pCPU, all vCPUs together (K1).
    pub cap: Option<u32>,
    /// How long a turn of its vCPUs may last, whatever the policy says.
    pub slice: Option<Time>,
    /// How long a vCPU of it may wait when it wakes (J3).
    pub latency: Option<Time>,
    /// Of the pCPUs that its owner allows, these only: `"0-3,8"`.
    pub cpus: Option<CpuSet>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file, field and value that cannot be used, and what would be right.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: name.clone(),
            source,
        })?;
        Self::parse(&text, &name)
    }

    /// Checks the text of a file that is called `name`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map(|span| span.start);
            ConfigError::Parse {
                at: place::at(name, start.map(|start| place::line_at(text, start))),
                what: place::one_line(text, start, error.message()),
            }
        })?;
        check::check(&config, text, name)?;
        config.written = written::written(text, name);
        Ok(config)
    }

    /// The keys that are written in the file, by line.
    pub(crate) fn written(&self) -> &[Written] {
        &self.written
    }

    /// The same policies with all times so many times as long, also those that the file
    /// leaves as published: on an emulated host, where everything takes longer.
    #[must_use]
    pub fn dilated(mut self, by: u32) -> Self {
        self.ische = self.ische.dilated(&self.credit1, by);
        self.credit1 = self.credit1.dilated(by);
        self.credit2 = self.credit2.dilated(by);
        self.vslicer = self.vslicer.dilated(by);
        self.isacs = self.isacs.dilated(by);
        for vm in &mut self.vm {
            vm.slice = vm.slice.and_then(|time| Time::dilated(time.0, by));
            vm.latency = vm.latency.and_then(|time| Time::dilated(time.0, by));
        }
        self
    }

    /// What the VM is worth whose VMM has this command line.
    #[must_use]
    pub fn worth(&self, line: &str) -> Worth {
        let all = Worth::default();
        let found = self.vm.iter().find(|vm| line.contains(&vm.pattern));
        found.map_or(all, |vm| Worth {
            weight: vm.weight.unwrap_or(all.weight),
            class: vm.class.unwrap_or(all.class),
            cap: vm.cap,
            slice: vm.slice.map(|time| time.0),
            latency: vm.latency.map(|time| time.0),
            cpus: vm.cpus,
        })
    }
}

/// The command line of process `pid`; empty if it has gone.
pub(crate) fn command_line_of(pid: u32) -> String {
    command_line(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// `/proc/PID/cmdline` with blanks between the words.
fn command_line(bytes: &[u8]) -> String {
    let words: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;
