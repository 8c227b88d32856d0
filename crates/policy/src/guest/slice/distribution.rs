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
//!
//! A whole window that does not agree may still have two or three *lengths*, each seen twice or
//! more: VMs of unequal weights have turns of one slice or of two (Credit2 with 3 : 2 gives 10,
//! 20, 10, 20 ms), and policies that boost have more of the kind. Which comes next is not
//! guessed. A slice that has lasted for less than the shortest may end there; one that has
//! lasted longer is one of the others.

use units::Ns;
use units::Permille;

use super::Length;
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

/// Lengths that slices can have at the same time; with more, nothing is known.
const LENGTHS: usize = 3;

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
    /// Where they do not agree on one: all that they have, the shortest first.
    lengths: [Option<Estimate>; LENGTHS],
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

    fn slice_after(&self, used: Ns) -> Option<Length> {
        self.on.after(used)
    }

    fn gap_after(&self, away: Ns) -> Option<Length> {
        self.off.after(away)
    }
}

impl Series {
    fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            ring: Ring::new(settings.window.clamp(3, CAPACITY)),
            settled: None,
            estimate: None,
            lengths: [None; LENGTHS],
        }
    }

    fn observe(&mut self, length: Ns) {
        self.ring.push(length);
        if self.has_changed() {
            self.ring.forget_all_but(CHANGE);
            self.settled = None;
        }
        self.estimate = self.estimate();
        self.lengths = match self.estimate {
            None => self.lengths().unwrap_or_default(),
            Some(_) => [None; LENGTHS],
        };
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

    /// The length of one that has lasted for so long.
    fn after(&self, so_far: Ns) -> Option<Length> {
        if let Some(estimate) = self.estimate {
            return Some(Length::only(estimate));
        }
        let mut lengths = self.lengths.iter().flatten().peekable();
        loop {
            let estimate = *lengths.next()?;
            let longer = lengths.peek().is_some();
            // Longer than all: it should be over.
            if so_far <= estimate.high || !longer {
                return Some(Length { estimate, longer });
            }
        }
    }

    /// The lengths of a whole window, if it has a few: each at least twice, and all but
    /// exceptions of one of them. Told apart by half the tolerance: with all of it three of them
    /// cover most of what slices without a pattern can be (1 to 30 ms at random: 116 windows of
    /// 400 instead of 20, in the median of 256 seeds).
    fn lengths(&self) -> Option<[Option<Estimate>; LENGTHS]> {
        if !self.ring.is_full() {
            return None;
        }
        let mut sorted = self.ring.values;
        let sorted = &mut sorted[..self.ring.len];
        sorted.sort_unstable();
        let seen = sorted.len();
        let mut groups = [None; LENGTHS];
        let (mut count, mut agreeing) = (0, 0);
        let mut rest: &[Ns] = sorted;
        while let Some(first) = rest.first() {
            // What agrees with the middle of what agrees with the shortest.
            let near = |value: Ns| {
                let far = Ns(self.tolerance(value).as_ns() / 2);
                rest.iter()
                    .take_while(|length| length.abs_diff(value) <= far)
                    .count()
            };
            let value = median(&rest[..near(*first)]);
            let (group, others) = rest.split_at(near(value).max(1));
            rest = others;
            if group.len() < 2 {
                continue;
            }
            *groups.get_mut(count)? = Some(Estimate {
                value,
                low: group[0],
                high: group[group.len() - 1],
                confidence: Permille::of(Ns(group.len() as u64), Ns(seen as u64)),
            });
            count += 1;
            agreeing += group.len();
        }
        let agreement = Permille::of(Ns(agreeing as u64), Ns(seen as u64));
        (count > 1 && agreement >= self.settings.quorum).then_some(groups)
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
