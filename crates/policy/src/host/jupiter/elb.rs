// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELB: the enhanced leaky bucket, "loan and borrow" (J16).
//!
//! Slices that a VM does not use are lost to it ("use it or lose it", J1). With a
//! bucket it may lend them. A lender raises its loan step by step and watches its
//! own degradation, measured as CPU utilisation; above 5 % the loan stops
//! growing. Among borrowers it prefers those that gain most: those with the
//! fewest conflicts according to RCR.

use units::Permille;

/// What the text fixes (5 %) and what it leaves open (J16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Degradation above which the loan stops growing: 50 permille.
    pub max_degradation: Permille,
    /// Growth of the loan per period, in thousandths of the lender's share. Open.
    /// 10.
    pub step: Permille,
    /// Largest loan. Open. 300.
    pub max_loan: Permille,
    /// What happens to the loan above the limit of degradation. Open; "stops
    /// growing" as published.
    pub above: Above,
}

/// J16: repayment is not stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// The loan stays as it is.
    Stays,
    /// It shrinks by one step per period.
    Shrinks,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_degradation: Permille::new(50),
            step: Permille::new(10),
            max_loan: Permille::new(300),
            above: Above::Stays,
        }
    }
}

/// One VM that lends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lender {
    loan: Permille,
    /// Its CPU utilisation before it lent anything.
    baseline: Option<Permille>,
}

impl Lender {
    /// What it lends, in thousandths of its share.
    #[must_use]
    pub fn loan(&self) -> Permille {
        self.loan
    }

    /// After a period in which it used this much of what it could (thousandths of
    /// its full share). The first one is the baseline.
    pub fn on_period(&mut self, utilisation: Permille, settings: &Settings) {
        let Some(baseline) = self.baseline else {
            self.baseline = Some(utilisation);
            return;
        };
        let lost = baseline.get().saturating_sub(utilisation.get());
        // (before - now) / before > 5 %, without a division.
        let limit = u32::from(baseline.get()) * u32::from(settings.max_degradation.get());
        if u32::from(lost) * 1000 <= limit {
            self.loan = Permille::new(self.loan.get() + settings.step.get())
                .min(settings.max_loan)
                // It never lends what it uses.
                .min(Permille::new(1000 - baseline.get().min(1000)).max(self.loan));
        } else if settings.above == Above::Shrinks {
            self.loan = Permille::new(self.loan.get().saturating_sub(settings.step.get()));
        }
    }

    /// Its load has changed for good: forget what it used before.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

/// The order in which borrowers are served: fewest conflicts first (J16), the
/// position among equals. Returns positions in `conflicts`.
#[must_use]
pub fn prefer(conflicts: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..conflicts.len()).collect();
    order.sort_by_key(|&vm| (conflicts[vm], vm));
    order
}

/// Who gets how much of `lent`: each borrower in the order of [`prefer`] as much
/// as it wants. Both in the same unit (nanoseconds of CPU time of a period).
#[must_use]
pub fn distribute(lent: u64, wants: &[u64], conflicts: &[u64]) -> Vec<u64> {
    let mut rest = lent;
    let mut got = vec![0; wants.len()];
    for vm in prefer(conflicts).into_iter().filter(|&vm| vm < wants.len()) {
        got[vm] = wants[vm].min(rest);
        rest -= got[vm];
    }
    got
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Uses 40 % of its share: the loan grows by one per cent a period to 30 %.
    #[test]
    fn the_loan_grows_while_the_lender_does_not_feel_it() {
        let settings = Settings::default();
        let mut lender = Lender::default();
        lender.on_period(Permille::new(400), &settings);
        assert_eq!(lender.loan(), Permille::ZERO);
        for period in 1..=5 {
            lender.on_period(Permille::new(400), &settings);
            assert_eq!(lender.loan(), Permille::new(10 * period));
        }
        for _ in 0..100 {
            lender.on_period(Permille::new(400), &settings);
        }
        assert_eq!(lender.loan(), settings.max_loan);
    }

    /// 5 % of 400 is 20: at 380 it still grows, at 379 it stops.
    #[test]
    fn above_five_percent_it_stops() {
        let settings = Settings::default();
        let mut lender = Lender::default();
        lender.on_period(Permille::new(400), &settings);
        lender.on_period(Permille::new(380), &settings);
        assert_eq!(lender.loan(), Permille::new(10));
        lender.on_period(Permille::new(379), &settings);
        assert_eq!(lender.loan(), Permille::new(10));
        let shrinks = Settings {
            above: Above::Shrinks,
            ..settings
        };
        lender.on_period(Permille::new(379), &shrinks);
        assert_eq!(lender.loan(), Permille::ZERO);
    }

    #[test]
    fn nobody_lends_what_it_uses() {
        let settings = Settings::default();
        let mut lender = Lender::default();
        for _ in 0..50 {
            lender.on_period(Permille::new(985), &settings);
        }
        assert_eq!(lender.loan(), Permille::new(15));
    }

    #[test]
    fn borrowers_with_few_conflicts_come_first() {
        assert_eq!(prefer(&[5, 0, 5, 2]), [1, 3, 0, 2]);
        assert_eq!(distribute(100, &[80, 30, 50], &[5, 0, 1]), [20, 30, 50]);
    }

    proptest! {
        #[test]
        fn no_more_is_borrowed_than_lent(
            lent in 0u64..1_000_000,
            vms in proptest::collection::vec((0u64..1_000_000, 0u64..9), 0..9),
        ) {
            let (wants, conflicts): (Vec<u64>, Vec<u64>) = vms.into_iter().unzip();
            let got = distribute(lent, &wants, &conflicts);
            let wanted: u64 = wants.iter().sum();
            prop_assert_eq!(got.iter().sum::<u64>(), lent.min(wanted));
            for (got, want) in got.iter().zip(&wants) {
                prop_assert!(got <= want);
            }
        }
    }
}
