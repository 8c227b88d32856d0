// SPDX-License-Identifier: Apache-2.0 OR MIT

use proptest::prelude::*;

use super::*;

#[test]
fn quantiles_of_known_values() {
    let values = [4.0, 1.0, 3.0, 2.0];
    assert_eq!(quantile(&values, 0.5), Some(2.5));
    assert_eq!(quantile(&values, 0.0), Some(1.0));
    assert_eq!(quantile(&values, 1.0), Some(4.0));
    assert_eq!(quantile(&values, 1.0 / 3.0), Some(2.0));
    assert_eq!(quantile(&[], 0.5), None);
    assert_eq!(
        summarise(&[3.0, 9.0, 5.0]),
        Some(Summary {
            n: 3,
            median: 5.0,
            min: 3.0,
            max: 9.0,
            // Three values leave room for nothing narrower than themselves.
            interval: Some((3.0, 9.0)),
        })
    );
    assert_eq!(summarise(&[3.0, 9.0]).unwrap().interval, None);
}

#[test]
fn twice_and_half_cancel() {
    let ratio = paired_ratio(&[(2.0, 1.0), (1.0, 2.0)]).unwrap();
    assert!((ratio.centre - 1.0).abs() < 1e-12);
    assert_eq!(ratio.interval, None, "two pairs have no interval");
}

#[test]
fn equal_ratios_have_a_point_interval_however_the_baseline_drifts() {
    let ratio = paired_ratio(&[
        (15.0, 10.0),
        (30.0, 20.0),
        (3.0, 2.0),
        (1.5, 1.0),
        (6.0, 4.0),
    ])
    .unwrap();
    let (low, high) = ratio.interval.unwrap();
    for value in [ratio.centre, low, high] {
        assert!((value - 1.5).abs() < 1e-9, "{ratio:?}");
    }
    assert_eq!(ratio.verdict(), Verdict::Better);
}

#[test]
fn the_interval_of_a_known_sample_is_the_t_interval() {
    // ln ratios 0.1, 0.2 .. 0.9: mean 0.5, standard error 0.0913, and Student's
    // 97.5 % with 8 degrees of freedom is 2.306: 0.5 +- 0.2105.
    let pairs: Vec<(f64, f64)> = (1..=9)
        .map(|i| ((f64::from(i) / 10.0).exp(), 1.0))
        .collect();
    let ratio = paired_ratio(&pairs).unwrap();
    let (low, high) = ratio.interval.unwrap();
    assert!((ratio.centre.ln() - 0.5).abs() < 1e-12);
    assert!((low.ln() - 0.2895).abs() < 0.001, "{}", low.ln());
    assert!((high.ln() - 0.7105).abs() < 0.001, "{}", high.ln());
    // The bootstrap alone says nearly the same, but cannot leave the values.
    let logs: Vec<f64> = pairs.iter().map(|pair| pair.0.ln()).collect();
    let (low, high) = interval(&logs, mean).unwrap();
    assert!(
        (low - 0.29).abs() < 0.03 && (high - 0.71).abs() < 0.03,
        "{low} {high}"
    );
}

#[test]
fn percentiles_move_outwards_with_few_values() {
    // normal_cdf(-sqrt(5/4) * 2.776) = normal_cdf(-3.104) = 0.00095
    assert!((bootstrap::tail(5).unwrap() - 0.000_955).abs() < 0.000_01);
    // normal_cdf(-sqrt(9/8) * 2.306) = normal_cdf(-2.446) = 0.00722
    assert!((bootstrap::tail(9).unwrap() - 0.007_22).abs() < 0.000_05);
    assert!((bootstrap::tail(100_000).unwrap() - 0.025).abs() < 0.000_01);
    assert_eq!(bootstrap::tail(2), None);
}

