// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often may a vCPU's monitor look, by a heartbeat (V7) or for another reason, and
//! when is a beat late (V8)?
//!
//! The published period is fixed, 300 us. A monitor runs before ordinary tasks, so
//! where a look costs more than that (an emulated vCPU, a nested one, a build without
//! optimisation) looks take all of the vCPU, and nobody else runs on it, the rest of
//! the daemon included. Each beat is late, too, and taken for the end of a gap.
//! [`Pace`] lengthens the period to a multiple of what a look costs, and by the same
//! factor the lateness that is let pass: what makes looks dear delays timers. For
//! looks that something else asks for it says how long to rest after one.

use units::Ns;

/// A look may take one part of the time in so many.
const PARTS: u64 = 4;

/// Of a cost this part in so many is learnt at each look.
const LEARN: u64 = 8;

/// The pace of one vCPU's monitor.
#[derive(Clone, Debug)]
pub struct Pace {
    period: Ns,
    tolerance: Ns,
    /// Of the last look.
    last: Ns,
    /// Smoothed.
    cost: Ns,
}

impl Pace {
    /// `period` (P_mon of V7) and `tolerance` (not stated in V8) hold where looks are
    /// cheap.
    #[must_use]
    pub const fn new(period: Ns, tolerance: Ns) -> Self {
        Self {
            period,
            tolerance,
            last: Ns::ZERO,
            cost: Ns::ZERO,
        }
    }

    /// A look has taken `time` of the vCPU, from waking to sleeping. Of two in a row the
    /// shorter counts: if the vCPU was taken away in one, that is no cost.
    pub fn look(&mut self, time: Ns) {
        let sample = time.min(self.last);
        self.last = time;
        self.cost = self.cost.scaled(LEARN - 1, LEARN) + sample / LEARN;
    }

    /// From one beat to the next.
    #[must_use]
    pub fn period(&self) -> Ns {
        self.period.max(self.cost * PARTS)
    }

    /// The longest time from one beat to the next that is no gap (V8).
    #[must_use]
    pub fn limit(&self) -> Ns {
        let period = self.period();
        let base = self.period.as_ns().max(1);
        period + self.tolerance.scaled(period.as_ns(), base)
    }

    /// How long not to look again after a look, whoever asks; zero where looks cost no
    /// more than the configured period.
    #[must_use]
    pub fn rest(&self) -> Ns {
        if self.cost > self.period {
            self.cost * (PARTS - 1)
        } else {
            Ns::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Ns = Ns::from_us(300);
    const TOLERANCE: Ns = Ns::from_us(600);

    fn after(costs: impl IntoIterator<Item = Ns>) -> Pace {
        let mut pace = Pace::new(PERIOD, TOLERANCE);
        costs.into_iter().for_each(|cost| pace.look(cost));
        pace
    }

    #[test]
    fn cheap_beats_go_as_configured() {
        let pace = after([Ns::from_us(20); 100]);
        assert_eq!(pace.period(), PERIOD);
        assert_eq!(pace.limit(), PERIOD + TOLERANCE);
        assert_eq!(pace.rest(), Ns::ZERO);
    }

    #[test]
    fn dear_beats_go_seldom_and_lateness_is_let_pass() {
        let pace = after([Ns::from_us(600); 100]);
        // 4 x 600 us is 8 times 300 us, and the tolerance grows as much.
        let off = |a: Ns, b| a.abs_diff(b) < Ns::from_us(5);
        assert!(off(pace.period(), Ns::from_us(2400)), "{pace:?}");
        assert!(off(pace.limit(), Ns::from_us(7200)), "{pace:?}");
        assert!(off(pace.rest(), Ns::from_us(1800)), "{pace:?}");
    }

    #[test]
    fn a_gap_within_a_beat_is_no_cost() {
        let cheap = [Ns::from_us(20); 30];
        let gap = [Ns::from_ms(77)];
        let pace = after(cheap.into_iter().chain(gap).chain(cheap).chain(gap));
        assert_eq!(pace.period(), PERIOD);
    }

    #[test]
    fn it_recovers() {
        let mut pace = after([Ns::from_ms(2); 50]);
        assert!(pace.period() > Ns::from_ms(7));
        (0..60).for_each(|_| pace.look(Ns::from_us(20)));
        assert_eq!(pace.period(), PERIOD);
    }

    proptest! {
        #[test]
        fn beats_of_any_cost_leave_half_of_the_vcpu(costs in prop::collection::vec(1u64..5_000, 64..200)) {
            let mut pace = Pace::new(PERIOD, TOLERANCE);
            let (mut spent, mut passed) = (Ns::ZERO, Ns::ZERO);
            for (i, cost) in costs.iter().map(|us| Ns::from_us(*us)).enumerate() {
                // Each cost twice: a lone dear one is taken for a gap.
                for _ in 0..2 {
                    pace.look(cost);
                    if i >= 32 {
                        spent += cost;
                        passed += pace.period().max(cost);
                    }
                }
            }
            // Random costs are above their smoothed value half of the time.
            prop_assert!(spent.as_ns() * 2 < passed.as_ns(), "{spent} of {passed}");
            prop_assert!(pace.period() >= PERIOD && pace.limit() >= PERIOD + TOLERANCE);
        }
    }
}
