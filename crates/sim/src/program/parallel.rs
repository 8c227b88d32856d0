// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of several threads.

use units::Ns;

use super::Cx;
use super::Program;
use super::Step;

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
}
