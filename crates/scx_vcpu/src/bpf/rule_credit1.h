/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Credit under Credit1 and iSche, as policy::host::credit1::Pool: each pCPU hands out
 * what was burned on it to those that run or wait there, by weight (K5: "to each vCPU in
 * the run queue"). Why so, and why only sleepers have a limit, is written there.
 *
 * What is handed out is added to `given` of the pCPU, and each vCPU takes its part when
 * it is next looked at: nobody walks over all of them under a lock.
 *
 * Works on the table alone and calls nothing of sched_ext, so that a kernel without it
 * can replay a stream of events through this very code (replay.bpf.c).
 */
#pragma once

#include "settings.h"
#include "table.h"

#include "credit1.h"

/* New credit, unless somebody was faster; then it is his turn to count. */
static __always_inline bool set_credit(struct sv_vcpu *v, s64 old, s64 new)
{
	return __sync_val_compare_and_swap(&v->credit, old, new) == old;
}

/* Takes what was handed out since the last time. A new weight counts from now on. */
static __always_inline void credit1_take(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	u64 now, seen = v->taken;
	s64 credit = v->credit;
	u32 counted = v->counted, weight;

	if (!pcpu)
		return;
	now = pcpu->given;
	if (now != seen && __sync_val_compare_and_swap(&v->taken, seen, now) == seen)
		set_credit(v, credit, credit_add(credit, credit1_part(now - seen, counted)));
	weight = v->weight;
	if (counted && counted != weight &&
	    __sync_val_compare_and_swap(&v->counted, counted, weight) == counted)
		__sync_fetch_and_add(&pcpu->weight, (u64)weight - counted);
}

static __always_inline u32 credit1_class(struct sv_vcpu *v)
{
	return credit1_priority(v->credit, v->boosted, settings.zero_is_under);
}

/* Counts among those of its pCPU that are given credit from now on, once: a pCPU without
 * work may say so for another one whose vCPU goes to sleep just then. */
static __always_inline void credit1_join(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	u32 weight = v->weight;

	if (!pcpu || __sync_val_compare_and_swap(&v->counted, 0, weight))
		return;
	__sync_fetch_and_add(&pcpu->weight, weight);
	v->taken = pcpu->given;
}

/* It goes to another pCPU, with all its credit. */
static __always_inline void credit1_leave(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	if (!pcpu)
		return;
	credit1_take(v);
	__sync_fetch_and_sub(&pcpu->weight, __sync_lock_test_and_set(&v->counted, 0));
}

/* It wakes, maybe by a device. */
static __always_inline void credit1_wake(struct sv_vcpu *v)
{
	v->boosted = credit1_wakes_boosted(v->credit, v->io_pending, settings.boost_needs_under,
					   settings.zero_is_under);
	v->io_pending = 0;
}

/* It sleeps, or waits for its cap, and keeps no more than the limit. */
static __always_inline void credit1_sleep(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	s64 credit;
	u64 excess;

	if (!pcpu)
		return;
	credit1_leave(v);
	credit = v->credit;
	excess = credit1_excess(credit, settings.credit_limit_ns);
	if (excess && set_credit(v, credit, credit_burn(credit, excess)))
		__sync_fetch_and_add(&pcpu->burned_ns, excess);
}

/* It lives on `cpu` now. */
static __always_inline void credit1_move(struct sv_vcpu *v, u32 cpu)
{
	bool counts = v->counted;

	if (v->cpu == cpu)
		return;
	if (counts)
		credit1_leave(v);
	v->cpu = cpu;
	if (counts)
		credit1_join(v);
}

/* It ran so long. */
static __always_inline void credit1_charge(struct sv_vcpu *v, u64 ran_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	s64 credit = v->credit;

	set_credit(v, credit, credit_burn(credit, ran_ns));
	if (pcpu)
		__sync_fetch_and_add(&pcpu->burned_ns, ran_ns);
	credit1_take(v);
}

/* Time for the next hand-out? */
static __always_inline void credit1_hand_out(struct sv_pcpu *pcpu, u64 now_ns)
{
	u64 burned;

	if (now_ns - pcpu->given_at < settings.refill_ns || !pcpu->weight)
		return;
	pcpu->given_at = now_ns;
	/* Somebody may be giving back at the same moment, see credit1_sleep(). */
	burned = __sync_lock_test_and_set(&pcpu->burned_ns, 0);
	pcpu->given += credit1_unit(burned, pcpu->weight);
}
