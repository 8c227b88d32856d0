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
//! eight of ten: the estimator abstains in between. We deliberately do NOT
//! forget the old cycles as soon as a few new ones agree: a bimodal host
//! produces such runs all the time, and abstaining costs a late PULL, while a
//! false slice length costs a whole gap.

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

/// The recent cycles as a distribution, with a confidence; abstains when they
/// disagree.
#[derive(Clone, Debug)]
pub struct Distribution {
    settings: Settings,
    on: Ring,
    off: Ring,
    /// Computed at each cycle: estimates are read far more often.
    slice: Option<Estimate>,
    gap: Option<Estimate>,
}

impl Distribution {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let length = settings.window.clamp(3, CAPACITY);
        Self {
            settings: settings.clone(),
            on: Ring::new(length),
            off: Ring::new(length),
            slice: None,
            gap: None,
        }
    }

    fn estimate(&self, ring: &Ring) -> Option<Estimate> {
        let seen = ring.len;
        if seen < self.settings.min_cycles.max(1) {
            return None;
        }
        let value = ring.recent_median();
        let tolerance = value
            .scaled(u64::from(self.settings.tolerance.get()), 1000)
            .max(self.settings.tolerance_floor);
        let mut sorted = ring.values;
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

impl SliceEstimator for Distribution {
    fn observe(&mut self, on: Ns, off: Ns) {
        self.on.push(on);
        self.off.push(off);
        self.slice = self.estimate(&self.on);
        self.gap = self.estimate(&self.off);
    }

    fn slice(&self) -> Option<Estimate> {
        self.slice
    }

    fn gap(&self) -> Option<Estimate> {
        self.gap
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

    /// The median of the last [`RECENT`]; of an even number, the smaller of the
    /// middle two: to expect the end too early costs less than too late.
    fn recent_median(&self) -> Ns {
        let count = self.len.min(RECENT);
        let mut recent = [Ns::ZERO; RECENT];
        for (back, value) in recent[..count].iter_mut().enumerate() {
            *value = self.values[(self.next + self.length - 1 - back) % self.length];
        }
        let recent = &mut recent[..count];
        recent.sort_unstable();
        recent
            .get(count.saturating_sub(1) / 2)
            .copied()
            .unwrap_or(Ns::ZERO)
    }
}
