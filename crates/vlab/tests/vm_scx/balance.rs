// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load of pCPUs that are all busy.

use scx_vcpu::table::Vcpu;

use super::boot;
use super::vcpus;

/// Between the vCPU that had most and the one that had least.
fn spread(vcpus: &[Vcpu]) -> f64 {
    let ran = || vcpus.iter().map(|vcpu| vcpu.ran.0 as f64);
    ran().fold(0.0, f64::max) / ran().fold(f64::INFINITY, f64::min)
}

/// K14: no pCPU is idle, but three vCPUs share one and the fourth has the other.
#[test]
fn root_vm_scx_vcpu_credit2_evens_out_load() {
    let output = boot(include_str!("balance.sh"));
    let (off, on) = (vcpus(&output, "off", 4), vcpus(&output, "on", 4));
    let (without, with) = (spread(&off), spread(&on));
    eprintln!("most : least without balancing {without:.2}, with it {with:.2}");
    assert!(without > 2.0, "{off:?}");
    assert!(with < 1.3, "{on:?}");
}
