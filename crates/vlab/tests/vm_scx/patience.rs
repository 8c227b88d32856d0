// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What would make the kernel's watchdog end the scheduler: threads that anybody may start, and
//! values within their ranges. And masks, over a CPU that goes.

use units::Ns;

use super::Machine;
use super::boot_with;
use super::number;
use super::ran;
use super::said;
use super::vcpus;

/// The watchdog that the script asks for.
const WATCHDOG: Ns = Ns::from_secs(5);

#[test]
fn root_vm_scx_vcpu_nobody_waits_for_the_watchdog_and_masks_come_back() {
    let output = boot_with(
        include_str!("patience.sh"),
        Machine {
            cpus: Some(3),
            ..Machine::default()
        },
    );
    // What is no table.
    for line in output.stdout.lines().filter(|line| line.len() < 100) {
        eprintln!("{line}");
    }
    for policy in ["credit1", "credit2", "vslicer", "ische", "isacs", "fixed"] {
        let key = format!("strangers-{policy}");
        let all = vcpus(&output, &key, 6);
        let strangers = Ns::from_ms(number(&output, &format!("{key}-ran")));
        let longest: Vec<Ns> = all.iter().map(|vcpu| vcpu.longest_wait).collect();
        eprintln!(
            "{policy}: vCPUs had {} beside strangers that had {strangers}, waited {longest:?} at most",
            ran(&all)
        );
        assert_eq!(said(&output, &format!("{key}-state")), "enabled");
        assert_eq!(number(&output, &format!("{key}-exit")), 0);
        // In their turn, and not because they were overdue. How long a stranger's turn is, is the
        // tick's to say: on an emulated host that others use it is late by as much as it likes.
        assert!(
            longest.iter().all(|wait| *wait < WATCHDOG / 3),
            "{policy}: {all:?}"
        );
        assert!(strangers > Ns::ZERO);
        assert!(all.iter().all(|vcpu| vcpu.ran > Ns::ZERO), "{all:?}");
    }
    for key in ["weight-credit1", "weight-credit2", "cap", "slices"] {
        assert_eq!(said(&output, &format!("{key}-state")), "enabled", "{key}");
        assert_eq!(number(&output, &format!("{key}-exit")), 0, "{key}");
        let all = vcpus(&output, if key == "cap" { "cap-low" } else { key }, 7);
        let longest: Vec<Ns> = all.iter().map(|vcpu| vcpu.longest_wait).collect();
        eprintln!("{key}: vCPUs had {}, waited {longest:?} at most", ran(&all));
        assert!(all.iter().all(|vcpu| vcpu.turns > 0), "{key}: {all:?}");
        assert!(
            longest.iter().all(|wait| *wait < WATCHDOG),
            "{key}: {all:?}"
        );
    }

    assert_eq!(said(&output, "narrowed").trim(), "4 0-2 3 1-2");
    for online in ["online-0", "online-1"] {
        assert_eq!(said(&output, online).trim(), "4 0-2 3 1-2");
    }
    assert_eq!(said(&output, "restored").trim(), "7 0-2");

    // What was not done is said to who asked.
    assert_eq!(number(&output, "unset-exit"), 1);
    let why = said(&output, "unset-said");
    assert!(why.contains("cannot set the CPUs of vCPU 0"), "{why}");
    // A part of each VM's command line, and no VM's process id.
    assert_eq!(number(&output, "number-exit"), 1);
}
