// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nothing but computing.

use units::Ns;

use super::Cx;
use super::Program;
use super::Step;

/// Computes for ever and counts units of work.
#[derive(Clone, Debug)]
pub struct Compute {
    unit: Ns,
    running: bool,
}

impl Compute {
    /// Units of this length at full speed. Longer units are fewer events.
    #[must_use]
    pub const fn new(unit: Ns) -> Self {
        Self {
            unit,
            running: false,
        }
    }
}

impl Program for Compute {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        if self.running {
            cx.done.operations += 1;
        }
        self.running = true;
        Step::Compute(self.unit)
    }
}
