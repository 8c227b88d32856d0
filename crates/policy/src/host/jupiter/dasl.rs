// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DASL: adjust rescheduling latencies, per vCPU (J10, J11).
//!
//! The rescheduling latency is how long a vCPU may wait from ready to scheduled
//! before it preempts (J3). Two things are looked at when a period ends: has the
//! vCPU slice left, and could it make progress (J10)?
//!
//! | | slice left | slice used up |
//! |---|---|---|
//! | ready or running | latency - 10 % | DATS' business |
//! | idle | open | latency + 10 % |
//!
//! At the minimum and still behind, it waits for others: those that sent it
//! wake-up IPIs get a lower latency (J11).

use units::Ns;
use units::Time;

use super::State;

/// What the text fixes (the decrease) and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Decrease: 100 permille (J10).
    pub down_permille: u64,
    /// Increase. Open; 100, the same.
    pub up_permille: u64,
    /// System minimum. Open. 500 us: below it switches cost more than they bring.
    pub min: Ns,
    /// Longest latency. Open. One period.
    pub max: Ns,
    /// To start with. Open. 10 ms: a usual slice.
    pub initial: Ns,
    /// J10 as worded lowers the latency of every vCPU that is ready or running;
    /// our reading only if it has slice left. True: as worded.
    pub down_without_slice: bool,
    /// What an idle vCPU with slice left does. Open.
    pub idle_with_slice: IdleWithSlice,
}

/// The case that J10 leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleWithSlice {
    /// Nothing: it needed no more than it got, when it got it.
    Keeps,
    /// Its latency is increased: as unaggressive as possible (J1).
    Increases,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            down_permille: 100,
            up_permille: 100,
            min: Ns::from_us(500),
            max: super::PERIOD,
            initial: Ns::from_ms(10),
            down_without_slice: false,
            idle_with_slice: IdleWithSlice::Keeps,
        }
    }
}

/// One vCPU of a VM at the end of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it does now.
    pub state: State,
    /// Has it slice left of this period?
    pub slice_left: bool,
    /// The siblings (positions in the VM's table) whose wake-up IPIs it received,
    /// each once.
    pub woken_by: Vec<usize>,
}

/// New latencies of the vCPUs of one VM. Vectors of unequal length are compared
/// as far as the shorter goes.
///
/// A vCPU's latency is lowered at most once per period, however many wait for it.
pub fn adjust(latencies: &mut [Ns], reports: &[Report], settings: &Settings) {
    let before = latencies.to_vec();
    let mut lower = vec![false; latencies.len()];
    for (v, report) in reports.iter().enumerate().take(before.len()) {
        match (report.state.is_runnable(), report.slice_left) {
            (true, false) if settings.down_without_slice => lower[v] = true,
            (true, false) => {}
            (true, true) => {
                lower[v] = true;
                if before[v] <= settings.min {
                    for &source in report.woken_by.iter().filter(|&&s| s < before.len()) {
                        lower[source] = true;
                    }
                }
            }
            (false, true) if settings.idle_with_slice == IdleWithSlice::Keeps => {}
            (false, _) => {
                latencies[v] = before[v]
                    .scaled(1000 + settings.up_permille, 1000)
                    .min(settings.max);
            }
        }
    }
    // J11 after J10: who is waited for is lowered, even if it would be raised.
    for v in (0..before.len()).filter(|&v| lower[v]) {
        latencies[v] = before[v]
            .scaled(1000_u64.saturating_sub(settings.down_permille), 1000)
            .max(settings.min);
    }
}

/// Must a vCPU that has been ready since then preempt now (J3)? Its rescheduling
/// latency is over.
#[must_use]
pub fn is_due(ready_since: Time, now: Time, latency: Ns) -> bool {
    now.since(ready_since) >= latency
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(state: State, slice_left: bool, woken_by: &[usize]) -> Report {
        Report {
            state,
            slice_left,
            woken_by: woken_by.to_vec(),
        }
    }

    #[test]
    fn each_cell_of_the_table() {
        let mut latencies = [Ns::from_ms(10); 5];
        let reports = [
            report(State::Ready, true, &[]),
            report(State::Running, true, &[]),
            report(State::Ready, false, &[]),
            report(State::Idle, false, &[]),
            report(State::Idle, true, &[]),
        ];
        adjust(&mut latencies, &reports, &Settings::default());
        assert_eq!(
            latencies,
            [
                Ns::from_ms(9),
                Ns::from_ms(9),
                Ns::from_ms(10),
                Ns::from_ms(11),
                Ns::from_ms(10)
            ]
        );
    }

    /// J11: vCPU 0 is at the minimum and behind; 2 woke it, 1 did not.
    #[test]
    fn at_the_minimum_the_senders_of_ipis_are_hurried() {
        let settings = Settings::default();
        let mut latencies = [settings.min, Ns::from_ms(10), Ns::from_ms(10)];
        let reports = [
            report(State::Ready, true, &[2]),
            report(State::Idle, true, &[]),
            report(State::Idle, false, &[]),
        ];
        adjust(&mut latencies, &reports, &settings);
        assert_eq!(latencies, [settings.min, Ns::from_ms(10), Ns::from_ms(9)]);
    }

    #[test]
    fn above_the_minimum_nobody_else_is_touched() {
        let settings = Settings::default();
        let mut latencies = [Ns::from_ms(1), Ns::from_ms(10)];
        let reports = [
            report(State::Ready, true, &[1]),
            report(State::Idle, true, &[]),
        ];
        adjust(&mut latencies, &reports, &settings);
        assert_eq!(latencies, [Ns::from_us(900), Ns::from_ms(10)]);
    }

    #[test]
    fn as_worded_every_runnable_one_is_lowered() {
        let settings = Settings {
            down_without_slice: true,
            ..Settings::default()
        };
        let mut latencies = [Ns::from_ms(10)];
        adjust(
            &mut latencies,
            &[report(State::Ready, false, &[])],
            &settings,
        );
        assert_eq!(latencies, [Ns::from_ms(9)]);
    }

    proptest! {
        #[test]
        fn latencies_stay_within_their_bounds(
            periods in proptest::collection::vec((0u8..3, any::<bool>(), any::<bool>()), 1..300),
        ) {
            let settings = Settings::default();
            let mut latencies = [settings.initial; 2];
            for (state, left, other) in periods {
                let state = [State::Running, State::Ready, State::Idle][usize::from(state)];
                let reports = [
                    report(state, left, &[1]),
                    report(State::Ready, other, &[0, 7]),
                ];
                adjust(&mut latencies, &reports, &settings);
                for latency in latencies {
                    prop_assert!(latency >= settings.min && latency <= settings.max);
                }
            }
        }
    }
}
