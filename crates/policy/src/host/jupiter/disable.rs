// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Auto-disable: stay out of the way when the future cannot be predicted (J17,
//! J18).
//!
//! JUPITER's adjustments assume that a vCPU will want in the next period what it
//! wanted in this one. When that goes wrong several times in a row it stops
//! enforcing, goes on predicting, and comes back once it is right again.

use units::Ns;

/// All open; the counts are derived from the published timeline (J18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Wrong periods in a row that disable it: 5 (6.0 s to 6.5 s).
    pub misses: u32,
    /// Right periods in a row that enable it: 5 (7.1 s to 7.6 s).
    pub hits: u32,
    /// A vCPU's prediction is right within this part of the period: 100 permille.
    pub tolerance_permille: u64,
    /// A period is right if this part of the vCPUs was: 900 permille.
    pub right_permille: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            misses: 5,
            hits: 5,
            tolerance_permille: 100,
            right_permille: 900,
        }
    }
}

/// Whether to enforce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    enabled: bool,
    /// Periods in a row that spoke against the present state.
    against: u32,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            enabled: true,
            against: 0,
        }
    }
}

impl Switch {
    /// Enforce in the next period?
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// After a period of this length: CPU time of each vCPU as predicted and as
    /// it was. True if the state has changed.
    pub fn on_period(
        &mut self,
        predicted: &[Ns],
        actual: &[Ns],
        period: Ns,
        settings: &Settings,
    ) -> bool {
        let right = was_right(predicted, actual, period, settings);
        if right == self.enabled {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = if self.enabled {
            settings.misses
        } else {
            settings.hits
        };
        if self.against < needed {
            return false;
        }
        self.enabled = !self.enabled;
        self.against = 0;
        true
    }
}

/// Was the prediction of a period right? Without vCPUs it was.
#[must_use]
pub fn was_right(predicted: &[Ns], actual: &[Ns], period: Ns, settings: &Settings) -> bool {
    let tolerance = period.scaled(settings.tolerance_permille, 1000);
    let n = predicted.len().min(actual.len());
    let right = predicted
        .iter()
        .zip(actual)
        .filter(|(p, a)| p.abs_diff(**a) <= tolerance)
        .count();
    right * 1000 >= n * settings.right_permille
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(switch: &mut Switch, right: bool) -> bool {
        let predicted = [Ns::from_ms(50); 4];
        let actual = if right {
            [Ns::from_ms(58); 4]
        } else {
            [Ns::from_ms(90); 4]
        };
        switch.on_period(&predicted, &actual, Ns::from_ms(100), &Settings::default())
    }

    /// The published timeline (J18): disturbed from 6.0 s, disabled at 6.5 s;
    /// right from 7.1 s, enforcing from 7.6 s on.
    #[test]
    fn the_published_timeline() {
        let mut switch = Switch::default();
        let mut changes = Vec::new();
        // The period that ends at t, in units of 100 ms.
        for t in 50..90 {
            let right = !(61..=71).contains(&t);
            if period(&mut switch, right) {
                changes.push((t, switch.is_enabled()));
            }
        }
        assert_eq!(changes, [(65, false), (76, true)]);
    }

    #[test]
    fn a_single_miss_is_forgiven() {
        let mut switch = Switch::default();
        for t in 0..100 {
            period(&mut switch, t % 5 == 0);
            // Four misses, then a hit: never five in a row.
            assert!(switch.is_enabled());
        }
    }

    #[test]
    fn one_vcpu_in_ten_may_be_wrong() {
        let mut actual = [Ns::from_ms(50); 10];
        let right = |actual: &[Ns]| {
            was_right(
                &[Ns::from_ms(50); 10],
                actual,
                Ns::from_ms(100),
                &Settings::default(),
            )
        };
        actual[3] = Ns::ZERO;
        assert!(right(&actual));
        actual[4] = Ns::ZERO;
        assert!(!right(&actual));
    }
}
