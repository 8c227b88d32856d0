// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and shares in thousandths.

use std::fmt;

use crate::Ns;

/// A ratio in thousandths, 0..=1000: an I/O load, a share of a CPU, a
/// confidence. Integer, because it takes part in decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Permille(u16);

impl Permille {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// All of it.
    pub const ONE: Self = Self(1000);

    /// `n` thousandths; more than 1000 is clamped to 1000.
    #[must_use]
    pub const fn new(n: u16) -> Self {
        if n > 1000 { Self(1000) } else { Self(n) }
    }

    /// `part / whole`; zero if `whole` is zero, at most 1000.
    #[must_use]
    pub const fn of(part: Ns, whole: Ns) -> Self {
        if whole.0 == 0 {
            return Self::ZERO;
        }
        let ratio = part.0 as u128 * 1000 / whole.0 as u128;
        if ratio > 1000 {
            Self(1000)
        } else {
            Self(ratio as u16)
        }
    }

    /// As a number of thousandths.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// As a fraction, for people to read; never for a decision.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} %", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_clamps_and_survives_zero() {
        assert_eq!(Permille::of(Ns(3), Ns(0)), Permille::ZERO);
        assert_eq!(Permille::of(Ns(3), Ns(2)), Permille::ONE);
        assert_eq!(Permille::of(Ns(u64::MAX), Ns(u64::MAX)), Permille::ONE);
        assert_eq!(Permille::of(Ns(1), Ns(4)).get(), 250);
    }
}
