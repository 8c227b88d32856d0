// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does something that should stay the same change steadily over a run?
//!
//! A machine warms up, a neighbour arrives, a disk fills. Rounds that interleave
//! all arms make that cancel in a ratio as long as no arm is always later than
//! the one it is compared with; how much does not cancel follows from the trend.
//!
//! The slope is Theil and Sen's (the median of the slopes between all pairs),
//! which one bad round does not move; whether it can be chance is Kendall's
//! question (how many pairs go up, how many down), answered exactly by counting
//! the orders of `n` values that are at least as steep.

use super::DRIFT_LIMIT;
use super::quantile;

/// Values below which a trend cannot be told from chance: all orders of four
/// that go straight up or down are 2 of 24, more than 5 %.
pub(super) const MIN_VALUES: usize = 5;

/// A steady change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Values it rests on.
    pub n: usize,
    /// Change of the logarithm per second.
    pub per_s: f64,
    /// Change from the first to the last value, as a fraction of the first.
    pub change: f64,
    /// Chance of a trend at least as clear if there is none; `None` below five
    /// values, where that chance is never small.
    pub p: Option<f64>,
}

impl Trend {
    /// Is it both large enough to matter and no chance?
    #[must_use]
    pub fn is_drift(&self) -> bool {
        self.change.abs() > DRIFT_LIMIT && self.p.is_some_and(|p| p < 0.05)
    }

    /// What it adds to the ratio of two values if the first is measured so many
    /// seconds after the second: 0.02 for two percent.
    #[must_use]
    pub fn bias(&self, seconds_later: f64) -> f64 {
        (self.per_s * seconds_later).exp() - 1.0
    }
}

/// The trend of positive values, each with its instant in seconds; `None` with
/// fewer than two instants.
#[must_use]
pub fn trend(values: &[(f64, f64)]) -> Option<Trend> {
    let mut logs: Vec<(f64, f64)> = values
        .iter()
        .filter(|(_, value)| *value > 0.0)
        .map(|(at, value)| (*at, value.ln()))
        .collect();
    logs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pairs = || {
        logs.iter()
            .enumerate()
            .flat_map(|(n, a)| logs[n + 1..].iter().map(move |b| (*a, *b)))
            .filter(|(a, b)| b.0 > a.0)
    };
    let slopes: Vec<f64> = pairs().map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect();
    let per_s = quantile(&slopes, 0.5)?;
    let span = logs.last()?.0 - logs.first()?.0;
    let score: i64 = pairs()
        .map(|(a, b)| i64::from(b.1 > a.1) - i64::from(b.1 < a.1))
        .sum();
    Some(Trend {
        n: logs.len(),
        per_s,
        change: (per_s * span).exp() - 1.0,
        p: (logs.len() >= MIN_VALUES).then(|| chance(logs.len(), score.unsigned_abs())),
    })
}

/// The share of all orders of `n` values in which the pairs that go up and those
/// that go down differ by at least `score`.
///
/// Orders by their number of inversions are the coefficients of
/// `1 (1 + x) (1 + x + x^2) ...`; the score is the pairs minus twice those.
fn chance(n: usize, score: u64) -> f64 {
    let mut orders = vec![1.0f64];
    for factor in 2..=n {
        let mut next = vec![0.0; orders.len() + factor - 1];
        for (inversions, count) in orders.iter().enumerate() {
            for more in 0..factor {
                next[inversions + more] += count;
            }
        }
        // As shares, which stay small where factorials would not.
        next.iter_mut().for_each(|count| *count /= factor as f64);
        orders = next;
    }
    let pairs = (orders.len() - 1) as i64;
    let as_steep = |inversions: usize| (pairs - 2 * inversions as i64).unsigned_abs() >= score;
    orders
        .iter()
        .enumerate()
        .filter(|(inversions, _)| as_steep(*inversions))
        .map(|(_, share)| share)
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_chance_of_known_orders() {
        // Of 3 values, 2 of the 6 orders go straight up or down.
        assert!((chance(3, 3) - 2.0 / 6.0).abs() < 1e-12);
        // Of 4: 2 of 24 with all 6 pairs one way, 6 more with 5 against 1.
        assert!((chance(4, 6) - 2.0 / 24.0).abs() < 1e-12);
        assert!((chance(4, 4) - 8.0 / 24.0).abs() < 1e-12);
        assert!((chance(5, 10) - 2.0 / 120.0).abs() < 1e-12);
        assert!((chance(9, 0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_steady_fall_is_a_drift() {
        // 3 % less every ten seconds, five times.
        let values: Vec<(f64, f64)> = (0..5)
            .map(|n| (f64::from(n) * 10.0, 1000.0 * 0.97f64.powi(n)))
            .collect();
        let trend = trend(&values).unwrap();
        assert!((trend.change - (0.97f64.powi(4) - 1.0)).abs() < 1e-12);
        assert!((trend.p.unwrap() - 2.0 / 120.0).abs() < 1e-12);
        assert!(trend.is_drift(), "11 % and no chance");
        assert!((trend.bias(10.0) + 0.03).abs() < 1e-12);
    }

    #[test]
    fn one_bad_round_is_no_drift() {
        let values = [
            (0.0, 100.0),
            (1.0, 101.0),
            (2.0, 40.0),
            (3.0, 99.0),
            (4.0, 100.0),
        ];
        let trend = trend(&values).unwrap();
        assert!(!trend.is_drift() && trend.change.abs() < 0.05, "{trend:?}");
    }

    #[test]
    fn too_few_to_tell() {
        assert_eq!(trend(&[(0.0, 5.0)]), None);
        assert_eq!(trend(&[(1.0, 5.0), (1.0, 6.0)]), None);
        let two = trend(&[(0.0, 100.0), (10.0, 50.0)]).unwrap();
        assert!((two.change + 0.5).abs() < 1e-12);
        assert!(two.p.is_none() && !two.is_drift());
    }

    proptest! {
        #[test]
        fn scaling_and_shifting_change_nothing(
            values in proptest::collection::vec(0.1f64..1e6, 5..9),
            scale in 0.01f64..100.0,
        ) {
            let at = |offset: f64, scale: f64| -> Vec<(f64, f64)> {
                values.iter().enumerate().map(|(n, v)| (n as f64 + offset, v * scale)).collect()
            };
            let (a, b) = (trend(&at(0.0, 1.0)).unwrap(), trend(&at(1000.0, scale)).unwrap());
            prop_assert!((a.per_s - b.per_s).abs() < 1e-6);
            prop_assert_eq!(a.p, b.p);
        }
    }
}
