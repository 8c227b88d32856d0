// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine's promises: one run per seed, books in balance, shares as asked.

mod common;

use common::READS;
use common::cfs;
use policy::guest::xballoon;
use proptest::prelude::*;
use sim::engine::Sim;
use sim::guest::KernelSettings;
use sim::guest::Migrater;
use sim::guest::MigraterSettings;
use sim::hypervisor::Hypervisor;
use sim::ids::DeviceId;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::Smt;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use sim::record::Does;
use units::CpuId;
use units::Ns;
use units::Time;

fn fixed(slots: u32) -> Box<dyn Hypervisor> {
    common::fixed(slots, Ns::from_ms(11), 100)
}

/// What runs in the guests beside their tasks.
#[derive(Clone, Copy, Debug)]
enum Daemon {
    None,
    Vmigrater,
    Published,
    Xballoon,
}

/// A busy mix: VMs with compute on every vCPU and some readers.
#[derive(Clone, Copy, Debug)]
struct Mix {
    pcpus: u32,
    vms: u32,
    readers: u32,
    threads: bool,
    eevdf: bool,
    daemon: Daemon,
}

fn mix(mix: Mix, policy: Box<dyn Hypervisor>, queue: QueueKind, seed: u64) -> Sim {
    let Mix {
        pcpus,
        vms,
        readers,
        threads,
        eevdf,
        daemon,
    } = mix;
    let machine = common::machine(pcpus, vms, threads);
    let kernel = if eevdf {
        KernelSettings::eevdf(pcpus)
    } else {
        KernelSettings::scaled(pcpus)
    };
    let mut guests = common::guests(&machine, kernel, seed);
    for guest in &mut guests {
        for vcpu in 0..pcpus {
            if (vcpu + guest.tasks().len() as u32) % 3 != 2 {
                guest.add(common::compute(vcpu));
            }
        }
        for n in 0..readers {
            let depth = 1 + n % 3;
            guest.add(common::reader(n % pcpus, ReaderSettings { depth, ..READS }));
        }
        let ours = MigraterSettings::default();
        match daemon {
            Daemon::None => {}
            Daemon::Vmigrater => guest.set_migrater(Migrater::new(ours, pcpus, None)),
            Daemon::Published => {
                let published = MigraterSettings::published();
                guest.set_migrater(Migrater::new(published, pcpus, None));
            }
            Daemon::Xballoon => guest.set_xballoon(xballoon::Settings::default(), ours),
        }
    }
    let mut sim = common::simulation(machine, guests, policy, queue, seed);
    common::add_delay(&mut sim, Ns::from_us(100), 400);
    sim
}

/// Everything that a run left behind, as text.
fn fingerprint(sim: &Sim) -> String {
    format!("{} {}", sim.events(), without_events(sim))
}

/// Without the number of events: each part of a machine has ticks of its own.
fn without_events(sim: &Sim) -> String {
    let tasks: Vec<String> = sim
        .guests()
        .iter()
        .flat_map(|guest| guest.tasks())
        .map(|task| {
            format!(
                "{} {:?} {} {:?}",
                task.name, task.done, task.on_cpu, task.inactive
            )
        })
        .collect();
    format!("{:?} {tasks:?}", sim.machine())
}

#[test]
fn one_seed_gives_one_run_on_either_queue() {
    let cases = [
        (cfs as fn() -> Box<dyn Hypervisor>, Daemon::None),
        (|| fixed(3), Daemon::None),
        (cfs, Daemon::Vmigrater),
        (cfs, Daemon::Xballoon),
        (|| fixed(3), Daemon::Xballoon),
    ];
    for (policy, daemon) in cases {
        let busy = Mix {
            pcpus: 4,
            vms: 3,
            readers: 5,
            threads: true,
            eevdf: false,
            daemon,
        };
        let prints: Vec<String> = [QueueKind::Wheel, QueueKind::Tree, QueueKind::Wheel]
            .into_iter()
            .map(|queue| {
                let mut sim = mix(busy, policy(), queue, 42);
                sim.run_until(Time(300_000_000));
                fingerprint(&sim)
            })
            .collect();
        assert_eq!(prints[0], prints[1]);
        assert_eq!(prints[0], prints[2]);
        let mut other = mix(busy, policy(), QueueKind::Wheel, 43);
        other.run_until(Time(300_000_000));
        assert_ne!(prints[0], fingerprint(&other), "the seed matters");
    }
}

