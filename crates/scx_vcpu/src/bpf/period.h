/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a cap leaves (K1).
 *
 * The use of a cap is given back for the time that has passed and not for the period:
 * a timer may be late, and what is short of the time would make caps smaller. Each vCPU
 * takes its part when it is next looked at. parked.h has the timer.
 */
#pragma once

#include "account.h"
#include "settings.h"

#include "credit1.h"

/* Time that the timer of periods has counted, ns. */
u64 counted_ns;

/* K1: may it not run before the next period? */
static __always_inline bool is_capped(struct sv_vcpu *v)
{
	u64 now = counted_ns;

	if (!v->cap_permille)
		return false;
	/* What it used under another cap was that one's to give: of 30 ms a cap that is a
	 * thousandth of that one would make half a minute. */
	if (v->cap_counted != v->cap_permille) {
		v->used_ns =
			credit1_used_of_new_cap(v->used_ns, v->cap_permille, settings.refill_ns);
		v->cap_counted = v->cap_permille;
	}
	if (v->used_at != now) {
		v->used_ns = credit1_used_after(v->used_ns, v->cap_permille, now - v->used_at);
		v->used_at = now;
	}
	return credit1_capped(v->used_ns, v->cap_permille, settings.refill_ns);
}

/* The slice, or as much of it as the cap has left. */
static __always_inline u64 within_cap(struct sv_vcpu *v, u64 slice_ns)
{
	u64 left = credit1_cap_left(v->used_ns, v->cap_permille, settings.refill_ns);

	return left < slice_ns ? left : slice_ns;
}
