// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Equations (1) and (2), exactly.

use units::Ns;

/// A non-negative rational number. Not reduced; exact for every input here.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    num: u128,
    den: u128,
}

impl Ratio {
    /// `num / den`; `None` if `den` is zero.
    const fn new(num: u128, den: u128) -> Option<Self> {
        if den == 0 {
            return None;
        }
        Some(Self { num, den })
    }

    /// In thousandths, rounded to the nearest; at most `u64::MAX`.
    #[must_use]
    pub const fn permille(self) -> u64 {
        let whole = self.num / self.den;
        let rest = self.num % self.den;
        let thousandths = whole
            .saturating_mul(1000)
            .saturating_add((rest.saturating_mul(1000).saturating_add(self.den / 2)) / self.den);
        if thousandths > u64::MAX as u128 {
            u64::MAX
        } else {
            thousandths as u64
        }
    }

    /// For people to read; never for a decision.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

/// N_min = T_ns / T_ts, rounded down as in the published tables; zero if the
/// slice length is zero.
#[must_use]
pub fn n_min(t_ns: Ns, t_ts: Ns) -> u64 {
    t_ns.as_ns().checked_div(t_ts.as_ns()).unwrap_or(0)
}

/// Equation (1): the speedup over a vCPU that is active one slice out of `n`,
/// for a load that takes `t_ns` on a dedicated pCPU and `n_migrate` migrations
/// of `c_avg`. `None` if the load takes no time at all.
#[must_use]
pub fn speedup(t_ns: Ns, n: u32, n_migrate: u64, c_avg: Ns) -> Option<Ratio> {
    let own = u128::from(t_ns.as_ns());
    let cost = u128::from(n_migrate) * u128::from(c_avg.as_ns());
    Ratio::new(own * u128::from(n), own.saturating_add(cost))
}

/// Equation (2): the same with T_ns written as N_min slices of `t_ts`.
#[must_use]
pub fn speedup_by_slices(n: u32, n_migrate: u64, c_avg: Ns, n_min: u64, t_ts: Ns) -> Option<Ratio> {
    let own = u128::from(n_min) * u128::from(t_ts.as_ns());
    let cost = u128::from(n_migrate) * u128::from(c_avg.as_ns());
    Ratio::new(own.saturating_mul(u128::from(n)), own.saturating_add(cost))
}

/// P as the first paper prints it: N_migrate / N_min, towards 1 is better.
/// `None` before the first slice end.
#[must_use]
pub fn p_count(n_migrate: u64, n_min: u64) -> Option<Ratio> {
    Ratio::new(u128::from(n_migrate), u128::from(n_min))
}

/// P as the dissertation prints it: (N_migrate * C_avg) / (N_min * T_ts),
/// towards 0 is better. `None` before the first slice end.
#[must_use]
pub fn p_cost(n_migrate: u64, c_avg: Ns, n_min: u64, t_ts: Ns) -> Option<Ratio> {
    Ratio::new(
        u128::from(n_migrate) * u128::from(c_avg.as_ns()),
        u128::from(n_min) * u128::from(t_ts.as_ns()),
    )
}
