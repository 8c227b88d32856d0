// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often may a heartbeat wake its monitor (V7), and when is one late (V8)?
//!
//! The published period is fixed, 300 us. A monitor runs before ordinary tasks, so
//! where a beat costs more than its period (an emulated vCPU, a nested one, a build
//! without optimisation) fixed beats take all of the vCPU, and nobody else runs on it, the
//! rest of the daemon included. Each of them is late, too, and taken for the end of a
//! gap. [`Pace`] lengthens the period to a multiple of what a beat costs, and by the
//! same factor the lateness that is let pass: what makes beats dear delays timers.

use units::Ns;

/// A beat may take one part of its period in so many.
const PARTS: u64 = 4;

/// Of a cost this part in so many is learnt at each beat.
const LEARN: u64 = 8;

/// The period in force on one vCPU.
#[derive(Clone, Debug)]
pub struct Pace {
    period: Ns,
    tolerance: Ns,
    /// Of the last beat.
    last: Ns,
    /// Smoothed.
    cost: Ns,
}

impl Pace {
    /// `period` (P_mon of V7) and `tolerance` (not stated in V8) hold where beats are
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

    /// A beat has taken `time` of the vCPU, from waking to the next one's arming. Of two
    /// in a row the shorter counts: if the vCPU was taken away in one, that is no cost.
    pub fn beat(&mut self, time: Ns) {
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Ns = Ns::from_us(300);
    const TOLERANCE: Ns = Ns::from_us(600);

    fn after(costs: impl IntoIterator<Item = Ns>) -> Pace {
        let mut pace = Pace::new(PERIOD, TOLERANCE);
        costs.into_iter().for_each(|cost| pace.beat(cost));
        pace
    }

    #[test]
    fn cheap_beats_go_as_configured() {
        let pace = after([Ns::from_us(20); 100]);
        assert_eq!(pace.period(), PERIOD);
        assert_eq!(pace.limit(), PERIOD + TOLERANCE);
    }

    #[test]
    fn dear_beats_go_seldom_and_lateness_is_let_pass() {
        let pace = after([Ns::from_us(600); 100]);
        // 4 x 600 us is 8 times 300 us, and the tolerance grows as much.
        let off = |a: Ns, b| a.abs_diff(b) < Ns::from_us(5);
        assert!(off(pace.period(), Ns::from_us(2400)), "{pace:?}");
        assert!(off(pace.limit(), Ns::from_us(7200)), "{pace:?}");
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
        (0..60).for_each(|_| pace.beat(Ns::from_us(20)));
        assert_eq!(pace.period(), PERIOD);
    }

    proptest! {
        #[test]
        fn beats_leave_three_quarters_of_the_vcpu(costs in prop::collection::vec(1u64..5_000, 64..200)) {
            let mut pace = Pace::new(PERIOD, TOLERANCE);
            let (mut spent, mut passed) = (Ns::ZERO, Ns::ZERO);
            for (i, cost) in costs.iter().map(|us| Ns::from_us(*us)).enumerate() {
                // Each cost twice: a lone dear one is taken for a gap.
                for _ in 0..2 {
                    pace.beat(cost);
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
