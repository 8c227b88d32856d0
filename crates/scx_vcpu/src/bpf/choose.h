/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For policies that decide when a pCPU is free, not by the order of a queue: vCPUs
 * wait in QUEUE_REST in order of arrival, and the chosen one is taken out of it.
 */
#pragma once

#include "policy_credit.h"

/* `p` waits for a decision on `cpu`. */
static __always_inline void await_choice(struct task_struct *p, struct sv_vcpu *v,
					 struct sv_pcpu *pcpu, s32 cpu, u64 enq_flags)
{
	v->cpu = cpu;
	v->queued = 1;
	v->io_pending = 0;
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_REST), MIN_REST_NS, ++pcpu->sequence,
				     enq_flags);
}

/* The vCPU of this entry gets `cpu` next. */
WALKED_ONCE int take_out(s32 cpu, u32 slot, u64 slice_ns)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int taken = 0;

	bpf_iter_scx_dsq_new___k(&it, queue_of(cpu, QUEUE_REST), 0);
	while ((p = bpf_iter_scx_dsq_next___k(&it))) {
		struct sv_knobs *knobs = vcpu_of(p);

		if (!knobs || knobs->slot != slot)
			continue;
		scx_bpf_dsq_move_set_slice___k(&it, slice_ns);
		taken = scx_bpf_dsq_move___k(&it, p, SCX_DSQ_LOCAL, 0);
		break;
	}
	bpf_iter_scx_dsq_destroy___k(&it);
	return taken;
}

/*
 * Gives `cpu` to `next` for `turn_ns`. `self` ran and can run on; 0: nobody. Whether
 * somebody else is to run: strangers always are.
 */
static __always_inline bool choose(s32 cpu, u32 self, u32 next, u64 turn_ns)
{
	struct sv_vcpu *v = entry_of(next);

	if (scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0))
		return true;
	if (next && next == self)
		return false;
	if (v && take_out(cpu, next, within_cap(v, turn_ns)))
		return true;
	/* It has left, or is on its way into the queue: whoever is there. */
	return !self && scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_REST), 0);
}
