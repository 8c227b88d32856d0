// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit2 and ISACS with what Xen 4.12 adds.

use policy::host::credit::credit2::Xen;
use units::Ns;

use super::bed::FREE;
use super::bed::Outcome;
use super::bed::Task;
use super::bed::Task::Hog;
use super::bed::Task::Naps;
use super::bed::Task::Reads;
use super::bed::Vm;
use super::bed::run;
use super::bed::vm;
use crate::hypervisor::Credit2;
use crate::hypervisor::Credit2Settings;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::Isacs;
use crate::hypervisor::IsacsSettings;

fn credit2(xen: Option<Xen>) -> Box<dyn Hypervisor> {
    let settings = Credit2Settings {
        pcpus_per_queue: 8,
        xen,
        ..Credit2Settings::default()
    };
    Box::new(Credit2::new("credit2", settings))
}

fn isacs() -> Box<dyn Hypervisor> {
    let settings = IsacsSettings {
        pcpus_per_queue: 8,
        xen: Some(Xen::default()),
        ..IsacsSettings::default()
    };
    Box::new(Isacs::new("isacs", settings))
}

fn on(policy: Box<dyn Hypervisor>, pcpus: u32, vms: &[Vm], ms: u64) -> Outcome {
    run(policy, pcpus, false, FREE, vms, Ns::from_ms(ms))
}

/// Three hogs of 10 ms each on one pCPU. Each runs for a millisecond; at 3 ms all have
/// 9, so the one that runs goes on for half a millisecond.
#[test]
fn turns_are_of_a_millisecond_at_least() {
    let hogs = [vm(&[&[Hog]]), vm(&[&[Hog]]), vm(&[&[Hog]])];
    let outcome = on(credit2(Some(Xen::default())), 1, &hogs, 7);
    let turns = [0, 1000, 2000, 3500, 4500, 5500, 6500];
    let order: Vec<(u64, u32)> = turns.into_iter().zip([0, 1, 2, 0, 1, 2, 0]).collect();
    assert_eq!(outcome.order_us(0), order);
}

/// With two, nobody else waits when one has just been displaced, which comes back into
/// the queue after that: the other's turn is as long as its credit. At 20 ms both have
/// nothing left, and the one that runs goes on with its new 10 ms.
#[test]
fn who_is_displaced_does_not_count_for_the_turn() {
    let hogs = [vm(&[&[Hog]]), vm(&[&[Hog]])];
    let outcome = on(credit2(Some(Xen::default())), 1, &hogs, 45);
    let order = [(0, 0), (1000, 1), (11_000, 0), (20_500, 1), (30_500, 0)];
    assert_eq!(outcome.order_us(0)[..5], order);
}

/// Who wakes within a millisecond of the hog's turn is not told of its end: it waits
/// until the hog's credit is used up. By the text (K10) it preempts at once.
#[test]
fn who_wakes_within_the_rate_limit_waits_for_the_turn() {
    let naps = Naps(Ns::from_us(100), Ns::from_us(300));
    let vms = [vm(&[&[naps]]), vm(&[&[Hog]])];
    let done = |xen| on(credit2(xen), 1, &vms, 120).operations(0);
    let (text, xen) = (done(None), done(Some(Xen::default())));
    assert!(text > 250, "{text}");
    assert!((10..60).contains(&xen), "{xen}");
}

/// Hogs in one run queue, some pCPUs of which others want as well: all get the same.
#[test]
fn a_shared_queue_starves_nobody() {
    let mut naps = vm(&[&[Naps(Ns::from_us(70), Ns::from_us(430))], &[Reads]]);
    naps.pinned = true;
    let hogs = vm(&[&[Hog] as &[Task]; 8]);
    for policy in [credit2(Some(Xen::default())), isacs()] {
        let name = policy.name();
        let outcome = on(policy, 6, &[naps.clone(), hogs.clone()], 2000);
        let ran: Vec<u64> = (outcome.sim.machine().vcpus[2..].iter())
            .map(|vcpu| vcpu.ran.as_ns() / 1_000_000)
            .collect();
        let (least, most) = (ran.iter().min().unwrap(), ran.iter().max().unwrap());
        assert!(most - least <= most / 20, "{name}: {ran:?}");
        assert!(outcome.operations(0) > 100, "{name}");
    }
}
