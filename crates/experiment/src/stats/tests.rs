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
            max: 9.0
        })
    );
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
fn the_interval_of_a_known_sample_is_close_to_the_t_interval() {
    // ln ratios 0.1, 0.2 .. 0.9 have mean 0.5 and standard error 0.0913; the
    // bootstrap's is 0.0861 (it divides by n, not n - 1): 0.5 +- 1.96 * 0.0861.
    let pairs: Vec<(f64, f64)> = (1..=9)
        .map(|i| ((f64::from(i) / 10.0).exp(), 1.0))
        .collect();
    let ratio = paired_ratio(&pairs).unwrap();
    let (low, high) = ratio.interval.unwrap();
    assert!((ratio.centre.ln() - 0.5).abs() < 1e-12);
    assert!((low.ln() - 0.331).abs() < 0.02, "{}", low.ln());
    assert!((high.ln() - 0.669).abs() < 0.02, "{}", high.ln());
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
    #[test]
    fn an_interval_lies_within_the_values_and_around_the_centre(
        ratios in proptest::collection::vec(0.01f64..100.0, 3..20)
    ) {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|r| (*r, 1.0)).collect();
        let ratio = paired_ratio(&pairs).unwrap();
        let (low, high) = ratio.interval.unwrap();
        let min = ratios.iter().copied().fold(f64::MAX, f64::min);
        let max = ratios.iter().copied().fold(0.0, f64::max);
        prop_assert!(min * 0.999_999 <= low && high <= max * 1.000_001);
        prop_assert!(low <= ratio.centre * 1.000_001 && ratio.centre <= high * 1.000_001);
        prop_assert_eq!(paired_ratio(&pairs).unwrap(), ratio);
    }

    #[test]
    fn quantiles_are_monotone(values in proptest::collection::vec(-1e6f64..1e6, 1..30), a in 0f64..1.0, b in 0f64..1.0) {
        let (a, b) = (a.min(b), a.max(b));
        prop_assert!(quantile(&values, a) <= quantile(&values, b));
    }
}
