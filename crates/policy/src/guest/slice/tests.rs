// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::Permille;

use super::*;

const MS: u64 = 1_000_000;

fn ms(n: u64) -> Ns {
    Ns::from_ms(n)
}

fn us(n: u64) -> Ns {
    Ns::from_us(n)
}

fn at_ms(n: u64) -> Time {
    Time(n * MS)
}

fn published() -> Timeline {
    Timeline::new(
        Box::new(LastValue::new()),
        &Settings::published(),
        Time::ZERO,
    )
}

fn ours() -> Timeline {
    let settings = Settings::default();
    Timeline::new(
        Box::new(Distribution::new(&settings)),
        &settings,
        Time::ZERO,
    )
}

fn fed(cycles: impl IntoIterator<Item = (Ns, Ns)>) -> Distribution {
    let mut estimator = Distribution::new(&Settings::default());
    for (on, off) in cycles {
        estimator.observe(on, off);
    }
    estimator
}

fn value(estimate: Option<Estimate>) -> Option<Ns> {
    estimate.map(|estimate| estimate.value)
}

#[test]
fn the_published_formulas_hold() {
    let mut vcpu = published();
    // t1 = 1 ms, t2 = 12 ms; t5 = 23 ms, t6 = 34 ms; t7 = 37 ms.
    vcpu.gap(at_ms(1), at_ms(12));
    assert_eq!(
        vcpu.remaining(at_ms(13)),
        None,
        "no slice has been seen whole"
    );
    vcpu.gap(at_ms(23), at_ms(34));
    let (previous, used) = (ms(23 - 12), ms(37 - 34));
    assert_eq!(value(vcpu.slice()), Some(previous));
    assert_eq!(at_ms(37).since(vcpu.running_since()), used);
    assert_eq!(vcpu.remaining(at_ms(37)), Some(ms(8)));
    assert_eq!(value(vcpu.gap_estimate()), Some(ms(34 - 23)));
    assert_eq!(vcpu.remaining(at_ms(50)), Some(Ns::ZERO), "overdue");
}

#[test]
fn the_states_carry_the_predicted_instants() {
    let mut vcpu = published();
    vcpu.gap(at_ms(0), at_ms(10));
    vcpu.gap(at_ms(15), at_ms(40));
    let end = at_ms(45);
    let exactly = |at| Window {
        earliest: at,
        expected: at,
        latest: at,
    };
    assert_eq!(
        vcpu.state_running(at_ms(41)),
        VcpuState::Running {
            since: at_ms(40),
            ends: Some(exactly(end)),
            gap: Some(ms(25))
        }
    );
    assert_eq!(
        vcpu.state_descheduled(end, end),
        VcpuState::Descheduled {
            since: end,
            back: Some(exactly(at_ms(70)))
        }
    );
}

#[test]
fn a_short_gap_extends_the_slice_by_its_length() {
    let mut vcpu = ours();
    let mut now = at_ms(1);
    for _ in 0..3 {
        vcpu.gap(now, now + ms(11));
        now = now + ms(22);
    }
    vcpu.gap(now, now + ms(11));
    let start = now + ms(11);
    let plain = vcpu.remaining(start + ms(4));
    assert_eq!(plain, Some(ms(7)));

    // 150 us of noise after 2 ms: what is left ends 150 us later.
    vcpu.gap(start + ms(2), start + ms(2) + us(150));
    assert_eq!(vcpu.gaps(), 4, "not a slice end");
    assert_eq!(vcpu.remaining(start + ms(4)), Some(ms(7) + us(150)));

    // The slice that is measured at its end is the time it really ran.
    vcpu.gap(start + ms(11) + us(150), start + ms(22));
    assert_eq!(vcpu.slice().unwrap().high, ms(11));
    assert_eq!(vcpu.slice().unwrap().low, ms(11));
    assert_eq!(
        vcpu.stolen(),
        ms(4 * 11 + 11),
        "4 whole gaps, 0.15 and 10.85 ms"
    );
}

