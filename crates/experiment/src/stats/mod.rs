// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Honest statistics of few, noisy, paired measurements. Pure.
//!
//! # Approach
//! All arms of a round are measured one after the other, so an arm and the
//! baseline of the same round share the machine's mood: what is compared is
//! their *ratio*, round by round. The centre of the ratios is their geometric
//! mean (twice as fast and half as fast cancel), its uncertainty a percentile
//! bootstrap over the rounds.
//!
//! # Limits
//! A bootstrap of few values is too narrow: with `n` values it can never leave
//! `[min, max]`, which alone has a chance of `2^(1-n)` to miss the centre. So
//! there is no verdict below [`MIN_PAIRS_FOR_VERDICT`] pairs, however clear the
//! numbers look.

#[cfg(test)]
mod tests;

use std::fmt;

/// Pairs below which no verdict is given: with 5 the range of the values
/// already misses the centre with 6 %.
pub const MIN_PAIRS_FOR_VERDICT: usize = 5;

/// Ratios within this of 1 are the same for any practical purpose.
pub const SAME_WITHIN: f64 = 0.03;

/// The first and last baseline may differ by this before the run is flagged.
pub const DRIFT_LIMIT: f64 = 0.10;

/// Resamples of the bootstrap: enough for a stable second digit.
const RESAMPLES: usize = 4000;

/// Centre and spread of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Pairs it rests on.
    pub n: usize,
    /// Geometric mean of the paired ratios.
    pub centre: f64,
    /// 95 % interval; `None` below three pairs.
    pub interval: Option<(f64, f64)>,
}

/// What an interval allows to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of the interval is above 1.
    Better,
    /// All of it is below 1.
    Worse,
    /// All of it is within [`SAME_WITHIN`] of 1.
    Same,
    /// The interval allows more than one of these.
    Unclear,
    /// Fewer than [`MIN_PAIRS_FOR_VERDICT`] pairs.
    TooFew,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unclear => "unclear",
            Self::TooFew => "too few rounds",
        })
    }
}

/// The value below which a fraction `q` (0..=1) of the values lies, linearly
/// interpolated between neighbours; `None` without values.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let low = position.floor() as usize;
    let high = position.ceil() as usize;
    let part = position - low as f64;
    Some(sorted[low] + (sorted[high] - sorted[low]) * part)
}

/// Centre and spread; `None` without values.
#[must_use]
pub fn summarise(values: &[f64]) -> Option<Summary> {
    Some(Summary {
        n: values.len(),
        median: quantile(values, 0.5)?,
        min: quantile(values, 0.0)?,
        max: quantile(values, 1.0)?,
    })
}

/// The geometric mean of `arm / baseline` over pairs, with its bootstrap
/// interval. Pairs with a value that is not positive say nothing about a ratio
/// and are left out; `None` if none remains.
///
/// Deterministic: the same pairs give the same interval.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(arm, baseline)| *arm > 0.0 && *baseline > 0.0)
        .map(|(arm, baseline)| (arm / baseline).ln())
        .collect();
    let n = logs.len();
    if n == 0 {
        return None;
    }
    let mean = |sum: f64| sum / n as f64;
    let centre = mean(logs.iter().sum()).exp();
    let interval = (n >= 3)
        .then(|| {
            let mut random = SplitMix(0x5eed);
            let means: Vec<f64> = (0..RESAMPLES)
                .map(|_| mean((0..n).map(|_| logs[random.below(n)]).sum()))
                .collect();
            Some((
                quantile(&means, 0.025)?.exp(),
                quantile(&means, 0.975)?.exp(),
            ))
        })
        .flatten();
    Some(Ratio {
        n,
        centre,
        interval,
    })
}

impl Ratio {
    /// What the interval allows to say.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.interval {
            _ if self.n < MIN_PAIRS_FOR_VERDICT => Verdict::TooFew,
            None => Verdict::TooFew,
            Some((low, high)) if low >= 1.0 - SAME_WITHIN && high <= 1.0 + SAME_WITHIN => {
                Verdict::Same
            }
            Some((low, _)) if low > 1.0 => Verdict::Better,
            Some((_, high)) if high < 1.0 => Verdict::Worse,
            Some(_) => Verdict::Unclear,
        }
    }
}

/// How far a baseline moved between the start and the end of a run, as a
/// fraction of the first value; `None` if the first one is not positive.
#[must_use]
pub fn drift(first: f64, last: f64) -> Option<f64> {
    (first > 0.0).then(|| last / first - 1.0)
}

/// SplitMix64. Not a crate's generator, because those may change their
/// sequence between versions, and an old result must keep its interval.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be 0. The product's high half: its
    /// bias is `n / 2^64`.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}
