/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a vCPU may be right now: on which pCPU, and whether its cap lets it run.
 *
 * User space gives a vCPU a home (iSche's cores); it goes there the next time that
 * it is put into a queue. A vCPU that has used up its cap waits in a queue of its own
 * until a period is over (K1), and does not count among those that are given credit.
 */
#pragma once

#include "choose.h"
#include "policy_credit1.h"
#include "policy_credit2.h"
#include "rule_cap.h"

/* The pCPU in whose queue `p` belongs. Its affinity comes first. */
static __always_inline s32 place(struct task_struct *p, struct sv_vcpu *v, s32 cpu)
{
	u32 home = v->home;

	if (!home || home > nr_cpu_ids || !bpf_cpumask_test_cpu___k(home - 1, p->cpus_ptr))
		return cpu;
	return home - 1;
}

/* `p` waits on `cpu` for the next period. */
static __always_inline void park(struct task_struct *p, struct sv_vcpu *v, s32 cpu, u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	cap_waits(v, pcpu, cpu);
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_CAPPED), MIN_REST_NS, ++pcpu->sequence,
				     enq_flags);
}

/* Its queue among those that may run, and its place there. */
static __always_inline enum queue policy_key(struct sv_vcpu *v, struct sv_pcpu *pcpu, s32 cpu)
{
	if (has_credit1())
		return credit1_key(v, pcpu);
	if (settings.policy == SV_CREDIT2) {
		v->key = credit2_returns(v, pcpu);
		return QUEUE_FIRST;
	}
	v->queued = 1;
	v->key = ++pcpu->sequence;
	return QUEUE_REST;
}

/* After a period: those that wait on `cpu` and whose caps are not used up any more. `cpu`
 * looks itself, or one that has no work: host threads may keep it busy for long. Whoever
 * is first in a period does it. */
WALKED_ONCE int unpark(s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct bpf_iter_scx_dsq it;
	u64 now = counted_ns, last;
	struct task_struct *p;

	if (!pcpu || !pcpu->parked)
		return 0;
	last = pcpu->unparked_at;
	if (last == now || __sync_val_compare_and_swap(&pcpu->unparked_at, last, now) != last)
		return 0;
	bpf_iter_scx_dsq_new___k(&it, queue_of(cpu, QUEUE_CAPPED), 0);
	while ((p = bpf_iter_scx_dsq_next___k(&it))) {
		struct sv_vcpu *v = entry_of_task(p);
		enum queue queue;

		if (!v || is_capped(v) || !cap_over(v))
			continue;
		if (has_credit1())
			credit1_join(v);
		queue = policy_key(v, pcpu, cpu);
		scx_bpf_dsq_move_set_slice___k(&it, within_cap(v, own_slice(v, settings.slice_ns)));
		scx_bpf_dsq_move_set_vtime___k(&it, v->key);
		scx_bpf_dsq_move_vtime___k(&it, p, queue_of(cpu, queue), 0);
	}
	bpf_iter_scx_dsq_destroy___k(&it);
	return 0;
}

/* For a pCPU that has no work. */
static long unpark_there(u32 cpu, void *none)
{
	unpark(cpu);
	return 0;
}