#[test]
fn a_slice_with_an_idle_period_in_it_is_not_observed_and_has_no_known_end() {
    let mut vcpu = published();
    vcpu.gap(at_ms(0), at_ms(11));
    vcpu.gap(at_ms(22), at_ms(33));
    vcpu.idled(at_ms(35));
    assert!(matches!(
        vcpu.state_running(at_ms(36)),
        VcpuState::Running { ends: None, .. }
    ));
    vcpu.gap(at_ms(36), at_ms(47));
    assert_eq!(value(vcpu.slice()), Some(ms(11)), "not 1 ms");
    assert_eq!(vcpu.remaining(at_ms(48)), Some(ms(10)), "known again");
}

#[test]
fn a_gap_reported_twice_counts_once() {
    let mut vcpu = published();
    vcpu.gap(at_ms(0), at_ms(11));
    for _ in 0..2 {
        vcpu.gap(at_ms(22), at_ms(33));
    }
    vcpu.gap(at_ms(40), at_ms(40));
    assert_eq!((vcpu.gaps(), vcpu.stolen()), (2, ms(22)));
    assert_eq!(value(vcpu.slice()), Some(ms(11)));
    assert_eq!(vcpu.running_since(), at_ms(33));
}

#[test]
fn recovers_within_ten_slices_from_11_11_to_5_25() {
    let mut estimator = fed([(ms(11), ms(11)); 50]);
    let mut recovered = None;
    for cycle in 1..=10 {
        estimator.observe(ms(5), ms(25));
        let (slice, gap) = (value(estimator.slice()), value(estimator.gap()));
        // The first cycles cannot be told from outliers; after them it must
        // abstain, not go on with what is no longer true.
        if cycle >= 3 {
            assert!(
                slice.is_none_or(|slice| slice == ms(5)),
                "cycle {cycle}: {slice:?}"
            );
            assert!(
                gap.is_none_or(|gap| gap == ms(25)),
                "cycle {cycle}: {gap:?}"
            );
        }
        if slice == Some(ms(5)) && gap == Some(ms(25)) {
            recovered.get_or_insert(cycle);
        }
    }
    assert_eq!(recovered, Some(4));
}

/// The first cycles after two such changes as the freezer delivered them on a
/// machine whose own hypervisor took time away: (slice, gap) in tenths of a
/// millisecond.
#[test]
fn recovers_within_ten_slices_as_delivered_on_a_real_machine() {
    let clean = (50, 250);
    for odd in [
        vec![clean, (171, 188), (50, 251)],
        vec![(98, 202)],
        vec![clean, clean, clean, (126, 188), clean, (50, 348)],
    ] {
        let mut estimator = fed([(ms(11), ms(11)); 50]);
        let cycles = odd.iter().copied().chain(std::iter::repeat(clean));
        let recovered = cycles.take(10).position(|(on, off)| {
            estimator.observe(us(on * 100), us(off * 100));
            (value(estimator.slice()), value(estimator.gap())) == (Some(ms(5)), Some(ms(25)))
        });
        assert!(recovered.is_some(), "{odd:?}: {estimator:?}");
    }
}

#[test]
fn a_pattern_that_has_not_settled_is_not_given_up_for_a_run() {
    // Runs of five, for ever: no window of ten agrees, so nothing is settled, and
    // four in a row prove nothing.
    let mut estimator = fed([]);
    for cycle in 0..60 {
        let on = if cycle / 5 % 2 == 0 { ms(4) } else { ms(12) };
        estimator.observe(on, ms(11));
        assert!(cycle < 8 || estimator.slice().is_none(), "cycle {cycle}");
    }
}

#[test]
fn a_second_change_soon_after_the_first_takes_ten_cycles_at_most() {
    for between in 4..20 {
        let mut estimator = fed([(ms(11), ms(11)); 50]);
        for _ in 0..between {
            estimator.observe(ms(5), ms(25));
        }
        for _ in 0..10 {
            estimator.observe(ms(20), ms(60));
        }
        let found = (value(estimator.slice()), value(estimator.gap()));
        assert_eq!(found, (Some(ms(20)), Some(ms(60))), "after {between}");
    }
}

