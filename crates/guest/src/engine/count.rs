// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters, one set per vCPU so that no two vCPUs share a cache line for them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use policy::guest::view::Skip;
use policy::guest::view::Why;
use units::Ns;

/// What woke a thread, in the order of [`WAKEUPS`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Wakeup {
    Bell,
    Timer,
    Heartbeat,
    Mover,
    Control,
}

const WAKEUPS: [&str; 5] = ["bell", "slice-timer", "heartbeat", "mover", "control"];
const MOVES: [&str; 4] = ["push", "pull", "soon-active", "completion"];
const SKIPS: [&str; 7] = [
    "current-on-descheduled",
    "not-allowed",
    "no-better-vcpu",
    "back-soon",
    "unstable",
    "at-completion",
    "budget",
];
/// Buckets of the lag histogram: bucket i counts lags below 2^i us.
const LAGS: usize = 24;

fn why_index(why: Why) -> usize {
    match why {
        Why::Push => 0,
        Why::Pull => 1,
        Why::SoonActive => 2,
        Why::Completion => 3,
    }
}

/// The index of a skip in the counters.
pub(super) fn skip_index(skip: Skip) -> usize {
    match skip {
        Skip::CurrentOnDescheduled => 0,
        Skip::NotAllowed => 1,
        Skip::NoBetterVcpu => 2,
        Skip::BackSoon => 3,
        Skip::Unstable => 4,
        Skip::AtCompletion => 5,
        Skip::Budget => 6,
    }
}

/// One vCPU's counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    wakeups: [AtomicU64; WAKEUPS.len()],
    moves: [AtomicU64; MOVES.len()],
    skips: [AtomicU64; SKIPS.len()],
    lags: [AtomicU64; LAGS],
    pub(super) timers_armed: AtomicU64,
    pub(super) n_min: AtomicU64,
    pub(super) n_migrate: AtomicU64,
    pub(super) cost_ns: AtomicU64,
    pub(super) would_have_saved_ns: AtomicU64,
    pub(super) orders_dropped: AtomicU64,
}

impl Counters {
    pub(super) fn woke(&self, by: Wakeup) {
        self.wakeups[by as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn moved(&self, why: Why) {
        self.moves[why_index(why)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self, skip: Skip) {
        self.skips[skip_index(skip)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lagged(&self, lag: Ns) {
        let bucket = (64 - (lag.as_ns() / 1_000).leading_zeros()) as usize;
        self.lags[bucket.min(LAGS - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Sums over all vCPUs.
pub(super) struct Totals<'a>(pub(super) &'a [Counters]);

impl Totals<'_> {
    fn named<const N: usize>(
        &self,
        names: [&str; N],
        of: impl Fn(&Counters) -> &[AtomicU64; N],
    ) -> BTreeMap<String, u64> {
        names
            .iter()
            .enumerate()
            .map(|(i, name)| ((*name).to_owned(), self.sum(|c| &of(c)[i])))
            .collect()
    }

    pub(super) fn sum(&self, of: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.0.iter().map(|c| of(c).load(Ordering::Relaxed)).sum()
    }

    pub(super) fn wakeups(&self) -> BTreeMap<String, u64> {
        self.named(WAKEUPS, |c| &c.wakeups)
    }

    pub(super) fn moves(&self) -> BTreeMap<String, u64> {
        self.named(MOVES, |c| &c.moves)
    }

    pub(super) fn skips(&self) -> BTreeMap<String, u64> {
        self.named(SKIPS, |c| &c.skips)
    }

    /// An upper bound of the 99th percentile of the lags.
    pub(super) fn lag_p99(&self) -> Ns {
        let counts: Vec<u64> = (0..LAGS).map(|i| self.sum(|c| &c.lags[i])).collect();
        let wanted = counts.iter().sum::<u64>().saturating_mul(99).div_ceil(100);
        let mut seen = 0;
        for (i, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && wanted > 0 {
                return Ns::from_us(1 << i);
            }
        }
        Ns::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_percentile_is_an_upper_bound() {
        let counters = [Counters::default(), Counters::default()];
        for _ in 0..98 {
            counters[0].lagged(Ns::from_us(3));
        }
        counters[1].lagged(Ns::from_us(100));
        counters[1].lagged(Ns::from_us(100));
        assert_eq!(Totals(&counters).lag_p99(), Ns::from_us(128));
        assert_eq!(Totals(&[]).lag_p99(), Ns::ZERO);
    }

    #[test]
    fn totals_add_up_over_vcpus() {
        let counters = [Counters::default(), Counters::default()];
        counters[0].moved(Why::Push);
        counters[1].moved(Why::Push);
        counters[1].skipped(Skip::Budget);
        assert_eq!(Totals(&counters).moves()["push"], 2);
        assert_eq!(Totals(&counters).skips()["budget"], 1);
    }
}
