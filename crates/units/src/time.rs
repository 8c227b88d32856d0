// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instants and durations over integer nanoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::ops::AddAssign;
use std::ops::Div;
use std::ops::Mul;
use std::ops::Sub;

/// A duration in nanoseconds.
///
/// Arithmetic saturates at both ends: a duration is a length, and a decision
/// taken on a clamped length is safe, while a panic in a daemon is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Ns(pub u64);

impl Ns {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest duration, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    #[must_use]
    pub const fn from_us(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn from_ms(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// As a number of nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// In milliseconds, for people to read; never for a decision.
    #[must_use]
    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In microseconds, for people to read; never for a decision.
    #[must_use]
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In seconds, for people to read; never for a decision.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The distance between two durations.
    #[must_use]
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// `self * num / den`, in 128 bits so that nothing overflows on the way.
    /// A zero `den` gives [`Ns::MAX`].
    #[must_use]
    pub const fn scaled(self, num: u64, den: u64) -> Self {
        if den == 0 {
            return Self::MAX;
        }
        // Dividing 128 bits takes several times as long.
        if let Some(narrow) = self.0.checked_mul(num) {
            return Self(narrow / den);
        }
        let wide = self.0 as u128 * num as u128 / den as u128;
        if wide > u64::MAX as u128 {
            Self::MAX
        } else {
            Self(wide as u64)
        }
    }

    /// The standard library's type, for calls that want one.
    #[must_use]
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl From<std::time::Duration> for Ns {
    fn from(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Ns {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ns {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Ns {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Ns {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Ns {
    type Output = Self;
    fn div(self, n: u64) -> Self {
        Self(self.0 / n.max(1))
    }
}

impl Sum for Ns {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Ns {
    /// With the unit a person would choose: `250 ns`, `300 us`, `11 ms`, `2.5 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n < 1_000 => return write!(f, "{n} ns"),
            n if n < 1_000_000 => (n as f64 / 1e3, "us"),
            n if n < 1_000_000_000 => (n as f64 / 1e6, "ms"),
            n => (n as f64 / 1e9, "s"),
        };
        let text = format!("{value:.2}");
        write!(
            f,
            "{} {unit}",
            text.trim_end_matches('0').trim_end_matches('.')
        )
    }
}

/// An instant: nanoseconds on one monotonic clock.
///
/// In a guest that is `CLOCK_MONOTONIC` (V13), the clock of `bpf_ktime_get_ns`;
/// in the simulator, simulated time. Instants of two clocks must never meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Time(pub u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The time since `earlier`; zero if `earlier` is in fact later, which
    /// happens when another CPU's stamp is compared with our own reading.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Ns {
        Ns(self.0.saturating_sub(earlier.0))
    }

    /// As nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

impl Add<Ns> for Time {
    type Output = Self;
    fn add(self, d: Ns) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl Sub<Ns> for Time {
    type Output = Self;
    fn sub(self, d: Ns) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_never_goes_negative() {
        assert_eq!(Time(5).since(Time(9)), Ns::ZERO);
        assert_eq!(Time(9).since(Time(5)), Ns(4));
    }

    #[test]
    fn display_picks_a_readable_unit() {
        let shown: Vec<String> = [0, 999, 1_500, 300_000, 11_000_000, 2_500_000_000]
            .map(|n| Ns(n).to_string())
            .into();
        assert_eq!(
            shown,
            ["0 ns", "999 ns", "1.5 us", "300 us", "11 ms", "2.5 s"]
        );
    }

    #[test]
    fn scaling_does_not_overflow_on_the_way() {
        assert_eq!(Ns(u64::MAX).scaled(3, 3), Ns(u64::MAX));
        assert_eq!(Ns(u64::MAX).scaled(3, 2), Ns::MAX);
        assert_eq!(Ns(7).scaled(1, 0), Ns::MAX);
    }
}
