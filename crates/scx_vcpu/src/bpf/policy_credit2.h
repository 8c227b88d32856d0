/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `credit2`: the one with most credit runs (K9..K15), as
 * policy::host::credit2.
 *
 * One queue per pCPU, ordered by credit. Who has how much, and which place that is, is
 * rule_credit2.h's.
 */
#pragma once

#include "policy_credit.h"
#include "rule_credit2.h"

static __always_inline void credit2_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					    u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	end_turn_of_other(v, cpu, enq_flags);
	credit2_move(v, pcpu, cpu);
	credit2_take(v, pcpu);
	v->io_pending = 0;
	waits_on(v, cpu);
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_FIRST),
				     v->rest_ns ?: credit2_turn_ns(v), credit2_place(v, pcpu),
				     enq_flags);
}

/* `v` ran, is charged and can run on, or is NULL. Whether somebody else is to run; if
 * not, for how long `v` does. */
static __always_inline bool credit2_dispatch(s32 cpu, struct sv_vcpu *v, u64 *turn_ns)
{
	struct task_struct *head = scx_bpf_dsq_peek___k(queue_of(cpu, QUEUE_FIRST));
	struct sv_vcpu *next = head ? entry_of_task(head) : NULL;
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	bool yields;

	if (!pcpu)
		return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0);
	if (!v && turn_goes_on(cpu, pcpu, QUEUE_FIRST))
		return true;
	yields = credit2_yields(v, next, pcpu);
	if (v)
		*turn_ns = credit2_turn_ns(v);
	if (v && next && !yields)
		return false;
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0);
}
