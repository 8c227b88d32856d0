// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers: one seed, one child generator per user.
//!
//! A child depends on the seed and its own name alone, not on who drew before: a
//! task that is added to a run does not change what the others draw. The
//! generator is PCG XSL 128/64, whose algorithm is fixed by its name, and the
//! distributions are computed here with `libm`, so a seed gives the same run on
//! every machine and with every version of the library.

use rand_core::Rng;
use rand_pcg::Pcg64;
use units::Ns;

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

/// Whose generator it is: the kind of user and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stream {
    /// A device.
    Device = 1,
    /// A task's program.
    Program = 2,
    /// A client outside the machine.
    Client = 3,
    /// The set-up of a scenario, for instance start times.
    Setup = 4,
    /// A guest's kernel.
    Kernel = 5,
}

impl Random {
    /// The child generator of one user.
    #[must_use]
    pub fn child(seed: u64, stream: Stream, vm: u32, number: u32) -> Self {
        let name = u128::from(stream as u32) << 64 | u128::from(vm) << 32 | u128::from(number);
        // The golden ratio spreads neighbouring seeds over the state.
        let state = u128::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let mut pcg = Pcg64::new(state, name);
        // Streams that differ in few bits begin alike.
        pcg.next_u64();
        pcg.next_u64();
        Self(pcg)
    }

    /// Uniform in `0..below`; 0 if `below` is 0.
    pub fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(below)) >> 64) as u64
    }

    /// Uniform in the open interval from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// True in `permille` of 1000 cases.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: Ns) -> Ns {
        let x = -libm::log(self.unit()) * mean.0 as f64;
        Ns(x as u64)
    }

    /// Log-normal with this median; `spread_permille` is sigma of the logarithm
    /// in thousandths. Zero spread: always the median, and nothing is drawn.
    pub fn log_normal(&mut self, median: Ns, spread_permille: u32) -> Ns {
        if spread_permille == 0 {
            return median;
        }
        // Box and Muller; the second value is thrown away to keep no state.
        let (u, v) = (self.unit(), self.unit());
        let normal = libm::sqrt(-2.0 * libm::log(u)) * libm::cos(core::f64::consts::TAU * v);
        let factor = libm::exp(normal * f64::from(spread_permille) / 1000.0);
        Ns((median.0 as f64 * factor) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_stable_and_differ() {
        let draw = |seed, number| Random::child(seed, Stream::Device, 0, number).below(1 << 40);
        assert_eq!(draw(1, 0), draw(1, 0));
        let mut all = vec![draw(1, 0), draw(1, 1), draw(2, 0), draw(2, 1)];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4);
        // A change of these values changes every result ever published.
        assert_eq!(
            Random::child(7, Stream::Program, 1, 2).below(1_000_000),
            FIRST
        );
    }

    const FIRST: u64 = 591_297;

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::child(3, Stream::Setup, 0, 0);
        let n = 20_000u64;
        let mean = |sum: u64| sum as f64 / n as f64;
        let exponential = mean((0..n).map(|_| random.exponential(Ns(10_000)).0).sum());
        assert!((9_700.0..10_300.0).contains(&exponential), "{exponential}");
        let mut normal: Vec<u64> = (0..n)
            .map(|_| random.log_normal(Ns(10_000), 500).0)
            .collect();
        normal.sort_unstable();
        let median = normal[normal.len() / 2];
        assert!((9_700..10_300).contains(&median), "{median}");
        let below = mean((0..n).map(|_| random.below(100)).sum());
        assert!((48.5..50.5).contains(&below), "{below}");
    }
}
