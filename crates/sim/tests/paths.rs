// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways through the machine, with times worked by hand: the network and its
//! clients, a driver domain, a balloon, the delay of a move.

mod common;

use sim::device::Delay;
use sim::device::Net;
use sim::device::NetSettings;
use sim::device::Path;
use sim::engine::Queues;
use sim::engine::Sim;
use sim::guest::BalloonSettings;
use sim::guest::Guest;
use sim::guest::KernelSettings;
use sim::guest::Knowledge;
use sim::guest::Told;
use sim::ids::DeviceId;
use sim::ids::TaskId;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::program::Backend;
use sim::program::Echo;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use units::Ns;
use units::Time;

fn machine(pcpus: u32, vms: u32, costs: Costs) -> Machine {
    let mut machine = common::machine(pcpus, vms, false);
    machine.costs = costs;
    machine
}

fn simulation(machine: Machine, guests: Vec<Guest>) -> Sim {
    common::simulation(machine, guests, common::cfs(), QueueKind::Wheel, 1)
}

const NET: NetSettings = NetSettings {
    rate: 1_000_000_000,
    under_way: Ns::from_us(100),
    spread_permille: 0,
    interval: Ns::from_ms(2),
};

/// 100 us to the guest, 10 us of work, 64 ns on the wire, 100 us back.
#[test]
fn a_round_trip_is_two_ways_and_the_work() {
    let machine = machine(1, 1, Costs::FREE);
    let mut guests = common::guests(&machine, KernelSettings::free(), 1);
    let echo = Echo::new(DeviceId(0), 64, Ns::from_us(10));
    guests[0].add(common::task("echo", 0, Box::new(echo)));
    let mut sim = simulation(machine, guests);
    sim.add_device(Box::new(Net::new(NET)), Path::Submitter);
    sim.run_until(Time(1_000_000_000));
    sim.check().unwrap();
    let trips = sim.round_trips(VmId(0));
    assert!((498..=500).contains(&trips.count()), "{}", trips.count());
    assert_eq!(trips.mean(), Ns(210_064));
    sim.open_window();
    assert_eq!(sim.round_trips(VmId(0)).count(), 0);
}

/// The driver domain works 20 us on each entry, once on the way in and once on the
/// way out; with its own pCPU nothing else is added. Beside a hog that shares its
/// pCPU it waits for the hog's slice each time.
#[test]
fn a_driver_domain_is_in_the_way_twice() {
    let trip = |hog: bool| {
        let pcpus = 2;
        let vms = if hog { 3 } else { 2 };
        let mut machine = machine(pcpus, vms, Costs::FREE);
        // One that does not preempt by waking.
        machine.vcpus[0].weight = 64;
        let mut guests = common::guests(&machine, KernelSettings::free(), 1);
        let backend = guests[0].add(common::task(
            "backend",
            0,
            Box::new(Backend::new(Ns::from_us(20), None)),
        ));
        let echo = Echo::new(DeviceId(0), 64, Ns::from_us(10));
        guests[1].add(common::task("echo", 1, Box::new(echo)));
        if hog {
            guests[2].add(common::compute(0));
        }
        let mut sim = simulation(machine, guests);
        sim.add_device_behind_driver(Box::new(Net::new(NET)), Path::Submitter);
        sim.set_driver(VmId(0), &[backend], Queues::PerVm);
        sim.run_until(Time(1_000_000_000));
        sim.check().unwrap();
        let served = sim.guest(VmId(0)).tasks()[0].done.operations;
        let trips = sim.round_trips(VmId(1));
        // A receive and a send are a request and a response each.
        assert!(
            served.abs_diff(4 * trips.count()) <= 4,
            "{served} {}",
            trips.count()
        );
        trips.mean()
    };
    let alone = trip(false);
    // 100 + 20 + 10 + 20 + 100 and the wire, and at times the acknowledgement of the
    // last send before it.
    assert!((Ns(250_064)..=Ns(270_100)).contains(&alone), "{alone}");
    assert!(trip(true) > alone + Ns::from_ms(1), "{}", trip(true));
}

