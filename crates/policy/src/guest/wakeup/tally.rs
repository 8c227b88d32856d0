// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queued share, and how often the task woke, over several windows.

use units::Ns;
use units::Permille;

use super::WakeStats;

/// Sums over windows. A mean of the windows' shares would do wrong: a window
/// with few wake-ups and one long wait would count as much as a busy one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    queued: Ns,
    cycle: Ns,
    wakes: u64,
    /// Wall time.
    time: Ns,
    windows: u32,
}

impl Tally {
    pub(super) fn add(&mut self, stats: &WakeStats, io_latency: Ns) {
        self.queued += stats.queued_ns;
        self.cycle += stats.cycle(io_latency);
        self.wakes += stats.wakes;
        self.time += stats.window;
        self.windows = self.windows.saturating_add(1);
    }

    /// The same, with what is older than `length` windows fading away.
    pub(super) fn add_fading(&mut self, stats: &WakeStats, io_latency: Ns, length: u32) {
        if self.windows >= length.max(1).saturating_mul(2) {
            self.queued = self.queued.scaled(1, 2);
            self.cycle = self.cycle.scaled(1, 2);
            self.wakes /= 2;
            self.time = self.time.scaled(1, 2);
            self.windows /= 2;
        }
        self.add(stats, io_latency);
    }

    pub(super) fn share(&self) -> Permille {
        Permille::of(self.queued, self.cycle)
    }

    /// Mean wall time from one wake-up to the next; `None` without any.
    pub(super) fn interval(&self) -> Option<Ns> {
        (self.wakes > 0).then(|| self.time.scaled(1, self.wakes))
    }

    pub(super) const fn windows(&self) -> u32 {
        self.windows
    }
}
