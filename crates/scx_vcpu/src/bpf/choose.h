/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For policies that decide when a pCPU is free, not by the order of a queue: vCPUs
 * wait in QUEUE_REST in order of arrival, and the chosen one is taken out of it.
 */
#pragma once

#include "policy_credit.h"

/* `p` waits for a decision on `cpu`. */
static __always_inline void await_choice(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					 u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	end_turn_of_other(v, cpu, enq_flags);
	v->cpu = cpu;
	v->queued = 1;
	v->io_pending = 0;
	waits_on(v, cpu);
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_REST), v->rest_ns ?: MIN_REST_NS,
				     ++pcpu->sequence, enq_flags);
}

/*
 * Gives `cpu` to `next` for `turn_ns`. `self` ran and can run on; 0: nobody. Whether
 * somebody else is to run.
 */
static __always_inline bool choose(s32 cpu, u32 self, u32 next, u64 turn_ns)
{
	struct sv_vcpu *v = entry_of(next);

	if (next && next == self)
		return false;
	if (v && take_out(cpu, QUEUE_REST, next, within_cap(v, turn_ns)))
		return true;
	/* It has left, or is on its way into the queue: whoever is there. */
	return !self && scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_REST), 0);
}