/// Three sockets of two pCPUs, each with VMs and a disk of its own: run one after the
/// other, or all by time.
#[test]
fn what_never_meets_runs_the_same_one_after_the_other() {
    let sockets = |policy: Box<dyn Hypervisor>, eevdf: bool, whole: bool| {
        let mut machine = Machine::new(6, false, Costs::default(), Smt::default());
        for vm in 0..9 {
            let first = vm % 3 * 2;
            let one = vec![CpuId(first), CpuId(first + 1)];
            let other = vec![CpuId(first + vm / 3 % 2)];
            machine.add_vm("vm", 512 << (vm / 3), &[one, other]);
        }
        let kernel = if eevdf {
            KernelSettings::eevdf(2)
        } else {
            KernelSettings::scaled(2)
        };
        let mut guests = common::guests(&machine, kernel, 7);
        for (vm, guest) in guests.iter_mut().enumerate() {
            let device = DeviceId(vm as u32 % 3);
            guest.add(common::compute(0));
            for n in 0..vm as u32 / 2 {
                let settings = ReaderSettings { device, ..READS };
                guest.add(common::reader(n % 2, settings));
            }
            if vm > 5 {
                let daemon = Migrater::new(MigraterSettings::default(), 2, None);
                guest.set_migrater(daemon);
            }
        }
        let mut sim = common::simulation(machine, guests, policy, QueueKind::Wheel, 7);
        sim.spread_starts(Ns::from_ms(20));
        for _ in 0..3 {
            common::add_delay(&mut sim, Ns::from_us(100), 400);
        }
        if whole {
            sim.keep_whole();
        }
        let mut prints = Vec::new();
        for ms in [50, 51, 400] {
            sim.run_until(Time(ms * 1_000_000));
            assert_eq!(sim.check(), Ok(()));
            prints.push(without_events(&sim));
        }
        (sim.parts(), prints)
    };
    for name in sim::hypervisor::NAMES {
        for eevdf in [false, true] {
            let policy = || {
                let sharing = sim::hypervisor::Sharing {
                    vms_per_pcpu: 3,
                    slice: Ns::from_ms(11),
                    sweep_permille: 100,
                };
                sim::hypervisor::by_name(name, &sharing).unwrap()
            };
            let (parts, apart) = sockets(policy(), eevdf, false);
            let (whole, together) = sockets(policy(), eevdf, true);
            let local = ["fixed", "cfs", "eevdf", "eevdf-slices"].contains(name);
            assert_eq!((parts, whole), (if local { 3 } else { 1 }, 1), "{name}");
            assert_eq!(apart, together, "{name}");
        }
    }
}

#[test]
fn equal_vms_get_equal_shares_and_nothing_is_lost() {
    let machine = common::machine(2, 4, false);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    for guest in &mut guests {
        guest.add(common::compute(0));
        guest.add(common::compute(1));
    }
    let mut sim = common::simulation(machine, guests, cfs(), QueueKind::Wheel, 1);
    sim.run_until(Time(4_000_000_000));
    sim.check().unwrap();
    for vcpu in &sim.machine().vcpus {
        let ms = vcpu.ran.as_ms_f64();
        assert!((980.0..1020.0).contains(&ms), "{ms} ms of 1000");
        // Slices of 24 / 4 = 6 ms: 166 a second.
        assert!(
            (150..185).contains(&(vcpu.switched_in / 4 * 4)),
            "{}",
            vcpu.switched_in
        );
    }
}

