// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every formula of `include/credit*.h` and `isacs.h` a second time, in Rust and in 128 bits,
//! compared with the compiled C on any input.

use proptest::prelude::*;

use crate::host::credit::ffi;

const MAX: i128 = 1 << 60;
const RAN_MAX: u64 = 1 << 47;

fn clamp(credit: i128) -> i64 {
    i64::try_from(credit.clamp(-MAX, MAX)).unwrap()
}

fn narrow(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    (u128::from(a) * u128::from(b))
        .checked_div(u128::from(c))
        .map_or(u64::MAX, narrow)
}

fn add(credit: i64, ns: u64) -> i64 {
    let credit = i128::from(credit).clamp(-MAX, MAX);
    clamp(credit + i128::from(ns).min(MAX))
}

fn burn(credit: i64, ns: u64) -> i64 {
    let credit = i128::from(credit).clamp(-MAX, MAX);
    clamp(credit - i128::from(ns).min(MAX))
}

/// Credits and times as they are met, and also everything else.
fn credit() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0i64),
        -40_000_000..40_000_000i64,
        any::<i64>(),
        Just(i64::MIN),
        Just(i64::MAX)
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0u64),
        0..40_000_000u64,
        0..4_000_000_000u64,
        any::<u64>(),
        Just(u64::MAX)
    ]
}

fn flag() -> impl Strategy<Value = u32> {
    0u32..2
}

