// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's credit schedulers: [`credit1`] (K1..K8) and [`credit2`] (K9..K15).
//!
//! The arithmetic is in `include/credit*.h`, because the real host scheduler does
//! it in the kernel at each dispatch; these modules call the very same C
//! functions. `tests/mirror.rs` has every formula a second time in Rust, in 128
//! bits, and compares the two.

use std::fmt;

use units::Ns;

pub mod credit1;
pub mod credit2;
pub(crate) mod ffi;

/// Why a vCPU became runnable. Credit1 and ISACS treat the two differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// An I/O response event: an interrupt that a device raised to it (K4, I2).
    Io,
    /// Anything else: a timer, an IPI of a sibling, its start.
    Other,
}

/// A credit: nanoseconds of CPU time at the reference weight that a vCPU may
/// still use (I9). Negative: it has used more than it was given.
///
/// Clamped to 2^60 ns either way, so sums never overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credit(pub i64);

impl Credit {
    /// Nothing left, nothing owed.
    pub const ZERO: Self = Self(0);

    /// Credit worth `ns`.
    #[must_use]
    pub fn of(ns: Ns) -> Self {
        Self::ZERO.plus(ns)
    }

    /// After being given `ns`.
    #[must_use]
    pub fn plus(self, ns: Ns) -> Self {
        Self(ffi::policy_credit_add(self.0, ns.as_ns()))
    }

    /// After burning `ns` (K5).
    #[must_use]
    pub fn burn(self, ns: Ns) -> Self {
        Self(ffi::policy_credit_burn(self.0, ns.as_ns()))
    }

    /// What is left; nothing if it is negative.
    #[must_use]
    pub fn left(self) -> Ns {
        Ns(u64::try_from(self.0).unwrap_or(0))
    }
}

impl fmt::Display for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        Ns(self.0.unsigned_abs()).fmt(f)
    }
}

/// Relative CPU time of a vCPU under contention (K1, K11), 1..=65536; Xen's
/// default is 256. Zero becomes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Weight {
    /// 256, which is also the reference: at this weight a nanosecond costs a
    /// nanosecond of credit.
    pub const DEFAULT: Self = Self(256);

    /// The weight `n`, brought into 1..=65536.
    #[must_use]
    pub const fn new(n: u32) -> Self {
        match n {
            0 => Self(1),
            1..=65_536 => Self(n),
            _ => Self(65_536),
        }
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests;
