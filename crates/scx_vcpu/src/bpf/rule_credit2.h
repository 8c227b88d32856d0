/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Credit under Credit2 (K9..K12), as policy::host::credit2.
 *
 * A reset (K12) gives all members of a queue new credit: it is counted, and each vCPU
 * takes part when it is next looked at. So that the order of those in the queue stays
 * true, a place is the number of resets times REACH less what the credit is worth: who
 * has not been reset yet is before all that have. With resets that add to debts REACH is
 * what they add; then a place does not change by a reset at all.
 *
 * Works on the table alone and calls nothing of sched_ext, so that a kernel without it
 * can replay a stream of events through this very code (replay.bpf.c).
 */
#pragma once

#include "settings.h"
#include "table.h"

#include "credit2.h"

/* More than any credit of a vCPU that is in a queue: 18 minutes. */
#define CREDIT2_REACH (1ULL << 40)

/* Takes part in the resets that were made since the last time. */
static __always_inline void credit2_take(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	u64 missed = pcpu->resets - v->resets;

	v->resets = pcpu->resets;
	v->credit =
		credit2_after(v->credit, missed, settings.default_credit_ns, settings.reset_adds);
}

/* It lives on `cpu` now: the resets of another queue are not this one's, and those that
 * were made while it was there are. */
static __always_inline void credit2_move(struct sv_vcpu *v, struct sv_pcpu *pcpu, u32 cpu)
{
	struct sv_pcpu *old;

	if (v->cpu == cpu)
		return;
	old = pcpu_of(v->cpu);
	if (old)
		credit2_take(v, old);
	v->resets = pcpu->resets;
	v->cpu = cpu;
}

/* Its place in the queue, the least first; those of the same one in order of arrival. */
static __always_inline u64 credit2_place(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	u64 reach = settings.reset_adds ? settings.default_credit_ns : CREDIT2_REACH;

	return pcpu->resets * reach -
	       (u64)credit2_rank(v->credit, settings.reset_adds, settings.reset_at_zero);
}

static __always_inline u64 credit2_turn_ns(struct sv_vcpu *v)
{
	u64 slice_ns = own_slice(v, settings.slice_ns), lasts;

	if (!settings.slice_ends_with_credit)
		return slice_ns;
	lasts = credit2_lasts(v->credit, v->weight, settings.reference);
	if (lasts > slice_ns)
		return slice_ns;
	return lasts < MIN_REST_NS ? MIN_REST_NS : lasts;
}

/* Its turn begins, for which it was given `slice_ns` when it came into the queue: that may
 * have been before a reset. The rest of an interrupted turn stays what it was. */
static __always_inline u64 credit2_begins(struct sv_vcpu *v, u64 slice_ns)
{
	return v->rest_ns ? slice_ns : credit2_turn_ns(v);
}

static __always_inline void credit2_charge(struct sv_vcpu *v, u64 ran_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	v->credit = credit_burn(v->credit, credit2_cost(ran_ns, v->weight, settings.reference));
	if (pcpu)
		credit2_take(v, pcpu);
}

/* K10: has `v`, which wakes, more credit than the one that has run for `ran_ns` since
 * its charge? */
static __always_inline bool credit2_wakes_first(struct sv_vcpu *v, struct sv_vcpu *holder,
						u64 ran_ns)
{
	return credit2_preempts(
		v->credit, credit_burn(holder->credit,
				       credit2_cost(ran_ns, holder->weight, settings.reference)));
}

/* K9, K12: `v` ran, is charged and can run on, `next` is the first of the queue; each may
 * be NULL. Both have the credit of the resets that are due. Whether `next` comes first. */
static __always_inline bool credit2_yields(struct sv_vcpu *v, struct sv_vcpu *next,
					   struct sv_pcpu *pcpu)
{
	s64 most;

	if (next) {
		credit2_take(next, pcpu);
		most = next->credit;
		if (v && v->credit > most)
			most = v->credit;
	} else if (v) {
		most = v->credit;
	} else {
		return false;
	}
	pcpu->resets += credit2_resets_due(most, settings.default_credit_ns, settings.reset_adds,
					   settings.reset_at_zero);
	if (next)
		credit2_take(next, pcpu);
	if (v)
		credit2_take(v, pcpu);
	/* Of equals the one that waits. */
	return next && (!v || next->credit >= v->credit);
}
