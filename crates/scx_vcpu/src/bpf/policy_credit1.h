/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `credit1`: Xen's credit scheduler (K1..K8), as policy::host::credit1.
 *
 * BOOST before UNDER before OVER, in turn within a class. The first queue of a
 * pCPU has BOOST and UNDER, ordered by class and arrival; the other one OVER.
 *
 * Credit is handed out by the timer of period.h: how many ns there are for a unit of
 * weight is added to `shares`, and each vCPU takes its part. Who sleeps takes nothing
 * (K5).
 *
 * Policy `ische` (S1..S7) is this one with slices that depend on the pCPU and with
 * homes that user space gives: I/O cores and general cores.
 */
#pragma once

#include "policy_credit.h"
#include "policy_fixed.h"

/* Takes what was handed out since the last time. */
static __always_inline void credit1_take(struct sv_vcpu *v)
{
	u64 now = shares, seen = v->shares, ns;
	s64 credit = v->credit;

	/* Its weight was changed while it counts. */
	if (v->counted && v->counted != v->weight) {
		u32 old = v->counted;

		v->counted = v->weight;
		__sync_fetch_and_add(&active_weight, (u64)v->counted - old);
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
}

static __always_inline void credit1_stopping(struct sv_vcpu *v, struct task_struct *p,
					     bool runnable)
{
	keep_rest(v, p, runnable);
	if (!v->rest_ns)
		v->boosted = 0;
}

/* Sets its place behind those of its class; says in which queue. */
static __always_inline enum queue credit1_key(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	u32 class = credit1_class(v);

	v->key = (u64)(CREDIT1_BOOST - class) << 56 | (++pcpu->sequence & ~0ULL >> 8);
	return class == CREDIT1_OVER ? QUEUE_REST : QUEUE_FIRST;
}

/* How long a vCPU of this class may run on `cpu`; S6: iSche's cores differ. */
static __always_inline u64 credit1_turn_ns(u32 class, s32 cpu)
{
	u64 slice_ns = settings.policy == SV_ISCHE ? fixed_whole_ns(cpu) : settings.slice_ns;

	return credit1_slice(class, slice_ns, settings.boost_slice_ns);
}

static __always_inline void credit1_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					    u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
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
		credit1_key(v, pcpu);
		v->rest_ns = 0;
	}
	v->cpu = cpu;
	scx_bpf_dsq_insert_vtime___k(
		p, queue_of(cpu, class == CREDIT1_OVER ? QUEUE_REST : QUEUE_FIRST),
		v->rest_ns ?: credit1_turn_ns(class, cpu), v->key, enq_flags);
	running = entry_of(pcpu->slot);
	if (running && enq_flags & SCX_ENQ_WAKEUP &&
	    credit1_preempts(class, credit1_class(running)))
		scx_bpf_kick_cpu___k(cpu, SCX_KICK_PREEMPT);
}

/* Those that have been given enough move up. */
WALKED_ONCE int credit1_sort(s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (!pcpu)
		return 0;
	pcpu->shares = shares;
	bpf_iter_scx_dsq_new___k(&it, queue_of(cpu, QUEUE_REST), 0);
	while ((p = bpf_iter_scx_dsq_next___k(&it))) {
		struct sv_vcpu *v = entry_of_task(p);

		if (!v)
			continue;
		credit1_take(v);
		if (credit1_class(v) == CREDIT1_OVER)
			continue;
		credit1_key(v, pcpu);
		scx_bpf_dsq_move_set_vtime___k(&it, v->key);
		scx_bpf_dsq_move_vtime___k(&it, p, queue_of(cpu, QUEUE_FIRST), 0);
	}
	bpf_iter_scx_dsq_destroy___k(&it);
	return 0;
}

/* `v` ran and can run on, or is NULL. Whether somebody else is to run; if not, for
 * how long `v` does. */
static __always_inline bool credit1_dispatch(s32 cpu, struct sv_vcpu *v, u64 *turn_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	/* Of nobody: whoever waits comes before it. */
	u32 class = CREDIT1_OVER;

	if (!pcpu)
		return false;
	if (pcpu->shares != shares)
		credit1_sort(cpu);
	if (v) {
		/* Its turn is over, and so is its boost. */
		v->boosted = 0;
		class = credit1_class(v);
		*turn_ns = credit1_turn_ns(class, cpu);
	}
	if (scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0))
		return true;
	/* K2: one of its own class comes before it, a lower one does not. */
	if (class != CREDIT1_OVER)
		return false;
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_REST), 0);
}
