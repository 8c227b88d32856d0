// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's clock on the host's.
//!
//! Both run at the same rate (kvm-clock); what differs is their zero. The guest
//! is asked for its time while nobody else computes much; the quickest of some
//! answers bounds the difference.

use std::time::Duration;

use units::Ns;
use units::Time;

use super::super::protocol::FromGuest;
use super::super::protocol::ToGuest;
use super::guest::Guest;
use crate::load::now;

/// Questions asked; more would cost seconds on an emulated host.
const QUESTIONS: u32 = 8;

/// How to turn a guest's instant into one of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Host minus guest, in ns.
    offset: i128,
    /// It may be wrong by so much.
    pub(super) error: Ns,
}

impl Clock {
    /// From one question: sent and answered (host), and the guest's answer.
    fn new(sent: Time, answered: Time, guest: u64) -> Self {
        let middle = (i128::from(sent.0) + i128::from(answered.0)) / 2;
        Self {
            offset: middle - i128::from(guest),
            error: Ns(answered.since(sent).0 / 2),
        }
    }

    /// A guest's instant on the host's clock.
    pub(super) fn to_host(self, guest: u64) -> Time {
        Time(u64::try_from(i128::from(guest) + self.offset).unwrap_or(0))
    }

    /// The host's instant on the guest's clock.
    pub(super) fn to_guest(self, host: Time) -> Time {
        Time(u64::try_from(i128::from(host.0) - self.offset).unwrap_or(0))
    }
}

/// Compares the clocks.
pub(super) fn compare(guest: &mut Guest, patience: Duration) -> anyhow::Result<Clock> {
    let mut best: Option<Clock> = None;
    for _ in 0..QUESTIONS {
        let sent = now();
        let FromGuest::Time(time) = guest.ask(&ToGuest::Time, patience)? else {
            anyhow::bail!("a guest does not say what time it is");
        };
        let clock = Clock::new(sent, now(), time);
        if best.is_none_or(|best| clock.error < best.error) {
            best = Some(clock);
        }
    }
    best.ok_or_else(|| anyhow::anyhow!("a guest was not asked for its time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_booted_later_is_put_on_the_hosts_clock() {
        let clock = Clock::new(Time(10_000), Time(10_200), 100);
        assert_eq!(clock.error, Ns(100));
        assert_eq!(clock.to_host(100), Time(10_100));
        assert_eq!(clock.to_host(0), Time(10_000));
        assert_eq!(clock.to_guest(Time(10_100)), Time(100));
    }
}