#[test]
fn single_outliers_change_nothing() {
    for outlier in [(ms(2), ms(11)), (ms(11), ms(22)), (ms(30), ms(1))] {
        let mut estimator = fed([(ms(11), ms(11)); 10]);
        estimator.observe(outlier.0, outlier.1);
        for _ in 0..10 {
            let (slice, gap) = (estimator.slice().unwrap(), estimator.gap().unwrap());
            for estimate in [slice, gap] {
                assert_eq!(estimate.value, ms(11));
                assert_eq!((estimate.low, estimate.high), (ms(11), ms(11)));
                assert!(estimate.confidence >= Permille::new(900));
            }
            estimator.observe(ms(11), ms(11));
        }
    }
}

#[test]
fn the_published_rule_is_wrong_for_one_cycle_after_an_outlier() {
    let mut estimator = LastValue::new();
    estimator.observe(ms(11), ms(11));
    estimator.observe(ms(2), ms(11));
    assert_eq!(estimator.slice().unwrap().value, ms(2));
    assert_eq!(estimator.slice().unwrap().confidence, Permille::ONE);
    estimator.observe(ms(11), ms(11));
    assert_eq!(estimator.slice().unwrap().value, ms(11));
}

#[test]
fn two_patterns_that_alternate_make_it_abstain_on_slices_alone() {
    let mut estimator = fed([]);
    for cycle in 0..40 {
        let on = if cycle % 2 == 0 { ms(4) } else { ms(12) };
        estimator.observe(on, ms(11));
        assert_eq!(estimator.slice(), None);
        assert_eq!(estimator.gap().is_some(), cycle >= 2, "gaps are stable");
    }
}

#[test]
fn of_two_lengths_it_says_which_one_can_still_be() {
    let mut estimator = fed([]);
    for cycle in 0..40 {
        let on = if cycle % 2 == 0 {
            us(10_100)
        } else {
            us(20_300)
        };
        estimator.observe(on, ms(10));
        let after = |used| {
            estimator
                .slice_after(used)
                .map(|length| (length.estimate.value, length.longer))
        };
        if cycle < 9 {
            assert_eq!(after(Ns::ZERO), None, "a whole window first");
            continue;
        }
        assert_eq!(after(Ns::ZERO), Some((us(10_100), true)));
        assert_eq!(after(us(10_100)), Some((us(10_100), true)));
        assert_eq!(after(us(10_101)), Some((us(20_300), false)));
        assert_eq!(after(ms(50)), Some((us(20_300), false)), "overdue");
        let gap = estimator.gap_after(Ns::ZERO).unwrap();
        assert_eq!((gap.estimate.value, gap.longer), (ms(10), false));
    }
}

#[test]
fn two_odd_ones_are_no_length_and_four_lengths_are_none() {
    let of = |lengths: [u64; 10]| {
        let estimator = fed(lengths.map(|length| (ms(length), ms(11))));
        let all = [0, 6, 13, 25].map(|used| estimator.slice_after(ms(used)));
        all.map(|length| {
            length
                .map_or(Ns::ZERO, |length| length.estimate.value)
                .as_ns()
                / MS
        })
    };
    assert_eq!(
        of([5, 10, 5, 10, 5, 10, 20, 10, 5, 5]),
        [5, 10, 10, 10],
        "one of 20"
    );
    assert_eq!(of([5, 10, 5, 20, 5, 10, 20, 10, 5, 20]), [5, 10, 20, 20]);
    assert_eq!(
        of([5, 10, 5, 20, 5, 10, 20, 10, 2, 40]),
        [5, 10, 20, 20],
        "two of ten are odd"
    );
    assert_eq!(
        of([5, 10, 3, 20, 5, 10, 20, 10, 2, 40]),
        [0; 4],
        "three are not"
    );
    assert_eq!(
        of([2, 2, 5, 5, 10, 10, 20, 20, 40, 40]),
        [0; 4],
        "five lengths"
    );
}

