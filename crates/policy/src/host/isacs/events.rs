// SPDX-License-Identifier: Apache-2.0 OR MIT
//! EVENT CHECKER: how strong is a vCPU's I/O (I2, I5..I7)?

use units::Ns;
use units::Time;

use super::Settings;
use crate::host::credit::ffi;

/// The response events of one vCPU since the last reallocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// When the last one arrived; none before the first.
    pub last: Option<Time>,
    /// E_n: how many counted (I2, I6).
    pub counted: u64,
    /// All, for the IOevent of algorithm 2.
    pub total: u64,
    /// EMA_e of the interval, equation (1); none before the first interval.
    pub ema: Option<Ns>,
}

impl Events {
    /// A response event arrived at `now`.
    ///
    /// The first one opens an interval and counts nothing. An interval above the
    /// cut-off only moves the start of the next one (I6).
    pub fn on_event(&mut self, now: Time, settings: &Settings) {
        self.total = self.total.saturating_add(1);
        let Some(last) = self.last.replace(now) else {
            return;
        };
        let interval = now.since(last).as_ns();
        if ffi::policy_isacs_interval_counts(interval, settings.cutoff.as_ns()) == 0 {
            self.counted = self
                .counted
                .saturating_add(u64::from(settings.late_events_count));
            return;
        }
        self.counted = self.counted.saturating_add(1);
        let before = self.ema.unwrap_or_default().as_ns();
        self.ema = Some(Ns(ffi::policy_isacs_ema(
            interval,
            before,
            u32::from(self.ema.is_none()),
        )));
    }

    /// I/O strength, E_n * EMA (I7). `elapsed` is the time since the last
    /// reallocation, which bounds it under [`Settings::limit_strength`].
    #[must_use]
    pub fn strength(&self, elapsed: Ns, settings: &Settings) -> Ns {
        let limit = if settings.limit_strength {
            elapsed.max(Ns(1)).as_ns()
        } else {
            0
        };
        Ns(ffi::policy_isacs_strength(
            self.counted,
            self.ema.unwrap_or_default().as_ns(),
            limit,
        ))
    }

    /// I3: delivered and reinitialised. The instant of the last event stays, as
    /// the interval it opened is not over.
    pub fn restart(&mut self) {
        *self = Self {
            last: self.last,
            ..Self::default()
        };
    }
}
