// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policies and their parameters. Pure: numbers in, numbers out.

pub(crate) mod balance;
pub mod credit;
pub mod fixed;
pub mod isacs;
pub mod ische;
pub mod vslicer;

use std::fmt;

use clap::ValueEnum;
#[cfg(test)]
use units::Ns;

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

/// As the command line has it.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A vCPU of its own VM on a pCPU, of which nothing is known yet.
#[cfg(test)]
pub(crate) fn vcpu(tid: u32, cpu: u32) -> crate::table::Vcpu {
    crate::table::Vcpu {
        vm: tid,
        name: String::new(),
        policy: String::new(),
        tid,
        vcpu: 0,
        state: crate::table::State::Runs,
        cpu,
        weight: 256,
        class: crate::config::Class::Cpu,
        cap_permille: 0,
        ran: Ns::ZERO,
        share_permille: 0,
        vm_share_permille: 0,
        waited: Ns::ZERO,
        longest_wait: Ns::ZERO,
        slept: Ns::ZERO,
        turns: 0,
        preempted: 0,
        wakes: 0,
        io: 0,
        ipi: 0,
        wake_ipis: 0,
        wakers: std::collections::BTreeMap::new(),
        halts: 0,
        halted: Ns::ZERO,
        own_slice: Ns::ZERO,
        latency: Ns::ZERO,
        slice: Ns::ZERO,
        credit: 0,
        ivcredit: Ns::ZERO,
    }
}
