// SPDX-License-Identifier: Apache-2.0 OR MIT
//! xBalloon in a guest, as the daemon has it in mode xballoon: nothing is told.

mod common;

use common::cfs;
use policy::guest::xballoon;
use sim::engine::Sim;
use sim::guest::BalloonCounts;
use sim::guest::KernelSettings;
use sim::guest::MigraterSettings;
use sim::hypervisor::Hypervisor;
use sim::ids::VmId;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use units::Ns;
use units::Time;

const FROM: Ns = Ns::from_secs(1);
const WINDOW: Ns = Ns::from_secs(4);

/// Two VMs of two vCPUs. In the first a reader beside two tasks that compute, or
/// only those; in the second, if there is one, compute.
#[derive(Clone, Copy)]
struct Bed {
    balloon: bool,
    reads: bool,
    shared: bool,
    eevdf: bool,
    /// Tasks that compute on each vCPU.
    hogs: usize,
}

const BED: Bed = Bed {
    balloon: true,
    reads: true,
    shared: true,
    eevdf: false,
    hogs: 1,
};

/// What the first VM did in the window: units computed on each vCPU, requests.
struct Did {
    compute: [u64; 2],
    requests: u64,
    counts: BalloonCounts,
    moves: u64,
    /// CPU time of each VM.
    ran: Vec<Ns>,
}

fn run(bed: Bed, policy: Box<dyn Hypervisor>) -> Did {
    let machine = common::machine(2, if bed.shared { 2 } else { 1 }, false);
    let kernel = if bed.eevdf {
        KernelSettings::eevdf(2)
    } else {
        KernelSettings::scaled(2)
    };
    let mut guests = common::guests(&machine, kernel, 1);
    for guest in &mut guests {
        for _ in 0..bed.hogs {
            guest.add(common::compute(0));
            guest.add(common::compute(1));
        }
    }
    if bed.reads {
        let reads = ReaderSettings {
            submit: Ns::from_us(25),
            process: Ns::from_us(25),
            process_spread: 200,
            ..common::READS
        };
        let mut reader = common::reader(0, reads);
        reader.mask = units::CpuSet::only(units::VcpuId(0));
        guests[0].add(reader);
    }
    if bed.balloon {
        guests[0].set_xballoon(xballoon::Settings::default(), MigraterSettings::default());
    }
    let vms = guests.len();
    let mut sim: Sim = common::simulation(machine, guests, policy, QueueKind::Wheel, 1);
    sim.spread_starts(Ns::from_ms(20));
    common::add_delay(&mut sim, Ns::from_us(200), 0);
    sim.run_until(Time::ZERO + FROM);
    sim.open_window();
    let ran = |sim: &Sim| -> Vec<Ns> {
        let of = |vm: usize| {
            let range = sim.machine().vms[vm].vcpus.clone();
            range.map(|n| sim.machine().vcpus[n as usize].ran).sum()
        };
        (0..vms).map(of).collect()
    };
    let before = ran(&sim);
    sim.run_until(Time::ZERO + FROM + WINDOW);
    assert_eq!(sim.check(), Ok(()));
    let guest = sim.guest(VmId(0));
    let done = |n: usize| guest.tasks()[n].done.operations;
    let on = |vcpu: usize| (0..bed.hogs).map(|n| done(2 * n + vcpu)).sum();
    Did {
        compute: [on(0), on(1)],
        requests: if bed.reads { done(2 * bed.hogs) } else { 0 },
        counts: guest.balloon_counts(sim.now()),
        moves: guest.migrater().map_or(0, |m| m.counts().n_migrate()),
        ran: ran(&sim)
            .iter()
            .zip(&before)
            .map(|(a, b)| *a - *b)
            .collect(),
    }
}

/// The task beside the reader pays (XB4), the one on the other vCPU does not (as the
/// daemon reads XB1), and nothing moves (XB5). Under EEVDF, where a reader that wakes
/// beside two others waits for their slices, it gains by its priority; under CFS it
/// preempts by waking anyway and loses nothing.
#[test]
fn it_finds_out_what_to_hold_and_moves_nothing() {
    for (eevdf, hogs, gain) in [(false, 1, 95), (true, 2, 104)] {
        let bed = Bed { eevdf, hogs, ..BED };
        let without = Bed {
            balloon: false,
            ..bed
        };
        let (with, without) = (run(bed, cfs()), run(without, cfs()));
        let percent = |a: u64, b: u64| a * 100 / b.max(1);
        let requests = percent(with.requests, without.requests);
        let beside = percent(with.compute[0], without.compute[0]);
        let other = percent(with.compute[1], without.compute[1]);
        println!(
            "eevdf {eevdf}: {requests}, {beside}, {other} %, {:?}",
            with.counts
        );
        assert!(requests >= gain, "eevdf {eevdf}: {requests} % of requests");
        assert!(beside < 95, "eevdf {eevdf}: {beside} % of compute");
        assert!((97..=103).contains(&other), "eevdf {eevdf}: {other} %");
        assert_eq!(with.moves, 0);
        assert!(with.counts.inflations > 20, "{:?}", with.counts);
    }
}

/// XB2: a VM does not get more than its share by pausing.
#[test]
fn it_takes_nothing_from_the_other_vm() {
    let did = run(BED, cfs());
    let share = did.ran[0].as_ns() * 1000 / (did.ran[0] + did.ran[1]).as_ns();
    assert!(share <= 505, "{share} permille");
}

/// Without anything I/O-bound, and without sharing, computation is never held.
#[test]
fn it_holds_nobody_for_nothing() {
    for bed in [
        Bed {
            reads: false,
            ..BED
        },
        Bed {
            shared: false,
            ..BED
        },
    ] {
        let (with, without) = (
            run(bed, cfs()),
            run(
                Bed {
                    balloon: false,
                    ..bed
                },
                cfs(),
            ),
        );
        assert_eq!(with.counts, BalloonCounts::default());
        if !bed.reads {
            let left = with.compute[0] * 1000 / without.compute[0].max(1);
            assert!((970..=1001).contains(&left), "{left} permille");
        }
    }
}

/// Slices that end by the clock, used or not: what is not computed is lost (the
/// policy's limit). The reader wants 50 of 250 us, twice that is 40 % of a slice of
/// 11 ms: compute may have the first 6.6 ms, of which the reader takes a fifth, so 1900
/// to 2400 units in 4 s; it is held for 15.4 of 22 ms at most.
#[test]
fn under_slices_by_the_clock_compute_keeps_its_allowance() {
    let did = run(BED, common::fixed(2, Ns::from_ms(11), 100));
    // 2 % more for the slices that are a tenth longer on the other pCPU.
    let units = did.compute[0];
    assert!((1900..=2450).contains(&units), "{units} units");
    let inflated = did.counts.inflated.as_ns() * 1000 / WINDOW.as_ns();
    assert!((500..=720).contains(&inflated), "{inflated} permille");
}
