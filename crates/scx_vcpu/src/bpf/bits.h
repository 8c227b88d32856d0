/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pCPUs of which somebody counts something, a bit each: who looks for it walks over bits,
 * 64 pCPUs at a time, and asks only those that have one.
 *
 * A bit may be set though the count is 0 by now; it is clear only where it is. Who counts
 * one more sets the bit unless it is set. Who finds the count 0 clears the bit, then looks at
 * the count again, and sets the bit if somebody has come. Counting and clearing are atomic
 * operations whose result is used: those order what is before and after them for all CPUs
 * (Documentation/atomic_t.txt; others order nothing, but on x86). So of one that comes and
 * one that clears at the same moment one sees what the other did, and the bit stays.
 */
#pragma once

#include "settings.h"
#include "table.h"

static __always_inline u64 *bits_word(u64 *bits, u32 cpu)
{
	return &bits[cpu / 64 & (MAX_CPUS / 64 - 1)];
}

/* One more on `cpu`. */
static __always_inline void bits_join(u64 *bits, u32 *count, u32 cpu)
{
	u64 *word = bits_word(bits, cpu), bit = 1ULL << (cpu & 63);

	/* Also if it is not the first: that one may be about to set the bit, and whoever this
	 * one calls looks before. */
	if (!__sync_fetch_and_add(count, 1) || !(*(volatile u64 *)word & bit))
		__sync_fetch_and_or(word, bit);
}

/* The count of `cpu` was 0 a moment ago; whether it is not any more. */
static __always_inline bool bits_clear(u64 *bits, u32 *count, u32 cpu)
{
	u64 *word = bits_word(bits, cpu), bit = 1ULL << (cpu & 63);

	if (!(__sync_fetch_and_and(word, ~bit) & bit) || !*(volatile u32 *)count)
		return false;
	__sync_fetch_and_or(word, bit);
	return true;
}

/* Does any pCPU have its bit? */
static __always_inline bool bits_any(u64 *bits)
{
	u32 word;

	if (nr_cpu_ids <= 64)
		return *bits;
	bpf_for (word, 0, (nr_cpu_ids + 63) / 64) {
		if (*bits_word(bits, word * 64))
			return true;
	}
	return false;
}
