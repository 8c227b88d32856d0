// SPDX-License-Identifier: Apache-2.0 OR MIT

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time(ms * MS)
}

/// 11 ms on, 33 ms off, one task that would use a fifth of a CPU, from 1 s on.
fn view() -> View {
    View {
        since: at(1000),
        slice: Some(Ns::from_ms(11)),
        gap: Some(Ns::from_ms(33)),
        io_tasks: 1,
        demand: 200,
    }
}

#[test]
fn a_slice_worked_out_by_hand() {
    let settings = Settings::default();
    // Twice 20 % are preserved: 6.6 ms of 11 ms for computation, then a pause of
    // 4.4 ms and the 33 ms of the others.
    assert_eq!(reserve(200, &settings), Permille::new(400));
    let allowance_ends = Time(1000 * MS + 6_600_000);
    assert_eq!(
        decide(at(1000), &view(), &settings),
        Balloon::Deflated(Some(allowance_ends))
    );
    assert_eq!(
        decide(at(1006), &view(), &settings),
        Balloon::Deflated(Some(allowance_ends))
    );
    assert_eq!(
        decide(allowance_ends, &view(), &settings),
        Balloon::Inflated(at(1044))
    );
    assert_eq!(
        decide(at(1043), &view(), &settings),
        Balloon::Inflated(at(1044))
    );
    // It halted so much that nobody took it away: a new allowance all the same.
    assert_eq!(
        decide(at(1044), &view(), &settings),
        Balloon::Deflated(Some(Time(1044 * MS + 6_600_000)))
    );
}

#[test]
fn a_new_slice_begins_deflated() {
    let late = View {
        since: at(1046),
        ..view()
    };
    let balloon = decide(at(1046), &late, &Settings::default());
    assert_eq!(
        balloon,
        Balloon::Deflated(Some(Time(1046 * MS + 6_600_000)))
    );
}

#[test]
fn the_reserve_follows_the_demand_within_its_limits() {
    let settings = Settings::default();
    let reserves = [0, 30, 50, 200, 249, 250, 900, u32::MAX].map(|d| reserve(d, &settings).get());
    assert_eq!(reserves, [100, 100, 100, 400, 498, 500, 500, 500]);
}

#[test]
fn no_data_and_nobody_to_serve_mean_no_action() {
    let settings = Settings::default();
    for idle in [
        View {
            slice: None,
            ..view()
        },
        View {
            gap: None,
            ..view()
        },
        View {
            io_tasks: 0,
            ..view()
        },
    ] {
        assert_eq!(decide(at(1010), &idle, &settings), Balloon::Deflated(None));
    }
}

#[test]
fn a_pause_that_does_not_pay_is_not_made() {
    // A tenth of 3 ms is less than a millisecond.
    let short = View {
        slice: Some(Ns::from_ms(3)),
        demand: 10,
        ..view()
    };
    let balloon = decide(at(1002), &short, &Settings::default());
    assert_eq!(balloon, Balloon::Deflated(None));
}

#[test]
fn compute_is_a_share_of_what_the_vcpu_gave() {
    let settings = Settings::default();
    let given = Ns::from_ms(50);
    assert!(is_compute(Ns::from_ms(10), given, false, &settings));
    assert!(!is_compute(Ns::from_ms(9), given, false, &settings));
    assert!(is_compute(Ns::from_ms(5), given, true, &settings));
    assert!(!is_compute(Ns::from_ms(4), given, true, &settings));
    assert!(!is_compute(Ns::ZERO, Ns::ZERO, true, &settings));
}

fn some_view() -> impl Strategy<Value = View> {
    let length = prop::option::weighted(0.9, (100_000u64..200 * MS).prop_map(Ns));
    (0u64..1000 * MS, length.clone(), length, 0u32..4, 0u32..3000).prop_map(
        |(since, slice, gap, io_tasks, demand)| View {
            since: Time(since),
            slice,
            gap,
            io_tasks,
            demand,
        },
    )
}

fn some_settings() -> impl Strategy<Value = Settings> {
    (1u16..=900, 1u16..=900, 0u32..5000, 0..5 * MS, MS..200 * MS).prop_map(
        |(a, b, headroom, min_pause, max_pause)| Settings {
            reserve_min: Permille::new(a.min(b)),
            reserve_max: Permille::new(a.max(b)),
            headroom,
            min_pause: Ns(min_pause),
            max_pause: Ns(max_pause),
            ..Settings::default()
        },
    )
}

proptest! {
    /// Whatever it says holds until the instant that it names, which is ahead.
    #[test]
    fn a_decision_holds_until_it_says(
        view in some_view(), settings in some_settings(), after in 0u64..500 * MS, part in 0u64..1000
    ) {
        let now = view.since + Ns(after);
        let balloon = decide(now, &view, &settings);
        if let Some(next) = balloon.next() {
            prop_assert!(next > now);
            let between = now + Ns(next.since(now).0 * part / 1001);
            prop_assert_eq!(decide(between, &view, &settings), balloon);
            prop_assert_ne!(decide(next, &view, &settings).is_inflated(), balloon.is_inflated());
        }
    }

    /// Computation is never held for longer than the limit, nor where nobody
    /// gains, nor at the start of a slice.
    #[test]
    fn computation_is_held_for_a_reason_and_not_too_long(
        view in some_view(), settings in some_settings(), after in 0u64..500 * MS
    ) {
        let now = view.since + Ns(after);
        if let Balloon::Inflated(until) = decide(now, &view, &settings) {
            prop_assert!(until.since(now) <= settings.max_pause);
            prop_assert!(view.io_tasks > 0 && view.slice.is_some() && view.gap.is_some());
        }
        prop_assert!(!decide(view.since, &view, &settings).is_inflated());
    }

    /// More demand never leaves computation more.
    #[test]
    fn the_reserve_grows_with_the_demand(
        settings in some_settings(), demand in 0u32..3000, more in 0u32..3000
    ) {
        let (low, high) = (reserve(demand, &settings), reserve(demand + more, &settings));
        prop_assert!(low <= high);
        prop_assert!(settings.reserve_min <= low && high <= settings.reserve_max);
    }
}