/// Where the present slice may be longer than it seems, a task does not wait for a vCPU that is
/// away: what comes after the shorter length is unknown.
#[test]
fn what_comes_after_a_length_that_may_be_passed_is_unknown() {
    let mut vcpu = ours();
    let mut at = 0;
    for cycle in 0..14 {
        let on = if cycle % 2 == 0 { 10 } else { 20 };
        vcpu.gap(at_ms(at + on), at_ms(at + on + 10));
        at += on + 10;
    }
    let ends = |now| match vcpu.state_running(at_ms(now)) {
        VcpuState::Running { ends, gap, .. } => (ends.unwrap().expected, gap),
        other => panic!("{other:?}"),
    };
    assert_eq!(ends(at + 1), (at_ms(at + 10), None));
    assert_eq!(ends(at + 11), (at_ms(at + 20), Some(ms(10))));
    assert_eq!(
        vcpu.longer_from(at_ms(at + 1)),
        Some(at_ms(at + 10) + Ns(1))
    );
    assert_eq!(vcpu.longer_from(at_ms(at + 11)), None);
    assert_eq!(vcpu.remaining(at_ms(at + 11)), Some(ms(9)));
    assert_eq!(vcpu.slice(), None, "no length of all");
}

#[test]
fn the_value_is_the_median_of_the_last_five() {
    let mut estimator = fed([]);
    for tenths in [110, 100, 100, 100, 100, 100, 101, 102, 103, 104] {
        estimator.observe(us(100 * tenths), ms(11));
    }
    // Of 10.0 .. 10.4; with the oldest among them it would be 10.3.
    assert_eq!(value(estimator.slice()), Some(us(10_200)));
}

#[test]
fn a_minority_of_short_slices_shows_in_low() {
    let mut estimator = fed([]);
    for cycle in 0..40 {
        let on = if cycle % 5 == 4 { ms(6) } else { ms(11) };
        estimator.observe(on, ms(11));
    }
    let slice = estimator.slice().unwrap();
    assert_eq!(
        (slice.value, slice.low, slice.high),
        (ms(11), ms(6), ms(11))
    );
    assert_eq!(slice.confidence, Permille::new(800));
}

#[test]
fn follows_a_sweep_of_a_few_percent() {
    let mut estimator = fed([]);
    let mut on = 11 * MS;
    for cycle in 0..200u64 {
        // Up 2 % a cycle for 20 cycles, then down again.
        on = if cycle / 20 % 2 == 0 {
            on * 102 / 100
        } else {
            on * 100 / 102
        };
        if cycle >= 5 {
            let slice = estimator.slice().unwrap();
            let error = slice.value.abs_diff(Ns(on));
            assert!(
                error.0 * 1000 <= on * 65,
                "cycle {cycle}: {error} of {}",
                Ns(on)
            );
        }
        estimator.observe(Ns(on), ms(11));
    }
}

/// Lengths around `base`: each at most `jitter` permille off.
fn jittered(base: u64, jitter: u64, noise: &[u64]) -> Vec<u64> {
    noise
        .iter()
        .map(|n| base - base * jitter / 1000 + base * jitter * 2 / 1000 * n / 1000)
        .collect()
}

/// A linear congruential generator; its upper 31 bits.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// Cycles of 400 with a claim to be sure of the slice, on a host with two patterns in
/// random order: it may be taken in by a run, but not often.
fn sure_of_bimodal(seed: u64) -> u64 {
    let mut next = random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut estimator = fed([(ms(4), ms(11)); 20]);
    let mut sure = 0;
    for _ in 0..400 {
        let on = if next().is_multiple_of(2) {
            ms(4)
        } else {
            ms(12)
        };
        estimator.observe(on, ms(11));
        sure += u64::from(estimator.slice().is_some());
    }
    sure
}

/// How often is a distribution with a tail: of 200 000 seeds the mean is 51.6 of 400, one in
/// a hundred has 89, one in ten thousand 120 and the worst 133. So a bound on each seed is
/// for fixed ones, and drawn ones have one on their mean (below).
#[test]
fn a_bimodal_host_rarely_gets_an_estimate() {
    const SEEDS: u64 = 256;
    let counts: Vec<u64> = (0..SEEDS).map(sure_of_bimodal).collect();
    let total: u64 = counts.iter().sum();
    assert!(total < 56 * SEEDS, "{total} in {SEEDS} runs of 400");
    assert!(counts.iter().all(|&sure| sure < 125), "{counts:?}");
}

