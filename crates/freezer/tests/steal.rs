// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Native tests: does the published steal page say what KVM's would?

mod common;

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use common::FROZEN;
use common::WATCHING;
use common::ms;
use common::now;
use common::one_cpu;
use common::patient;
use common::pin_to;
use common::stop;
use common::until;
use common::wait_for_gaps;
use freezer::Freezer;
use freezer::Plan;
use freezer::trace::Spread;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::Skel;
use libbpf_rs::skel::SkelBuilder;
use units::CpuSet;
use units::Ns;
use units::Time;

/// Generated.
#[allow(
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    unused
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/witness.skel.rs"));
}

#[test]
fn root_the_steal_counter_is_the_sum_of_the_gaps() {
    let plan = Plan::shared(3, ms(4), &CpuSet::first(2)).unwrap();
    let mut freezer = Freezer::start(&plan, &patient()).unwrap();
    wait_for_gaps(&freezer, 20);
    let counters = stop(&mut freezer);
    let log = freezer.log();
    for (page, counters) in freezer.steal_page().into_iter().zip(counters) {
        let gaps: Ns = log
            .iter()
            .filter(|event| event.cpu == page.cpu)
            .map(|event| event.gap())
            .sum();
        assert_eq!(page.steal, gaps);
        assert_eq!(page.steal, counters.frozen);
        assert_eq!(u64::from(page.version), 2 * counters.gaps);
        assert!(!page.preempted);
        assert_eq!(counters.dropped, 0);
    }
}

/// Seen from a CPU that is never frozen. The counter stays still during a gap, as
/// KVM's does, and has grown by it afterwards.
#[test]
fn root_the_flag_is_set_during_a_gap_and_at_no_other_time() {
    /// A look at the page, and when it began and ended.
    struct Look {
        from: Time,
        preempted: bool,
        to: Time,
    }
    let mut freezer = Freezer::start(&one_cpu(ms(4), ms(6)), &patient()).unwrap();
    let looks = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            pin_to(WATCHING);
            let mut looks = Vec::new();
            while common::gaps(&freezer) < 40 {
                let from = now();
                let preempted = freezer.is_off(FROZEN);
                looks.push(Look {
                    from,
                    preempted,
                    to: now(),
                });
            }
            looks
        });
        watcher.join().unwrap()
    });
    stop(&mut freezer);
    let log = freezer.log();
    // The flag follows the stamp in the log by some instructions, within which the
    // real host may take the CPU.
    let slack = Ns::from_us(500);
    let mut seen = [0u32; 2];
    for Look {
        from,
        preempted,
        to,
    } in looks
    {
        let later = log.partition_point(|gap| gap.back + slack < from);
        let gap = log.get(later);
        seen[usize::from(preempted)] += 1;
        if preempted {
            assert!(
                gap.is_some_and(|gap| gap.out <= to),
                "set at {from:?}, in no gap: {gap:?}"
            );
        } else {
            let deep = gap.is_some_and(|gap| gap.out + slack < from && to + slack < gap.back);
            assert!(!deep, "clear at {from:?}, in the midst of {gap:?}");
        }
    }
    assert!(seen[0] > 1000 && seen[1] > 1000, "{seen:?}");
}

#[test]
fn root_the_counter_stands_still_during_a_gap() {
    pin_to(WATCHING);
    let mut freezer = Freezer::start(&one_cpu(ms(4), ms(50)), &patient()).unwrap();
    let mut compared = 0;
    until("three gaps were looked at twice", || {
        let first = freezer.steal_page()[0];
        if !first.preempted {
            return false;
        }
        let mut last = first;
        until("the CPU is back", || {
            let now = freezer.steal_page()[0];
            if now.preempted && now.version == first.version {
                assert_eq!(now.steal, first.steal);
                compared += 1;
            }
            last = now;
            !now.preempted
        });
        assert!(last.steal > first.steal + ms(30), "{first:?} {last:?}");
        compared >= 3
    });
    stop(&mut freezer);
}

/// As a daemon in another process would: by id, with the kernel's layout.
#[test]
fn root_the_page_can_be_opened_by_id_and_has_kvms_layout() {
    let mut freezer = Freezer::start(&one_cpu(ms(4), ms(6)), &patient()).unwrap();
    let map = MapHandle::from_map_id(freezer.steal_map_id().unwrap()).unwrap();
    assert_eq!((map.key_size(), map.value_size()), (4, 64));
    assert_eq!(
        map.max_entries() as usize,
        libbpf_rs::num_possible_cpus().unwrap()
    );
    let raw = || {
        map.lookup(&FROZEN.0.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap()
    };
    until("byte 16 is set", || raw()[16] == 1);
    until("byte 16 is clear again", || raw()[16] == 0);
    wait_for_gaps(&freezer, 3);
    stop(&mut freezer);
    let bytes = raw();
    let page = freezer.steal_page()[0];
    assert_eq!(bytes[..8], page.steal.0.to_ne_bytes());
    assert_eq!(bytes[8..12], page.version.to_ne_bytes());
    assert!(bytes[17..].iter().all(|byte| *byte == 0));
    // It outlives the run for whoever holds it.
    drop(freezer);
    assert_eq!(raw(), bytes);
}

#[test]
fn root_a_program_attached_later_sees_the_return_in_the_same_interrupt() {
    let mut freezer = Freezer::start(&one_cpu(ms(8), ms(8)), &patient()).unwrap();
    let map = MapHandle::from_map_id(freezer.steal_map_id().unwrap()).unwrap();
    let mut storage = MaybeUninit::uninit();
    let mut open = skel::WitnessSkelBuilder::default()
        .open(&mut storage)
        .unwrap();
    open.maps.rodata_data.as_deref_mut().unwrap().watched_cpu = FROZEN.0;
    open.maps.steal_page.reuse_fd(map.as_fd()).unwrap();
    let mut witness = open.load().unwrap();
    witness.attach().unwrap();
    let before = common::gaps(&freezer);
    wait_for_gaps(&freezer, before + 20);
    stop(&mut freezer);

    let seen = witness.maps.bss_data.as_deref().unwrap();
    assert_eq!((seen.nr_preempted, seen.nr_odd), (0, 0));
    assert!(seen.nr_jumps >= 20, "{}", seen.nr_jumps);
    // When was each jump seen, counted from the return that the log tells?
    let mut steal = Ns::ZERO;
    let returns: Vec<(Ns, Time)> = freezer
        .log()
        .iter()
        .map(|event| {
            steal += event.gap();
            (steal, event.back)
        })
        .collect();
    let delays = seen.jumps.iter().filter_map(|jump| {
        let (_, back) = returns.iter().find(|(steal, _)| steal.0 == jump.steal_ns)?;
        Some(Time(jump.seen_ns).since(*back))
    });
    let delays = Spread::of(delays).unwrap();
    assert!(delays.count >= 20, "{delays:?}");
    // The next interrupt would be the tick, 1 to 10 ms later.
    assert!(delays.median < Ns::from_us(100), "{delays:?}");
}
