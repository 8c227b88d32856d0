// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares by weight.

use std::time::Duration;

use super::Machine;
use super::boot_with;
use super::share;
use super::vcpus;

/// All policies, each with the published rules; where those forgive debts also with
/// `keeps_debt`.
const RUNS: [&str; 8] = [
    "fixed-published",
    "vslicer-published",
    "ische-published",
    "credit1-published",
    "credit2-published",
    "credit2-debt",
    "isacs-published",
    "isacs-debt",
];

/// `SHARES_WINDOW` and `SHARES_RUNS` choose other windows and only some of the runs.
#[test]
#[ignore = "takes minutes and a quiet machine; part of the long proofs, see docs/scx_vcpu-measured.md"]
fn root_vm_scx_vcpu_shares_follow_weights() {
    let window = std::env::var("SHARES_WINDOW").unwrap_or("10s".to_owned());
    let runs = std::env::var("SHARES_RUNS").unwrap_or(RUNS.join(" "));
    let script = format!(
        "WINDOW={window}\nRUNS=\"{runs}\"\n{}",
        include_str!("shares.sh")
    );
    // 20 windows of half a minute each, and what is between them: 624 s were seen. The VMs stay
    // for longer than that.
    let machine = Machine {
        deadline: Some(Duration::from_secs(1500)),
        cpus: Some(3),
        ..Machine::default()
    };
    let output = boot_with(&script, machine);
    let mut worst = Vec::new();
    for run in runs.split(' ') {
        let heeds_weights = !run.starts_with("fixed") && !run.starts_with("vslicer");
        let weights = [(256, 1), (512, 2), (1024, 4)];
        for &(weight, part) in &weights[..if heeds_weights { 3 } else { 1 }] {
            let vcpus = vcpus(&output, &format!("{run}-{weight}"), 4);
            let (asked, got) = (
                f64::from(part) / f64::from(part + 1),
                share(&vcpus[..2], &vcpus[2..]),
            );
            // A VM's CPU time against its own share.
            let off = |got: f64, asked: f64| 100.0 * (got / asked - 1.0);
            eprintln!(
                "{run}, {part} : 1 for {window}: {got:.4}, asked {asked:.4}; of their shares {:+.2} % and {:+.2} %",
                off(got, asked),
                off(1.0 - got, 1.0 - asked),
            );
            // Whose debts are forgiven pays less than it owes.
            let forgives = ["credit2-published", "isacs-published"].contains(&run);
            let bound = if forgives { 0.06 } else { 0.01 };
            if (got - asked).abs() > bound {
                worst.push((run, weight, got));
            }
        }
    }
    assert!(worst.is_empty(), "{worst:?}");
}
