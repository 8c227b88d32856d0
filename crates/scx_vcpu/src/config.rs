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

use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use thiserror::Error;
use units::Ns;

use crate::policy::credit::Credit1;
use crate::policy::credit::Credit2;
use crate::policy::fixed::MAX_SLICE;
use crate::policy::fixed::MIN_SLICE;
use crate::policy::isacs::Isacs;
use crate::policy::ische::Ische;
use crate::policy::vslicer::Vslicer;

/// Weight of a VM of which the file says nothing; Xen's.
pub const DEFAULT_WEIGHT: u32 = 256;

/// Largest weight; Xen's.
pub const MAX_WEIGHT: u32 = 65_535;

/// Smallest and largest cap in per cent of one pCPU. Below 1 % of a period of 30 ms a
/// turn would be shorter than what switching costs.
pub const CAP_RANGE: std::ops::RangeInclusive<u32> = 1..=409_600;

/// A policy file that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no TOML, or has a field that does not exist.
    #[error("{path}: {}", one_line(source))]
    Parse {
        /// The file.
        path: String,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// A value is out of range.
    #[error("{path}: {field} = {value}; use {right}")]
    Value {
        /// The file.
        path: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What would be right.
        right: String,
    },
}

/// A length of time, written as `"10ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Ns);

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
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            weight: DEFAULT_WEIGHT,
            class: Class::Cpu,
            cap: None,
        }
    }
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
        let config: Self = toml::from_str(text).map_err(|source| ConfigError::Parse {
            path: name.to_owned(),
            source: Box::new(source),
        })?;
        let wrong = |field, value: String, right: String| ConfigError::Value {
            path: name.to_owned(),
            field,
            value,
            right,
        };
        let slices = [
            ("credit1.slice", config.credit1.slice),
            ("credit1.boost_slice", config.credit1.boost_slice),
            ("credit1.refill_period", config.credit1.refill_period),
            ("credit2.slice", config.credit2.slice),
            ("credit2.default_credit", config.credit2.default_credit),
            ("vslicer.slice", config.vslicer.slice),
            ("vslicer.micro", config.vslicer.micro),
            ("ische.general_slice", config.ische.general_slice),
            ("ische.io_slice", config.ische.io_slice),
            ("isacs.slice", config.isacs.slice),
            ("isacs.default_credit", config.isacs.default_credit),
            ("isacs.cutoff", config.isacs.cutoff),
        ];
        for (field, time) in slices {
            if let Some(time) = time
                && !(MIN_SLICE..=MAX_SLICE).contains(&time.0)
            {
                return Err(wrong(
                    field,
                    time.0.to_string(),
                    format!("{MIN_SLICE} to {MAX_SLICE}"),
                ));
            }
        }
        if let Some(Time(unit)) = config.isacs.boost_unit
            && unit > MAX_SLICE
        {
            return Err(wrong(
                "isacs.boost_unit",
                unit.to_string(),
                format!("at most {MAX_SLICE}"),
            ));
        }
        let vslicer = config.vslicer.settings();
        if vslicer.micro > vslicer.slice {
            return Err(wrong(
                "vslicer.micro",
                vslicer.micro.to_string(),
                format!("{MIN_SLICE} to vslicer.slice, {}", vslicer.slice),
            ));
        }
        if config.ische.general_cores == Some(0) {
            return Err(wrong(
                "ische.general_cores",
                "0".to_owned(),
                "at least 1".to_owned(),
            ));
        }
        for vm in &config.vm {
            if vm.pattern.is_empty() {
                return Err(wrong(
                    "vm.match",
                    "\"\"".to_owned(),
                    "a part of the VMM's command line".to_owned(),
                ));
            }
            for (field, value, range) in [
                ("vm.weight", vm.weight, 1..=MAX_WEIGHT),
                ("vm.cap", vm.cap, CAP_RANGE),
            ] {
                if let Some(value) = value
                    && !range.contains(&value)
                {
                    let right = format!("{} to {}", range.start(), range.end());
                    return Err(wrong(field, value.to_string(), right));
                }
            }
        }
        Ok(config)
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

/// The parser's message without its picture of the line.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_vm_that_matches_counts() {
        let text = "[[vm]]\nmatch = \"guest=web\"\nweight = 512\n\
            [[vm]]\nmatch = \"guest=\"\nweight = 128\n";
        let config = Config::parse(text, "f").unwrap();
        let line = |bytes: &[u8]| config.worth(&command_line(bytes)).weight;
        assert_eq!(line(b"qemu\0-name\0guest=web,x=on\0"), 512);
        assert_eq!(line(b"qemu\0-name\0guest=db\0"), 128);
        assert_eq!(line(b"firecracker\0"), DEFAULT_WEIGHT);
    }

    #[test]
    fn bad_values_are_told_with_file_field_and_what_would_be_right() {
        for (text, parts) in [
            (
                "[credit1]\nslice = \"1us\"\n",
                ["p.toml: credit1.slice", "1 ms to 3 s"],
            ),
            (
                "[[vm]]\nmatch = \"a\"\nweight = 0\n",
                ["p.toml: vm.weight = 0", "1 to 65535"],
            ),
            ("[credit3]\n", ["p.toml", "credit3"]),
            ("[credit2]\nslice = \"soon\"\n", ["soon", "10ms"]),
            ("[[vm]]\nmatch = \"\"\nweight = 1\n", ["vm.match", "part"]),
            ("[[vm]]\nmatch = \"a\"\ncap = 0\n", ["vm.cap = 0", "1 to"]),
            ("[[vm]]\nmatch = \"a\"\nclass = \"disk\"\n", ["disk", "io"]),
            (
                "[vslicer]\nmicro = \"31ms\"\n",
                ["vslicer.micro = 31 ms", "30 ms"],
            ),
            ("[ische]\ngeneral_cores = 0\n", ["ische.general_cores", "1"]),
            (
                "[isacs]\nboost_unit = \"4s\"\n",
                ["isacs.boost_unit = 4 s", "at most 3 s"],
            ),
        ] {
            let said = Config::parse(text, "p.toml").unwrap_err().to_string();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }

    #[test]
    fn an_empty_file_is_the_published_system() {
        let config = Config::parse("", "f").unwrap();
        assert_eq!(
            config.credit1.settings(),
            policy::host::credit::credit1::Settings::default()
        );
        assert_eq!(
            config.credit2.settings(),
            policy::host::credit::credit2::Settings::default()
        );
        assert_eq!(
            config.vslicer.settings(),
            policy::host::vslicer::Settings::default()
        );
        assert_eq!(
            config.ische.settings(&config.credit1),
            policy::host::ische::Settings::default()
        );
        assert_eq!(config.ische.automatic(), None);
    }
}
