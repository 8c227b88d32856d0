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
//! A percentile bootstrap of few values is too narrow: its resamples spread by
//! `sqrt((n-1)/n)` less than the values do, and it knows nothing of Student's t.
//! So the percentiles are moved outwards by both (Hesterberg 2015, The American
//! Statistician 69(4), section 3.3: the *expanded percentile interval*): for 5
//! values 0.1 % and 99.9 % instead of 2.5 % and 97.5 %. Even so it cannot leave
//! `[min, max]` of the values, and with 5 of them covers the centre in 88 % of
//! all cases only. The interval of a ratio is therefore on each side the wider one
//! of that and Student's: the bootstrap sees what is not normal, Student's t what
//! few values cannot show. With normal errors that covers 95 % (a test measures
//! it). Below [`MIN_PAIRS_FOR_VERDICT`] pairs there is no verdict, however clear
//! the numbers look.
//!
//! Nothing here is random: the same values give the same interval, on every
//! machine and with every version of every library.

mod bootstrap;
mod student;
mod trend;

#[cfg(test)]
mod tests;

use std::fmt;

use bootstrap::interval;
use bootstrap::interval_of_two;
pub use trend::Trend;
pub use trend::trend;

/// Pairs below which no verdict is given: with 5 the range of the values
/// already misses the centre with 6 %.
pub const MIN_PAIRS_FOR_VERDICT: usize = 5;

/// Ratios within this of 1 are the same for any practical purpose.
pub const SAME_WITHIN: f64 = 0.03;

/// The first and last baseline may differ by this before the run is flagged.
pub const DRIFT_LIMIT: f64 = 0.10;

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
    /// 95 % interval of the median; `None` below three values.
    pub interval: Option<(f64, f64)>,
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
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

/// The same of values in ascending order.
fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
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
        interval: interval(values, |values| quantile(values, 0.5).unwrap_or(0.0)),
    })
}

/// The arithmetic mean; zero without values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
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
    let intervals = [interval(&logs, mean), student::interval(&logs)];
    ratio_of(logs.len(), mean(&logs), widest(intervals))
}

/// The ratio of the geometric means of two sets that share nothing, such as two
/// runs: `b / a`. Values that are not positive are left out; `None` if nothing
/// remains on one side.
#[must_use]
pub fn independent_ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let logs = |values: &[f64]| -> Vec<f64> {
        let positive = values.iter().filter(|value| **value > 0.0);
        positive.map(|value| value.ln()).collect()
    };
    let (a, b) = (logs(a), logs(b));
    let difference = |a: &[f64], b: &[f64]| mean(b) - mean(a);
    let n = a.len().min(b.len());
    let intervals = [
        interval_of_two(&a, &b, difference),
        student::interval_of_difference(&a, &b),
    ];
    ratio_of(n, difference(&a, &b), widest(intervals))
}

/// What contains both; `None` if there are not both.
fn widest(intervals: [Option<(f64, f64)>; 2]) -> Option<(f64, f64)> {
    let [Some(a), Some(b)] = intervals else {
        return None;
    };
    Some((a.0.min(b.0), a.1.max(b.1)))
}

/// From logarithms.
fn ratio_of(n: usize, centre: f64, interval: Option<(f64, f64)>) -> Option<Ratio> {
    (n > 0).then(|| Ratio {
        n,
        centre: centre.exp(),
        interval: interval.map(|(low, high)| (low.exp(), high.exp())),
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
