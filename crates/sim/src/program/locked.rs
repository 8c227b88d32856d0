// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that share a lock.

use units::Ns;

use super::Cx;
use super::Program;
use super::Step;

/// Computes, takes a lock of its VM, computes while it holds it, gives it back; the
/// work outside varies from turn to turn.
#[derive(Clone, Debug)]
pub struct Locked {
    lock: u32,
    work: Ns,
    spread: u32,
    hold: Ns,
    spin: Ns,
    step: u8,
}

impl Locked {
    /// Takes lock `lock` after `work` in the median, with a sigma of its logarithm of
    /// `spread` thousandths, holds it for `hold` of CPU time and spins for `spin` before
    /// it blocks.
    #[must_use]
    pub const fn new(lock: u32, work: Ns, spread: u32, hold: Ns, spin: Ns) -> Self {
        Self {
            lock,
            work,
            spread,
            hold,
            spin,
            step: 0,
        }
    }
}

impl Program for Locked {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        let (lock, step) = (self.lock, self.step);
        self.step = (step + 1) % 4;
        match step {
            0 => Step::Compute(cx.random.log_normal(self.work, self.spread).max(Ns(1))),
            1 => Step::Lock {
                lock,
                spin: self.spin,
            },
            2 => Step::Compute(self.hold.max(Ns(1))),
            _ => {
                cx.done.operations += 1;
                Step::Unlock { lock }
            }
        }
    }
}
