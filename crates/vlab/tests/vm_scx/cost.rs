// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ordinary threads of the host pay. Under emulation only ratios mean anything.

use std::path::Path;

use super::Machine;
use super::boot_with;
use super::said;

const PERF: &str = "/usr/bin/perf";

#[test]
#[ignore = "takes minutes and a quiet machine with perf; part of the long proofs, see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_costs_ordinary_threads_little() {
    assert!(Path::new(PERF).exists(), "no {PERF}; install linux-perf");
    let output = boot_with(
        include_str!("cost.sh"),
        Machine {
            programs: &[Path::new(PERF)],
            ..Machine::default()
        },
    );
    let seconds = |key: String| -> f64 {
        let said = said(&output, &key);
        said.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{key}: {said}"))
    };
    let mut medians = Vec::new();
    for vms in [0, 2] {
        for bench in ["messaging", "pipe"] {
            for policy in ["none", "fixed", "credit2"] {
                let mut all: Vec<f64> = (1..=3)
                    .map(|round| seconds(format!("{vms}-{policy}-{round}-{bench}")))
                    .collect();
                all.sort_by(f64::total_cmp);
                let median = all[1];
                eprintln!("{vms} VMs, {policy}: {bench} {median:.3} s, rounds {all:.3?}");
                medians.push((vms, policy, bench, median));
            }
        }
    }
    let of = |vms, policy, bench| {
        let found = medians
            .iter()
            .find(|m| (m.0, m.1, m.2) == (vms, policy, bench));
        found.unwrap().3
    };
    for bench in ["messaging", "pipe"] {
        // Beside vCPUs they come first: the kernel's own scheduler gives them their share.
        assert!(
            of(2, "credit2", bench) < of(2, "none", bench) * 1.2,
            "{bench}"
        );
        assert!(
            of(0, "credit2", bench) < of(0, "none", bench) * 1.5,
            "{bench}"
        );
    }
}
