// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked of the freezer: how long each CPU stays, how long it is away,
//! and how the CPUs' phases lie.
//!
//! Phases must sweep. CPUs with equal periods lock their phases, and the share of
//! time in which at least one of them is on is then anything between the best and
//! the worst case, by luck. So the plans made here give each CPU a slightly
//! different period: `on` and `off` grow in proportion, which leaves the share of
//! each CPU as it was asked.

mod file;
#[cfg(test)]
mod tests;

use std::fmt::Display;

use units::CpuSet;
use units::Ns;
use units::VcpuId;

pub use file::FileError;

use crate::MAX_GAP;

/// Shortest slice. Below it the interrupts themselves would eat the slice.
pub const MIN_ON: Ns = Ns::from_us(200);
/// Longest slice.
pub const MAX_ON: Ns = Ns::from_secs(10);
/// Shortest gap: a few times the usual lateness of a timer interrupt.
pub const MIN_OFF: Ns = Ns::from_us(100);
/// Longest gap that can be asked for; [`MAX_GAP`] leaves room above it.
pub const MAX_OFF: Ns = Ns::from_ms(400);
/// How much longer than that of the first CPU the period of the last CPU is, in
/// thousandths, if nothing else is said: the phase of the last one passes through
/// a whole period of the first in 20 periods.
pub const DEFAULT_SWEEP_PERMILLE: u32 = 50;
/// Largest sweep, in thousandths of a period.
pub const MAX_SWEEP_PERMILLE: u32 = 500;
/// All CPUs may always be off at once for this long, unless the owner sets a
/// limit himself.
pub const USUAL_ALL_OFF_LIMIT: Ns = Ns::from_ms(100);

/// A plan for a set of CPUs, valid by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    lanes: Vec<Lane>,
}

/// The plan of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Which CPU.
    pub cpu: VcpuId,
    /// Length of its very first slice, counted from the start: sets the phase.
    pub first_on: Ns,
    /// What follows.
    pub pattern: Pattern,
}

/// Slices and gaps of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every slice and every gap alike.
    Fixed(Pair),
    /// Recorded ones, over and over.
    Recorded(Vec<Pair>),
}

/// A slice and the gap that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pair {
    /// Length of the slice.
    pub on: Ns,
    /// Length of the gap.
    pub off: Ns,
}

impl Pair {
    /// Slice and gap together.
    #[must_use]
    pub fn period(&self) -> Ns {
        self.on + self.off
    }
}

/// What is wrong with a plan: the field, its value, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; allowed: {allowed}")]
pub struct PlanError {
    /// Which field.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The values that it may have.
    pub allowed: String,
}

impl PlanError {
    pub(crate) fn new(field: impl Display, value: impl Display, allowed: impl Display) -> Self {
        Self {
            field: field.to_string(),
            value: value.to_string(),
            allowed: allowed.to_string(),
        }
    }
}

impl Plan {
    /// Each CPU is shared by `vms` VMs (2..=16) whose slices are `slice` long:
    /// `slice` on, `(vms - 1) * slice` off, phases spread evenly at the start and
    /// sweeping by [`DEFAULT_SWEEP_PERMILLE`].
    ///
    /// # Errors
    /// If `vms`, `slice` or the gap that they make is out of range, or `cpus` is
    /// empty.
    pub fn shared(vms: u32, slice: Ns, cpus: &CpuSet) -> Result<Self, PlanError> {
        Self::shared_swept(vms, slice, DEFAULT_SWEEP_PERMILLE, cpus)
    }

    /// As [`Plan::shared`], with a sweep as for [`Plan::fixed`].
    ///
    /// # Errors
    /// If a value or the gap that they make is out of range, or `cpus` is empty.
    pub fn shared_swept(
        vms: u32,
        slice: Ns,
        sweep_permille: u32,
        cpus: &CpuSet,
    ) -> Result<Self, PlanError> {
        if !(2..=16).contains(&vms) {
            return Err(PlanError::new("vms", vms, "2..=16"));
        }
        Self::fixed(slice, slice * u64::from(vms - 1), sweep_permille, cpus)
    }

    /// `on` and `off` for every CPU; the period of the last CPU is longer by
    /// `sweep_permille` thousandths than that of the first, the others lie
    /// between. The first CPU gets exactly what is asked. 0 locks the phases.
    ///
    /// # Errors
    /// If a length or the sweep is out of range, or `cpus` is empty.
    pub fn fixed(on: Ns, off: Ns, sweep_permille: u32, cpus: &CpuSet) -> Result<Self, PlanError> {
        if sweep_permille > MAX_SWEEP_PERMILLE {
            return Err(PlanError::new(
                "sweep",
                format!("{sweep_permille} permille"),
                format!("0..={MAX_SWEEP_PERMILLE} permille"),
            ));
        }
        let count = u64::from(cpus.len());
        let steps = 1000 * count.saturating_sub(1).max(1);
        let lanes = cpus
            .iter()
            .zip(0u64..)
            .map(|(cpu, nth)| {
                let longer = steps + nth * u64::from(sweep_permille);
                let pair = Pair {
                    on: on.scaled(longer, steps),
                    off: off.scaled(longer, steps),
                };
                // Evenly spread over the period, none of them ending before a
                // minimal slice or later than any first slice may.
                let first_on = pair.on + pair.period().scaled(nth, count);
                let first_on = first_on.clamp(MIN_ON, MAX_ON + MAX_OFF);
                Lane {
                    cpu,
                    first_on,
                    pattern: Pattern::Fixed(pair),
                }
            })
            .collect();
        Self::new(lanes)
    }

