// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM gains that sleeps just before it is charged, or whose device raises interrupts
//! without end: by the published rules, and with the fixes that are behind switches.

use std::time::Duration;

use units::Ns;

use super::Machine;
use super::boot_with;
use super::number;
use super::vcpus;

/// All policies by their published rules; those that have fixes also with these.
const RUNS: [&str; 10] = [
    "fixed-published",
    "vslicer-published",
    "credit1-published",
    "credit1-hardened",
    "credit2-published",
    "credit2-hardened",
    "ische-published",
    "ische-hardened",
    "isacs-published",
    "isacs-hardened",
];

const ATTACKS: [&str; 2] = ["sleeps", "storm"];

/// Three VMs of equal weight on one pCPU.
const FAIR: f64 = 1.0 / 3.0;

/// What an attacker may have beside its fair share.
const GOAL: f64 = 1.01;

/// `ATTACKS_WINDOW` and `ATTACKS_RUNS` choose other windows and only some of the runs.
#[test]
#[ignore = "takes ten minutes; part of the long proofs, see docs/scx_vcpu-measured.md"]
fn root_vm_scx_vcpu_attackers_gain_nothing() {
    let window = std::env::var("ATTACKS_WINDOW").unwrap_or("20".to_owned());
    let runs = std::env::var("ATTACKS_RUNS").unwrap_or(RUNS.join(" "));
    let script = include_str!("attacks.sh");
    let output = boot_with(
        &format!("window={window}\nruns='{runs}'\n{script}"),
        Machine {
            deadline: Some(Duration::from_secs(1500)),
            ..Machine::default()
        },
    );
    let mut gained = Vec::new();
    for run in runs.split(' ') {
        assert_eq!(number(&output, &format!("{run}-exit")), 0);
        for attack in ATTACKS {
            let all = vcpus(&output, &format!("{run}-{attack}"), 3);
            let had: Vec<u64> = all.iter().map(|vcpu| vcpu.ran.0).collect();
            let sum: u64 = had.iter().sum();
            let part = |ran: u64| ran as f64 / sum as f64;
            let over = part(had[2]) / FAIR;
            eprintln!(
                "{run}, {attack}: the attacker had {:.4}, {over:.3} of its fair share, the others {:.4} and {:.4} of {}; {} interrupts, {} wake-ups, {} turns, the others {} and {}",
                part(had[2]),
                part(had[0]),
                part(had[1]),
                Ns(sum),
                all[2].io,
                all[2].wakes,
                all[2].turns,
                all[0].turns,
                all[1].turns
            );
            // The storm was there, and nobody else's device was.
            assert!(all[2].io > 100 && all[0].io + all[1].io == 0, "{all:?}");
            let held_to = run.ends_with("-hardened") || RUNS[..2].contains(&run);
            if held_to && over > GOAL {
                gained.push((run, attack, over));
            }
        }
    }
    assert!(gained.is_empty(), "{gained:?}");
}
