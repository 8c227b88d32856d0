// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that a policy file may have, and what is said of others.

use thiserror::Error;
use units::Ns;

use super::Config;
use super::Time;
use super::place;
use crate::policy::fixed::MAX_SLICE;
use crate::policy::fixed::MIN_SLICE;

/// Largest weight; Xen's.
pub const MAX_WEIGHT: u32 = 65_535;

/// Smallest and largest cap in per cent of one pCPU. Below 1 % of a period of 30 ms a
/// turn would be shorter than what switching costs.
pub const CAP_RANGE: std::ops::RangeInclusive<u32> = 1..=409_600;

/// Shortest and longest slice of a VM.
pub const SLICE_RANGE: std::ops::RangeInclusive<Ns> = MIN_SLICE..=MAX_SLICE;

/// Shortest and longest rescheduling latency. Below it, waking is all that a pCPU does.
pub const LATENCY_RANGE: std::ops::RangeInclusive<Ns> = Ns::from_us(100)..=MAX_SLICE;

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
    /// It is no TOML, or has a field or a value that does not exist.
    #[error("{at}: {what}")]
    Parse {
        /// The file, and the line if the parser knows it.
        at: String,
        /// The field, if it is in one, and what the parser said, in one line.
        what: String,
    },
    /// A value is out of range.
    #[error("{at}: {field} = {value}; use {right}")]
    Value {
        /// The file, and the line if the field has one of its own.
        at: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What would be right.
        right: String,
    },
}

/// Is every value of the file called `name`, which has this text, in its range?
pub(super) fn check(config: &Config, text: &str, name: &str) -> Result<(), ConfigError> {
    let nth = |field: &'static str, nth, value: String, right: String| ConfigError::Value {
        at: place::at(name, place::line_of(text, field, nth)),
        field,
        value,
        right,
    };
    let wrong = |field, value, right| nth(field, 0, value, right);
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
    for (number, vm) in config.vm.iter().enumerate() {
        if vm.pattern.is_empty() {
            return Err(nth(
                "vm.match",
                number,
                "\"\"".to_owned(),
                "a part of the VMM's command line".to_owned(),
            ));
        }
        for (field, value, range) in [
            ("vm.slice", vm.slice, SLICE_RANGE),
            ("vm.latency", vm.latency, LATENCY_RANGE),
        ] {
            if let Some(Time(value)) = value
                && !range.contains(&value)
            {
                let right = format!("{} to {}", range.start(), range.end());
                return Err(nth(field, number, value.to_string(), right));
            }
        }
        for (field, value, range) in [
            ("vm.weight", vm.weight, 1..=MAX_WEIGHT),
            ("vm.cap", vm.cap, CAP_RANGE),
        ] {
            if let Some(value) = value
                && !range.contains(&value)
            {
                let right = format!("{} to {}", range.start(), range.end());
                return Err(nth(field, number, value.to_string(), right));
            }
        }
    }
    Ok(())
}