/// Normal errors around a known centre: how often does the interval of a ratio
/// contain it?
#[test]
fn intervals_cover_what_they_promise() {
    const RUNS: usize = 200;
    let mut random = bootstrap::SplitMix(1);
    let mut normal = || {
        // Box and Muller.
        let mut unit = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let (u, v) = (1.0 - unit(), unit());
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    };
    let covered = (0..RUNS)
        .filter(|_| {
            let pairs: Vec<(f64, f64)> = (0..5).map(|_| (normal().exp(), 1.0)).collect();
            let (low, high) = paired_ratio(&pairs).unwrap().interval.unwrap();
            low <= 1.0 && 1.0 <= high
        })
        .count();
    // 95 % of 200, give or take two standard deviations of that count.
    assert!(covered >= 184, "{covered} of {RUNS}");
}

#[test]
fn two_runs_are_compared_without_pairing() {
    // Geometric means 2 and 6; the order within a run does not matter.
    let (a, b) = ([1.0, 2.0, 4.0], [12.0, 3.0, 6.0]);
    let ratio = independent_ratio(&a, &b).unwrap();
    assert!((ratio.centre - 3.0).abs() < 1e-12);
    let (low, high) = ratio.interval.unwrap();
    // Both spread by ln 2, so the standard error is ln 2 * sqrt(2/3), with 4
    // degrees of freedom: a factor of exp(2.7764 * 0.5660) = 4.813.
    assert!((low - 3.0 / 4.813).abs() < 0.01 && (high - 3.0 * 4.813).abs() < 0.05);
    let inverse = independent_ratio(&b, &a).unwrap();
    assert!((inverse.centre * ratio.centre - 1.0).abs() < 1e-12);
    assert_eq!(independent_ratio(&a, &[0.0]), None);
    assert_eq!(ratio.verdict(), Verdict::TooFew);
}

#[test]
fn verdicts_follow_the_interval_and_never_the_centre() {
    let of = |n, interval| {
        Ratio {
            n,
            centre: 1.4,
            interval: Some(interval),
        }
        .verdict()
    };
    assert_eq!(of(9, (1.1, 1.8)), Verdict::Better);
    assert_eq!(of(9, (0.9, 1.8)), Verdict::Unclear);
    assert_eq!(of(9, (0.5, 0.9)), Verdict::Worse);
    assert_eq!(of(9, (0.98, 1.02)), Verdict::Same);
    assert_eq!(of(9, (1.01, 1.02)), Verdict::Same);
    assert_eq!(of(4, (1.3, 1.5)), Verdict::TooFew);
}

#[test]
fn pairs_without_a_ratio_are_left_out() {
    assert_eq!(paired_ratio(&[(0.0, 1.0), (1.0, 0.0)]), None);
    assert_eq!(paired_ratio(&[(0.0, 1.0), (3.0, 2.0)]).unwrap().n, 1);
}

#[test]
fn drift_is_relative_to_the_first() {
    assert!((drift(100.0, 89.0).unwrap() + 0.11).abs() < 1e-12);
    assert_eq!(drift(0.0, 5.0), None);
}

proptest! {
    // Each case draws ten thousand resamples, twice.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_interval_contains_its_centre_and_a_bootstrap_no_more_than_its_values(
        ratios in proptest::collection::vec(0.01f64..100.0, 3..12)
    ) {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|r| (*r, 1.0)).collect();
        let ratio = paired_ratio(&pairs).unwrap();
        let (low, high) = ratio.interval.unwrap();
        let min = ratios.iter().copied().fold(f64::MAX, f64::min);
        let max = ratios.iter().copied().fold(0.0, f64::max);
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let (least, most) = interval(&logs, mean).unwrap();
        prop_assert!(min.ln() <= least + 1e-9 && most <= max.ln() + 1e-9);
        prop_assert!(low.ln() <= least + 1e-9 && most <= high.ln() + 1e-9);
        prop_assert!(low <= ratio.centre * 1.000_001 && ratio.centre <= high * 1.000_001);
        prop_assert_eq!(paired_ratio(&pairs).unwrap(), ratio);
    }

    #[test]
    fn quantiles_are_monotone(values in proptest::collection::vec(-1e6f64..1e6, 1..30), a in 0f64..1.0, b in 0f64..1.0) {
        let (a, b) = (a.min(b), a.max(b));
        prop_assert!(quantile(&values, a) <= quantile(&values, b));
    }
}
