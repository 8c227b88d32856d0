/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vCPUs whose caps are not used up any more go back among those that may run.
 *
 * Each pCPU looks after its own queue when it decides. One that has no work looks after
 * all others': host threads may keep the pCPU where a vCPU waits busy for long. It walks
 * over the bits of parked_cpus, 64 pCPUs at a time, and not over all pCPUs.
 */
#pragma once

#include "balance.h"

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
		u64 note;

		if (!v || is_capped(v) || !cap_over(v))
			continue;
		note = v->noted;
		if (has_credit1())
			credit1_join(v);
		queue = policy_key(v, pcpu, cpu);
		scx_bpf_dsq_move_set_slice___k(&it, within_cap(v, own_slice(v, settings.slice_ns)));
		scx_bpf_dsq_move_set_vtime___k(&it, v->key);
		bits_join(waiting_cpus, &pcpu->waiting, cpu);
		note_moved(v, note, cpu);
		/* This pCPU runs one of them; another one may be idle beside the next. */
		if (scx_bpf_dsq_move_vtime___k(&it, p, queue_of(cpu, queue), 0))
			call_idle_for(p, v);
	}
	bpf_iter_scx_dsq_destroy___k(&it);
	return 0;
}

struct parked_walk {
	u64 bits;
	u32 first;
};

static long unpark_bit(u32 at, struct parked_walk *walk)
{
	u32 cpu = walk->first + at;
	struct sv_pcpu *pcpu;

	if (!(walk->bits >> (at & 63) & 1))
		return 0;
	pcpu = pcpu_of(cpu);
	if (!pcpu)
		return 0;
	unpark(cpu);
	if (!pcpu->parked)
		bits_clear(parked_cpus, &pcpu->parked, cpu);
	return 0;
}

static long unpark_word(u32 at, void *none)
{
	struct parked_walk walk = {.bits = *bits_word(parked_cpus, at * 64), .first = at * 64};

	if (walk.bits)
		bpf_loop(64, unpark_bit, &walk, 0);
	return 0;
}

/* For a pCPU that has no work. */
static __always_inline void unpark_all(void)
{
	bpf_loop((nr_cpu_ids + 63) / 64, unpark_word, NULL, 0);
}
