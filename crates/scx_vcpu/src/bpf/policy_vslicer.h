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

/* As choose(). */
static __always_inline bool vslicer_dispatch(s32 cpu, u32 self, u64 *turn_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	u32 next;

	if (!pcpu)
		return false;
	if (!self && turn_goes_on(cpu, pcpu, QUEUE_REST))
		return true;
	next = vslicer_pick(cpu, self);
	*turn_ns = pcpu->turn_ns;
	if (*turn_ns < MIN_REST_NS)
		*turn_ns = MIN_REST_NS;
	return choose(cpu, self, next, *turn_ns);
}