/// VMs whose vCPUs come up at different instants have independent phases: at least
/// one of eight vCPUs with a quarter of a pCPU each runs for 1 - (3/4)^8 = 90 % of
/// the time. In the order of their numbers, where virtual run times are equal, all
/// vCPUs of a VM would run at once.
#[test]
fn vcpus_of_a_vm_are_not_coscheduled_by_accident() {
    let machine = common::machine(8, 4, false);
    let mut guests = common::guests(&machine, KernelSettings::scaled(8), 1);
    for guest in &mut guests {
        (0..8).for_each(|vcpu| {
            guest.add(common::compute(vcpu));
        });
    }
    let mut sim = common::simulation(machine, guests, cfs(), QueueKind::Wheel, 1);
    sim.spread_starts(Ns::from_ms(44));
    sim.run_until(Time(500_000_000));
    let mut covered = 0;
    for ms in 500..2500 {
        sim.run_until_quietly(Time(ms * 1_000_000));
        covered += (0..4).filter(|vm| sim.any_on(VmId(*vm))).count();
    }
    let share = covered as f64 / 8000.0;
    assert!((0.82..0.97).contains(&share), "{share}");
}

/// C2: a task that waits for I/O on a vCPU that is away is inactive like one that
/// could run.
#[test]
fn waiting_for_io_on_a_vcpu_that_is_away_is_inactivity() {
    let machine = common::machine(1, 1, false);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    guests[0].add(common::reader(0, READS));
    guests[0].add(common::compute(0));
    let mut sim = common::simulation(machine, guests, fixed(2), QueueKind::Wheel, 1);
    common::add_delay(&mut sim, Ns::from_us(100), 0);
    sim.run_until(Time(2_000_000_000));
    let inactive = sim.guest(VmId(0)).tasks()[0].inactive.as_secs_f64();
    assert!((0.97..1.03).contains(&inactive), "{inactive} s of 2");
}

/// A reader whose moves cost so much, beside compute, in one of two VMs of 4 vCPUs: its
/// moves in 2 s, how long they have held it up, how long it slept, and its inactivity.
fn moves_that_cost(cost: Ns) -> (u64, Ns, Ns, Ns) {
    let sim = moved_by(MigraterSettings::published(), cost);
    let task = &sim.guest(VmId(0)).tasks()[4];
    let asleep = task.spent[Does::Asleep as usize];
    (task.moved, task.held_up, asleep, task.inactive)
}

fn moved_by(settings: MigraterSettings, cost: Ns) -> Sim {
    let machine = common::machine(4, 2, false);
    let kernel = KernelSettings {
        migration_delay: cost,
        ..KernelSettings::scaled(4)
    };
    let mut guests = common::guests(&machine, kernel, 1);
    for guest in &mut guests {
        for vcpu in 0..4 {
            guest.add(common::compute(vcpu));
        }
    }
    guests[0].add(common::reader(0, READS));
    guests[0].set_migrater(Migrater::new(settings, 4, None));
    let mut sim = common::simulation(machine, guests, cfs(), QueueKind::Wheel, 1);
    sim.spread_starts(Ns::from_ms(44));
    common::add_delay(&mut sim, Ns::from_us(100), 0);
    sim.run_until(Time(1_000_000_000));
    sim.open_window();
    sim.run_until(Time(3_000_000_000));
    sim
}

/// A monitor that looks only when it has to is told of a task also if that came late, held up
/// by its move; it had not been, and a third of all slices ended with the task on them.
#[test]
fn who_was_held_up_on_the_way_is_pushed_on_in_time() {
    let settings = [MigraterSettings::published(), MigraterSettings::default()];
    for settings in settings {
        let sim = moved_by(settings, Ns::from_ms(1));
        let counts = sim.guest(VmId(0)).migrater().unwrap().counts();
        assert!(counts.push * 10 > counts.n_min * 9, "{counts:?}");
    }
}

