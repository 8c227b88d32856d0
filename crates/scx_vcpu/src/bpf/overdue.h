/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Nobody waits so long that the kernel's watchdog ends us.
 *
 * Problem: the watchdog ends a scheduler under which one thread that can run has not for
 * 30 s, and rules within their ranges ask for that: under Credit1 a weight of 1 beside
 * four of 256 is OVER for 30.7 s after a turn of 30 ms, a cap of 0.1 % pays for a turn that
 * a stalled host has made 300 ms long for 300 s, and of eleven vCPUs with turns of 3 s the
 * last one waits for 30.
 *
 * Idea: patience, a third of the watchdog's time. A turn is no longer than what lets all
 * that wait on its pCPU have one in half of that. A vCPU that has waited for all of it, by
 * whatever rule, has one turn at once, which cuts the one that goes on. That turn is short:
 * it is charged as any other, and who had a whole one every ten seconds would get
 * deeper into debt the smaller its weight is. Under `fixed`, which charges nothing, it is
 * a whole one, or who is last in the queue would be put behind it again.
 *
 * Who has waited for so long is seen by the walk of each period (parked.h), one for each
 * pCPU, who waits longest first.
 */
#pragma once

#include "place.h"

static __always_inline u64 within_patience(u64 turn_ns, s32 cpu, struct sv_pcpu *pcpu)
{
	return credit_turn_within(turn_ns, pcpu->waiting + strangers_on(cpu, pcpu),
				  settings.patience_ns / 2, STRANGER_TURN_NS);
}

/* Has the vCPU at this position waited for too long? Then it is next on its pCPU. */
static __always_inline void look_overdue(struct sv_vcpu *v, u32 position, u64 now)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	struct sv_vcpu *other;

	/* One in the kernel's own queue has been chosen already. */
	if (!pcpu || v->state != SV_WAITS || (!(u32)v->noted && !v->parked) ||
	    (s64)(now - v->since_ns) < (s64)settings.patience_ns)
		return;
	other = entry_of(pcpu->overdue_slot);
	if (other && other != v && other->state == SV_WAITS && other->cpu == v->cpu &&
	    other->since_ns <= v->since_ns)
		return;
	pcpu->overdue_slot = position + 1;
	scx_bpf_kick_cpu___k(v->cpu, pcpu->slot ? SCX_KICK_PREEMPT : SCX_KICK_IDLE);
}

/* The vCPU of this entry has its turn on `cpu`, if it still waits there. */
WALKED_ONCE int begin_overdue(s32 cpu, u32 slot)
{
	struct sv_vcpu *v = entry_of(slot);
	u64 turn_ns = STRANGER_TURN_NS;

	if (!v || v->state != SV_WAITS || v->cpu != cpu)
		return 0;
	if (settings.policy == SV_FIXED)
		turn_ns = own_slice(v, fixed_whole_ns(cpu));
	if (take_out(cpu, QUEUE_FIRST, slot, turn_ns) || take_out(cpu, QUEUE_REST, slot, turn_ns))
		return 1;
	if (!take_out(cpu, QUEUE_CAPPED, slot, turn_ns))
		return 0;
	if (cap_over(v) && has_credit1())
		credit1_join(v);
	return 1;
}

static __always_inline bool dispatch_overdue(s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	u32 slot = pcpu ? pcpu->overdue_slot : 0;

	if (!slot)
		return false;
	pcpu->overdue_slot = 0;
	return begin_overdue(cpu, slot);
}
