// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several requests in flight: what a wake-up finds at once pays it once. Worked by hand.

mod common;

use sim::device::Delay;
use sim::device::Device;
use sim::device::Path;
use sim::device::Served;
use sim::device::ServedSettings;
use sim::guest::KernelSettings;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use units::Ns;
use units::Time;

/// A reader with four requests in flight, alone on its vCPU beside one that computes: 12 us for an interrupt that
/// wakes it, 7 us for a completion, 5 us to submit. Requests done and work of the vCPU
/// after so many microseconds.
fn reads(device: Box<dyn Device>, further: Option<Ns>, us: u64) -> (u64, Ns) {
    let mut machine = common::machine(2, 1, false);
    machine.costs = Costs::FREE;
    let kernel = KernelSettings {
        interrupt: Ns::from_us(12),
        batched: further.map(|_| Ns::ZERO),
        ..KernelSettings::free()
    };
    let mut guests = common::guests(&machine, kernel, 1);
    let reads = ReaderSettings {
        depth: 4,
        sequential: true,
        submit: Ns::from_us(5),
        process: Ns::from_us(7),
        process_spread: 0,
        further,
        ..common::READS
    };
    guests[0].add(common::reader(0, reads));
    guests[0].add(common::compute(1));
    let mut sim = common::simulation(
        machine,
        guests,
        common::fixed(1, Ns::from_ms(10), 0),
        QueueKind::Wheel,
        1,
    );
    sim.add_device(device, Path::Submitter);
    sim.run_until(Time::ZERO + Ns::from_us(us));
    assert_eq!(sim.check(), Ok(()));
    let done = sim.guest(VmId(0)).tasks()[0].done.operations;
    (done, sim.machine().vcpus[0].work)
}

/// Four submitted at 5 us are there at 105. The first wakes the reader, which has done it
/// at 124, the others at 125, 126 and 127, and submits four at 132: a batch lasts 127 us and
/// 27 of work, of which 5 come after what is counted.
#[test]
fn a_wake_up_is_paid_once_for_all_that_it_finds() {
    let timers = || Box::new(Delay::new(Ns::from_us(100), 0));
    let further = Some(Ns::from_us(1));
    assert_eq!(reads(timers(), further, 126).0, 3);
    assert_eq!(reads(timers(), further, 127), (4, Ns::from_us(27)));
    assert_eq!(
        reads(timers(), further, 127 * 100),
        (400, Ns::from_us(27 * 100))
    );
}

/// Without such a price each of them costs 24 us.
#[test]
fn without_a_price_for_the_further_ones_each_costs_all() {
    let (done, work) = reads(Box::new(Delay::new(Ns::from_us(100), 0)), None, 12_408);
    let least = Ns::from_us(24) * done;
    assert!(
        done > 100 && (least..least + Ns::from_us(4 * 24)).contains(&work),
        "{done} {work}"
    );
}

/// The first request of a batch kicks the thread, which begins 10 us later and takes 20 us
/// for each; the reader hears of all four when none is left. Submitted at 5 us they are
/// there at 95 and done at 117; submitted again at 122 they are there at 212.
#[test]
fn one_thread_serves_one_after_the_other_and_tells_of_all_at_once() {
    let disk = || {
        Box::new(Served::new(ServedSettings {
            begin: Ns::from_us(10),
            latency: Ns::from_us(20),
            spread_permille: 0,
        }))
    };
    let further = Some(Ns::from_us(1));
    assert_eq!(reads(disk(), further, 94), (0, Ns::from_us(5)), "not yet");
    assert_eq!(reads(disk(), further, 117), (4, Ns::from_us(27)));
    assert_eq!(
        reads(disk(), further, 117 * 100),
        (400, Ns::from_us(27 * 100))
    );
}
