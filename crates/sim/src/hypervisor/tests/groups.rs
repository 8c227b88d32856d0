// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs that are control groups: schedules worked by hand, and what always holds.

use proptest::prelude::*;
use units::Ns;

use super::bed::Bed;
use super::bed::FREE;
use super::bed::Outcome;
use super::bed::Task;
use super::bed::Task::Barrier;
use super::bed::Task::Hog;
use super::bed::Task::Reads;
use super::bed::Vm;
use super::bed::run;
use super::bed::vm;
use crate::hypervisor::*;
use crate::machine::Costs;
use crate::queue::QueueKind;

/// Policies that stand on CFS.
const ON_CFS: [&str; 9] = [
    "cfs",
    "blocking",
    "haltpoll-enhanced",
    "balance",
    "cosched",
    "demand",
    "jupiter",
    "vsmtio",
    "vsmtio-ltcr",
];

fn policy(name: &str) -> Box<dyn Hypervisor> {
    let sharing = Sharing {
        vms_per_pcpu: 2,
        slice: Ns::from_ms(12),
        sweep_permille: 0,
    };
    by_name(name, &sharing).unwrap()
}

fn group(vcpus: &[&[Task]]) -> Vm {
    Vm {
        shares: Some(1024),
        ..vm(vcpus)
    }
}

fn cfs(pcpus: u32, vms: &[Vm], ms: u64) -> Outcome {
    run(policy("cfs"), pcpus, false, FREE, vms, Ns::from_ms(ms))
}

/// The latency of 24 ms is 12 for each of two. At the tick of 12 ms nobody has run for
/// more, nor is ahead by more; at the one of 16 ms both.
#[test]
fn turns_end_at_the_first_tick_after_the_slice() {
    let outcome = cfs(1, &[group(&[&[Hog]]), group(&[&[Hog]])], 80);
    let turns = [(0, 0), (16, 1), (32, 0), (48, 1), (64, 0)];
    assert_eq!(outcome.order(0), turns);
}

/// The same with a tick of 10 ms: at the one of 20.
#[test]
fn the_tick_of_groups_can_be_another() {
    let settings = CfsSettings {
        tick: Ns::from_ms(10),
        ..CfsSettings::with_slice(Ns::from_ms(12))
    };
    let vms = [group(&[&[Hog]]), group(&[&[Hog]])];
    let policy = Box::new(Cfs::new(settings));
    let outcome = run(policy, 1, false, FREE, &vms, Ns::from_ms(70));
    assert_eq!(outcome.order(0), [(0, 0), (20, 1), (40, 0), (60, 1)]);
}

/// Two vCPUs of a VM are compared with each other, by their own weights: turns as
/// between two VMs of one vCPU, though a group of one pCPU has all the shares.
#[test]
fn vcpus_of_a_group_take_turns_within_it() {
    let outcome = cfs(1, &[group(&[&[Hog], &[Hog]])], 80);
    let turns = [(0, 0), (16, 1), (32, 0), (48, 1), (64, 0)];
    assert_eq!(outcome.order(0), turns);
}

/// A group of four vCPUs has a quarter of its shares on each of four pCPUs, where
/// virtual time is four times as fast: who has just had a turn is 16 ms ahead. After a
/// tick of 4 ms the other is level, after 8 ms 16 ms ahead, more than a slice of 12.
#[test]
fn groups_of_a_small_share_have_short_turns() {
    let hogs: &[Task] = &[Hog];
    let vms = [group(&[hogs; 4]), group(&[hogs; 4])];
    let outcome = cfs(4, &vms, 1000);
    let settled: Vec<u64> = outcome.order(0).iter().map(|turn| turn.0).collect();
    let settled = &settled[settled.len() - 20..];
    let turns: Vec<u64> = settled.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(turns, [8; 19]);
}

/// The same under vSMT-IO, whose turns are of 8 ms as well, and with vCPUs that are all
/// in one queue, of 12, the slice.
#[test]
fn vsmtio_may_leave_groups_out() {
    let hogs: &[Task] = &[Hog];
    for (groups, length) in [(true, 8), (false, 12)] {
        let settings = VsmtioSettings {
            ltcr: None,
            rass: None,
            adjuster: None,
            slice: Ns::from_ms(12),
            groups,
            ..VsmtioSettings::default()
        };
        let policy = Box::new(Vsmtio::new("vsmtio", settings));
        let vms = [group(&[hogs; 4]), group(&[hogs; 4])];
        let outcome = run(policy, 4, false, FREE, &vms, Ns::from_ms(1000));
        let settled: Vec<u64> = outcome.order(0).iter().map(|turn| turn.0).collect();
        let settled = &settled[settled.len() - 20..];
        let turns: Vec<u64> = settled.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(turns, [length; 19], "groups: {groups}");
    }
}

