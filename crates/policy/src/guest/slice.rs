// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long will a vCPU run on, and when will it be back (V9..V12)?
//!
//! The host gives a vCPU slices with gaps between them. A [`Timeline`] per vCPU
//! is told each gap when the vCPU is back; it works out the slice before it and
//! hands both to a [`SliceEstimator`]. With the names of V9: t2 and t6 are
//! `back`s, t5 is an `out`, t7 is now, and
//!
//! ```text
//! slice     = t5 - t2      gap = t6 - t5
//! used      = t7 - t6      remaining = slice - used
//! ```
//!
//! Two estimators: [`LastValue`] is the published rule (V10), [`Distribution`]
//! is ours. The published one is exact while slices are stable and wrong, with
//! full confidence, for one cycle after each irregular one; ours needs four
//! cycles for a clean change and at most ten for one with outliers in it
//! (thirteen where one of them could be of either kind), says how sure it is,
//! and abstains meanwhile.

use units::Ns;
use units::Permille;
use units::Time;

use crate::guest::view::Estimate;
use crate::guest::view::VcpuState;
use crate::guest::view::Window;

mod distribution;
mod last_value;

pub use distribution::Distribution;
pub use last_value::LastValue;

/// Predicts a vCPU's slices and gaps from those it has had.
pub trait SliceEstimator: Send {
    /// One whole cycle: a slice of length `on`, then a gap of length `off`.
    fn observe(&mut self, on: Ns, off: Ns);

    /// The length of the present slice; `None` to abstain.
    fn slice(&self) -> Option<Estimate>;

    /// The length of the next (or present) gap; `None` to abstain.
    fn gap(&self) -> Option<Estimate>;

    /// The same of a slice that has lasted for `used`, where slices may have one of several
    /// lengths: the shortest that it can still have.
    fn slice_after(&self, used: Ns) -> Option<Length> {
        let _ = used;
        self.slice().map(Length::only)
    }

    /// The same of a gap that has lasted for `away`.
    fn gap_after(&self, away: Ns) -> Option<Length> {
        let _ = away;
        self.gap().map(Length::only)
    }
}

/// One of the lengths that slices or gaps have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// It.
    pub estimate: Estimate,
    /// Longer ones have been seen as well.
    pub longer: bool,
}

impl Length {
    /// The only one.
    #[must_use]
    pub const fn only(estimate: Estimate) -> Self {
        Self {
            estimate,
            longer: false,
        }
    }
}

/// What counts as a gap, and when slices count as stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Gaps shorter than this do not end a slice. 200 us: interrupts, softirqs
    /// and short kernel threads of the host stay below it, while the shortest
    /// slice a host gives to a competing vCPU (0.75 ms in old CFS, 3 ms in
    /// EEVDF) is well above. Published: zero, the monitor's tolerance does it.
    pub min_gap: Ns,
    /// Cycles that [`Distribution`] remembers, 3..=16. 10: one outlier then is the
    /// tenth that `low` and `high` leave out; more would slow down the recovery
    /// after a change with outliers in it (V25), which takes as many cycles.
    pub window: usize,
    /// Cycles without which it abstains. 3: two equal slices may be luck, and
    /// PULL works meanwhile.
    pub min_cycles: usize,
    /// Agreeing with the estimate means: not further from it than this share of
    /// it. 200: slices of a tick-driven host vary by a tick, and a spread of
    /// that size is covered by the push margin, not by abstaining.
    pub tolerance: Permille,
    /// ... or than this, whichever is more. 300 us: one published heartbeat
    /// period, the error of a gap's end when nothing better is there (V11).
    pub tolerance_floor: Ns,
    /// The share of the remembered cycles that must agree. 800: two odd cycles
    /// in ten are outliers, three are another pattern.
    pub quorum: Permille,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            min_gap: Ns::from_us(200),
            window: 10,
            min_cycles: 3,
            tolerance: Permille::new(200),
            tolerance_floor: Ns::from_us(300),
            quorum: Permille::new(800),
        }
    }
}

impl Settings {
    /// As published: every gap counts. The rest does not matter to
    /// [`LastValue`], the published estimator.
    #[must_use]
    pub fn published() -> Self {
        Self {
            min_gap: Ns::ZERO,
            ..Self::default()
        }
    }
}

/// One vCPU's slices and gaps, as they come.
pub struct Timeline {
    estimator: Box<dyn SliceEstimator>,
    min_gap: Ns,
    /// Start of the present slice, moved on by the short gaps within it.
    since: Time,
    /// The slice's start was seen and it was not cut by an idle period: its
    /// length is a slice length.
    whole: bool,
    /// Slice ends seen.
    gaps: u64,
    /// Time between `out` and `back` of all gaps, short ones too.
    stolen: Ns,
}

impl Timeline {
    /// A vCPU that has been running at least since `since` (in practice: the
    /// moment from which it has been watched).
    #[must_use]
    pub fn new(estimator: Box<dyn SliceEstimator>, settings: &Settings, since: Time) -> Self {
        Self {
            estimator,
            min_gap: settings.min_gap,
            since,
            whole: false,
            gaps: 0,
            stolen: Ns::ZERO,
        }
    }

