/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `credit1`: Xen's credit scheduler (K1..K8), as policy::host::credit1.
 *
 * BOOST before UNDER before OVER, in turn within a class. The first queue of a
 * pCPU has BOOST and UNDER, ordered by class and arrival; the other one OVER.
 *
 * Credit is handed out by a timer that only counts: how many ns there are for a
 * unit of weight is added to `shares`, and each vCPU takes its part when it is
 * next looked at, under its own queue's lock. Who sleeps takes nothing (K5).
 */
#pragma once

#include "policy_credit.h"

/* Binary digits of `shares` behind the point: ns per unit of weight. */
#define SHARE_SHIFT 16
#define SHARE_ONE (1ULL << SHARE_SHIFT)

/* What a unit of weight was given since the start, in ns << SHARE_SHIFT. */
u64 shares;
/* Periods since the start. */
u64 nr_refills;
/* Weights of the vCPUs that run or wait. */
u64 active_weight;

struct refill {
	struct bpf_timer timer;
	/* When credit was handed out last. */
	u64 at_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct refill);
} refills SEC(".maps");

static int hand_out(void *map, u32 *key, struct refill *refill)
{
	u64 now = bpf_ktime_get_ns();
	/* The time that has passed, not the period: a timer may be late, and with
	 * less credit than time everybody would be OVER and weights without effect. */
	u64 pool_ns = (now - refill->at_ns) * settings.nr_cpus;

	refill->at_ns = now;
	shares += credit1_share(pool_ns << SHARE_SHIFT, 1, active_weight);
	nr_refills++;
	bpf_timer_start(&refill->timer, settings.refill_ns, 0);
	return 0;
}

static __always_inline s32 credit1_init(void)
{
	u32 key = 0;
	struct refill *refill = bpf_map_lookup_elem(&refills, &key);
	long error;

	if (!refill)
		return -1;
	refill->at_ns = bpf_ktime_get_ns();
	error = bpf_timer_init(&refill->timer, &refills, CLOCK_MONOTONIC);
	if (!error)
		error = bpf_timer_set_callback(&refill->timer, hand_out);
	if (!error)
		error = bpf_timer_start(&refill->timer, settings.refill_ns, 0);
	return error;
}

/* Takes what was handed out since the last time. */
static __always_inline void credit1_take(struct sv_vcpu *v)
{
	u64 now = shares, seen = v->shares, ns;
	s64 credit = v->credit;

	if (v->used_in != nr_refills) {
		v->used_in = nr_refills;
		v->used_ns = 0;
	}
	if (now == seen || __sync_val_compare_and_swap(&v->shares, seen, now) != seen)
		return;
	ns = credit_mul_div(now - seen, v->counted, SHARE_ONE);
	set_credit(v, credit, credit1_refill(credit, ns, settings.credit_limit_ns));
}

static __always_inline u32 credit1_class(struct sv_vcpu *v)
{
	return credit1_priority(v->credit, v->boosted, settings.zero_is_under);
}

/* Counts among those that are given credit from now on. */
static __always_inline void credit1_runnable(struct sv_vcpu *v)
{
	v->counted = v->weight;
	__sync_fetch_and_add(&active_weight, v->counted);
	v->shares = shares;
}

static __always_inline void credit1_quiescent(struct sv_vcpu *v)
{
	credit1_take(v);
	__sync_fetch_and_sub(&active_weight, v->counted);
	v->counted = 0;
}

/* It ran so long; what it is given for that time comes after. */
static __always_inline void credit1_charge(struct sv_vcpu *v, u64 ran_ns)
{
	s64 credit = v->credit;

	set_credit(v, credit, credit_burn(credit, ran_ns));
	credit1_take(v);
	v->used_ns += ran_ns;
}

static __always_inline void credit1_stopping(struct sv_vcpu *v, struct task_struct *p,
					     bool runnable)
{
	keep_rest(v, p, runnable);
	if (!v->rest_ns)
		v->boosted = 0;
}

static __always_inline void credit1_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					    u64 enq_flags)
{
	struct pcpu *pcpu = pcpu_of(cpu);
	u32 class;
	struct sv_vcpu *running;

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	credit1_take(v);
	if (enq_flags & SCX_ENQ_WAKEUP) {
		v->boosted =
			credit1_wakes_boosted(v->credit, v->io_pending, settings.boost_needs_under,
					      settings.zero_is_under);
		v->io_pending = 0;
		v->rest_ns = 0;
	}
	class = credit1_class(v);
	/* One that a host thread interrupted has its old place. */
	if (!v->rest_ns || v->cpu != cpu || v->key >> 56 != CREDIT1_BOOST - class) {
		v->key = (u64)(CREDIT1_BOOST - class) << 56 | (++pcpu->sequence & ~0ULL >> 8);
		if (v->rest_ns)
			v->rest_ns = 0;
	}
	v->cpu = cpu;
	scx_bpf_dsq_insert_vtime___k(
		p, queue_of(cpu, class == CREDIT1_OVER ? QUEUE_REST : QUEUE_FIRST),
		v->rest_ns ?: credit1_slice(class, settings.slice_ns, settings.boost_slice_ns),
		v->key, enq_flags);
	running = entry_of(pcpu->slot);
	if (running && enq_flags & SCX_ENQ_WAKEUP &&
	    credit1_preempts(class, credit1_class(running)))
		scx_bpf_kick_cpu___k(cpu, SCX_KICK_PREEMPT);
}

/* Those that have been given enough move up. */
static __always_inline void credit1_sort(s32 cpu, struct pcpu *pcpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	pcpu->shares = shares;
	bpf_iter_scx_dsq_new___k(&it, queue_of(cpu, QUEUE_REST), 0);
	while ((p = bpf_iter_scx_dsq_next___k(&it))) {
		struct sv_vcpu *v = entry_of_task(p);

		if (!v)
			continue;
		credit1_take(v);
		if (credit1_class(v) == CREDIT1_OVER)
			continue;
		v->key = (u64)(CREDIT1_BOOST - CREDIT1_UNDER) << 56 |
			 (++pcpu->sequence & ~0ULL >> 8);
		scx_bpf_dsq_move_set_vtime___k(&it, v->key);
		scx_bpf_dsq_move_vtime___k(&it, p, queue_of(cpu, QUEUE_FIRST), 0);
	}
	bpf_iter_scx_dsq_destroy___k(&it);
}

/* `v` ran and can run on, or is NULL. Whether somebody else is to run. */
static __always_inline bool credit1_dispatch(s32 cpu, struct sv_vcpu *v)
{
	struct pcpu *pcpu = pcpu_of(cpu);
	u32 class;

	if (!pcpu)
		return false;
	if (pcpu->shares != shares)
		credit1_sort(cpu, pcpu);
	if (v) {
		/* Its turn is over, and so is its boost. */
		v->boosted = 0;
		class = credit1_class(v);
	}
	if (scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0))
		return true;
	/* K2: one of its own class comes before it, a lower one does not. */
	if (v && class != CREDIT1_OVER)
		return false;
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_REST), 0);
}
