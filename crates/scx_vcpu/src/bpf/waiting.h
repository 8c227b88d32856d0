/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pCPUs in whose queues vCPUs wait that another pCPU may take: one without work looks
 * there, and not on each pCPU of the host.
 *
 * Problem: each look is a search for two queues in the kernel's hash table, at each halt of
 * a vCPU that leaves its pCPU without work: 256 of them on 128 pCPUs.
 *
 * Idea: a bit for each pCPU (bits.h), set before a vCPU is put into its queue and counted
 * until the vCPU has left it. It leaves when it runs, sleeps, or is put into another one: that
 * is seen under the lock of its run queue. Who moves it without that lock (relief.h, unpark.h)
 * counts at the new place first and then changes the vCPU's own note of where it is
 * counted, if it is still the one that was seen. The note has a number that
 * each new wait changes: one that has run meanwhile and waits where it did is not the same.
 *
 * Rejected: to ask the kernel how many are in the queue when a bit is cleared. It puts a
 * vCPU there after ops.enqueue has returned, and nothing of ours is called then.
 *
 * A count may be too large for a while, never too small: somebody looks in vain. Threads that
 * are no vCPUs, or found no entry, have no note: a pCPU that had one counts one more for ever.
 *
 * Works on the table alone and calls nothing of sched_ext, see replay.bpf.c.
 */
#pragma once

#include "bits.h"
#include "settings.h"

u64 waiting_cpus[MAX_CPUS / 64];

#define NOTE_CPU 0xffffffffULL

/* One that was noted so is not there any more. */
static __always_inline void note_over(u64 note)
{
	struct sv_pcpu *pcpu = pcpu_of((u32)note - 1);

	if ((u32)note && pcpu)
		__sync_fetch_and_sub(&pcpu->waiting, 1);
}

/* `v` comes into a queue of `cpu`. Under the lock of its run queue. */
static __always_inline void waits_on(struct sv_vcpu *v, u32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	u64 note = (v->noted & ~NOTE_CPU) + NOTE_CPU + 1 + (cpu + 1);

	if (!pcpu)
		return;
	bits_join(waiting_cpus, &pcpu->waiting, cpu);
	note_over(__sync_lock_test_and_set(&v->noted, note));
}

/* It has left. Under the same lock. */
static __always_inline void waits_no_more(struct sv_vcpu *v)
{
	if ((u32)v->noted)
		note_over(__sync_fetch_and_and(&v->noted, ~NOTE_CPU));
}

/* One that was noted so is in a queue of `cpu` now, where the caller counts already. Under
 * no lock. */
static __always_inline void note_moved(struct sv_vcpu *v, u64 note, u32 cpu)
{
	u64 new = (note & ~NOTE_CPU) + (cpu + 1);

	if (__sync_val_compare_and_swap(&v->noted, note, new) == note)
		note_over(note);
	else
		note_over(new);
}

/* A thread without an entry comes into a queue of `cpu`. */
static __always_inline void stranger_waits_on(u32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (pcpu && !pcpu->strangers && !__sync_lock_test_and_set(&pcpu->strangers, 1))
		bits_join(waiting_cpus, &pcpu->waiting, cpu);
}

/* A pCPU looks for a vCPU. */
struct theft {
	s32 cpu;
	/* enum queue */
	u32 queue;
	/* pCPU of bit 0, and the bits that are looked at. */
	u32 first;
	u32 done;
	u64 bits;
};

/* Takes one from a queue of this pCPU; steal.h's. */
static bool take_from(struct theft *theft, s32 from);

/* Its own bit is cleared too, or a pCPU that has all vCPUs looks for one at each halt. */
static long look_at(u32 at, struct theft *theft)
{
	u32 from = theft->first + at;
	struct sv_pcpu *pcpu;

	if (!(theft->bits >> (at & 63) & 1))
		return 0;
	pcpu = pcpu_of(from);
	if (!pcpu)
		return 0;
	if (!pcpu->waiting && !bits_clear(waiting_cpus, &pcpu->waiting, from))
		return 0;
	if (from == theft->cpu || !take_from(theft, from))
		return 0;
	theft->done = 1;
	return 1;
}

static long look_at_word(u32 step, struct theft *theft)
{
	u32 words = (nr_cpu_ids + 63) / 64, word = ((u32)theft->cpu / 64 + step) % words;
	u64 above = ~1ULL << (theft->cpu & 63);

	theft->first = word * 64;
	theft->bits = *bits_word(waiting_cpus, theft->first);
	/* Its own word twice: what is above it first, and last what is below. */
	if (!step)
		theft->bits &= above;
	else if (step == words)
		theft->bits &= ~above;
	if (theft->bits)
		bpf_loop(64, look_at, theft, 0);
	return !!theft->done;
}

/* Where vCPUs wait, the neighbours first and not all from the same one, until one is taken. */
static __always_inline bool look_where_they_wait(struct theft *theft)
{
	bpf_loop((nr_cpu_ids + 63) / 64 + 1, look_at_word, theft, 0);
	return theft->done;
}
