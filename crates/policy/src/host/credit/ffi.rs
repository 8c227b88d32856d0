// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C side (`include/credit*.h` and `isacs.h` through `shim.c`): scalars in, scalars out, no
//! state. What each function does is documented there.

// SAFETY: the signatures are those of shim.c; the functions take integers by
// value, touch no memory and accept every value.
unsafe extern "C" {
    pub(crate) safe fn policy_credit_add(credit: i64, ns: u64) -> i64;
    pub(crate) safe fn policy_credit_burn(credit: i64, ns: u64) -> i64;
    // Only other functions of the header use it, and the tests.
    #[cfg(test)]
    pub(crate) safe fn policy_credit_mul_div(a: u64, b: u64, c: u64) -> u64;
    pub(crate) safe fn policy_credit1_priority(
        credit: i64,
        boosted: u32,
        zero_is_under: u32,
    ) -> u32;
    pub(crate) safe fn policy_credit1_share(pool_ns: u64, weight: u32, weight_sum: u64) -> u64;
    pub(crate) safe fn policy_credit1_refill(credit: i64, share_ns: u64, limit_ns: u64) -> i64;
    pub(crate) safe fn policy_credit1_unit(burned_ns: u64, weight_sum: u64) -> u64;
    pub(crate) safe fn policy_credit1_part(unit: u64, weight: u32) -> u64;
    pub(crate) safe fn policy_credit1_excess(credit: i64, limit_ns: u64) -> u64;
    pub(crate) safe fn policy_credit1_wakes_boosted(
        credit: i64,
        by_io: u32,
        needs_under: u32,
        zero_is_under: u32,
    ) -> u32;
    pub(crate) safe fn policy_credit1_preempts(waking: u32, running: u32) -> u32;
    pub(crate) safe fn policy_credit1_slice(priority: u32, slice_ns: u64, boost_ns: u64) -> u64;
    pub(crate) safe fn policy_credit1_capped(
        used_ns: u64,
        cap_permille: u32,
        period_ns: u64,
    ) -> u32;
    pub(crate) safe fn policy_credit2_cost(ran_ns: u64, weight: u32, reference: u32) -> u64;
    pub(crate) safe fn policy_credit2_lasts(credit: i64, weight: u32, reference: u32) -> u64;
    pub(crate) safe fn policy_credit2_preempts(waking: i64, running: i64) -> u32;
    // Only other functions of the header use these two, and the tests.
    #[cfg(test)]
    pub(crate) safe fn policy_credit2_reset_due(next: i64, at_zero: u32) -> u32;
    #[cfg(test)]
    pub(crate) safe fn policy_credit2_reset(credit: i64, default_ns: u64, adds: u32) -> i64;
    pub(crate) safe fn policy_credit2_resets_due(
        most: i64,
        default_ns: u64,
        adds: u32,
        at_zero: u32,
    ) -> u64;
    pub(crate) safe fn policy_credit2_after(
        credit: i64,
        resets: u64,
        default_ns: u64,
        adds: u32,
    ) -> i64;
    pub(crate) safe fn policy_credit2_rank(credit: i64, adds: u32, at_zero: u32) -> i64;
    pub(crate) safe fn policy_isacs_ema(interval_ns: u64, ema_ns: u64, first: u32) -> u64;
    pub(crate) safe fn policy_isacs_interval_counts(interval_ns: u64, cutoff_ns: u64) -> u32;
    pub(crate) safe fn policy_isacs_strength(events: u64, ema_ns: u64, limit_ns: u64) -> u64;
    pub(crate) safe fn policy_isacs_ivcredit(
        strength_ns: u64,
        consumed_ns: u64,
        sum_ns: u64,
        product: u64,
    ) -> u64;
    pub(crate) safe fn policy_isacs_joins_boost(
        sum_ivcredit: u64,
        nr_io: u32,
        ivcredit: u64,
        unit_ns: u64,
    ) -> u32;
    pub(crate) safe fn policy_isacs_cvcredit(
        sum_ivcredit: u64,
        group: u32,
        consumed_ns: u64,
        default_ns: u64,
    ) -> u64;
    pub(crate) safe fn policy_isacs_credit(default_ns: u64, ivcredit: u64) -> i64;
    pub(crate) safe fn policy_isacs_spent(credit: i64, endcredit: i64, strictly_below: u32) -> u32;
    pub(crate) safe fn policy_isacs_boost_over(cvcredit: i64, strictly_below: u32) -> u32;
    // The host scheduler's BPF programs call these four, and the tests.
    #[cfg(test)]
    pub(crate) safe fn policy_credit1_used_after(
        used_ns: u64,
        cap_permille: u32,
        passed_ns: u64,
    ) -> u64;
    #[cfg(test)]
    pub(crate) safe fn policy_credit1_cap_left(
        used_ns: u64,
        cap_permille: u32,
        period_ns: u64,
    ) -> u64;
    #[cfg(test)]
    pub(crate) safe fn policy_credit1_used_of_new_cap(
        used_ns: u64,
        cap_permille: u32,
        period_ns: u64,
    ) -> u64;
    #[cfg(test)]
    pub(crate) safe fn policy_credit_turn_within(
        turn_ns: u64,
        waiting: u64,
        patience_ns: u64,
        least_ns: u64,
    ) -> u64;
    pub(crate) safe fn policy_isacs_burns_cvcredit(cpu_boost: u32, in_group: u32) -> u32;
    pub(crate) safe fn policy_isacs_left(
        burns_cvcredit: u32,
        credit: i64,
        endcredit: i64,
        cvcredit: i64,
    ) -> i64;
    pub(crate) safe fn policy_isacs_debt(credit: i64, endcredit: i64) -> u64;
    pub(crate) safe fn policy_isacs_wakes_as_member(
        in_group: u32,
        endcredit: i64,
        preempts_boost: u32,
    ) -> u32;
    pub(crate) safe fn policy_isacs_wakes_before(
        cpu_boost: u32,
        waking_as_member: u32,
        running_in_group: u32,
        waking: i64,
        running: i64,
        waking_cv: i64,
        running_cv: i64,
        waking_spent: u32,
        end_all: u32,
        preempts_boost: u32,
    ) -> u32;
}
