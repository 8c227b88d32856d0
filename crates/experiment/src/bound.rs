// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much placement can gain at most.
//!
//! # Definition
//! `solo` is the load's rate with the compute threads beside it and no sharing.
//! Under sharing, no placement of the tasks can do I/O while no CPU is on:
//!
//! * the completion follows the submitter (one queue per CPU): the bound is
//!   `solo` times the fraction of time in which at least one CPU was on;
//! * the device completes on one CPU: the bound is `solo` times the fraction of
//!   time in which *that* CPU was on, wherever the task is.
//!
//! Both fractions come from the log of the backend's host, for exactly the
//! measured window; the analytic values below are for orientation.
//!
//! # Limits
//! The bound is about *where* tasks run. Something that also changes *when*
//! they run on their CPU (`SCHED_FIFO`, a short slice) raises the rate above
//! `solo` already without sharing and may exceed the bound: the more so, the
//! more `solo` itself waits behind compute. So the report shows two more rates
//! without sharing: `solo-fifo`, where the I/O threads never wait, and `alone`,
//! without compute (which can be the lowest of all, since an idle CPU has to be
//! woken for each completion).

/// Fraction of time in which at least one of `cpus` CPUs is on, each being on
/// for one of `vms` VMs' slices in turn, with independent phases:
/// `1 - (1 - 1/N)^P`.
#[must_use]
pub fn analytic_union_share(vms: u32, cpus: u32) -> f64 {
    let off = 1.0 - 1.0 / f64::from(vms.max(1));
    1.0 - off.powi(i32::try_from(cpus).unwrap_or(i32::MAX))
}

/// By how much a task that always sits on a running vCPU beats one that stays
/// where it is: `(1 - (1 - 1/N)^P) * N`.
#[must_use]
pub fn analytic_speedup(vms: u32, cpus: u32) -> f64 {
    analytic_union_share(vms, cpus) * f64::from(vms.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_analytic_values_for_two_pcpus() {
        for (vms, cpus, speedup) in [
            (1, 2, 1.0),
            (2, 2, 1.5),
            (4, 2, 1.75),
            (8, 2, 1.875),
            (2, 8, 1.9921875),
            (4, 12, 3.87329),
            (8, 12, 6.388662),
        ] {
            let got = analytic_speedup(vms, cpus);
            assert!((got - speedup).abs() < 1e-4, "N={vms} P={cpus}: {got}");
        }
    }
}
