/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The clock of caps: a timer that counts how much time there was, and calls somebody who
 * looks whether caps are over.
 *
 * That is the pCPU where a vCPU waits, or if that is busy an idle one on which the vCPU
 * may run, which then takes it (balance.h). Host threads may keep the first one busy for
 * as long as they like, and a pCPU is not to be idle meanwhile. Nobody's account is
 * changed here.
 */
#pragma once

#include "balance.h"
#include "period.h"

extern struct task_struct *bpf_task_from_pid___k(s32 pid) __ksym;
extern void bpf_task_release___k(struct task_struct *p) __ksym;
extern void bpf_rcu_read_lock___k(void) __ksym;
extern void bpf_rcu_read_unlock___k(void) __ksym;

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

static long call_for_parked(u32 position, void *none)
{
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &position);
	struct task_struct *p;

	if (!v || !v->parked)
		return 0;
	p = bpf_task_from_pid___k(v->tid);
	if (!p)
		return 0;
	/* Its affinity is the kernel's to change. */
	bpf_rcu_read_lock___k();
	scx_bpf_kick_cpu___k(free_cpu_for(p, v, v->cpu), SCX_KICK_IDLE);
	bpf_rcu_read_unlock___k();
	bpf_task_release___k(p);
	return 0;
}

static int period_over(void *map, u32 *key, struct period *period)
{
	u64 now = bpf_ktime_get_ns(), passed = now - period->at_ns;

	period->at_ns = now;
	counted_ns += passed;
	bpf_loop(nr_slots, call_for_parked, NULL, 0);
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
