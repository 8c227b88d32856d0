// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our estimator: the recent cycles as a distribution.
//!
//! Slices and gaps are judged apart, each by the last ten (setting `window`):
//!
//! * value: the median of the last five. Half as long a memory as the window,
//!   so that it lags a drift by two cycles only, and still two wild values in
//!   five cannot move it away from the rest.
//! * agreement: the share of the window within the tolerance of that value. It
//!   is the confidence; below the quorum the estimator abstains. Two patterns
//!   that alternate (a host tick, a second VM that comes and goes) share the
//!   window and stay below it.
//! * low and high: the window without its outermost tenth on each side, so one
//!   outlier does not widen them, two do.
//!
//! After a change the median follows within three cycles, the agreement within
//! eight of ten: the estimator abstains in between. A clean change is over
//! sooner: where a whole window had agreed before (the length was *settled*),
//! four cycles in a row that all contradict it and agree with each other are a
//! new pattern, and the old cycles are forgotten. We deliberately do NOT forget
//! them without that history: a bimodal host produces such runs all the time,
//! and abstaining costs a late PULL, while a false slice length costs a whole
//! gap. (Two lengths in random order: a false estimate in 6.7 % of the cycles,
//! against 6.2 % without this rule, and 9 % if a quorum were enough to settle.)

use units::Ns;
use units::Permille;

use super::Settings;
use super::SliceEstimator;
use crate::guest::view::Estimate;

/// Most cycles that can be remembered; a bound, so that an estimate needs no
/// allocation.
const CAPACITY: usize = 16;

/// How many of the last values decide the value.
const RECENT: usize = 5;

/// Cycles in a row that make a new pattern out of a settled one. 4: with fewer,
/// two outliers beside each other and a third that agrees by chance would do;
/// each one more is a cycle more in which the task is caught.
const CHANGE: usize = 4;

/// The recent cycles as a distribution, with a confidence; abstains when they
/// disagree.
#[derive(Clone, Debug)]
pub struct Distribution {
    on: Series,
    off: Series,
}

/// The lengths of one kind: slices or gaps.
#[derive(Clone, Debug)]
struct Series {
    settings: Settings,
    ring: Ring,
    /// What a whole window last agreed on, without an exception: the quorum alone
    /// is reached by chance too often on a bimodal host. `None` since the last
    /// change.
    settled: Option<Ns>,
    /// Computed at each cycle: estimates are read far more often.
    estimate: Option<Estimate>,
}

impl Distribution {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            on: Series::new(settings),
            off: Series::new(settings),
        }
    }
}

impl SliceEstimator for Distribution {
    fn observe(&mut self, on: Ns, off: Ns) {
        self.on.observe(on);
        self.off.observe(off);
    }

    fn slice(&self) -> Option<Estimate> {
        self.on.estimate
    }

    fn gap(&self) -> Option<Estimate> {
        self.off.estimate
    }
}

impl Series {
    fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            ring: Ring::new(settings.window.clamp(3, CAPACITY)),
            settled: None,
            estimate: None,
        }
    }

    fn observe(&mut self, length: Ns) {
        self.ring.push(length);
        if self.has_changed() {
            self.ring.forget_all_but(CHANGE);
            self.settled = None;
        }
        self.estimate = self.estimate();
        if let Some(estimate) = self.estimate
            && self.ring.is_full()
            && estimate.confidence == Permille::ONE
        {
            self.settled = Some(estimate.value);
        }
    }

    /// Not further from `value` than this agrees with it.
    fn tolerance(&self, value: Ns) -> Ns {
        value
            .scaled(u64::from(self.settings.tolerance.get()), 1000)
            .max(self.settings.tolerance_floor)
    }

    /// Do the last [`CHANGE`] cycles contradict what was settled, and agree with
    /// each other?
    fn has_changed(&self) -> bool {
        let Some(settled) = self.settled else {
            return false;
        };
        let (recent, count) = self.ring.last(CHANGE);
        let recent = &recent[..count];
        let value = median(recent);
        let far = self.tolerance(settled);
        let near = self.tolerance(value);
        count == CHANGE
            && recent
                .iter()
                .all(|length| length.abs_diff(settled) > far && length.abs_diff(value) <= near)
    }

    fn estimate(&self) -> Option<Estimate> {
        let seen = self.ring.len;
        if seen < self.settings.min_cycles.max(1) {
            return None;
        }
        let (recent, count) = self.ring.last(RECENT);
        let value = median(&recent[..count]);
        let tolerance = self.tolerance(value);
        let mut sorted = self.ring.values;
        let sorted = &mut sorted[..seen];
        sorted.sort_unstable();
        let agreeing = sorted
            .iter()
            .filter(|length| length.abs_diff(value) <= tolerance)
            .count();
        let confidence = Permille::of(Ns(agreeing as u64), Ns(seen as u64));
        if confidence < self.settings.quorum {
            return None;
        }
        let outside = seen / 10;
        Some(Estimate {
            value,
            // A drift can carry the recent median past the window's tenth.
            low: sorted[outside].min(value),
            high: sorted[seen - 1 - outside].max(value),
            confidence,
        })
    }
}

/// The last few lengths.
#[derive(Clone, Debug)]
struct Ring {
    values: [Ns; CAPACITY],
    /// How many are kept at most, 3..=CAPACITY.
    length: usize,
    /// How many there are.
    len: usize,
    /// Where the next one goes.
    next: usize,
}

impl Ring {
    const fn new(length: usize) -> Self {
        Self {
            values: [Ns::ZERO; CAPACITY],
            length,
            len: 0,
            next: 0,
        }
    }

    fn push(&mut self, value: Ns) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % self.length;
        self.len = (self.len + 1).min(self.length);
    }

    const fn is_full(&self) -> bool {
        self.len == self.length
    }

    /// The last `wanted` lengths, newest first, and how many there are.
    fn last(&self, wanted: usize) -> ([Ns; CAPACITY], usize) {
        let count = self.len.min(wanted);
        let mut last = [Ns::ZERO; CAPACITY];
        for (back, value) in last[..count].iter_mut().enumerate() {
            *value = self.values[(self.next + self.length - 1 - back) % self.length];
        }
        (last, count)
    }

    fn forget_all_but(&mut self, newest: usize) {
        let (last, count) = self.last(newest);
        *self = Self::new(self.length);
        for value in last[..count].iter().rev() {
            self.push(*value);
        }
    }
}

/// The median; of an even number, the smaller of the middle two: to expect the
/// end too early costs less than too late. Zero of none.
fn median(lengths: &[Ns]) -> Ns {
    let mut sorted = [Ns::ZERO; CAPACITY];
    let sorted = &mut sorted[..lengths.len()];
    sorted.copy_from_slice(lengths);
    sorted.sort_unstable();
    sorted
        .get(lengths.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(Ns::ZERO)
}