/// What the guest sends, 64 bytes, is copied at 1 MB/s: 64 us more than the 20 for each
/// entry. What it receives is copied likewise; a disk's pages are not.
#[test]
fn a_driver_domain_copies_what_goes_through_a_network() {
    let done = |copies: Option<u64>, disk: bool| {
        let machine = machine(2, 2, Costs::FREE);
        let mut guests = common::guests(&machine, KernelSettings::free(), 1);
        let work = Box::new(Backend::new(Ns::from_us(20), copies));
        let backend = guests[0].add(common::task("backend", 0, work));
        guests[1].add(common::reader(1, SENDS));
        let mut sim = simulation(machine, guests);
        sim.add_device_behind_driver(device(disk), Path::Submitter);
        sim.set_driver(VmId(0), &[backend], Queues::PerVm);
        sim.run_until(Time(1_000_000_000));
        sim.check().unwrap();
        1_000_000 / sim.guest(VmId(1)).tasks()[0].done.operations
    };
    // A send: 10 us, 20 in the driver domain, the wire and 100 to the client, whose
    // acknowledgement comes back through it.
    let (without, with) = (done(None, false), done(Some(1_000_000), false));
    assert_eq!(with - without, 64, "{with} {without}");
    assert_eq!(done(None, true), done(Some(1_000_000), true));
}

/// A send goes through the far end before it is on its way: 30 us there and 64 for its 64
/// bytes at 1 MB/s, on a pCPU of its own. The acknowledgement does not. Beside a hog it
/// waits for that pCPU as well, and a disk has no far end.
#[test]
fn what_is_sent_goes_through_a_far_end_on_the_same_host() {
    let each = |far_end: bool, hog: bool, disk: bool| {
        let mut machine = machine(3, if hog { 4 } else { 3 }, Costs::FREE);
        // One that does not preempt by waking.
        machine.vcpus[8].weight = 64;
        let mut guests = common::guests(&machine, KernelSettings::free(), 1);
        let serves = |us, copies| Box::new(Backend::new(Ns::from_us(us), copies));
        let backend = guests[0].add(common::task("backend", 0, serves(20, None)));
        guests[1].add(common::reader(1, SENDS));
        let receiver = guests[2].add(common::task("receiver", 2, serves(30, Some(1_000_000))));
        if hog {
            guests[3].add(common::compute(2));
        }
        let mut sim = simulation(machine, guests);
        sim.add_device_behind_driver(device(disk), Path::Submitter);
        sim.set_driver(VmId(0), &[backend], Queues::PerVm);
        if far_end {
            sim.set_far_end(VmId(2), &[receiver]);
        }
        sim.run_until(Time(1_000_000_000));
        sim.check().unwrap();
        1_000_000 / sim.guest(VmId(1)).tasks()[0].done.operations
    };
    let alone = each(true, false, false);
    assert_eq!(alone - each(false, false, false), 94);
    assert!(each(true, true, false) > alone + 1000);
    assert_eq!(each(true, false, true), each(false, false, true));
}

/// 64 bytes each time, 10 us of work before.
const SENDS: ReaderSettings = ReaderSettings {
    submit: Ns::from_us(10),
    process: Ns::ZERO,
    bytes: 64,
    write: true,
    ..HALVES
};

/// A disk that takes 100 us, or the network.
fn device(disk: bool) -> Box<dyn sim::device::Device> {
    if disk {
        Box::new(sim::device::Delay::new(Ns::from_us(100), 0))
    } else {
        Box::new(Net::new(NET))
    }
}

/// As much work before as after.
const HALVES: ReaderSettings = ReaderSettings {
    submit: Ns::from_us(50),
    process: Ns::from_us(50),
    process_spread: 0,
    ..common::READS
};

