// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs whose threads meet, with sequential parts, by hand.

mod common;

use sim::guest::KernelSettings;
use sim::guest::Leave;
use sim::hypervisor::Cfs;
use sim::hypervisor::CfsSettings;
use sim::hypervisor::Sharing;
use sim::hypervisor::by_name;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::program::Alone;
use sim::program::Parallel;
use sim::queue::QueueKind;
use units::CpuId;
use units::Ns;
use units::Time;

/// Rounds of each of two threads on a CPU each, and their CPU time in ms, after `ms`.
fn two(alone: Option<Alone>, leave: Leave, ms: u64) -> ([u64; 2], [u64; 2]) {
    let mut machine = Machine::new(2, false, Costs::FREE, Smt::default());
    let pins = [vec![CpuId(0)], vec![CpuId(1)]];
    machine.add_vm("vm0", NORMAL_WEIGHT, &pins);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    guests[0].add_barrier(2, leave);
    for vcpu in 0..2 {
        let program = Parallel::new(Ns::from_ms(1), 0, Ns::ZERO).with(alone, vcpu == 0);
        let mut task = common::compute(vcpu);
        task.program = Box::new(program);
        guests[0].add(task);
    }
    let policy = Box::new(Cfs::new(CfsSettings::default()));
    let mut sim = common::simulation(machine, guests, policy, QueueKind::default(), 1);
    sim.run_until(Time::ZERO + Ns::from_ms(ms));
    let tasks = sim.guest(VmId(0)).tasks();
    let of = |n: usize| {
        (
            tasks[n].done.operations,
            tasks[n].on_cpu.as_ns() / 1_000_000,
        )
    };
    let (first, second) = (of(0), of(1));
    ([first.0, second.0], [first.1, second.1])
}

/// Rounds of 1 ms, and after every second one 2 ms of the first thread: 400 ms are 100
/// times 4, of which the second one works for half.
#[test]
fn others_wait_for_who_works_alone() {
    // A meeting costs a wake-up: some 10 us of a millisecond.
    let near = |found: [u64; 2], expected: [u64; 2]| {
        let all = found.iter().zip(expected);
        let mut close = all.map(|(&found, expected)| found * 100 / expected);
        assert!(
            close.all(|percent| (96..=102).contains(&percent)),
            "{found:?}"
        );
    };
    let (rounds, ran) = two(None, Leave::AtOnce, 400);
    near(rounds, [400, 400]);
    near(ran, [400, 400]);
    let alone = Alone {
        work: Ns::from_ms(2),
        every: 2,
    };
    let (rounds, ran) = two(Some(alone), Leave::AtOnce, 400);
    near(rounds, [200, 200]);
    near(ran, [400, 200]);
}

/// Rounds in 2 s of four threads with 1 ms of work on vCPUs that have their pCPU for 11 ms
/// of 22, each from another instant on.
fn apart(leave: Leave) -> u64 {
    let mut machine = Machine::new(4, false, Costs::FREE, Smt::default());
    let pins: Vec<Vec<CpuId>> = (0..4).map(|p| vec![CpuId(p)]).collect();
    machine.add_vm("vm0", NORMAL_WEIGHT, &pins);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    guests[0].add_barrier(4, leave);
    for vcpu in 0..4 {
        let mut task = common::compute(vcpu);
        task.program = Box::new(Parallel::new(Ns::from_ms(1), 0, Ns::ZERO));
        guests[0].add(task);
    }
    let policy = common::fixed(2, Ns::from_ms(11), 0);
    let mut sim = common::simulation(machine, guests, policy, QueueKind::default(), 1);
    sim.run_until(Time::ZERO + Ns::from_secs(2));
    sim.guest(VmId(0)).tasks()[0].done.operations
}

/// Let go at once, each begins when its own pCPU is there; in turn, when those of all
/// before it have been as well.
#[test]
fn who_leaves_in_turn_waits_for_those_before() {
    let (at_once, in_turn) = (apart(Leave::AtOnce), apart(Leave::InTurn));
    assert!(in_turn * 10 < at_once * 9, "{in_turn}, {at_once} at once");
}

/// Where every vCPU runs nobody waits for another: in turn is as good as at once.
#[test]
fn in_turn_costs_nothing_where_all_run() {
    assert_eq!(two(None, Leave::InTurn, 400), two(None, Leave::AtOnce, 400));
}

/// Three threads on hyperthreads: the first comes and blocks, and its vCPU polls; its sibling
/// comes and spins; the third, on a core of its own, lets both go. That the first one's vCPU
/// polls no longer changes the speed of the spinning thread's before that has gone on.
#[test]
fn a_sibling_that_wakes_does_not_hold_up_who_is_let_go() {
    let mut machine = Machine::new(4, true, Costs::FREE, Smt::default());
    let pins: Vec<Vec<CpuId>> = (0..3).map(|p| vec![CpuId(p)]).collect();
    machine.add_vm("vm0", NORMAL_WEIGHT, &pins);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    guests[0].add_barrier(3, Leave::AtOnce);
    // Beside a sibling that computes and then polls the second one is done before 2 ms.
    for (vcpu, work_us, spin_us) in [(0, 200, 20), (1, 1200, 5000), (2, 2000, 20)] {
        let mut task = common::compute(vcpu);
        let program = Parallel::new(Ns::from_us(work_us), 0, Ns::from_us(spin_us));
        task.program = Box::new(program);
        guests[0].add(task);
    }
    let sharing = Sharing {
        vms_per_pcpu: 1,
        slice: Ns::from_ms(11),
        sweep_permille: 0,
    };
    let policy = by_name("polling", &sharing).unwrap();
    let mut sim = common::simulation(machine, guests, policy, QueueKind::default(), 1);
    sim.run_until(Time::ZERO + Ns::from_ms(400));
    let tasks = sim.guest(VmId(0)).tasks();
    let rounds: Vec<u64> = tasks.iter().map(|t| t.done.operations).collect();
    // 200 rounds of 2 ms, each with a wake-up.
    assert!(rounds.iter().all(|r| (190..=201).contains(r)), "{rounds:?}");
}

/// 5 ms of 200 thousandths beside rounds of 1 ms: 20 of these between two. A part that is
/// shorter than a round asks for is as long as one round of 4 ms makes it.
#[test]
fn a_part_of_the_time_is_work_after_so_many_rounds() {
    let part = |ms, permille, round| Alone::part(Ns::from_ms(ms), permille, Ns::from_ms(round));
    let alone = |ms, every| {
        let work = Ns::from_ms(ms);
        Some(Alone { work, every })
    };
    assert_eq!(part(5, 200, 1), alone(5, 20));
    assert_eq!(part(1, 500, 4), alone(4, 1));
    assert_eq!(part(1, 200, 8), alone(2, 1));
    assert_eq!(part(0, 200, 1), None);
    assert_eq!(part(5, 0, 1), None);
}
