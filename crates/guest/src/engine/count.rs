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
const MOVES: [&str; 5] = ["push", "pull", "soon-active", "completion", "spread"];
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
        Why::Spread => 4,
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
    /// Trimmed mean of this vCPU's moves, from its monitor's budget.
    pub(super) c_avg_ns: AtomicU64,
    pub(super) would_have_saved_ns: AtomicU64,
    pub(super) orders_dropped: AtomicU64,
    /// Moves that were not made because their time had passed.
    pub(super) orders_expired: AtomicU64,
    /// From a due slice timer to the end of the move that it asked for: the 90th
    /// percentile, tracked; zero before the first.
    reaction_ns: AtomicU64,
}

/// A reaction slower than this is not waited for: it would cost more of each
/// slice than a late move now and then.
pub(super) const SLOWEST_REACTION: Ns = Ns::from_us(1500);

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

    /// One move that a slice timer asked for was done after this time, or was
    /// overtaken by the end of the slice (`None`); `slowest` is [`SLOWEST_REACTION`] on this
    /// machine. One writer: this vCPU's mover.
    pub(super) fn reacted(&self, after: Option<Ns>, slowest: Ns) {
        let old = self.reaction_ns.load(Ordering::Relaxed);
        let step = old / 64 + 1_000;
        let new = match after {
            Some(after) if old == 0 => after.as_ns(),
            Some(after) if after.as_ns() <= old => old.saturating_sub(step),
            Some(_) | None => old + 9 * step,
        };
        let new = new.min(slowest.as_ns());
        self.reaction_ns.store(new, Ordering::Relaxed);
    }

    /// How long nine of ten moves take, from the timer to the end.
    pub(super) fn reaction(&self) -> Ns {
        Ns(self.reaction_ns.load(Ordering::Relaxed))
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

    /// C_avg over all vCPUs: each one's mean counts as often as it moved. What is
    /// assumed if nobody has moved yet.
    pub(super) fn c_avg(&self, assumed: Ns) -> Ns {
        let (mut sum, mut n) = (0u128, 0u128);
        for counters in self.0 {
            let moves = u128::from(counters.n_migrate.load(Ordering::Relaxed));
            sum += u128::from(counters.c_avg_ns.load(Ordering::Relaxed)) * moves;
            n += moves;
        }
        sum.checked_div(n)
            .map_or(assumed, |mean| Ns(u64::try_from(mean).unwrap_or(u64::MAX)))
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
    fn reaction_settles_where_nine_of_ten_are_faster() {
        let counters = Counters::default();
        for i in 0..5_000u64 {
            let slow = i % 10 == 0;
            counters.reacted(
                Some(Ns::from_us(if slow { 600 } else { 200 })),
                SLOWEST_REACTION,
            );
        }
        let reaction = counters.reaction();
        assert!(
            reaction >= Ns::from_us(190) && reaction <= Ns::from_us(620),
            "{reaction}"
        );
        for _ in 0..1_000 {
            counters.reacted(None, SLOWEST_REACTION);
        }
        assert_eq!(counters.reaction(), SLOWEST_REACTION);
    }

    #[test]
    fn c_avg_weighs_each_vcpu_by_its_moves() {
        let counters = [Counters::default(), Counters::default()];
        let assumed = Ns::from_us(300);
        assert_eq!(Totals(&counters).c_avg(assumed), assumed);
        for (counters, (moves, mean)) in counters.iter().zip([(3, 100), (1, 20)]) {
            counters.n_migrate.store(moves, Ordering::Relaxed);
            counters.c_avg_ns.store(mean, Ordering::Relaxed);
        }
        assert_eq!(Totals(&counters).c_avg(assumed), Ns(80));
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
