// SPDX-License-Identifier: Apache-2.0 OR MIT
//! C_avg, measured.

use units::Ns;

/// Samples that are remembered. Enough for a steady mean, few enough to follow
/// a change of load within a second at usual slice lengths.
const SAMPLES: usize = 32;

/// The share of the samples left out at each end: an eighth. A migration that
/// met a descheduled vCPU takes a whole gap; such a one is a failure of
/// placement, not the price of a migration, and must not make all moves look
/// dear.
const TRIM: usize = 8;

/// Mean cost of the last migrations, without the outermost eighth at each end.
#[derive(Clone, Debug)]
pub struct CostAverage {
    samples: [Ns; SAMPLES],
    len: usize,
    next: usize,
    mean: Option<Ns>,
}

impl CostAverage {
    /// No samples.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            samples: [Ns::ZERO; SAMPLES],
            len: 0,
            next: 0,
            mean: None,
        }
    }

    /// One migration took this long.
    pub fn add(&mut self, cost: Ns) {
        self.samples[self.next] = cost;
        self.next = (self.next + 1) % SAMPLES;
        self.len = (self.len + 1).min(SAMPLES);

        let mut sorted = self.samples;
        let sorted = &mut sorted[..self.len];
        sorted.sort_unstable();
        let trim = self.len / TRIM;
        let kept = &sorted[trim..self.len - trim];
        // In 128 bits: a sum of saturated durations must not look small.
        let sum: u128 = kept.iter().map(|cost| u128::from(cost.as_ns())).sum();
        self.mean = Some(Ns((sum / kept.len() as u128) as u64));
    }

    /// The trimmed mean; `None` without samples.
    #[must_use]
    pub const fn mean(&self) -> Option<Ns> {
        self.mean
    }
}

impl Default for CostAverage {
    fn default() -> Self {
        Self::new()
    }
}