/// A VM of two vCPUs beside one of one, on one pCPU: as VMs half each, without groups
/// a third for each vCPU.
#[test]
fn a_group_competes_as_a_whole() {
    let vms = [group(&[&[Hog], &[Hog]]), group(&[&[Hog]])];
    let share = |vms: &[Vm]| {
        let ran = cfs(1, vms, 2400).ran();
        ran[1].as_ns() * 1000 / (ran[0] + ran[1]).as_ns()
    };
    let flat = vms.clone().map(|own| Vm {
        shares: None,
        ..own
    });
    let (groups, flat) = (share(&vms), share(&flat));
    assert!((490..=510).contains(&groups), "{groups}");
    assert!((323..=343).contains(&flat), "{flat}");
}

/// A reader is placed 12 ms before a hog when it wakes, and needs 4 ms by its weight. If
/// the rest of its VM sleeps it has all the shares, preempts, and has a request per
/// 1.2 ms. If the rest computes it has a quarter, would need 16 ms, and waits for a
/// tick at which the hog is more than its slice ahead: 24 ms x 1024 / 1280. It is 12 ms and
/// what has passed since the reader woke, 1 ms after it was served: at the third tick.
#[test]
fn who_wakes_preempts_by_what_its_group_weighs() {
    let requests = |rest: &[Task]| {
        let mut vms = [group(&[&[Reads], rest, rest, rest]), group(&[&[Hog]])];
        for vm in &mut vms {
            vm.pinned = true;
        }
        // Loads have settled after the first second.
        let until = |ms| cfs(4, &vms, ms).requests(0);
        until(2000) - until(1000)
    };
    let (alone, busy) = (requests(&[]), requests(&[Hog]));
    assert!((830..=834).contains(&alone), "{alone}");
    assert!((82..=85).contains(&busy), "{busy}");
}

fn bed(queue: QueueKind) -> Bed {
    Bed {
        pcpus: 4,
        smt: true,
        costs: Costs::default(),
        spread: Ns::from_ms(30),
        queue,
    }
}

/// The same bytes again and under the second event queue, groups and others mixed.
#[test]
fn groups_are_deterministic_on_either_queue() {
    let (hog, reads): (&[Task], &[Task]) = (&[Hog], &[Reads, Hog]);
    let meets: &[Task] = &[Barrier(Ns::from_ms(2))];
    let vms = [group(&[meets; 4]), group(&[reads; 4]), vm(&[hog; 3])];
    for name in ON_CFS {
        let traces = [QueueKind::Wheel, QueueKind::Wheel, QueueKind::Tree].map(|queue| {
            let outcome = bed(queue).run(policy(name), &vms, Ns::from_ms(1200));
            format!("{}{:?}", outcome.trace(usize::MAX), outcome.sim.machine())
        });
        assert_eq!(traces[0], traces[1], "{name}");
        assert_eq!(traces[0], traces[2], "{name}");
    }
}

/// The first picks with groups. A change here is a change of schedule.
#[test]
fn the_first_picks_with_groups() {
    let meets: &[Task] = &[Barrier(Ns::from_ms(3))];
    for name in ["cfs", "balance", "vsmtio", "jupiter"] {
        let vms = [
            group(&[&[Reads], &[Hog]]),
            group(&[meets; 2]),
            group(&[&[Hog], &[Hog]]),
        ];
        let outcome = run(policy(name), 2, true, FREE, &vms, Ns::from_ms(300));
        insta::assert_snapshot!(format!("groups-{name}"), outcome.trace(40));
    }
}

fn tasks() -> impl Strategy<Value = Vec<Task>> {
    let task = prop_oneof![
        Just(Hog),
        Just(Reads),
        (100u64..5000).prop_map(|us| Barrier(Ns::from_us(us))),
    ];
    proptest::collection::vec(task, 0..3)
}

fn any_vm() -> impl Strategy<Value = Vm> {
    let vcpus = proptest::collection::vec(tasks(), 1..5);
    (vcpus, proptest::option::of(2u32..4096)).prop_map(|(vcpus, shares)| {
        let refs: Vec<&[Task]> = vcpus.iter().map(Vec::as_slice).collect();
        Vm {
            shares,
            ..vm(&refs)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Time given is time taken (`run` checks it), queues' weights and numbers are those
    /// of who is in them (`Tree::tick` checks it), whatever runs.
    #[test]
    fn nothing_is_lost(
        name in proptest::sample::select(ON_CFS.as_slice()),
        vms in proptest::collection::vec(any_vm(), 1..5),
    ) {
        let outcome = bed(QueueKind::Wheel).run(policy(name), &vms, Ns::from_ms(250));
        let ran: Ns = outcome.ran().into_iter().sum();
        prop_assert!(ran <= Ns::from_ms(1000));
    }
}
