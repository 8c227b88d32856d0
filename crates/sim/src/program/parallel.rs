// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of several threads.

use units::Ns;
use units::Time;

use super::Cx;
use super::Program;
use super::Step;
use crate::ids::DeviceId;

/// One thread of a program that computes and meets its others at a barrier, again
/// and again; the work of a round varies from thread to thread, and some may have
/// more of it than others in all of them.
#[derive(Clone, Debug)]
pub struct Parallel {
    /// Barrier in its VM.
    pub barrier: u32,
    /// Median work of a round at full speed.
    pub length: Ns,
    /// Sigma of its logarithm, in thousandths.
    pub spread: u32,
    /// Sigma, in thousandths, of the logarithm of how much more than others a thread has in
    /// every round: what a program's data is cut into is not equal.
    pub skew: u32,
    /// Spins so long at the barrier before it blocks.
    pub spin: Ns,
    /// After so many rounds one thread has work of its own, for which the others wait.
    pub alone: Option<Alone>,
    /// This thread is that one.
    pub first: bool,
    /// Median work of its own rounds, once it has begun.
    own: Option<Ns>,
    /// Its next step.
    stage: Stage,
    /// Rounds since the last sequential part.
    rounds: u32,
}

/// A sequential part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Work of it.
    pub work: Ns,
    /// Rounds between two.
    pub every: u32,
}

impl Alone {
    /// Sequential parts of about this length that are so many thousandths of what a program
    /// with rounds of `round` takes where nothing delays it. None if either is zero.
    #[must_use]
    pub fn part(length: Ns, permille: u32, round: Ns) -> Option<Self> {
        let permille = u64::from(permille.min(999));
        if length == Ns::ZERO || permille == 0 {
            return None;
        }
        let others = 1000 - permille;
        let round = round.max(Ns(1));
        let every = length.scaled(others, permille).as_ns() / round.as_ns();
        let every = every.clamp(1, u64::from(u32::MAX));
        Some(Self {
            work: (round * every).scaled(permille, others).max(Ns(1)),
            every: every as u32,
        })
    }
}

/// Where a thread of a [`Parallel`] program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It will compute.
    Compute,
    /// It has, and comes to the barrier.
    Meet,
    /// It has work of its own, or waits for who has.
    Alone,
    /// All meet again.
    Resume,
}

impl Parallel {
    /// A thread that meets the others of its VM at barrier 0.
    #[must_use]
    pub const fn new(length: Ns, spread: u32, spin: Ns) -> Self {
        Self {
            barrier: 0,
            length,
            spread,
            skew: 0,
            spin,
            alone: None,
            first: false,
            own: None,
            stage: Stage::Compute,
            rounds: 0,
        }
    }

    /// With threads that have more to do than others, for good.
    #[must_use]
    pub const fn uneven(self, skew: u32) -> Self {
        Self { skew, ..self }
    }

    /// With sequential parts, which are the first thread's.
    #[must_use]
    pub const fn with(self, alone: Option<Alone>, first: bool) -> Self {
        Self {
            alone,
            first,
            ..self
        }
    }
}

impl Program for Parallel {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        let meet = Step::Barrier {
            barrier: self.barrier,
            spin: self.spin,
        };
        loop {
            match self.stage {
                Stage::Compute => {
                    self.stage = Stage::Meet;
                    let own = match self.own {
                        Some(own) => own,
                        None if self.skew == 0 => self.length,
                        None => cx.random.log_normal(self.length, self.skew),
                    };
                    self.own = Some(own);
                    let work = cx.random.log_normal(own, self.spread);
                    return Step::Compute(work.max(Ns(1)));
                }
                Stage::Meet => {
                    cx.done.operations += 1;
                    self.rounds += 1;
                    self.stage = match self.alone {
                        Some(alone) if self.rounds >= alone.every => Stage::Alone,
                        _ => Stage::Compute,
                    };
                    return meet;
                }
                Stage::Alone => {
                    self.rounds = 0;
                    self.stage = Stage::Resume;
                    if let Some(alone) = self.alone.filter(|_| self.first) {
                        return Step::Compute(alone.work);
                    }
                }
                Stage::Resume => {
                    self.stage = Stage::Compute;
                    return meet;
                }
            }
        }
    }
}

/// A program that begins later, and has to start up before it does what it is for.
#[derive(Debug)]
pub struct Later {
    wait: Ns,
    start_up: Ns,
    inner: Box<dyn Program>,
}

impl Later {
    /// Sleeps for `wait` first, then computes for `start_up`; either may be zero.
    #[must_use]
    pub const fn new(wait: Ns, start_up: Ns, inner: Box<dyn Program>) -> Self {
        Self {
            wait,
            start_up,
            inner,
        }
    }
}