/// Equation (1): each move costs C_avg, in which the task issues no request.
#[test]
fn a_move_holds_a_task_up_for_what_it_costs() {
    const COST: Ns = Ns::from_ms(1);
    let (moved, held_up, ..) = moves_that_cost(COST);
    assert!(moved > 50, "{moved} moves in 2 s");
    let cost = COST * moved;
    assert!(
        held_up <= cost + COST && held_up > cost * 4 / 5,
        "{moved} moves held it up for {held_up:?}"
    );
}

/// Where its vCPU is away meanwhile that is inactivity (C2), and not counted twice.
#[test]
fn what_a_move_costs_on_a_vcpu_that_is_away_is_inactivity() {
    // Longer than any turn of its vCPU.
    let (moved, held_up, asleep, inactive) = moves_that_cost(Ns::from_ms(20));
    assert!(moved > 10 && held_up > Ns::ZERO, "{moved}, {held_up:?}");
    let away = asleep - held_up;
    assert!(
        away > asleep / 5 && away <= inactive,
        "held up for {held_up:?} of {asleep:?}, inactive {inactive:?}"
    );
}

#[test]
fn a_reader_alone_takes_latency_plus_its_costs() {
    let machine = common::machine(1, 1, false);
    let mut guests = common::guests(&machine, KernelSettings::default(), 1);
    guests[0].add(common::reader(0, READS));
    let mut sim = common::simulation(machine, guests, cfs(), QueueKind::Wheel, 1);
    common::add_delay(&mut sim, Ns::from_us(100), 0);
    sim.run_until(Time(1_000_000_000));
    let done = sim.guest(VmId(0)).tasks()[0].done.operations;
    // 4 submit, 100 device, 2 interrupt, 2 switch, about 10 process: no switch of
    // the vCPU, since nobody else has been there.
    let expected = 1_000_000 / 118;
    assert!(
        done.abs_diff(expected) * 100 < expected * 3,
        "{done} against {expected}"
    );
}

#[test]
fn hyperthreads_slow_each_other_as_the_table_says() {
    let work = |busy_sibling: bool| {
        let machine = common::machine(2, 1, true);
        let mut guests = common::guests(&machine, KernelSettings::default(), 1);
        guests[0].add(common::compute(0));
        if busy_sibling {
            guests[0].add(common::compute(1));
        }
        let mut sim = common::simulation(machine, guests, cfs(), QueueKind::Wheel, 1);
        sim.run_until(Time(1_000_000_000));
        sim.guest(VmId(0)).tasks()[0].done.operations
    };
    let (alone, beside) = (work(false), work(true));
    assert!((1990..=2000).contains(&alone), "{alone}");
    assert!(
        (beside * 1000).abs_diff(alone * 600) < alone * 5,
        "{beside} of {alone}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the policy and the mix, after any time: CPU time handed out is CPU time taken,
    /// nobody is in two places, no request is lost.
    #[test]
    fn the_books_balance(
        seed in any::<u64>(), pcpus in 1u32..6, vms in 1u32..5, readers in 0u32..7,
        threads in any::<bool>(), eevdf in any::<bool>(),
        daemon in proptest::sample::select(&[Daemon::None, Daemon::Vmigrater, Daemon::Published, Daemon::Xballoon][..]),
        name in proptest::sample::select(sim::hypervisor::NAMES),
        ends in proptest::collection::vec(1u64..80_000_000, 1..4),
    ) {
        let sharing = sim::hypervisor::Sharing {
            vms_per_pcpu: vms,
            slice: Ns::from_ms(11),
            sweep_permille: 100,
        };
        let policy = sim::hypervisor::by_name(name, &sharing).unwrap();
        let busy = Mix { pcpus, vms, readers, threads, eevdf, daemon };
        let mut sim = mix(busy, policy, QueueKind::Wheel, seed);
        let mut end = Time::ZERO;
        for length in ends {
            end = end + Ns(length);
            sim.run_until(end);
            prop_assert_eq!(sim.check(), Ok(()));
        }
        let ran: Ns = sim.machine().vcpus.iter().map(|vcpu| vcpu.ran).sum();
        prop_assert!(ran <= end.since(Time::ZERO) * u64::from(pcpus));
    }
}
