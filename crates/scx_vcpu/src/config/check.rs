// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that a policy file may have, and what is said of others.

use std::ops::RangeInclusive;

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
pub const CAP_RANGE: RangeInclusive<u32> = 1..=409_600;

/// Shortest and longest slice of a VM.
pub const SLICE_RANGE: RangeInclusive<Ns> = MIN_SLICE..=MAX_SLICE;

/// Shortest and longest rescheduling latency. Below it, waking is all that a pCPU does.
pub const LATENCY_RANGE: RangeInclusive<Ns> = Ns::from_us(100)..=MAX_SLICE;

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

/// How often load may be evened out: user space looks ten times a second, and after a minute
/// nobody would call it balanced.
const BALANCE_RANGE: RangeInclusive<Ns> = Ns::from_ms(100)..=Ns::from_secs(60);

/// Events per second and vCPU; more than an interrupt each microsecond no device raises.
const EVENTS_RANGE: RangeInclusive<u64> = 1..=1_000_000;

/// Seconds after which a class may change, to a quarter of an hour.
const PERIODS_RANGE: RangeInclusive<u64> = 1..=1000;

/// A field, its value, its range, and what 0 means where that is allowed too.
type TimeField = (
    &'static str,
    Option<Time>,
    RangeInclusive<Ns>,
    Option<&'static str>,
);

/// All times of all policies.
fn times(config: &Config) -> Vec<TimeField> {
    let slice = |field, time| (field, time, MIN_SLICE..=MAX_SLICE, None);
    let balance = |field, time| (field, time, BALANCE_RANGE, None);
    let (credit1, isacs) = (&config.credit1, &config.isacs);
    vec![
        slice("credit1.slice", credit1.slice),
        slice("credit1.boost_slice", credit1.boost_slice),
        slice("credit1.refill_period", credit1.refill_period),
        // A sleeper with more would have a pCPU for longer than any turn lasts.
        (
            "credit1.credit_limit",
            credit1.credit_limit,
            MIN_SLICE..=MAX_SLICE,
            Some(", or 0s for no limit"),
        ),
        slice("credit2.slice", config.credit2.slice),
        slice("credit2.default_credit", config.credit2.default_credit),
        balance("credit2.balance_period", config.credit2.balance_period),
        slice("vslicer.slice", config.vslicer.slice),
        slice("vslicer.micro", config.vslicer.micro),
        slice("ische.general_slice", config.ische.general_slice),
        slice("ische.io_slice", config.ische.io_slice),
        slice("isacs.slice", isacs.slice),
        slice("isacs.default_credit", isacs.default_credit),
        slice("isacs.cutoff", isacs.cutoff),
        (
            "isacs.boost_unit",
            isacs.boost_unit,
            Ns::ZERO..=MAX_SLICE,
            None,
        ),
        balance("isacs.balance_period", isacs.balance_period),
    ]
}

/// All numbers of all policies that have a range; no upper end is `u64::MAX`.
fn numbers(config: &Config) -> Vec<(&'static str, Option<u64>, RangeInclusive<u64>)> {
    let ische = &config.ische;
    let mut all = vec![(
        "ische.general_cores",
        ische.general_cores.map(|cores| cores as u64),
        1..=u64::MAX,
    )];
    if let Some(own) = &ische.automatic {
        all.extend([
            (
                "ische.automatic.events_per_s",
                own.events_per_s,
                EVENTS_RANGE,
            ),
            (
                "ische.automatic.cpu_max_permille",
                own.cpu_max_permille.map(u64::from),
                0..=1000,
            ),
            (
                "ische.automatic.periods",
                own.periods.map(u64::from),
                PERIODS_RANGE,
            ),
        ]);
    }
    all
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
    for (field, time, range, or) in times(config) {
        if let Some(Time(time)) = time
            && !range.contains(&time)
            && !(time == Ns::ZERO && or.is_some())
        {
            let right = format!("{} to {}{}", range.start(), range.end(), or.unwrap_or(""));
            return Err(wrong(field, time.to_string(), right));
        }
    }
    for (field, number, range) in numbers(config) {
        if let Some(number) = number
            && !range.contains(&number)
        {
            let right = match *range.end() {
                u64::MAX => format!("at least {}", range.start()),
                end => format!("{} to {end}", range.start()),
            };
            return Err(wrong(field, number.to_string(), right));
        }
    }
    let vslicer = config.vslicer.settings();
    if vslicer.micro > vslicer.slice {
        return Err(wrong(
            "vslicer.micro",
            vslicer.micro.to_string(),
            format!("{MIN_SLICE} to vslicer.slice, {}", vslicer.slice),
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
