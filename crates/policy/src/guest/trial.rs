// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is a program better off in our hands? Do no harm.
//!
//! Rules and margins are right on average. A load that waits for a kernel
//! thread, a device with habits, a crowd of tasks on two vCPUs: left alone, the
//! kernel sometimes serves them better than we do (docs/findings.md), and no rule
//! knows all of them. So each program is asked: for a few cycles of slices it is
//! let go, then held again, and what it gets done in both is compared.
//!
//! One trial is a chain of legs, `base, other, base, other, base ..`. Each `other`
//! leg is judged against the mean of its two neighbours, so that a drift of the
//! load cancels. The first pair that does not favour the other side ends the
//! trial: it costs one leg. Only [`Settings::pairs`] in a row that all do change the
//! belief, since single legs of a few cycles scatter by a fifth. After a trial there is a
//! rest, doubled each time the belief is confirmed.
//!
//! Rejected: one long comparison (a load that changes meanwhile decides it); to
//! judge by the rate before the task was found (the windows that find a task are
//! milliseconds, a cycle of slices is tens); per thread instead of per program
//! (each thread would be compared while all others are held, and a crowd would
//! never be seen to be one).
//!
//! Not published. The papers compare after the fact; a daemon has to know while it
//! runs.

mod program;

use units::Ns;
use units::Permille;

pub use program::Program;
pub use program::Seen;

/// What is done for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its I/O-bound tasks are held: moved, and given a lever.
    Held,
    /// They are as their owner made them.
    Free,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Held => Self::Free,
            Self::Free => Self::Held,
        }
    }
}

/// What a user can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Try at all.
    pub enabled: bool,
    /// A program is held for this long before it is tried first. 1 s: nothing can
    /// be learnt of shorter phases in time to be of use.
    pub first: Ns,
    /// Length of a leg in cycles of slice and gap. 6: the share of a vCPU that an
    /// unlucky task gets differs from cycle to cycle.
    pub cycles: u32,
    /// A leg is never shorter. 100 ms.
    pub min_leg: Ns,
    /// A leg with fewer requests says nothing. 16.
    pub min_requests: u64,
    /// How much better a program must do when let go. 50: less than that is not
    /// worth a doubt.
    pub margin: Permille,
    /// Pairs of legs in a row that change the belief. 3.
    pub pairs: u32,
    /// A rest, also the one before the first trial, is never shorter than so many legs.
    /// 8: with 8 VMs a leg is half a second, and a first trial after 1 s cost an eighth
    /// of what a program did from 0.7 to 2.7 s (docs/decisions/0010). No longer than
    /// `rest_max`.
    pub rest_legs: u32,
    /// The rest after the first trial. 4 s.
    pub rest: Ns,
    /// The longest rest. 120 s: 6 cycles of 22 ms in that time are a thousandth.
    pub rest_max: Ns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            first: Ns::from_secs(1),
            cycles: 6,
            min_leg: Ns::from_ms(100),
            min_requests: 16,
            margin: Permille::new(50),
            pairs: 3,
            rest_legs: 8,
            rest: Ns::from_secs(4),
            rest_max: Ns::from_secs(120),
        }
    }
}

impl Settings {
    /// As published: nobody is asked.
    #[must_use]
    pub fn published() -> Self {
        Self {
            enabled: false,
            ..Self::default()
        }
    }
}

/// What a program got done in one leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leg {
    /// Requests of its I/O-bound tasks.
    pub requests: u64,
    /// The time that these tasks were I/O-bound within the leg, summed over them.
    pub task_time: Ns,
}

impl Leg {
    /// Requests per second and task; `None` if there were too few to tell.
    fn rate(self, settings: &Settings) -> Option<f64> {
        (self.requests >= settings.min_requests && self.task_time > Ns::ZERO)
            .then(|| self.requests as f64 * 1e9 / self.task_time.as_ns() as f64)
    }
}

