// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Retention-aware symbiotic scheduling on the two hyperthreads of a core
//! (M13..M19).
//!
//! [`classify`] splits a core's vCPUs into I/O-bound and CPU-bound halves by
//! retention rate (M14). One hyperthread is for the CPU-bound, the other mainly
//! for the I/O-bound (M15), so that computing overlaps waiting. When no I/O-bound
//! vCPU is ready, [`next_on_io_thread`] lends that hyperthread to a CPU-bound one
//! chosen by [`symbiosis()`], and takes it back as soon as one is ready (M16).

use units::Permille;

mod symbiosis;

pub use symbiosis::Cycles;
pub use symbiosis::partner;
pub use symbiosis::symbiosis;

/// What a vCPU is in this period (M14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Lives on computing.
    Cpu,
    /// Waits in context retention often.
    Io,
}

/// What is left open (M17, M19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many CPU-bound vCPUs fairness preselects: "a few" (M19). 3.
    pub candidates: usize,
    /// M17's option: weights rise with the retention rate, up to this many
    /// thousandths at a rate of 1. 0: off, as in most cases of the text.
    pub compensation_permille: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            candidates: 3,
            compensation_permille: 0,
        }
    }
}

/// One vCPU of a core at the beginning of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// Retention rate of the last period (M13).
    pub rate: Permille,
    /// Its weight in the host's fair scheduler.
    pub weight: u32,
}

impl Vcpu {
    /// Its weight with M17's compensation.
    #[must_use]
    pub fn weight(&self, settings: &Settings) -> u64 {
        let extra = u64::from(self.rate.get()) * u64::from(settings.compensation_permille);
        u64::from(self.weight) * (1_000_000 + extra) / 1_000_000
    }
}

/// The class of each vCPU of a core for the next period (M14): ranked by
/// retention rate, the top ones are I/O-bound, cut where the weights of the two
/// groups come closest. Of two cuts that are as good the one with fewer I/O-bound
/// vCPUs; equal rates keep their order. On a core where nobody waits this still
/// makes two halves, one per hyperthread, which is what a plain scheduler does.
#[must_use]
pub fn classify(core: &[Vcpu], settings: &Settings) -> Vec<Class> {
    let mut ranked: Vec<usize> = (0..core.len()).collect();
    ranked.sort_by_key(|&v| (std::cmp::Reverse(core[v].rate), v));
    let total: u64 = core.iter().map(|v| v.weight(settings)).sum();
    let mut io = 0;
    let mut best = (total, 0);
    for (count, &v) in ranked.iter().enumerate() {
        io += core[v].weight(settings);
        // |W_io - W_cpu|
        let unequal = (io * 2).abs_diff(total);
        if unequal < best.0 {
            best = (unequal, count + 1);
        }
    }
    let mut classes = vec![Class::Cpu; core.len()];
    for &v in &ranked[..best.1] {
        classes[v] = Class::Io;
    }
    classes
}

/// What the I/O hyperthread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoThread {
    /// Nothing.
    Idle,
    /// An I/O-bound vCPU runs or is in context retention, which is not idle
    /// (M16).
    Busy,
    /// It is lent to this CPU-bound vCPU.
    Lent(usize),
}

/// What to do with the I/O hyperthread now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave it as it is.
    Keep,
    /// Run this I/O-bound vCPU; a borrower goes back to the CPU hyperthread.
    Run(usize),
    /// Bring this CPU-bound vCPU over (M16).
    Lend(usize),
}

/// M16: `ready_io` is the I/O-bound vCPU that the fair scheduler would run next,
/// `partner` the CPU-bound one that [`partner()`] chose.
#[must_use]
pub fn next_on_io_thread(
    thread: IoThread,
    ready_io: Option<usize>,
    partner: Option<usize>,
) -> Decision {
    match (thread, ready_io, partner) {
        (IoThread::Idle | IoThread::Lent(_), Some(io), _) => Decision::Run(io),
        (IoThread::Idle, None, Some(cpu)) => Decision::Lend(cpu),
        _ => Decision::Keep,
    }
}

#[cfg(test)]
mod tests;