/// Both factors and the divisor at the top of the range: once a division by zero.
#[test]
fn the_largest_factors_do_not_trap() {
    for a in [u64::MAX, u64::MAX - 1, 1 << 63] {
        for b in [u64::MAX, 1 << 63, (1 << 63) - 1] {
            for c in [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 62, 1] {
                assert!(ffi::policy_credit_mul_div(a, b, c) <= mul_div(a, b, c));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn factors_are_exact_below_4_seconds(
        a in 0..1u64 << 32, b in 0..1u64 << 32, c in time(),
    ) {
        prop_assert_eq!(ffi::policy_credit_mul_div(a, b, c), mul_div(a, b, c));
    }

    /// Never too much, and too small by less than 2^-16 of the smaller factor, or
    /// by one when the exact value is small.
    #[test]
    fn factors_are_close_everywhere(a in time(), b in time(), c in time()) {
        let exact = mul_div(a, b, c);
        let got = ffi::policy_credit_mul_div(a, b, c);
        prop_assert!(got <= exact);
        // Numbers whose factors both exceed 2^48 (3 days) keep fewer bits.
        if a.min(b) < 1 << 48 {
            prop_assert!(exact - got <= (a.min(b) >> 14) + 1, "{} {}", got, exact);
        }
    }

    #[test]
    fn sums_clamp(credit in credit(), ns in time()) {
        prop_assert_eq!(ffi::policy_credit_add(credit, ns), add(credit, ns));
        prop_assert_eq!(ffi::policy_credit_burn(credit, ns), burn(credit, ns));
    }

    #[test]
    fn credit1_agrees(
        credit in credit(), other in time(), limit in time(),
        boosted in flag(), zero_is_under in flag(), needs_under in flag(), by_io in flag(),
        waking in 0u32..3, running in 0u32..3,
        weight in any::<u32>(), weights in 0u64..1 << 40, cap in 0u32..4000,
    ) {
        let class = |boosted: u32| match (boosted, credit) {
            (1, _) => 2,
            (_, 1..) => 1,
            (_, 0) => zero_is_under,
            _ => 0,
        };
        prop_assert_eq!(
            ffi::policy_credit1_priority(credit, boosted, zero_is_under), class(boosted));
        prop_assert_eq!(
            ffi::policy_credit1_wakes_boosted(credit, by_io, needs_under, zero_is_under),
            u32::from(by_io == 1 && (needs_under == 0 || class(0) == 1)));
        prop_assert_eq!(
            ffi::policy_credit1_preempts(waking, running), u32::from(waking > running));
        prop_assert_eq!(
            ffi::policy_credit1_slice(waking, other, limit),
            if waking == 2 { limit } else { other });

        let refilled = add(credit, other);
        let limited = match limit {
            0 => refilled,
            n => i64::try_from(n).map_or(refilled, |n| refilled.min(n)),
        };
        prop_assert_eq!(ffi::policy_credit1_refill(credit, other, limit), limited);

        let pool = other % (1 << 32);
        let share = if weights == 0 { 0 } else { mul_div(pool, weight.into(), weights) };
        prop_assert_eq!(ffi::policy_credit1_share(pool, weight, weights), share);
        let burned = other.min(RAN_MAX);
        let unit = (burned << 16).checked_div(weights).unwrap_or(0);
        prop_assert_eq!(ffi::policy_credit1_unit(other, weights), unit);
        let unit = unit % (1 << 32);
        prop_assert_eq!(ffi::policy_credit1_part(unit, weight), mul_div(unit, weight.into(), 1 << 16));
        let clamped = i128::from(credit).clamp(-MAX, MAX);
        let excess = if limit == 0 { 0 } else { (clamped - i128::from(limit)).max(0) };
        prop_assert_eq!(i128::from(ffi::policy_credit1_excess(credit, limit)), excess);
        let capped = cap > 0 && other >= mul_div(limit % (1 << 32), cap.into(), 1000);
        prop_assert_eq!(
            ffi::policy_credit1_capped(other, cap, limit % (1 << 32)), u32::from(capped));
    }

    /// Whatever the ticks: over any number of periods a capped vCPU that runs whenever
    /// it may uses its cap, and at most one overrun more.
    #[test]
    fn a_cap_holds_over_periods(
        cap in 1u32..1000, period in 1_000_000u64..100_000_000,
        overruns in prop::collection::vec(0u64..8_000_000, 1..60),
    ) {
        let (mut used, mut ran) = (0u64, 0u64);
        let per_period = mul_div(period, cap.into(), 1000);
        for overrun in &overruns {
            let left = ffi::policy_credit1_cap_left(used, cap, period);
            prop_assert_eq!(left == 0, ffi::policy_credit1_capped(used, cap, period) != 0);
            if left > 0 {
                ran += left + overrun;
                used += left + overrun;
            }
            used = ffi::policy_credit1_used_after(used, cap, period);
        }
        let periods = overruns.len() as u64;
        prop_assert!(ran >= per_period * periods);
        prop_assert!(ran <= per_period * periods + 8_000_000 , "{} {}", ran, per_period * periods);
        prop_assert_eq!(ffi::policy_credit1_cap_left(used, 0, period), u64::MAX);
    }

    /// Whatever was used under a cap of the whole pCPU: with the new one it waits for the next
    /// period and not for as many as the old one gave.
    #[test]
    fn a_new_cap_is_owed_one_period_at_most(
        used in 0u64..100_000_000, cap in 1u32..=1000, period in 1_000_000u64..100_000_000,
    ) {
        let left = ffi::policy_credit1_used_of_new_cap(used, cap, period);
        prop_assert_eq!(left, used.min(mul_div(period, cap.into(), 1000)));
        let next = ffi::policy_credit1_used_after(left, cap, period);
        prop_assert_eq!(ffi::policy_credit1_capped(next, cap, period), 0);
    }

    /// All that wait have a turn as long within the patience, as far as turns are not too short.
    #[test]
    fn turns_leave_time_for_all_that_wait(
        turn in 1u64..4_000_000_000, waiting in 0u64..5000, patience in 0u64..10_000_000_000,
        least in 1u64..2_000_000,
    ) {
        let given = ffi::policy_credit_turn_within(turn, waiting, patience, least);
        prop_assert!(given <= turn && given >= turn.min(least));
        prop_assert!(patience > 0 || given == turn);
        if patience > 0 {
            let round = u128::from(given) * u128::from(waiting + 1);
            prop_assert!(given <= least || round <= u128::from(patience));
            prop_assert!(given == turn || given + 1 > patience / (waiting + 1));
        }
    }

    #[test]
    fn credit2_agrees(
        credit in credit(), other in credit(), ran in time(), default in time(),
        weight in 0u32..=65_536, reference in 0u32..=65_536, flag in flag(),
    ) {
        let weight_1 = u128::from(weight.max(1));
        let cost = (u128::from(ran.min(RAN_MAX)) * u128::from(reference)).div_ceil(weight_1);
        prop_assert_eq!(ffi::policy_credit2_cost(ran, weight, reference), narrow(cost));

        let left = u64::try_from(credit).unwrap_or(0).min(RAN_MAX);
        let lasts =
            (u128::from(left) * u128::from(weight)).div_ceil(u128::from(reference.max(1)));
        prop_assert_eq!(ffi::policy_credit2_lasts(credit, weight, reference), narrow(lasts));

        prop_assert_eq!(
            ffi::policy_credit2_preempts(credit, other), u32::from(credit > other));
        prop_assert_eq!(
            ffi::policy_credit2_reset_due(credit, flag),
            u32::from(credit < 0 || (flag == 1 && credit == 0)));
        let kept = if flag == 1 { credit.min(0) } else { 0 };
        prop_assert_eq!(ffi::policy_credit2_reset(credit, default, flag), add(kept, default));
    }

    /// Several resets at once are as many one by one, and what is due is what it takes.
    #[test]
    fn credit2_resets_agree(
        credit in -400_000_000..40_000_000i64, default in 1_000_000..40_000_000u64,
        resets in 0u64..500, adds in flag(), at_zero in flag(),
    ) {
        let step = |credit| ffi::policy_credit2_reset(credit, default, adds);
        let one_by_one = (0..resets).fold(credit, |credit, _| step(credit));
        prop_assert_eq!(ffi::policy_credit2_after(credit, resets, default, adds), one_by_one);

        let due = |credit| ffi::policy_credit2_reset_due(credit, at_zero) == 1;
        let (mut needed, mut then) = (0, credit);
        while due(then) {
            then = step(then);
            needed += 1;
        }
        prop_assert_eq!(
            ffi::policy_credit2_resets_due(credit, default, adds, at_zero), needed);

        let rank = ffi::policy_credit2_rank(credit, adds, at_zero);
        let forgiven = adds == 0 && due(credit);
        prop_assert_eq!(rank, if forgiven { i64::from(at_zero) - 1 } else { credit });
    }

    /// Whatever they are given, they answer; and a default of nothing is no endless debt.
    #[test]
    fn credit2_resets_take_anything(
        credit in credit(), default in time(), resets in time(), adds in flag(),
        at_zero in flag(),
    ) {
        let after = ffi::policy_credit2_after(credit, resets, default, adds);
        prop_assert!(resets == 0 || after == clamp(after.into()));
        let due = ffi::policy_credit2_resets_due(credit, default, adds, at_zero);
        prop_assert_eq!(due > 0, ffi::policy_credit2_reset_due(credit, at_zero) == 1);
        if default > 0 && due > 0 {
            let then = ffi::policy_credit2_after(credit, due, default, adds);
            prop_assert_eq!(ffi::policy_credit2_reset_due(then, at_zero), 0);
        }
    }

    #[test]
    fn isacs_agrees(
        interval in time(), ema in time(), cutoff in time(), limit in time(),
        events in 0u64..1 << 32, consumed in 0u64..1 << 32, sum in 0u64..1 << 34,
        credit in credit(), end in credit(), flag in flag(), nr in 0u32..200,
    ) {
        let (i, e) = (interval.min(RAN_MAX), ema.min(RAN_MAX));
        let next = if flag == 1 { interval } else { (9 * i + e) / 10 };
        prop_assert_eq!(ffi::policy_isacs_ema(interval, ema, flag), next);
        prop_assert_eq!(
            ffi::policy_isacs_interval_counts(interval, cutoff), u32::from(interval <= cutoff));

        let strength = narrow(u128::from(events) * u128::from(ema));
        let limited = if limit > 0 { strength.min(limit) } else { strength };
        prop_assert_eq!(ffi::policy_isacs_strength(events, ema, limit), limited);

        let strength = strength % (1 << 32);
        let iv = if sum == 0 { 0 } else { mul_div(strength, consumed, sum) };
        prop_assert_eq!(ffi::policy_isacs_ivcredit(strength, consumed, sum, 1), iv);
        let printed = u128::from(iv) * u128::from(ema);
        if sum > 0 {
            prop_assert_eq!(
                ffi::policy_isacs_ivcredit(strength, consumed, sum, ema),
                narrow(printed.min(1 << 60)));
        }

        // sum / nr > iv + unit, without rounding.
        let joins = nr > 0 && u128::from(sum) > u128::from(nr) * (u128::from(iv) + u128::from(limit));
        prop_assert_eq!(
            ffi::policy_isacs_joins_boost(sum, nr, iv, limit), u32::from(joins));

        let cv = match (sum.checked_div(nr.into()), cutoff % (1 << 32)) {
            (None, _) | (_, 0) => 0,
            (Some(mean), default) => mul_div(mean, consumed, default).min(1 << 60),
        };
        if sum / u64::from(nr.max(1)) < 1 << 32 {
            prop_assert_eq!(
                ffi::policy_isacs_cvcredit(sum, nr, consumed, cutoff % (1 << 32)), cv);
        }

        prop_assert_eq!(ffi::policy_isacs_credit(interval, ema), add(add(0, interval), ema));
        prop_assert_eq!(
            ffi::policy_isacs_spent(credit, end, flag),
            u32::from(if flag == 1 { credit < end } else { credit <= end }));
        prop_assert_eq!(
            ffi::policy_isacs_boost_over(credit, flag),
            u32::from(if flag == 1 { credit < 0 } else { credit <= 0 }));
    }
}
