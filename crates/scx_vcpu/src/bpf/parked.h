/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The clock of periods: a timer that counts how much time there was for caps, calls
 * somebody who looks whether they are over, and looks after vCPUs that have waited for too
 * long, because of host threads (relief.h) or of their policy's rules (overdue.h).
 *
 * Who looks after caps is the pCPU where a vCPU waits, or if that is busy an idle one on
 * which the vCPU may run, which then takes it (balance.h). Host threads may keep the first
 * one busy for as long as they like, and a pCPU is not to be idle meanwhile. Nobody's use
 * of a cap is changed here.
 */
#pragma once

#include "balance.h"
#include "overdue.h"
#include "period.h"
#include "relief.h"

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

static __always_inline void call_for_parked(struct sv_vcpu *v)
{
	struct task_struct *p = bpf_task_from_pid___k(v->tid);

	if (!p)
		return;
	/* Its affinity is the kernel's to change. */
	bpf_rcu_read_lock___k();
	scx_bpf_kick_cpu___k(free_cpu_for(p, v, v->cpu), SCX_KICK_IDLE);
	bpf_rcu_read_unlock___k();
	bpf_task_release___k(p);
}

static long look_after(u32 step, struct relief *relief)
{
	u32 position = (relief->first + step) % (nr_slots ?: 1);
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &position);

	if (!v)
		return 0;
	look_overdue(v, position, relief->now);
	if (v->parked)
		call_for_parked(v);
	else if (v->state == SV_WAITS && (s64)(relief->now - v->since_ns) >= (s64)settings.held_ns)
		relieve(v, position, relief);
	return 0;
}

static int period_over(void *map, u32 *key, struct period *period)
{
	u64 now = bpf_ktime_get_ns(), passed = now - period->at_ns;
	struct relief relief = {.now = now, .left = MOST_RELIEVED, .first = relief_at};

	period->at_ns = now;
	counted_ns += passed;
	bpf_loop(nr_slots, look_after, &relief, 0);
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
