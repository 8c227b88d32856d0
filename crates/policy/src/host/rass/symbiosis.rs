// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which two compute threads disturb each other least (M18, M19).
//!
//! CPI = B + M + W: cycles per instruction in which instructions issue (base), in
//! which the thread waits for memory (miss), and in which it waits for units that
//! the other hyperthread holds (waiting). The published formula that turns two
//! such accounts into an interference is only cited, so this one is ours: the
//! fractions of the three kinds say what a thread spends its time on, and two
//! threads disturb each other as far as they spend it on the same.

use units::Permille;

/// Cycle account of one vCPU, measured while the sibling was in context
/// retention (M18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// All cycles.
    pub total: u64,
    /// Cycles in which it issued: B.
    pub base: u64,
    /// Cycles in which it waited for memory: M.
    pub miss: u64,
}

impl Cycles {
    /// W = CPI - B - M (M18); 0 if the counters contradict each other.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.total
            .saturating_sub(self.base)
            .saturating_sub(self.miss)
    }

    /// B, M and W as fractions; None if nothing was measured.
    fn fractions(&self) -> Option<[u64; 3]> {
        if self.total == 0 {
            return None;
        }
        let part = |n: u64| u64::try_from(u128::from(n) * 1000 / u128::from(self.total)).ok();
        Some([part(self.base)?, part(self.miss)?, part(self.waiting())?])
    }
}

/// How well the two go together, 0 (everything on the same) to 1000 (nothing).
/// None if one has not been measured.
#[must_use]
pub fn symbiosis(a: &Cycles, b: &Cycles) -> Option<Permille> {
    let (a, b) = (a.fractions()?, b.fractions()?);
    let clash: u64 = a.iter().zip(b).map(|(a, b)| a * b).sum::<u64>() / 1000;
    let good = 1000_u64.saturating_sub(clash);
    Some(Permille::new(u16::try_from(good).unwrap_or(1000)))
}

/// M19: of the first `candidates` of `ready` (in the order of the fair scheduler)
/// the one that goes best with `running`. One that has not been measured counts
/// as 0, so it is taken only if there is no better; the first of equals wins,
/// which is fairness again.
#[must_use]
pub fn partner(
    running: Option<&Cycles>,
    ready: &[(usize, Option<Cycles>)],
    candidates: usize,
) -> Option<usize> {
    let score = |cycles: Option<Cycles>| {
        running
            .zip(cycles)
            .and_then(|(a, b)| symbiosis(a, &b))
            .unwrap_or(Permille::ZERO)
    };
    ready
        .iter()
        .take(candidates.max(1))
        .map(|&(vcpu, cycles)| (vcpu, score(cycles)))
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(vcpu, _)| vcpu)
}
