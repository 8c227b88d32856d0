// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of several threads.

use units::Ns;
use units::Time;

use super::Cx;
use super::Program;
use super::Step;
use crate::ids::DeviceId;

/// One thread of a program that computes and meets its others at a barrier, again
/// and again; the work of a round varies from thread to thread.
#[derive(Clone, Debug)]
pub struct Parallel {
    /// Barrier in its VM.
    pub barrier: u32,
    /// Median work of a round at full speed.
    pub length: Ns,
    /// Sigma of its logarithm, in thousandths.
    pub spread: u32,
    /// Spins so long at the barrier before it blocks.
    pub spin: Ns,
    /// It has computed and comes to the barrier now.
    pub computed: bool,
}

impl Program for Parallel {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        self.computed = !self.computed;
        if self.computed {
            return Step::Compute(cx.random.log_normal(self.length, self.spread).max(Ns(1)));
        }
        cx.done.operations += 1;
        Step::Barrier {
            barrier: self.barrier,
            spin: self.spin,
        }
    }
}

/// A program that begins later.
#[derive(Debug)]
pub struct Later {
    wait: Option<Ns>,
    inner: Box<dyn Program>,
}

impl Later {
    /// Sleeps for `wait` first.
    #[must_use]
    pub const fn new(wait: Ns, inner: Box<dyn Program>) -> Self {
        Self {
            wait: Some(wait),
            inner,
        }
    }
}

impl Program for Later {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        match self.wait.take() {
            Some(wait) => Step::Sleep(wait.max(Ns(1))),
            None => self.inner.next(cx),
        }
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
