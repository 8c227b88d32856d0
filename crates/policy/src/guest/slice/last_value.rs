// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published estimator.

use units::Ns;
use units::Permille;

use super::SliceEstimator;
use crate::guest::view::Estimate;

/// This slice is as long as the last one (V10), this gap as long as the last
/// one (V12). No averaging, no doubt.
#[derive(Clone, Debug, Default)]
pub struct LastValue {
    last: Option<(Ns, Ns)>,
}

impl LastValue {
    /// Knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: None }
    }
}

impl SliceEstimator for LastValue {
    fn observe(&mut self, on: Ns, off: Ns) {
        self.last = Some((on, off));
    }

    fn slice(&self) -> Option<Estimate> {
        self.last.map(|(on, _)| certain(on))
    }

    fn gap(&self) -> Option<Estimate> {
        self.last.map(|(_, off)| certain(off))
    }
}

/// The published rule knows no spread.
const fn certain(value: Ns) -> Estimate {
    Estimate {
        value,
        low: value,
        high: value,
        confidence: Permille::ONE,
    }
}
