/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `vslicer` (SL1..SL7): the rules of rule_vslicer.h on queues of sched_ext.
 *
 * All vCPUs of a pCPU wait in one queue in order of arrival; who leaves it is decided
 * when a pCPU is free. Weights play no part: everybody has one slice per round.
 */
#pragma once

#include "choose.h"
#include "rule_vslicer.h"

static __always_inline void vslicer_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					    u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_vcpu *running;

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	await_choice(p, v, pcpu, cpu, enq_flags);
	running = entry_of(pcpu->slot);
	if (running && enq_flags & SCX_ENQ_WAKEUP &&
	    vslicer_wakes_before(v, running, pcpu, bpf_ktime_get_ns() - running->since_ns))
		scx_bpf_kick_cpu___k(cpu, SCX_KICK_PREEMPT);
}

/* As choose(). */
static __always_inline bool vslicer_dispatch(s32 cpu, u32 self, u64 *turn_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	u32 next;

	if (!pcpu)
		return false;
	next = vslicer_pick(cpu, self);
	*turn_ns = pcpu->turn_ns;
	if (*turn_ns < MIN_REST_NS)
		*turn_ns = MIN_REST_NS;
	return choose(cpu, self, next, *turn_ns);
}
