// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Demand-based coscheduling (O4): vCPUs that communicate are urgent.
//!
//! An IPI says that one vCPU waits for another. Whoever took part in one is
//! urgent for a while and preempts those that are not; vCPUs that do not
//! communicate are scheduled without coordination. Several urgent ones may meet
//! on one core, and there they take turns: the published weakness.

use units::Ns;
use units::Time;

/// All open (O7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an IPI makes urgent. 10 ms, a slice.
    pub window: Ns,
    /// Is the sender urgent too? It waits for the answer. Yes.
    pub sender: bool,
    /// Slice of an urgent vCPU that preempted. 1 ms: enough for a handler, so
    /// urgency does not buy CPU time.
    pub urgent_slice: Ns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: Ns::from_ms(10),
            sender: true,
            urgent_slice: Ns::from_ms(1),
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

    /// Does it, ready, preempt `running`? Urgent against not urgent (O4).
    #[must_use]
    pub fn preempts(&self, running: &Self, now: Time) -> bool {
        self.is_urgent(now) && !running.is_urgent(now)
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
        let later = Time(0) + Ns::from_ms(9);
        assert!(sender.preempts(&quiet, later));
        assert!(receiver.preempts(&quiet, later));
        assert!(!quiet.preempts(&sender, later));
        assert!(!receiver.is_urgent(Time(0) + settings.window));
    }

    #[test]
    fn urgent_ones_that_meet_do_not_preempt_each_other() {
        let settings = Settings::default();
        let mut a = Vcpu::default();
        a.on_received(Time(0), &settings);
        let b = a;
        assert!(!a.preempts(&b, Time(1)));
    }

    #[test]
    fn an_older_ipi_does_not_shorten_a_newer_one() {
        let settings = Settings::default();
        let mut a = Vcpu::default();
        a.on_received(Time(5_000_000), &settings);
        a.on_received(Time(0), &settings);
        assert!(a.is_urgent(Time(14_000_000)));
    }
}