impl Program for Later {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        let wait = std::mem::take(&mut self.wait);
        if wait > Ns::ZERO {
            return Step::Sleep(wait);
        }
        let start_up = std::mem::take(&mut self.start_up);
        if start_up > Ns::ZERO {
            return Step::Compute(start_up);
        }
        self.inner.next(cx)
    }

    fn device(&self) -> Option<DeviceId> {
        self.inner.device()
    }
}

/// A program that ends: at its first request after that instant of the simulation.
#[derive(Debug)]
pub struct Until {
    end: Time,
    inner: Box<dyn Program>,
}

impl Until {
    /// Ends `end` after the beginning. Meant for programs with one request at a time;
    /// with more, completions of the others find nobody.
    #[must_use]
    pub const fn new(end: Ns, inner: Box<dyn Program>) -> Self {
        Self {
            end: Time(end.as_ns()),
            inner,
        }
    }
}

impl Program for Until {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        match self.inner.next(cx) {
            Step::Submit(_) if cx.now >= self.end => Step::Exit,
            step => step,
        }
    }

    fn device(&self) -> Option<DeviceId> {
        self.inner.device()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Done;
    use crate::program::Reader;
    use crate::program::ReaderSettings;
    use crate::random::Random;
    use crate::random::Stream;

    /// What a thread computes in its first three rounds.
    fn rounds(program: &mut Parallel, seed: u64) -> Vec<Ns> {
        let mut random = Random::child(seed, Stream::Program, 0, 0);
        let mut done = Done::default();
        let mut rounds = Vec::new();
        while rounds.len() < 3 {
            let step = program.next(&mut Cx {
                now: Time::ZERO,
                random: &mut random,
                done: &mut done,
                since: Time::ZERO,
                bytes: 0,
                ready: 0,
            });
            if let Step::Compute(length) = step {
                rounds.push(length);
            }
        }
        rounds
    }

    /// A thread that has more to do than another has so in every round.
    #[test]
    fn an_uneven_thread_stays_as_it_is() {
        let length = Ns::from_ms(1);
        let even = Parallel::new(length, 0, Ns::ZERO);
        assert_eq!(rounds(&mut even.clone(), 1), [length; 3]);
        let uneven = even.uneven(500);
        let all: Vec<Vec<Ns>> = (1..=8).map(|n| rounds(&mut uneven.clone(), n)).collect();
        assert!(all.iter().all(|r| r[0] == r[1] && r[1] == r[2]), "{all:?}");
        let (least, most) = (all.iter().min(), all.iter().max());
        assert!(most.unwrap()[0] > least.unwrap()[0] * 3 / 2, "{all:?}");
    }

    /// Sleeps, starts up, each once, and then does what it is for; what is zero is left out.
    #[test]
    fn who_begins_later_starts_up_once() {
        let (wait, start_up, length) = (Ns::from_ms(4), Ns::from_ms(80), Ns::from_ms(1));
        let steps = |wait, start_up| -> [Step; 2] {
            let inner = Box::new(Parallel::new(length, 0, Ns::ZERO));
            let mut program = Later::new(wait, start_up, inner);
            let mut random = Random::child(1, Stream::Program, 0, 0);
            let mut done = Done::default();
            std::array::from_fn(|_| {
                program.next(&mut Cx {
                    now: Time::ZERO,
                    random: &mut random,
                    done: &mut done,
                    since: Time::ZERO,
                    bytes: 0,
                    ready: 0,
                })
            })
        };
        let own = Step::Compute(length);
        let both = [Step::Sleep(wait), Step::Compute(start_up)];
        assert_eq!(steps(wait, start_up), both);
        assert_eq!(steps(wait, Ns::ZERO), [Step::Sleep(wait), own]);
        assert_eq!(steps(Ns::ZERO, start_up), [Step::Compute(start_up), own]);
    }

    /// A request that is under way at the end is still waited for; no other follows.
    #[test]
    fn a_program_with_an_end_leaves_no_request_behind() {
        let reader = Reader::new(ReaderSettings {
            device: DeviceId(0),
            depth: 1,
            bytes: 4096,
            start: 0,
            span: 1 << 20,
            sequential: true,
            submit: Ns::ZERO,
            process: Ns::ZERO,
            process_spread: 0,
            further: None,
            write: false,
            phases: None,
        });
        let mut program = Until::new(Ns::from_ms(3), Box::new(reader));
        let (mut random, mut done) = (Random::child(1, Stream::Program, 0, 0), Done::default());
        let mut next = |ms| {
            program.next(&mut Cx {
                now: Time::ZERO + Ns::from_ms(ms),
                random: &mut random,
                done: &mut done,
                since: Time::ZERO,
                bytes: 0,
                ready: 0,
            })
        };
        assert!(matches!(next(1), Step::Submit(_)));
        assert_eq!(next(1), Step::Await);
        assert!(matches!(next(2), Step::Submit(_)));
        assert_eq!(next(2), Step::Await);
        assert_eq!(next(4), Step::Exit);
    }
}