    /// The vCPU was away from `out` to `back` and runs again. Call this at each
    /// resume; the instants may be exact (steal page) or quantised (heartbeat).
    ///
    /// A gap shorter than `min_gap` is noise on the host, not a slice end. The
    /// host charges a vCPU for the time that it ran, so the slice goes on where
    /// it was: its start moves on by the length of the gap. Leaving the start
    /// alone would make the rest of the slice look used up; restarting the
    /// slice would split it.
    ///
    /// A gap that ends before the present slice began, or that is empty, is
    /// ignored: two sources may report the same gap.
    pub fn gap(&mut self, out: Time, back: Time) {
        if back <= out || back <= self.since {
            return;
        }
        let off = back.since(out);
        self.stolen += off;
        if off < self.min_gap {
            self.since = self.since + off;
            return;
        }
        self.gaps += 1;
        let on = out.since(self.since);
        if self.whole && on > Ns::ZERO {
            self.estimator.observe(on, off);
        }
        self.since = back;
        self.whole = true;
    }

    /// The guest halted the vCPU and it was woken at `until`. The host counts
    /// no slice while a vCPU sleeps, and may give it a fresh one: the present
    /// slice's length says nothing about the next, so it is not observed, and
    /// its end is unknown.
    pub fn idled(&mut self, until: Time) {
        if until > self.since {
            self.since = until;
        }
        self.whole = false;
    }

    /// Start of the present slice (t6), moved on by the short gaps within it, so
    /// that `now - running_since()` is the time used.
    #[must_use]
    pub const fn running_since(&self) -> Time {
        self.since
    }

    /// The vCPU's state, given that it runs at `now`.
    ///
    /// Where its slices have several lengths the shortest that this one can still have counts,
    /// and unless that is the longest, what comes after it is unknown: it may be no gap. So a
    /// task leaves for a vCPU that runs, which costs nothing if the slice goes on, and does not
    /// wait for one that is away (V12).
    #[must_use]
    pub fn state_running(&self, now: Time) -> VcpuState {
        let length = self.length(now);
        let sure = length.is_none_or(|length| !length.longer);
        let gap = self.estimator.gap_after(Ns::ZERO).filter(|_| sure);
        VcpuState::Running {
            since: self.since,
            ends: length.map(|length| window(self.since, &length.estimate)),
            gap: gap.map(|gap| gap.estimate.value),
        }
    }

    /// The vCPU's state at `now`, given that it was taken away at `since`.
    #[must_use]
    pub fn state_descheduled(&self, since: Time, now: Time) -> VcpuState {
        let gap = self.estimator.gap_after(now.since(since));
        VcpuState::Descheduled {
            since,
            back: gap.map(|gap| window(since, &gap.estimate)),
        }
    }

    /// What is left of the present slice at `now` (V9); zero if it should be
    /// over, `None` if the estimator abstains.
    #[must_use]
    pub fn remaining(&self, now: Time) -> Option<Ns> {
        let length = self.length(now)?;
        Some((self.since + length.estimate.value).since(now))
    }

    /// From when on the present slice is one of the longer ones, if there are any: what
    /// [`Timeline::state_running`] says changes then, and nothing else tells of it.
    #[must_use]
    pub fn longer_from(&self, now: Time) -> Option<Time> {
        let length = self.length(now).filter(|length| length.longer)?;
        Some(self.since + length.estimate.high + Ns(1))
    }

    /// The estimated slice length.
    #[must_use]
    pub fn slice(&self) -> Option<Estimate> {
        self.estimator.slice()
    }

    /// The estimated gap length.
    #[must_use]
    pub fn gap_estimate(&self) -> Option<Estimate> {
        self.estimator.gap()
    }

    /// The share of its time that the host lets the vCPU run: slice of slice and gap.
    /// `None` if the estimator abstains on either.
    #[must_use]
    pub fn share(&self) -> Option<Permille> {
        let (slice, gap) = (self.slice()?.value, self.gap_estimate()?.value);
        Some(Permille::of(slice, slice + gap))
    }

    /// Slice ends seen so far.
    #[must_use]
    pub const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Time away so far, in long and short gaps.
    #[must_use]
    pub const fn stolen(&self) -> Ns {
        self.stolen
    }

    /// The present slice's, as far as it is known at `now`.
    fn length(&self, now: Time) -> Option<Length> {
        let used = now.since(self.since);
        self.estimator.slice_after(used).filter(|_| self.whole)
    }
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline")
            .field("since", &self.since)
            .field("slice", &self.slice())
            .field("gap", &self.gap_estimate())
            .field("gaps", &self.gaps)
            .field("stolen", &self.stolen)
            .finish_non_exhaustive()
    }
}

fn window(start: Time, length: &Estimate) -> Window {
    Window {
        earliest: start + length.low,
        expected: start + length.value,
        latest: start + length.high,
    }
}

#[cfg(test)]
mod tests;
