// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that want more than their share.

use units::Ns;

use super::Cx;
use super::Program;
use super::Request;
use super::Step;
use crate::ids::DeviceId;

/// A unit of work of both.
const UNIT: Ns = Ns::from_ms(1);

/// Computes, but sleeps over each instant at which a host charges whoever runs.
#[derive(Clone, Debug)]
pub struct Dodger {
    tick: Ns,
    early: Ns,
    ran: Ns,
}

impl Dodger {
    /// Ticks are multiples of `tick`; it sleeps from `early` before each until `early`
    /// after it.
    #[must_use]
    pub const fn new(tick: Ns, early: Ns) -> Self {
        Self {
            tick,
            early,
            ran: Ns::ZERO,
        }
    }
}

impl Program for Dodger {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        let (tick, early) = (self.tick.max(Ns(1)), self.early);
        while self.ran >= UNIT {
            self.ran = self.ran - UNIT;
            cx.done.operations += 1;
        }
        let into = Ns(cx.now.0 % tick.0);
        let left = tick - into;
        if into < early {
            return Step::Sleep((early - into).max(Ns(1)));
        }
        if left <= early {
            return Step::Sleep((left + early).max(Ns(1)));
        }
        let piece = (left - early).min(UNIT);
        self.ran += piece;
        Step::Compute(piece)
    }
}

/// Computes, and makes I/O events: after so much work it takes a completion for which
/// it has not waited and asks for another byte.
#[derive(Clone, Debug)]
pub struct FakeIo {
    device: DeviceId,
    every: Ns,
    step: u8,
    ran: Ns,
}

impl FakeIo {
    /// A request of one byte to `device` after each `every` of work.
    #[must_use]
    pub const fn new(device: DeviceId, every: Ns) -> Self {
        Self {
            device,
            every,
            step: 0,
            ran: Ns::ZERO,
        }
    }
}

impl Program for FakeIo {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        while self.ran >= UNIT {
            self.ran = self.ran - UNIT;
            cx.done.operations += 1;
        }
        self.step = (self.step + 1) % 3;
        match self.step {
            1 => Step::Submit(Request {
                device: self.device,
                bytes: 1,
                offset: 0,
                // On a network a send; elsewhere it does not matter.
                write: true,
            }),
            2 => {
                let every = self.every.max(Ns(1));
                self.ran += every;
                Step::Compute(every)
            }
            _ => Step::Await,
        }
    }

    fn device(&self) -> Option<DeviceId> {
        Some(self.device)
    }
}

#[cfg(test)]
mod tests {
    use units::Time;

    use super::*;
    use crate::program::Done;
    use crate::random::Random;
    use crate::random::Stream;

    /// What a program does when everything takes as long as it should.
    fn steps(program: &mut dyn Program, count: usize) -> (Vec<(Time, Step)>, Done) {
        let (mut random, mut done) = (Random::child(1, Stream::Program, 0, 0), Done::default());
        let mut now = Time::ZERO;
        let mut steps = Vec::new();
        for _ in 0..count {
            let step = program.next(&mut Cx {
                now,
                random: &mut random,
                done: &mut done,
                since: Time::ZERO,
                bytes: 0,
                ready: 0,
            });
            steps.push((now, step));
            if let Step::Compute(length) | Step::Sleep(length) = step {
                now = now + length;
            }
        }
        (steps, done)
    }

    #[test]
    fn a_dodger_never_computes_at_a_tick_and_hardly_sleeps() {
        let (tick, early) = (Ns::from_ms(10), Ns::from_us(200));
        let (steps, done) = steps(&mut Dodger::new(tick, early), 600);
        let mut slept = Ns::ZERO;
        for (at, step) in &steps {
            match step {
                Step::Compute(length) => {
                    let into = Ns(at.0 % tick.0);
                    assert!(
                        into >= early && into + *length <= tick - early,
                        "{at:?} {length}"
                    );
                }
                Step::Sleep(length) => slept += *length,
                other => panic!("{other:?}"),
            }
        }
        let all = steps[steps.len() - 1].0.since(Time::ZERO);
        assert!(slept.0 * 20 < all.0, "{slept} of {all}");
        assert!(done.operations > 400, "{}", done.operations);
    }

    #[test]
    fn fake_io_asks_once_for_each_piece_of_work() {
        let (steps, done) = steps(&mut FakeIo::new(DeviceId(0), Ns::from_ms(1)), 300);
        let count = |of: fn(&Step) -> bool| steps.iter().filter(|(_, step)| of(step)).count();
        assert_eq!(count(|step| matches!(step, Step::Submit(_))), 100);
        assert_eq!(count(|step| matches!(step, Step::Await)), 100);
        assert!(done.operations >= 99, "{}", done.operations);
    }
}