    /// Recorded slices and gaps, replayed over and over; the first slice of each
    /// CPU is the first of its record.
    ///
    /// # Errors
    /// If a length is out of range, a record is empty or there is none.
    pub fn recorded(records: Vec<(VcpuId, Vec<Pair>)>) -> Result<Self, PlanError> {
        let lanes = records
            .into_iter()
            .map(|(cpu, pairs)| Lane {
                cpu,
                first_on: pairs.first().map_or(Ns::ZERO, |pair| pair.on),
                pattern: Pattern::Recorded(pairs),
            })
            .collect();
        Self::new(lanes)
    }

    /// Any plan.
    ///
    /// # Errors
    /// If it has no CPU or one CPU twice, a record is empty, or a length is out of
    /// range: on [`MIN_ON`]..=[`MAX_ON`], off [`MIN_OFF`]..=[`MAX_OFF`].
    pub fn new(mut lanes: Vec<Lane>) -> Result<Self, PlanError> {
        if lanes.is_empty() {
            return Err(PlanError::new("cpus", "empty", "at least one CPU"));
        }
        lanes.sort_by_key(|lane| lane.cpu);
        for pair in lanes.windows(2) {
            if let [a, b] = pair
                && a.cpu == b.cpu
            {
                return Err(PlanError::new(
                    "cpus",
                    format!("CPU {} twice", a.cpu),
                    "each CPU once",
                ));
            }
        }
        for lane in &lanes {
            lane.check()?;
        }
        Ok(Self { lanes })
    }

    /// The CPUs' plans, in ascending order of CPU.
    #[must_use]
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The CPUs in the plan.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.lanes.iter().map(|lane| lane.cpu).collect()
    }

    /// How long all CPUs may be off at once under this plan, if the owner sets no
    /// limit: [`USUAL_ALL_OFF_LIMIT`], or the longest time for which the plan
    /// itself can ask for it and a tenth more, at most [`MAX_GAP`].
    #[must_use]
    pub fn all_off_limit(&self) -> Ns {
        // All are off at once no longer than the CPU with the shortest gaps.
        let longest = self
            .lanes
            .iter()
            .map(Lane::longest_off)
            .min()
            .unwrap_or_default();
        longest.scaled(11, 10).max(USUAL_ALL_OFF_LIMIT).min(MAX_GAP)
    }

    /// Periods that fit into `span` on the busiest CPU, for sizing the log.
    pub(crate) fn periods_within(&self, span: Ns) -> u64 {
        let shortest = self
            .lanes
            .iter()
            .map(|lane| lane.mean().period())
            .min()
            .unwrap_or(Ns(1));
        span.0 / shortest.0.max(1)
    }
}

impl Lane {
    /// The slices and gaps, at least one pair.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        match &self.pattern {
            Pattern::Fixed(pair) => std::slice::from_ref(pair),
            Pattern::Recorded(pairs) => pairs,
        }
    }

    fn longest_off(&self) -> Ns {
        self.pairs()
            .iter()
            .map(|pair| pair.off)
            .max()
            .unwrap_or_default()
    }

    /// The mean slice and the mean gap.
    #[must_use]
    pub fn mean(&self) -> Pair {
        let count = self.pairs().len() as u64;
        Pair {
            on: self.pairs().iter().map(|pair| pair.on).sum::<Ns>() / count,
            off: self.pairs().iter().map(|pair| pair.off).sum::<Ns>() / count,
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.pairs().is_empty() {
            return Err(PlanError::new(
                format_args!("pairs of CPU {}", self.cpu),
                "empty",
                "at least one slice and gap",
            ));
        }
        let within = |field: &str, value: Ns, low: Ns, high: Ns| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(PlanError::new(
                format_args!("{field} of CPU {}", self.cpu),
                value,
                format_args!("{low} to {high}"),
            ))
        };
        for pair in self.pairs() {
            within("on", pair.on, MIN_ON, MAX_ON)?;
            within("off", pair.off, MIN_OFF, MAX_OFF)?;
        }
        within("first_on", self.first_on, MIN_ON, MAX_ON + MAX_OFF)
    }
}
