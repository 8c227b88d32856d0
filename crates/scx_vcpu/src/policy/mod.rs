// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policies and their parameters. Pure: numbers in, numbers out.

pub mod credit;
pub mod fixed;
pub mod isacs;
pub mod ische;
pub mod vslicer;

use clap::ValueEnum;

/// Who decides which vCPU is next, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Round robin with one length of slice per pCPU.
    Fixed,
    /// Xen's credit scheduler: BOOST, UNDER, OVER (K1..K8).
    Credit1,
    /// Its successor: who has most credit runs (K9..K15).
    Credit2,
    /// Short slices for latency-sensitive VMs (SL1..SL7).
    Vslicer,
    /// I/O cores and general cores (S1..S9).
    Ische,
    /// Credit2 with I/O strength (I1..I19).
    Isacs,
    /// Dispatches nobody. For tests: a broken scheduler, which the kernel's watchdog ends.
    #[value(hide = true)]
    Never,
}
