// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long-term context retention: how long may a waiting vCPU keep its hyperthread?
//! (M1..M12)
//!
//! A vCPU that waits for an event keeps its context on a hyperthread, in MWAIT,
//! up to a timeout (M6, M8); short of it there is no vCPU switch. The timeout is
//! found per core by algorithm 1 (M10): measure a period with the present value,
//! then with 1.1 times it, then, if that was no better, with 0.9 times it. A
//! value is better if both the CPU-bound vCPUs (instructions per cycle) and the
//! I/O-bound ones (retentions per second) got faster on average (M11).
//!
//! [`Ltcr`] is that loop turned inside out: it says which timeout to use
//! ([`Ltcr::effective`]) and takes what a period measured ([`Ltcr::on_period`]).

use units::Ns;

/// What the published text fixes (the factors) and what it leaves open (M12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// T_init. Open. 1 ms: above HDD-free I/O, below a slice.
    pub initial: Ns,
    /// Lower bound: the time to deschedule and reschedule a vCPU (M9). 50 us.
    pub min: Ns,
    /// Upper bound. Open; "a few ms, over 10x the polling timeout" (M4). 5 ms.
    pub max: Ns,
    /// P, the measuring period. Open. 100 ms: tens of retentions.
    pub period: Ns,
    /// Step up and down in thousandths: 100 (M10).
    pub step_permille: u64,
    /// Speed-up that a test must exceed, in millionths. 1 000 000: as published,
    /// above 1. More is hysteresis (M12).
    pub pass_ppm: u64,
    /// What a group without vCPUs says to a test (M12).
    pub empty: EmptyGroup,
}

/// M12: the mean of nothing is undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyGroup {
    /// The other group decides; two empty groups fail.
    Ignored,
    /// The test fails: the timeout stays.
    Fails,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            initial: Ns::from_ms(1),
            min: Ns::from_us(50),
            max: Ns::from_ms(5),
            period: Ns::from_ms(100),
            step_permille: 100,
            pass_ppm: 1_000_000,
            empty: EmptyGroup::Ignored,
        }
    }
}

/// Progress of one vCPU in one period (M11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// CPU-bound: instructions per million cycles (or any other rate of work).
    Cpu(u64),
    /// I/O-bound: context retentions per second, in thousandths.
    Io(u64),
}

/// Where the loop of algorithm 1 stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// T_e = T_d, before trying more.
    BaselineUp,
    /// T_e = 1.1 T_d.
    TestUp,
    /// T_e = T_d again, before trying less.
    BaselineDown,
    /// T_e = 0.9 T_d.
    TestDown,
}

/// Algorithm 1 for one core.
#[derive(Clone, Debug)]
pub struct Ltcr {
    settings: Settings,
    desired: Ns,
    step: Step,
    /// What each vCPU did with T_d, by position; None: not there.
    baseline: Vec<Option<Progress>>,
}

impl Ltcr {
    /// Starts with T_init.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let bounds = settings.min..=settings.max.max(settings.min);
        Self {
            desired: settings.initial.clamp(*bounds.start(), *bounds.end()),
            settings: settings.clone(),
            step: Step::BaselineUp,
            baseline: Vec::new(),
        }
    }

    /// T_d: the best timeout so far.
    #[must_use]
    pub fn desired(&self) -> Ns {
        self.desired
    }

    /// T_e: the timeout to use in the period that begins now.
    #[must_use]
    pub fn effective(&self) -> Ns {
        match self.step {
            Step::BaselineUp | Step::BaselineDown => self.desired,
            Step::TestUp => self.scaled(1000 + self.settings.step_permille),
            Step::TestDown => self.scaled(1000_u64.saturating_sub(self.settings.step_permille)),
        }
    }

    fn scaled(&self, permille: u64) -> Ns {
        let max = self.settings.max.max(self.settings.min);
        self.desired
            .scaled(permille, 1000)
            .clamp(self.settings.min, max)
    }

    /// A period of length P has ended in which [`Self::effective`] was in force;
    /// `progress` holds what each vCPU of the core did, by its position.
    pub fn on_period(&mut self, progress: &[Option<Progress>]) {
        self.step = match self.step {
            Step::BaselineUp => {
                self.baseline = progress.to_vec();
                Step::TestUp
            }
            Step::BaselineDown => {
                self.baseline = progress.to_vec();
                Step::TestDown
            }
            Step::TestUp if self.passes(progress) => {
                self.desired = self.effective();
                Step::BaselineUp
            }
            Step::TestUp => Step::BaselineDown,
            Step::TestDown => {
                if self.passes(progress) {
                    self.desired = self.effective();
                }
                Step::BaselineUp
            }
        };
    }

    /// TEST of algorithm 1, with a value that differs from the desired one.
    fn passes(&self, progress: &[Option<Progress>]) -> bool {
        if self.effective() == self.desired {
            return false;
        }
        let speedups = |pair: fn(Progress, Progress) -> Option<(u64, u64)>| {
            self.baseline
                .iter()
                .zip(progress)
                .filter_map(|(&before, &now)| pair(before?, now?))
                .filter(|&(before, _)| before > 0)
                .map(|(before, now)| u128::from(now) * 1_000_000 / u128::from(before))
                .collect::<Vec<_>>()
        };
        // A vCPU whose class has changed has no speed-up.
        let cpu = speedups(|before, now| match (before, now) {
            (Progress::Cpu(before), Progress::Cpu(now)) => Some((before, now)),
            _ => None,
        });
        let io = speedups(|before, now| match (before, now) {
            (Progress::Io(before), Progress::Io(now)) => Some((before, now)),
            _ => None,
        });
        match (self.faster(&cpu), self.faster(&io)) {
            (Some(cpu), Some(io)) => cpu && io,
            (Some(one), None) | (None, Some(one)) => {
                one && self.settings.empty == EmptyGroup::Ignored
            }
            (None, None) => false,
        }
    }

    /// Is the mean speed-up of this group above the threshold? None if empty.
    fn faster(&self, speedups_ppm: &[u128]) -> Option<bool> {
        let n = speedups_ppm.len() as u128;
        let sum: u128 = speedups_ppm.iter().sum();
        (n > 0).then(|| sum > n * u128::from(self.settings.pass_ppm))
    }
}

#[cfg(test)]
mod tests;
