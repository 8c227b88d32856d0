// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that a policy file may have, and what is said of others.

use thiserror::Error;

use super::Config;
use super::Time;
use crate::policy::fixed::MAX_SLICE;
use crate::policy::fixed::MIN_SLICE;

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

/// Is every value of the file called `name` in its range?
pub(super) fn check(config: &Config, name: &str) -> Result<(), ConfigError> {
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
    Ok(())
}

/// The parser's message without its picture of the line.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}