/// XB1, XB4: the reader gets more and its compute less than without a balloon,
/// beside another VM that computes; the books balance.
#[test]
fn a_balloon_takes_from_compute_what_it_gives_to_io() {
    let run = |balloon: bool| {
        let machine = machine(1, 2, Costs::default());
        let mut guests = common::guests(&machine, KernelSettings::free(), 1);
        guests[0].add(common::compute(0));
        guests[0].add(common::reader(0, HALVES));
        guests[1].add(common::compute(0));
        if balloon {
            guests[0].set_balloon(BalloonSettings {
                rules: policy::guest::xballoon::Settings::default(),
                knowledge: Knowledge::Told(Told {
                    compute: vec![TaskId(0)],
                    demand_permille: 333,
                    slice: Ns::from_ms(12),
                    gap: Ns::from_ms(12),
                }),
                whole_vm: false,
            });
        }
        let mut sim = simulation(machine, guests);
        common::add_delay(&mut sim, Ns::from_us(200), 0);
        sim.run_until(Time(4_000_000_000));
        sim.check().unwrap();
        let done = |n: usize| sim.guest(VmId(0)).tasks()[n].done.operations;
        (done(0), done(1))
    };
    let (without, with) = (run(false), run(true));
    assert!(with.1 * 10 > without.1 * 12, "{without:?} {with:?}");
    assert!(with.0 < without.0, "{without:?} {with:?}");
}

/// XB3: with the VM paused, compute on a vCPU without I/O loses as well; read as
/// one vCPU's pause it does not.
#[test]
fn a_balloon_of_the_whole_vm_holds_compute_on_every_vcpu() {
    let elsewhere = |whole_vm: bool| {
        let machine = machine(2, 2, Costs::default());
        let mut guests = common::guests(&machine, KernelSettings::free(), 1);
        let mut reader = common::reader(0, HALVES);
        reader.mask = units::CpuSet::only(units::VcpuId(0));
        for vcpu in 0..2 {
            guests[0].add(common::compute(vcpu));
            guests[1].add(common::compute(vcpu));
        }
        guests[0].add(reader);
        guests[0].set_balloon(BalloonSettings {
            rules: policy::guest::xballoon::Settings::default(),
            knowledge: Knowledge::Told(Told {
                compute: vec![TaskId(0), TaskId(1)],
                demand_permille: 250,
                slice: Ns::from_ms(12),
                gap: Ns::from_ms(12),
            }),
            whole_vm,
        });
        let mut sim = simulation(machine, guests);
        common::add_delay(&mut sim, Ns::from_us(200), 0);
        sim.run_until(Time(4_000_000_000));
        sim.check().unwrap();
        sim.guest(VmId(0)).tasks()[1].done.operations
    };
    let (one, all) = (elsewhere(false), elsewhere(true));
    assert!(one > 3600, "half of 4 s in units of 0.5 ms: {one}");
    assert!(all * 10 < one * 9, "{all} of {one}");
}

/// vCPU 0 shares its pCPU with another VM and vCPU 1 has its own. Every second request
/// outlasts the slice in which it was issued: its completion waits for vCPU 0, or vCPU 1
/// takes it. Where vCPU 0 has nothing else to do it halts, and is woken by what is its own.
#[test]
fn a_completion_for_a_vcpu_without_a_pcpu_goes_to_one_that_runs() {
    let arrived = |completes_where_it_runs: bool, busy: bool| {
        let machine = machine(2, 2, Costs::FREE);
        let kernel = KernelSettings {
            completes_where_it_runs,
            ..KernelSettings::free()
        };
        let mut guests = common::guests(&machine, kernel, 1);
        let settings = ReaderSettings {
            submit: Ns::from_us(10),
            process: Ns::from_us(10),
            ..HALVES
        };
        let mut reader = common::reader(0, settings);
        reader.mask = units::CpuSet::first(1);
        guests[0].add(reader);
        if busy {
            guests[0].add(common::compute(0));
        }
        guests[0].add(common::compute(1));
        guests[1].add(common::compute(0));
        let mut sim = simulation(machine, guests);
        sim.add_device(Box::new(Delay::new(Ns::from_ms(7), 0)), Path::Submitter);
        sim.run_until(Time(1_000_000_000));
        sim.check().unwrap();
        [0, 1].map(|vcpu| sim.machine().vcpus[vcpu].io_events)
    };
    let [own, other] = arrived(true, true);
    assert!(own > 0 && other > 0, "{own} {other}");
    let [own, other] = arrived(false, true);
    assert!(own > 0 && other == 0, "{own} {other}");
    let [own, other] = arrived(true, false);
    assert!(own > 0 && other == 0, "{own} {other}");
}
