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

/* Does `v`, the vCPU of this entry, which wakes, run before the one whose turn it is? */
static __always_inline bool isacs_wakes_first(struct sv_vcpu *v, u32 slot, struct sv_vcpu *holder,
					      struct sv_pcpu *pcpu, u64 ran_ns)
{
	if (!isacs_comes_before(v, holder, pcpu, ran_ns))
		return false;
	/* A6: it runs although phase 2 is not its own. */
	if (settings.preempts_boost && pcpu->cpu_boost &&
	    !isacs_wakes_as_member(v->in_group, v->endcredit, settings.preempts_boost))
		pcpu->forced = slot;
	return true;
}

/* As choose(). */
static __always_inline bool isacs_dispatch(s32 cpu, u32 self, u64 *turn_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_vcpu *v;
	u32 next;

	if (!pcpu)
		return false;
	if (!self && turn_goes_on(cpu, pcpu, QUEUE_REST))
		return true;
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