proptest! {
    /// Likewise from any seed on, in the mean of 32 runs.
    #[test]
    fn a_bimodal_host_rarely_gets_an_estimate_in_the_mean(seed in any::<u64>()) {
        const RUNS: u64 = 32;
        let total: u64 = (0..RUNS).map(|n| sure_of_bimodal(seed.wrapping_add(n))).sum();
        prop_assert!(total < 70 * RUNS, "{} in {} runs of 400", total, RUNS);
    }

    /// A heartbeat of period p shortens each slice by less than two periods
    /// (V11), and the estimate with it.
    #[test]
    fn a_heartbeat_underestimates_by_less_than_two_periods(
        phase in 0u64..300_000, on in 2 * MS..30 * MS, off in MS..60 * MS,
    ) {
        let period = 300_000;
        let mut vcpu = published();
        let mut start = 7 * MS;
        for _ in 0..6 {
            let (end, back) = (start + on, start + on + off);
            let last_before = (end - phase) / period * period + phase;
            let first_after = (back - phase).div_ceil(period) * period + phase;
            vcpu.gap(Time(last_before), Time(first_after));
            start = back;
        }
        let slice = vcpu.slice().unwrap().value;
        prop_assert!(slice <= Ns(on) && slice + Ns(2 * period) > Ns(on), "{} of {}", slice, Ns(on));
        let gap = vcpu.gap_estimate().unwrap().value;
        prop_assert!(gap >= Ns(off) && gap < Ns(off + 2 * period));
    }

    /// Jitter of up to a tenth: it speaks from the third cycle on, errs by no
    /// more than the jitter, and its bounds hold the value.
    #[test]
    fn jitter_bounds_the_error(
        on in MS..50 * MS, off in MS..100 * MS, jitter in 0u64..=90,
        noise in proptest::collection::vec(0u64..=1000, 3..60),
    ) {
        let mut estimator = fed([]);
        for (cycle, (a, b)) in jittered(on, jitter, &noise).into_iter()
            .zip(jittered(off, jitter, &noise)).enumerate()
        {
            estimator.observe(Ns(a), Ns(b));
            if cycle < 2 {
                prop_assert!(estimator.slice().is_none() && estimator.gap().is_none());
                continue;
            }
            for (estimate, base) in [(estimator.slice(), on), (estimator.gap(), off)] {
                let estimate = estimate.unwrap();
                prop_assert!(estimate.value.abs_diff(Ns(base)).0 <= base * jitter / 1000 + 1);
                prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
                prop_assert_eq!(estimate.confidence, Permille::ONE);
            }
        }
    }

    /// Any outlier, at most every sixth cycle, on top of jitter: once settled it
    /// neither abstains nor errs by more than the jitter.
    #[test]
    fn scattered_outliers_do_not_move_the_value(
        on in MS..50 * MS, jitter in 0u64..=90,
        noise in proptest::collection::vec(0u64..=1000, 12..80),
        distance in 6usize..12, factor in prop_oneof![1u64..8, 13u64..40],
    ) {
        let mut estimator = fed([]);
        for (cycle, length) in jittered(on, jitter, &noise).into_iter().enumerate() {
            let outlier = cycle % distance == distance - 1;
            let length = if outlier { on * factor / 10 } else { length };
            estimator.observe(Ns(length), ms(11));
            if cycle >= 10 {
                let slice = estimator.slice();
                prop_assert!(slice.is_some(), "abstains in cycle {}", cycle);
                let error = slice.unwrap().value.abs_diff(Ns(on));
                prop_assert!(error.0 <= on * jitter / 1000 + 1, "{}", error);
            }
        }
    }

    /// After any change of load it is right again within ten cycles, and from
    /// the third on it is never confidently wrong.
    #[test]
    fn load_changes_are_over_within_ten_cycles(
        before in 2 * MS..60 * MS, after in 2 * MS..60 * MS, jitter in 0u64..=90,
        noise in proptest::collection::vec(0u64..=1000, 30),
    ) {
        let distance = before.abs_diff(after);
        prop_assume!(distance * 2 > before.max(after));
        let mut estimator = fed([]);
        for length in jittered(before, jitter, &noise) {
            estimator.observe(Ns(length), ms(11));
        }
        for (cycle, length) in jittered(after, jitter, &noise).into_iter().enumerate() {
            estimator.observe(Ns(length), ms(11));
            let near = |slice: Estimate| {
                slice.value.abs_diff(Ns(after)).0 <= after * jitter / 1000 + 1
            };
            if cycle >= 2 {
                prop_assert!(estimator.slice().is_none_or(near), "wrong in cycle {}", cycle);
            }
            if cycle >= 9 {
                prop_assert!(estimator.slice().is_some_and(near), "abstains in cycle {}", cycle);
            }
        }
    }

    /// The same with clear outliers every fifth cycle of the new pattern: the worst
    /// case is bounded by ten cycles. One at the very edge of the tolerance can be
    /// taken into the new pattern first and fall out of it later, which costs up
    /// to three cycles more.
    #[test]
    fn load_changes_with_outliers_are_over_within_ten_cycles(
        before in 2 * MS..60 * MS, after in 2 * MS..60 * MS, jitter in 0u64..=90,
        noise in proptest::collection::vec(0u64..=1000, 30),
        at in 0usize..5, outliers in proptest::collection::vec(0u64..100 * MS, 6),
    ) {
        let distance = before.abs_diff(after);
        prop_assume!(distance * 2 > before.max(after));
        let clear = outliers.iter().all(|odd| odd.abs_diff(after) * 100 > after * 35);
        let soonest = if clear { 9 } else { 12 };
        let mut estimator = fed([]);
        for length in jittered(before, jitter, &noise) {
            estimator.observe(Ns(length), ms(11));
        }
        for (cycle, length) in jittered(after, jitter, &noise).into_iter().enumerate() {
            let odd = outliers[cycle / 5];
            estimator.observe(Ns(if cycle % 5 == at { odd } else { length }), ms(11));
            if cycle >= soonest {
                let slice = estimator.slice();
                prop_assert!(
                    slice.is_some_and(|slice| slice.value.abs_diff(Ns(after)).0
                        <= after * jitter / 1000 + 1),
                    "cycle {}: {:?}", cycle, slice
                );
            }
        }
    }

    /// Lengths of any kind rarely look like a few: what is then expected is wrong.
    #[test]
    fn a_host_without_a_pattern_rarely_seems_to_have_lengths(seed in any::<u64>()) {
        let mut next = random(seed);
        let mut estimator = fed([]);
        let mut sure = 0;
        for _ in 0..400 {
            estimator.observe(us(1000 + next() % 29_000), ms(11));
            sure += u32::from(estimator.slice_after(Ns::ZERO).is_some());
        }
        // 20 in the median of 256 seeds, and 46 at most.
        prop_assert!(sure < 90, "{} of 400", sure);
    }

    /// Whatever comes, nothing panics and the order of the three bounds holds.
    #[test]
    fn estimates_are_ordered_whatever_comes(
        cycles in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..40),
        window in 0usize..40,
    ) {
        let settings = Settings { window, ..Settings::default() };
        let mut estimator = Distribution::new(&settings);
        for (on, off) in cycles {
            estimator.observe(Ns(on), Ns(off));
            for estimate in [estimator.slice(), estimator.gap()].into_iter().flatten() {
                prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
                prop_assert!(estimate.confidence >= settings.quorum);
            }
            let mut used = Ns::ZERO;
            while let Some(length) = estimator.slice_after(used) {
                let estimate = length.estimate;
                prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
                prop_assert!(used <= estimate.high || !length.longer);
                if !length.longer {
                    break;
                }
                used = estimate.high + Ns(1);
            }
        }
    }

    /// Gaps in any order, with any length: `since` never runs backwards.
    #[test]
    fn the_start_of_a_slice_never_runs_backwards(
        gaps in proptest::collection::vec((0u64..100 * MS, 0u64..100 * MS), 0..60),
    ) {
        let mut vcpu = ours();
        for (out, back) in gaps {
            let before = vcpu.running_since();
            vcpu.gap(Time(out), Time(back));
            prop_assert!(vcpu.running_since() >= before);
        }
    }
}
