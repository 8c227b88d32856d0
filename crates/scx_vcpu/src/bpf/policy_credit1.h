/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `credit1`: Xen's credit scheduler (K1..K8), as policy::host::credit1.
 *
 * BOOST before UNDER before OVER, in turn within a class. The first queue of a
 * pCPU has BOOST and UNDER, ordered by class and arrival; the other one OVER.
 *
 * Credit is handed out every 30 ms to those that run or wait on a pCPU, by weight (K5:
 * "to each vCPU in the run queue"): as much as they have burned since. Handing out what
 * the pCPU could have given makes the heavy ones pay for what host threads took: all are
 * given too much then, everybody is UNDER, and turns are equal (0.645 for 512 : 256,
 * where a twentieth of the time was the host's). What is handed out is added to `given`
 * of the pCPU, and each vCPU takes its part when it is next looked at. Who sleeps takes
 * nothing. (policy::host and the simulator have one pool for all pCPUs.)
 *
 * Policy `ische` (S1..S7) is this one with slices that depend on the pCPU and with
 * homes that user space gives: I/O cores and general cores.
 */
#pragma once

#include "policy_credit.h"
#include "policy_fixed.h"
#include "steal.h"

/* Binary digits of `given` behind the point. */
#define SHARE_SHIFT 16
#define SHARE_ONE (1ULL << SHARE_SHIFT)

/* Takes what was handed out since the last time. */
static __always_inline void credit1_take(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	u64 now, seen = v->taken, ns;
	s64 credit = v->credit;

	if (!pcpu)
		return;
	now = pcpu->given;
	/* Its weight was changed while it counts. */
	if (v->counted && v->counted != v->weight) {
		u32 old = v->counted;

		v->counted = v->weight;
		__sync_fetch_and_add(&pcpu->weight, (u64)v->counted - old);
	}
	if (now == seen || __sync_val_compare_and_swap(&v->taken, seen, now) != seen)
		return;
	ns = credit_mul_div(now - seen, v->counted, SHARE_ONE);
	set_credit(v, credit, credit1_refill(credit, ns, settings.credit_limit_ns));
}

static __always_inline u32 credit1_class(struct sv_vcpu *v)
{
	return credit1_priority(v->credit, v->boosted, settings.zero_is_under);
}

/* Counts among those of its pCPU that are given credit from now on. */
static __always_inline void credit1_runnable(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	if (!pcpu)
		return;
	v->counted = v->weight;
	__sync_fetch_and_add(&pcpu->weight, v->counted);
	v->taken = pcpu->given;
}

static __always_inline void credit1_quiescent(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	if (!pcpu)
		return;
	credit1_take(v);
	__sync_fetch_and_sub(&pcpu->weight, v->counted);
	v->counted = 0;
}

/* It lives on `cpu` now. */
static __always_inline void credit1_move(struct sv_vcpu *v, u32 cpu)
{
	bool counts = v->counted;

	if (v->cpu == cpu)
		return;
	if (counts)
		credit1_quiescent(v);
	v->cpu = cpu;
	if (counts)
		credit1_runnable(v);
}

/* It ran so long. */
static __always_inline void credit1_charge(struct sv_vcpu *v, u64 ran_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	s64 credit = v->credit;

	set_credit(v, credit, credit_burn(credit, ran_ns));
	if (pcpu)
		pcpu->ran_ns += ran_ns;
	credit1_take(v);
}

/* Time for the next hand-out? */
static __always_inline void credit1_hand_out(struct sv_pcpu *pcpu)
{
	u64 now = bpf_ktime_get_ns();

	if (now - pcpu->given_at < settings.refill_ns || !pcpu->weight)
		return;
	pcpu->given_at = now;
	pcpu->given += credit1_share(pcpu->ran_ns << SHARE_SHIFT, 1, pcpu->weight);
	pcpu->ran_ns = 0;
}

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
	if (v->cpu != cpu)
		v->rest_ns = 0;
	credit1_move(v, cpu);
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
	if (!v->rest_ns || v->key >> 56 != CREDIT1_BOOST - class) {
		credit1_key(v, pcpu);
		v->rest_ns = 0;
	}
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

	if (!pcpu)
		return false;
	credit1_hand_out(pcpu);
	if (pcpu->sorted != pcpu->given)
		credit1_sort(cpu);
	if (v) {
		credit1_take(v);
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
	if (settings.policy == SV_CREDIT1 && steal(cpu, QUEUE_FIRST))
		return true;
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_REST), 0);
}
