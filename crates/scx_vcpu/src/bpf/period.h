/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The clock of caps: a timer that counts how much time there was.
 *
 * The use of a cap is given back for the time that has passed and not for the period:
 * a timer may be late, and what is short of the time would make caps smaller. Nobody's
 * account is changed here: each vCPU takes its part when it is next looked at, under
 * its own queue's lock.
 */
#pragma once

#include "account.h"
#include "queue.h"
#include "settings.h"

#include "credit1.h"

/* Time that the timer has counted, ns. */
u64 counted_ns;

struct period {
	struct bpf_timer timer;
	/* When it was last due. */
	u64 at_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct period);
} periods SEC(".maps");

/* An idle pCPU does not look by itself whether a cap of its vCPUs is over. */
static long kick_parked(u32 cpu, void *none)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (pcpu && pcpu->parked)
		scx_bpf_kick_cpu___k(cpu, SCX_KICK_IDLE);
	return 0;
}

static int period_over(void *map, u32 *key, struct period *period)
{
	u64 now = bpf_ktime_get_ns(), passed = now - period->at_ns;

	period->at_ns = now;
	counted_ns += passed;
	bpf_loop(nr_cpu_ids, kick_parked, NULL, 0);
	bpf_timer_start(&period->timer, settings.refill_ns, 0);
	return 0;
}

/* As make_turn_clock(). */
static __always_inline s32 make_periods(void)
{
	u32 key = 0;
	struct period *period = bpf_map_lookup_elem(&periods, &key);
	long error;

	if (!period)
		return -EINVAL;
	error = bpf_timer_init(&period->timer, &periods, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	return bpf_timer_set_callback(&period->timer, period_over);
}

static __always_inline s32 start_periods(void)
{
	u32 key = 0;
	struct period *period = bpf_map_lookup_elem(&periods, &key);

	if (!period)
		return -EINVAL;
	period->at_ns = bpf_ktime_get_ns();
	return bpf_timer_start(&period->timer, settings.refill_ns, 0);
}

/* K1: may it not run before the next period? */
static __always_inline bool is_capped(struct sv_vcpu *v)
{
	u64 now = counted_ns;

	if (!v->cap_permille)
		return false;
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
