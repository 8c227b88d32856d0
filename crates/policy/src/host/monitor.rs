// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vSMT-IO's workload monitor (M20): what a core's vCPUs did in one period.
//!
//! One set of counters per vCPU and period in, the three views of it out that the
//! others work with: the context retention rate (M13, for RASS and the adjuster),
//! the progress (M11, for LTCR) and the cycle accounts (M18, for RASS).

use units::Ns;
use units::Permille;

use super::ltcr::Progress;
use super::rass::Class;
use super::rass::Cycles;

/// Counters of one vCPU over one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Time in context retention; counts as CPU time of the vCPU (M3).
    pub retained: Ns,
    /// How often it was in context retention.
    pub retentions: u64,
    /// Instructions and cycles while the sibling hyperthread was in context
    /// retention, which replaces running alone (M18).
    pub alone: Cycles,
    /// Instructions retired in the whole period.
    pub instructions: u64,
    /// Cycles not halted in the whole period.
    pub cycles: u64,
}

impl Counters {
    /// M13: the share of the period spent in context retention.
    #[must_use]
    pub fn retention_rate(&self, period: Ns) -> Permille {
        Permille::of(self.retained, period)
    }

    /// M11: what LTCR compares. None if the period had no length or, for a
    /// CPU-bound vCPU, it did not run.
    #[must_use]
    pub fn progress(&self, class: Class, period: Ns) -> Option<Progress> {
        let rate = |n: u64, per: u64, unit: u128| {
            let rate = (u128::from(n) * unit).checked_div(u128::from(per))?;
            Some(u64::try_from(rate).unwrap_or(u64::MAX))
        };
        match class {
            Class::Cpu => rate(self.instructions, self.cycles, 1_000_000).map(Progress::Cpu),
            // Thousandths of a retention per second.
            Class::Io => rate(self.retentions, period.as_ns(), 1_000_000_000_000).map(Progress::Io),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_gives_rate_and_progress() {
        let counters = Counters {
            retained: Ns::from_ms(30),
            retentions: 25,
            instructions: 150_000_000,
            cycles: 100_000_000,
            ..Counters::default()
        };
        let period = Ns::from_ms(100);
        assert_eq!(counters.retention_rate(period), Permille::new(300));
        assert_eq!(
            counters.progress(Class::Cpu, period),
            Some(Progress::Cpu(1_500_000)),
            "IPC 1.5"
        );
        assert_eq!(
            counters.progress(Class::Io, period),
            Some(Progress::Io(250_000)),
            "25 in 100 ms are 250 per second"
        );
    }

    #[test]
    fn nothing_measured_is_not_zero_progress() {
        let counters = Counters::default();
        assert_eq!(counters.progress(Class::Cpu, Ns::from_ms(100)), None);
        assert_eq!(counters.progress(Class::Io, Ns::ZERO), None);
        assert_eq!(
            counters.progress(Class::Io, Ns::from_ms(100)),
            Some(Progress::Io(0))
        );
        assert_eq!(counters.retention_rate(Ns::ZERO), Permille::ZERO);
    }
}
