// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caps of Credit1 (K1): "a capped domain that has used its credit waits for the next
//! period even if pCPUs are idle". Periods are 30 ms.

use units::Ns;

use super::bed::FREE;
use super::bed::Outcome;
use super::bed::Task;
use super::bed::Task::Hog;
use super::bed::Task::Reads;
use super::bed::Vm;
use super::bed::run;
use super::bed::vm;
use crate::hypervisor::Sharing;
use crate::hypervisor::by_name;

/// A hundred periods.
const LENGTH: Ns = Ns::from_secs(3);

fn with(policy: &str, pcpus: u32, vms: &[Vm]) -> Outcome {
    let sharing = Sharing {
        vms_per_pcpu: 2,
        slice: Ns::from_ms(11),
        sweep_permille: 0,
    };
    let policy = by_name(policy, &sharing).unwrap();
    run(policy, pcpus, false, FREE, vms, LENGTH)
}

fn capped(vcpus: &[&[Task]], cap_permille: u32) -> Vm {
    Vm {
        cap_permille,
        ..vm(vcpus)
    }
}

/// 20 % of a pCPU that nobody else wants: 6 ms of each 30, then it waits, ready, for the
/// next period. Without a cap all of it.
#[test]
fn a_capped_vm_leaves_a_pcpu_idle() {
    for policy in ["credit1", "credit1-hardened", "ische", "ische-hardened"] {
        let outcome = with(policy, 1, &[capped(&[&[Hog]], 200)]);
        assert_eq!(outcome.ran(), [Ns::from_ms(600)], "{policy}");
        let vcpu = &outcome.sim.machine().vcpus[0];
        assert_eq!(vcpu.ready, Ns::from_ms(2400), "{policy}");
        let free = with(policy, 1, &[vm(&[&[Hog]])]);
        assert_eq!(free.ran(), [LENGTH], "{policy}");
    }
}

/// Beside a hog it has what its cap allows, and the hog the rest.
#[test]
fn a_cap_bounds_a_share() {
    let outcome = with("credit1", 1, &[capped(&[&[Hog]], 200), vm(&[&[Hog]])]);
    assert_eq!(outcome.ran(), [Ns::from_ms(600), Ns::from_ms(2400)]);
}

/// The cap is the VM's: two vCPUs on two idle pCPUs have half of it each, one of 150 % is
/// not bound by a single pCPU. A part too small to be shared is rounded up: none would be
/// no cap at all.
#[test]
fn a_cap_is_the_vms() {
    let two: &[&[Task]] = &[&[Hog], &[Hog]];
    for (cap, each) in [(200, 300), (1500, 2250), (1, 3)] {
        let outcome = with("credit1", 2, &[capped(two, cap)]);
        let vcpus = &outcome.sim.machine().vcpus;
        let ran: Vec<Ns> = vcpus.iter().map(|v| v.ran).collect();
        assert_eq!(ran, [Ns::from_ms(each); 2], "{cap}");
    }
}

/// BOOST does not lift a cap: a reader of 0.2 ms work per request of 1.2 ms wants 17 % of
/// a pCPU and has the 5 % of its cap.
#[test]
fn a_boosted_vcpu_keeps_its_cap() {
    let free = with("credit1", 1, &[vm(&[&[Reads]])]).ran()[0];
    assert!(free.abs_diff(Ns::from_ms(500)) < Ns::from_ms(2), "{free}");
    let ran = with("credit1", 1, &[capped(&[&[Reads]], 50)]).ran()[0];
    assert_eq!(ran, Ns::from_ms(150));
}
