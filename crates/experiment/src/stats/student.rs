// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Student's t: exact for normal errors, however few.

use statrs::distribution::ContinuousCDF;
use statrs::distribution::StudentsT;

use super::mean;

/// Values below which no interval is given, as in the bootstrap.
const MIN_VALUES: usize = 3;

/// The 95 % interval of the mean.
pub(super) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < MIN_VALUES {
        return None;
    }
    let half = quantile(values.len() as f64 - 1.0)? * error(values);
    let centre = mean(values);
    Some((centre - half, centre + half))
}

/// The 95 % interval of the difference of two means, `b - a`, whose values may
/// spread differently (Welch).
pub(super) fn interval_of_difference(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    if a.len().min(b.len()) < MIN_VALUES {
        return None;
    }
    let (of_a, of_b) = (error(a).powi(2), error(b).powi(2));
    let both = of_a + of_b;
    let part = |error: f64, n: usize| error.powi(2) / (n as f64 - 1.0);
    let freedom = both.powi(2) / (part(of_a, a.len()) + part(of_b, b.len()));
    let centre = mean(b) - mean(a);
    // Values that do not spread at all have no degrees of freedom, and no error.
    let half = if both > 0.0 {
        quantile(freedom)? * both.sqrt()
    } else {
        0.0
    };
    Some((centre - half, centre + half))
}

/// The standard error of the mean.
fn error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

/// The 97.5 % quantile.
fn quantile(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_quantiles() {
        for (freedom, wanted) in [(2.0, 4.3027), (4.0, 2.7764), (8.0, 2.3060), (30.0, 2.0423)] {
            assert!((quantile(freedom).unwrap() - wanted).abs() < 1e-4);
        }
    }

    #[test]
    fn known_intervals() {
        // 1..5: mean 3, standard error sqrt(2.5 / 5).
        let (low, high) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let half = 2.7764 * 0.5f64.sqrt();
        assert!((low - (3.0 - half)).abs() < 1e-3 && (high - (3.0 + half)).abs() < 1e-3);
        assert_eq!(interval(&[1.0, 2.0]), None);
        // Equal spreads and sizes: as many degrees of freedom as both have, and a
        // standard error of sqrt(2 * 2.5 / 5).
        let a = [1.0, 2.0, 3.0, 4.0, 5.0];
        let (low, high) = interval_of_difference(&a, &a.map(|v| v + 10.0)).unwrap();
        assert!((low - (10.0 - 2.3060)).abs() < 1e-3 && (high - (10.0 + 2.3060)).abs() < 1e-3);
        assert_eq!(
            interval_of_difference(&[2.0; 3], &[5.0; 3]),
            Some((3.0, 3.0))
        );
    }
}
