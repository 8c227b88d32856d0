// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;

use super::*;

fn gap(cpu: u32, out: u64, back: u64) -> Event {
    Event {
        cpu: VcpuId(cpu),
        planned_out: Time(out),
        out: Time(out),
        planned_back: Time(back),
        back: Time(back),
    }
}

fn span(from: u64, to: u64) -> Span {
    Span {
        from: Time(from),
        to: Time(to),
    }
}

fn both() -> CpuSet {
    CpuSet::first(2)
}

#[test]
fn the_union_is_what_is_left_of_the_overlap() {
    // CPU 0 off 10..60, CPU 1 off 40..90: nobody on 40..60.
    let trace = Trace::new([gap(0, 10, 60), gap(1, 40, 90)], span(0, 100));
    assert_eq!(trace.on_time(VcpuId(0)), Ns(50));
    assert_eq!(trace.any_on_time(&both()), Ns(80));
    assert_eq!(trace.any_on(&both()).get(), 800);
    assert_eq!(trace.time_with_off(&both(), 2), Ns(20));
    assert_eq!(trace.time_with_off(&both(), 1), Ns(60));
    assert_eq!(trace.time_with_off(&both(), 0), Ns(20));
    assert_eq!(trace.longest_all_off(&both()), Ns(20));
    assert!((trace.bound(&both()).unwrap() - 1.6).abs() < 1e-9);
}

#[test]
fn gaps_that_touch_do_not_overlap() {
    let trace = Trace::new([gap(0, 10, 20), gap(1, 20, 30)], span(0, 40));
    assert_eq!(trace.any_on_time(&both()), Ns(40));
    assert_eq!(trace.longest_all_off(&both()), Ns::ZERO);
}

#[test]
fn gaps_are_clipped_to_the_span() {
    let trace = Trace::new(
        [gap(0, 0, 15), gap(0, 30, 99), gap(0, 200, 300)],
        span(10, 40),
    );
    assert_eq!(trace.gaps(VcpuId(0)), [span(10, 15), span(30, 40)]);
    assert_eq!(trace.slices(VcpuId(0)), [span(15, 30)]);
    assert_eq!(trace.on_share(VcpuId(0)).get(), 500);
}

#[test]
fn a_cpu_without_gaps_is_on() {
    let trace = Trace::new([gap(0, 10, 20)], span(0, 100));
    assert_eq!(trace.on_time(VcpuId(7)), Ns(100));
    assert_eq!(trace.any_on_time(&CpuSet::only(VcpuId(7))), Ns(100));
    assert_eq!(trace.any_on_time(&CpuSet::EMPTY), Ns::ZERO);
    assert_eq!(trace.bound(&CpuSet::EMPTY), None);
}

#[test]
fn the_analytic_bound_is_the_published_table() {
    // P = 2 and 8 at 2, 4 and 8 VMs.
    for (cpus, vms, bound) in [
        (2, 2.0, 1.50),
        (2, 4.0, 1.75),
        (2, 8.0, 1.88),
        (8, 2.0, 1.99),
        (8, 4.0, 3.60),
        (8, 8.0, 5.25),
    ] {
        let got = analytic_bound(cpus, 1.0 / vms);
        assert!((got - bound).abs() < 0.006, "{cpus} CPUs, {vms} VMs: {got}");
    }
}

#[test]
fn independent_phases_reach_the_analytic_bound() {
    // Periods of 44 and 46.2 as the sweep makes them, over whole sweeps.
    let cycle = |cpu: u32, on: u64, period: u64| {
        (0..2100).map(move |n| gap(cpu, n * period + on, (n + 1) * period))
    };
    let log = cycle(0, 1100, 4400).chain(cycle(1, 1155, 4620));
    let trace = Trace::new(log, span(0, 4400 * 2100));
    let bound = trace.bound(&both()).unwrap();
    assert!((bound - analytic_bound(2, 0.25)).abs() < 0.01, "{bound}");
}

#[test]
fn spread_is_by_nearest_rank() {
    let spread = Spread::of((1..=100).rev().map(Ns)).unwrap();
    assert_eq!(
        (spread.min, spread.p5, spread.median, spread.p95, spread.max),
        (Ns(1), Ns(5), Ns(50), Ns(95), Ns(100))
    );
    assert_eq!(Spread::of([Ns(7)]).unwrap().p95, Ns(7));
    assert_eq!(Spread::of([]), None);
}

#[test]
fn delivered_leaves_out_the_phase_and_the_cut_gap() {
    // First slice 3 (the phase), last gap 1 (the stop).
    let log = [
        gap(0, 3, 13),
        gap(0, 18, 28),
        gap(0, 33, 43),
        gap(0, 48, 49),
    ];
    let got = Delivered::of(&log, span(0, 49), VcpuId(0)).unwrap();
    assert_eq!((got.on.min, got.on.max, got.on.count), (Ns(5), Ns(5), 2));
    assert_eq!((got.off.min, got.off.max), (Ns(10), Ns(10)));
    assert_eq!(Delivered::of(&log[..2], span(0, 49), VcpuId(0)), None);
    assert_eq!(Delivered::of(&log, span(0, 49), VcpuId(1)), None);
}

/// Slices and gaps of one CPU, as a log.
fn lane(cpu: u32) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((1u64..50, 1u64..50), 0..30).prop_map(move |pairs| {
        let mut at = 0;
        let mut log = Vec::new();
        for (on, off) in pairs {
            log.push(gap(cpu, at + on, at + on + off));
            at += on + off;
        }
        log
    })
}

proptest! {
    /// Against counting nanosecond by nanosecond.
    #[test]
    fn the_sweep_agrees_with_counting(a in lane(0), b in lane(1), from in 0u64..200, len in 1u64..800) {
        let covered = span(from, from + len);
        let log: Vec<Event> = a.into_iter().chain(b).collect();
        let trace = Trace::new(log.iter().copied(), covered);
        let off_at = |at: u64| {
            let off = |event: &&Event| (event.out.0..event.back.0).contains(&at);
            log.iter().filter(off).count()
        };
        for off in 0..=2u32 {
            let counted = (from..from + len).filter(|at| off_at(*at) == off as usize).count();
            prop_assert_eq!(trace.time_with_off(&both(), off), Ns(counted as u64));
        }
        let on: Ns = both().iter().map(|cpu| trace.on_time(cpu)).sum();
        let slices: Ns = both().iter().flat_map(|cpu| trace.slices(cpu)).map(|slice| slice.len()).sum();
        prop_assert_eq!(on, slices);
    }

    /// Replaying a record makes the same slices again.
    #[test]
    fn pairs_rebuild_the_gaps(log in lane(0)) {
        let end = log.last().map_or(0, |event| event.back.0);
        let trace = Trace::new(log.iter().copied(), span(0, end));
        let mut at = Time::ZERO;
        for (pair, event) in trace.pairs(VcpuId(0)).into_iter().zip(&log) {
            prop_assert_eq!(at + pair.on, event.out);
            at = at + pair.period();
            prop_assert_eq!(at, event.back);
        }
    }
}
