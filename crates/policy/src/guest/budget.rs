// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is a migration worth what it costs?
//!
//! The performance model of the published system (section 2.5 of its rules),
//! for a VM of which one vCPU always runs:
//!
//! ```text
//! Speedup = N * T_ns / (T_ns + N_migrate * C_avg)                          (1)
//! N_min   = T_ns / T_ts
//! Speedup = N / (1 + (N_migrate * C_avg) / (N_min * T_ts))                 (2)
//! P       = N_migrate / N_min
//! ```
//!
//! T_ns: run time on a dedicated pCPU; N: vCPUs per pCPU; C_avg: mean cost of a
//! migration; T_ts: slice length; N_min: the fewest migrations that can do, one
//! per slice end.
//!
//! In the daemon, [`Budget`] holds P down with a token bucket that is filled by
//! slice ends (so its rate is a multiple of the rate of N_min, without a clock)
//! and measures C_avg; a move whose gain does not pay for it is refused.

use units::Ns;

mod cost;
mod model;

pub use cost::CostAverage;
pub use model::Ratio;
pub use model::n_min;
pub use model::p_cost;
pub use model::p_count;
pub use model::speedup;
pub use model::speedup_by_slices;

/// Thousandths of a token, the unit in which the bucket counts.
const TOKEN: u64 = 1000;

/// What the migrations of this VM may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Moves allowed per slice end of a vCPU with an I/O-bound task, and per
    /// such task, in thousandths: the bound on P. 2000: one PUSH, and one PULL
    /// if the push went wrong; published loads have P between 1.02 and 1.35.
    /// Zero: no limit, as published.
    pub per_slice_end: u32,
    /// Moves that may be saved up. 32: a phase change of a busy VM moves every
    /// I/O-bound task at once, before any slice has ended.
    pub burst: u32,
    /// A move must gain this many times C_avg, in thousandths. 1000: it must
    /// at least pay for itself. Zero: always worth it, as published.
    pub worth: u32,
    /// C_avg until one has been measured. 300 us: the middle of what a
    /// migration to a busy vCPU costs (0.1..0.5 ms; the published means are
    /// 0.87..2.16 ms with an older kernel and a slower migrater).
    pub assumed_cost: Ns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            per_slice_end: 2000,
            burst: 32,
            worth: 1000,
            assumed_cost: Ns::from_us(300),
        }
    }
}

impl Settings {
    /// As published: the model explains the cost, nothing limits it.
    #[must_use]
    pub fn published() -> Self {
        Self {
            per_slice_end: 0,
            worth: 0,
            ..Self::default()
        }
    }
}

/// Does a move that gains `gain` pay for a migration that costs `c_avg`?
#[must_use]
pub fn worth_it(gain: Ns, c_avg: Ns) -> bool {
    gain > c_avg
}

/// The migration budget of one VM: counts, cost and tokens.
#[derive(Clone, Debug)]
pub struct Budget {
    settings: Settings,
    /// In thousandths of a token.
    tokens: u64,
    cost: CostAverage,
    n_migrate: u64,
    n_min: u64,
}

impl Budget {
    /// A full bucket and no measurements.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            tokens: u64::from(settings.burst) * TOKEN,
            settings: settings.clone(),
            cost: CostAverage::new(),
            n_migrate: 0,
            n_min: 0,
        }
    }

    /// A slice ended on a vCPU with `tasks` I/O-bound tasks (or would have, had
    /// they not left): each of them needed one move. This fills the bucket.
    pub fn slice_ended(&mut self, tasks: u32) {
        self.n_min += u64::from(tasks);
        let earned = u64::from(self.settings.per_slice_end).saturating_mul(u64::from(tasks));
        self.tokens = self
            .tokens
            .saturating_add(earned)
            .min(u64::from(self.settings.burst) * TOKEN);
    }

    /// Takes a token for one move; false if there is none, and then the move
    /// must not be made.
    #[must_use]
    pub fn take(&mut self) -> bool {
        if self.settings.per_slice_end == 0 {
            return true;
        }
        match self.tokens.checked_sub(TOKEN) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }

    /// Gives a token back: the move was not made after all.
    pub fn give_back(&mut self) {
        self.tokens = (self.tokens + TOKEN).min(u64::from(self.settings.burst) * TOKEN);
    }

    /// A migration was made and took this long.
    pub fn migrated(&mut self, cost: Ns) {
        self.n_migrate += 1;
        self.cost.add(cost);
    }

    /// C_avg as measured; the assumed cost before the first measurement.
    #[must_use]
    pub fn c_avg(&self) -> Ns {
        self.cost.mean().unwrap_or(self.settings.assumed_cost)
    }

    /// Does a move that gains `gain` pay, with the measured C_avg and the
    /// `worth` setting?
    #[must_use]
    pub fn worth_it(&self, gain: Ns) -> bool {
        self.settings.worth == 0
            || worth_it(
                gain,
                self.c_avg().scaled(u64::from(self.settings.worth), 1000),
            )
    }

    /// N_migrate so far.
    #[must_use]
    pub const fn n_migrate(&self) -> u64 {
        self.n_migrate
    }

    /// N_min so far: slices that ended under an I/O-bound task, per task.
    #[must_use]
    pub const fn n_min(&self) -> u64 {
        self.n_min
    }

    /// P = N_migrate / N_min; `None` before the first slice end.
    #[must_use]
    pub fn p(&self) -> Option<Ratio> {
        p_count(self.n_migrate, self.n_min)
    }

    /// Whole moves that the bucket allows now.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens / TOKEN
    }
}

#[cfg(test)]
mod tests;
