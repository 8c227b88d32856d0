// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bootstrap: what the centre might as well have been.

use statrs::distribution::ContinuousCDF;
use statrs::distribution::Normal;
use statrs::distribution::StudentsT;

use super::quantile_of_sorted;

/// Enough that the outermost percentile in use, 0.1 % with five values, rests on
/// ten resamples.
const RESAMPLES: usize = 10_000;

/// Values below which no interval is given: two say nothing about their spread.
const MIN_VALUES: usize = 3;

/// Any seed: the interval is a property of the values.
const SEED: u64 = 0x5eed;

/// The 95 % interval of a statistic of some values; `None` below three.
pub(super) fn interval(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Option<(f64, f64)> {
    let tail = tail(values.len())?;
    let mut random = SplitMix(SEED);
    let mut sample = values.to_vec();
    let resampled = (0..RESAMPLES)
        .map(|_| {
            random.draw(values, &mut sample);
            statistic(&sample)
        })
        .collect();
    between(resampled, tail)
}

/// The same of two sets that share nothing, each resampled by itself.
pub(super) fn interval_of_two(
    a: &[f64],
    b: &[f64],
    statistic: impl Fn(&[f64], &[f64]) -> f64,
) -> Option<(f64, f64)> {
    // The degrees of freedom are at least those of the smaller set (Welch).
    let tail = tail(a.len().min(b.len()))?;
    let mut random = SplitMix(SEED);
    let (mut from_a, mut from_b) = (a.to_vec(), b.to_vec());
    let resampled = (0..RESAMPLES)
        .map(|_| {
            random.draw(a, &mut from_a);
            random.draw(b, &mut from_b);
            statistic(&from_a, &from_b)
        })
        .collect();
    between(resampled, tail)
}

/// What lies between the tails.
fn between(mut resampled: Vec<f64>, tail: f64) -> Option<(f64, f64)> {
    resampled.sort_unstable_by(f64::total_cmp);
    let at = |q| quantile_of_sorted(&resampled, q);
    Some((at(tail)?, at(1.0 - tail)?))
}

/// The lower percentile of the expanded interval of `n` values:
/// `normal_cdf(sqrt(n / (n - 1)) * student_quantile(0.025, n - 1))`.
pub(super) fn tail(n: usize) -> Option<f64> {
    if n < MIN_VALUES {
        return None;
    }
    let n = n as f64;
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let normal = Normal::new(0.0, 1.0).ok()?;
    Some(normal.cdf((n / (n - 1.0)).sqrt() * student.inverse_cdf(0.025)))
}

/// SplitMix64. Not a crate's generator, because those may change their
/// sequence between versions, and an old result must keep its interval.
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    /// As many values as there are, each one any of them.
    fn draw(&mut self, values: &[f64], sample: &mut [f64]) {
        for one in sample {
            *one = values[self.below(values.len())];
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be 0. The product's high half: its
    /// bias is `n / 2^64`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}
