/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `isacs` (I1..I19, A1..A8): the rules of rule_isacs.h on queues of sched_ext.
 *
 * All vCPUs of a pCPU wait in one queue in order of arrival; who leaves it is decided
 * when the pCPU is free. Algorithm 2, which moves a vCPU to another pCPU after a
 * reallocation, is user space's: it gives homes (see place.h).
 */
#pragma once

#include "choose.h"
#include "rule_isacs.h"

static __always_inline void isacs_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					  u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_vcpu *running;

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	await_choice(p, v, pcpu, cpu, enq_flags);
	running = entry_of(pcpu->slot);
	if (!running || !(enq_flags & SCX_ENQ_WAKEUP) ||
	    !isacs_comes_before(v, running, pcpu, bpf_ktime_get_ns() - running->since_ns))
		return;
	/* A6: it runs although phase 2 is not its own. */
	if (settings.preempts_boost && pcpu->cpu_boost && !v->in_group) {
		struct sv_knobs *knobs = vcpu_of(p);

		pcpu->forced = knobs ? knobs->slot : 0;
	}
	scx_bpf_kick_cpu___k(cpu, SCX_KICK_PREEMPT);
}

/* As choose(). */
static __always_inline bool isacs_dispatch(s32 cpu, u32 self, u64 *turn_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_vcpu *v;
	u32 next;

	if (!pcpu)
		return false;
	next = pcpu->forced;
	pcpu->forced = 0;
	v = entry_of(next);
	if (!v || !v->queued || v->cpu != cpu) {
		next = isacs_pick(cpu, self, bpf_ktime_get_ns());
		v = entry_of(next);
	}
	if (v)
		*turn_ns = isacs_turn_ns(v, pcpu);
	if (*turn_ns < MIN_REST_NS)
		*turn_ns = MIN_REST_NS;
	return choose(cpu, self, next, *turn_ns);
}
