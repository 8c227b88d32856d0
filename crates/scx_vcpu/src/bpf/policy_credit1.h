/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `credit1`: Xen's credit scheduler (K1..K8), as policy::host::credit1.
 *
 * BOOST before UNDER before OVER, in turn within a class. The first queue of a
 * pCPU has BOOST and UNDER, ordered by class and arrival; the other one OVER.
 *
 * Who has how much credit is rule_credit1.h's.
 *
 * Policy `ische` (S1..S7) is this one with slices that depend on the pCPU and with
 * homes that user space gives: I/O cores and general cores.
 */
#pragma once

#include "policy_credit.h"
#include "policy_fixed.h"
#include "rule_credit1.h"
#include "steal.h"

static __always_inline void credit1_stopping(struct sv_vcpu *v, struct task_struct *p,
					     struct sv_pcpu *pcpu, bool runnable)
{
	keep_rest(v, p, pcpu, runnable);
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

/* The class that it had when its turn began. */
static __always_inline u32 credit1_class_of_turn(struct sv_vcpu *v)
{
	return CREDIT1_BOOST - (u32)(v->key >> 56);
}

/* How long `v`, of this class, may run on `cpu`; S6: iSche's cores differ. */
static __always_inline u64 credit1_turn_ns(struct sv_vcpu *v, u32 class, s32 cpu)
{
	u64 slice_ns = settings.policy == SV_ISCHE ? fixed_whole_ns(cpu) : settings.slice_ns;
	u64 turn_ns = credit1_slice(class, own_slice(v, slice_ns), settings.boost_slice_ns);

	return v->slice_ns && v->slice_ns < turn_ns ? v->slice_ns : turn_ns;
}

static __always_inline void credit1_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					    u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	u32 class;

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	end_turn_of_other(v, cpu, enq_flags);
	credit1_move(v, cpu);
	credit1_take(v);
	if (enq_flags & SCX_ENQ_WAKEUP)
		credit1_wake(v);
	/* One that a host thread interrupted has its old place, and its class until its turn
	 * is over, though it has no credit any more. */
	if (!v->rest_ns)
		credit1_key(v, pcpu);
	class = credit1_class_of_turn(v);
	waits_on(v, cpu);
	scx_bpf_dsq_insert_vtime___k(
		p, queue_of(cpu, class == CREDIT1_OVER ? QUEUE_REST : QUEUE_FIRST),
		v->rest_ns ?: credit1_turn_ns(v, class, cpu), v->key, enq_flags);
}

/* Does `v`, which wakes, preempt the one whose turn it is? One that does not run keeps
 * its rest: it has its place in the queue behind those of a higher class. */
static __always_inline bool credit1_wakes_first(struct sv_vcpu *v, struct sv_vcpu *holder)
{
	return holder->state == SV_RUNS &&
	       credit1_preempts(credit1_class_of_turn(v), credit1_class_of_turn(holder));
}

/* Those that have been given enough move up. */
WALKED_ONCE int credit1_sort(s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;

	if (!pcpu)
		return 0;
	pcpu->sorted = pcpu->given;
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
 * how long `v` does. K7: one with a right to run comes before all that have none,
 * wherever it waits. */
static __always_inline bool credit1_dispatch(s32 cpu, struct sv_vcpu *v, u64 *turn_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	/* Of nobody: whoever waits comes before it. */
	u32 class = CREDIT1_OVER;
	bool turn_waits;

	if (!pcpu)
		return false;
	/* Whoever is UNDER by what is handed out would come before one that is not (K6). */
	turn_waits = interrupted_on(cpu, pcpu);
	if (!turn_waits) {
		credit1_hand_out(pcpu, bpf_ktime_get_ns());
		if (pcpu->sorted != pcpu->given)
			credit1_sort(cpu);
	}
	if (v) {
		credit1_take(v);
		/* Its turn is over, and so is its boost; if it goes on, it is another turn. */
		v->boosted = 0;
		credit1_key(v, pcpu);
		class = credit1_class_of_turn(v);
		*turn_ns = credit1_turn_ns(v, class, cpu);
	}
	if (scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0))
		return true;
	/* K2: one of its own class comes before it, a lower one does not. */
	if (class != CREDIT1_OVER)
		return false;
	if (!turn_waits && settings.policy == SV_CREDIT1 && steal(cpu, QUEUE_FIRST))
		return true;
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_REST), 0);
}
