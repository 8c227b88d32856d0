// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Demand-based coscheduling (O4): vCPUs that communicate are urgent.
//!
//! An IPI says that one vCPU waits for another. Whoever took part in one is
//! urgent for a while and preempts those that are not; vCPUs that do not
//! communicate are scheduled without coordination. Several urgent ones may meet
//! on one core, and there they take turns: the published weakness.
//!
//! Who goes first is changed, not how much each VM gets: an urgent vCPU that is ahead of
//! its share by [`Settings::allowance`] waits for its turn.

use units::Ns;
use units::Time;

/// All open (O7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an IPI makes urgent. 500 us: enough to take it and to do what it is for. With
    /// a slice, 10 ms, whoever talks once a slice is urgent all the time, and what is asked
    /// of the others by it waits for the end of his turn.
    pub window: Ns,
    /// Is the sender urgent too? It waits for the answer. Yes.
    pub sender: bool,
    /// Slice of an urgent vCPU that preempted. 1 ms: enough for a handler, so
    /// urgency does not buy CPU time.
    pub urgent_slice: Ns,
    /// How far ahead of who has had least on its pCPU an urgent vCPU may be, in CPU time of
    /// its share; from then on it has its turn like any other. Without such a bound IPIs
    /// buy CPU time. 12 ms, a slice. None: without.
    pub allowance: Option<Ns>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: Ns::from_us(500),
            sender: true,
            urgent_slice: Ns::from_ms(1),
            allowance: Some(Ns::from_ms(12)),
        }
    }
}

/// What one vCPU needs to remember.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    urgent_until: Option<Time>,
}

impl Vcpu {
    /// Is it urgent at `now`?
    #[must_use]
    pub fn is_urgent(&self, now: Time) -> bool {
        self.urgent_until.is_some_and(|until| now < until)
    }

    /// Until when it is urgent, if it ever was.
    #[must_use]
    pub const fn urgent_until(&self) -> Option<Time> {
        self.urgent_until
    }

    /// It sent an IPI at `now`.
    pub fn on_sent(&mut self, now: Time, settings: &Settings) {
        if settings.sender {
            self.on_received(now, settings);
        }
    }

    /// It received an IPI at `now`.
    pub fn on_received(&mut self, now: Time, settings: &Settings) {
        let until = now + settings.window;
        self.urgent_until = Some(self.urgent_until.map_or(until, |u| u.max(until)));
    }

    /// Does it come before others at `now`, being so far ahead of its share?
    #[must_use]
    pub fn comes_first(&self, now: Time, ahead: Ns, settings: &Settings) -> bool {
        self.is_urgent(now) && settings.allowance.is_none_or(|most| ahead <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipi_makes_both_ends_urgent_for_a_while() {
        let settings = Settings::default();
        let (mut sender, mut receiver) = (Vcpu::default(), Vcpu::default());
        let quiet = Vcpu::default();
        sender.on_sent(Time(0), &settings);
        receiver.on_received(Time(0), &settings);
        let later = Time(0) + Ns::from_us(499);
        let first = |v: &Vcpu| v.comes_first(later, Ns::ZERO, &settings);
        assert!(first(&sender) && first(&receiver) && !first(&quiet));
        assert!(!receiver.is_urgent(Time(0) + settings.window));
    }

    #[test]
    fn who_is_ahead_of_its_share_waits_for_its_turn() {
        let bounded = Settings::default();
        let free = Settings {
            allowance: None,
            ..bounded.clone()
        };
        let mut a = Vcpu::default();
        a.on_received(Time(0), &bounded);
        let ahead = |ms, settings| a.comes_first(Time(1), Ns::from_ms(ms), settings);
        assert!(ahead(12, &bounded) && !ahead(13, &bounded) && ahead(13, &free));
    }

    #[test]
    fn an_older_ipi_does_not_shorten_a_newer_one() {
        let settings = Settings::default();
        let mut a = Vcpu::default();
        a.on_received(Time(400_000), &settings);
        a.on_received(Time(0), &settings);
        assert!(a.is_urgent(Time(899_999)));
    }
}