/// Where in a trial a program is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// No trial.
    Rest,
    /// A leg of the side that is believed in. `before`: the rates of the leg of
    /// that side and of the other side that came before it.
    Base { before: Option<(f64, f64)> },
    /// A leg of the other side, after a base leg of this rate.
    Other { base: f64 },
}

/// One program. Ask [`Trial::side`] and [`Trial::length`], wait for that long, report
/// by [`Trial::over`], again and again.
#[derive(Clone, Debug)]
pub struct Trial {
    settings: Settings,
    believed: Side,
    state: State,
    /// Pairs in a row that favour the other side.
    doubts: u32,
    rest: Ns,
    /// The latest comparison: rate of the free legs to that of the held ones.
    free_to_held: Option<f64>,
    trials: u32,
}

impl Trial {
    /// A program that nothing is known of is held.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            believed: Side::Held,
            state: State::Rest,
            doubts: 0,
            rest: settings.first,
            free_to_held: None,
            trials: 0,
        }
    }

    /// What is to be done for the program now.
    #[must_use]
    pub fn side(&self) -> Side {
        match self.state {
            State::Rest | State::Base { .. } => self.believed,
            State::Other { .. } => self.believed.other(),
        }
    }

    /// What is believed to be better for it.
    #[must_use]
    pub const fn believed(&self) -> Side {
        self.believed
    }

    /// Rate when free to rate when held, as last compared.
    #[must_use]
    pub const fn free_to_held(&self) -> Option<f64> {
        self.free_to_held
    }

    /// Trials that have ended.
    #[must_use]
    pub const fn trials(&self) -> u32 {
        self.trials
    }

    /// Is it being compared, or at rest?
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.state == State::Rest
    }

    /// How long the present leg or rest shall be, where a cycle of slice and gap
    /// takes `cycle`.
    #[must_use]
    pub fn length(&self, cycle: Option<Ns>) -> Ns {
        let cycles = cycle.map_or(Ns::ZERO, |cycle| cycle * u64::from(self.settings.cycles));
        let leg = cycles.max(self.settings.min_leg);
        match self.state {
            State::Rest => {
                let legs = leg * u64::from(self.settings.rest_legs);
                self.rest.max(legs.min(self.settings.rest_max))
            }
            State::Base { .. } | State::Other { .. } => leg,
        }
    }

    /// The present leg or rest has ended.
    pub fn over(&mut self, leg: Leg) {
        if self.state == State::Rest {
            self.doubts = 0;
            self.state = State::Base { before: None };
            return;
        }
        let Some(rate) = leg.rate(&self.settings) else {
            self.confirmed();
            return;
        };
        self.state = match self.state {
            State::Rest | State::Base { before: None } => State::Other { base: rate },
            State::Other { base } => State::Base {
                before: Some((base, rate)),
            },
            State::Base {
                before: Some((base, other)),
            } => {
                let ratio = other / f64::midpoint(base, rate);
                self.free_to_held = Some(match self.believed {
                    Side::Held => ratio,
                    Side::Free => ratio.recip(),
                });
                if ratio < self.needed() {
                    self.confirmed();
                    return;
                }
                self.doubts += 1;
                if self.doubts >= self.settings.pairs {
                    self.changed();
                    return;
                }
                State::Other { base: rate }
            }
        };
    }

    /// To be let go takes an advantage, to be held again none: a program that does
    /// equally well is ours.
    fn needed(&self) -> f64 {
        match self.believed {
            Side::Held => 1.0 + f64::from(self.settings.margin.get()) / 1000.0,
            Side::Free => 1.0,
        }
    }

    fn confirmed(&mut self) {
        self.rest = if self.trials == 0 {
            self.settings.rest
        } else {
            (self.rest * 2).min(self.settings.rest_max)
        };
        self.end();
    }

    fn changed(&mut self) {
        self.believed = self.believed.other();
        self.rest = self.settings.rest;
        self.end();
    }

    fn end(&mut self) {
        self.state = State::Rest;
        self.doubts = 0;
        self.trials += 1;
    }
}

#[cfg(test)]
mod tests;
