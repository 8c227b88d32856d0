// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completed requests, cut to a window and counted.

use anyhow::Context;
use experiment::result::Latency;
use experiment::result::Series;
use hdrhistogram::Histogram;
use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Time;

use super::Window;

/// One completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// When the thread saw it.
    pub(crate) at: Time,
    /// Since its submission.
    pub(crate) latency: Ns,
}

/// Requests done in a window, all threads together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Requests completed per second.
    pub ops_per_s: f64,
    /// From just before the submission until the thread saw the completion.
    pub latency: Latency,
    /// Over time, if that was asked for.
    #[serde(default)]
    pub series: Option<Series>,
}

impl Counted {
    /// Counts those within the window, in pieces of `bucket` if one is given.
    pub(crate) fn of(
        records: impl IntoIterator<Item = Vec<Done>>,
        window: Window,
        bucket: Option<Ns>,
    ) -> anyhow::Result<Self> {
        let within: Vec<Done> = records
            .into_iter()
            .flatten()
            .filter(|done| window.contains(done.at))
            .collect();
        Ok(Self {
            ops_per_s: within.len() as f64 / window.length().as_secs_f64(),
            latency: percentiles(within.iter().map(|done| done.latency))?,
            series: bucket.map(|bucket| series(&within, window, bucket)),
        })
    }
}

fn series(within: &[Done], window: Window, bucket: Ns) -> Series {
    let buckets = window.length().0.div_ceil(bucket.0.max(1));
    let mut ops = vec![0; usize::try_from(buckets).unwrap_or(0)];
    for done in within {
        let index = done.at.since(window.from).0 / bucket.0.max(1);
        if let Some(n) = usize::try_from(index).ok().and_then(|i| ops.get_mut(i)) {
            *n += 1;
        }
    }
    Series { bucket, ops }
}

/// Latency percentiles of some requests; all zero without any.
pub(crate) fn percentiles(latencies: impl Iterator<Item = Ns>) -> anyhow::Result<Latency> {
    // 1 ns to 100 s with three digits: about 200 KiB.
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).context("histogram bounds")?;
    for latency in latencies {
        histogram.saturating_record(latency.0);
    }
    let at = |quantile| Ns(histogram.value_at_quantile(quantile));
    Ok(Latency {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: Ns(histogram.max()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_latencies() {
        let latency = percentiles((1..=1000).map(Ns::from_us)).unwrap();
        let close = |got: Ns, us: u64| got.abs_diff(Ns::from_us(us)).0 < us * 2;
        assert!(close(latency.p50, 500), "{latency:?}");
        assert!(close(latency.p99, 990), "{latency:?}");
        assert!(close(latency.max, 1000), "{latency:?}");
        assert_eq!(percentiles(std::iter::empty()).unwrap(), Latency::default());
    }

    #[test]
    fn only_the_window_counts_and_its_pieces_add_up() {
        let window = Window {
            from: Time(Ns::from_ms(100).0),
            to: Time(Ns::from_ms(350).0),
        };
        let done = |ms| Done {
            at: Time(Ns::from_ms(ms).0),
            latency: Ns::from_us(7),
        };
        let records = [
            vec![done(99), done(100), done(199)],
            vec![done(310), done(350)],
        ];
        let counted = Counted::of(records, window, Some(Ns::from_ms(100))).unwrap();
        assert!((counted.ops_per_s - 3.0 / 0.25).abs() < 1e-9);
        assert_eq!(counted.series.unwrap().ops, [2, 0, 1]);
    }
}
