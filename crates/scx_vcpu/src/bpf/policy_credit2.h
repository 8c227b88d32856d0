/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `credit2`: the one with most credit runs (K9..K15), as
 * policy::host::credit2.
 *
 * One queue per pCPU, ordered by credit. A reset (K12) gives all members of a
 * queue new credit: it is counted, and each vCPU takes part when it is next
 * looked at. So that the order of those in the queue stays true, a place is the
 * number of resets times REACH less the credit: who has not been reset yet is
 * before all that have. With resets that add to debts REACH is what they add;
 * then a place does not change by a reset at all.
 */
#pragma once

#include "policy_credit.h"

#include "credit2.h"

/* More than any credit of a vCPU that is in a queue: 18 minutes. */
#define CREDIT2_REACH (1ULL << 40)

/* Resets that a debt needs when they add to it; divided, since a loop of resets in the
 * loop of a dispatch is more than the verifier follows. */
static __always_inline u64 credit2_rounds(s64 credit)
{
	u64 debt = -credit;

	if (credit >= 0)
		return 0;
	return (debt + settings.default_credit_ns - 1) / settings.default_credit_ns;
}

/* Takes part in the resets that were made since the last time. */
static __always_inline void credit2_take(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	u64 missed = pcpu->resets - v->resets, rounds;

	v->resets = pcpu->resets;
	if (!missed)
		return;
	/* All but the last one: they add to a debt and leave the rest as it will be. */
	if (settings.reset_adds) {
		rounds = credit2_rounds(v->credit);
		if (rounds > missed - 1)
			rounds = missed - 1;
		v->credit = credit_add(v->credit, rounds * settings.default_credit_ns);
	}
	v->credit = credit2_reset(v->credit, settings.default_credit_ns, settings.reset_adds);
}

/* Resets until the one with most credit may run. */
static __always_inline u64 credit2_resets_due(s64 most)
{
	u64 rounds;

	if (!credit2_reset_due(most, settings.reset_at_zero))
		return 0;
	if (!settings.reset_adds || most >= 0)
		return 1;
	rounds = credit2_rounds(most);
	/* It comes to exactly nothing, and nothing is not enough. */
	if (settings.reset_at_zero && most + (s64)(rounds * settings.default_credit_ns) == 0)
		rounds++;
	return rounds;
}

static __always_inline u64 credit2_place(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	u64 reach = settings.reset_adds ? settings.default_credit_ns : CREDIT2_REACH;

	return pcpu->resets * reach - (u64)v->credit;
}

/* It lives on `cpu` now: the resets of another queue are not this one's. */
static __always_inline void credit2_move(struct sv_vcpu *v, struct sv_pcpu *pcpu, u32 cpu)
{
	if (v->cpu == cpu)
		return;
	v->resets = pcpu->resets;
	v->cpu = cpu;
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

static __always_inline void credit2_charge(struct sv_vcpu *v, u64 ran_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	v->credit = credit_burn(v->credit, credit2_cost(ran_ns, v->weight, settings.reference));
	if (pcpu)
		credit2_take(v, pcpu);
}

static __always_inline void credit2_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					    u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	end_turn_of_other(v, cpu, enq_flags);
	credit2_move(v, pcpu, cpu);
	credit2_take(v, pcpu);
	v->io_pending = 0;
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_FIRST),
				     v->rest_ns ?: credit2_turn_ns(v), credit2_place(v, pcpu),
				     enq_flags);
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

/* `v` ran, is charged and can run on, or is NULL. Whether somebody else is to run; if
 * not, for how long `v` does. */
static __always_inline bool credit2_dispatch(s32 cpu, struct sv_vcpu *v, u64 *turn_ns)
{
	struct task_struct *head = scx_bpf_dsq_peek___k(queue_of(cpu, QUEUE_FIRST));
	struct sv_vcpu *next = head ? entry_of_task(head) : NULL;
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	s64 most;

	if (!pcpu)
		return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0);
	if (!v && turn_goes_on(cpu, pcpu, QUEUE_FIRST))
		return true;
	if (next)
		credit2_take(next, pcpu);
	if (v || next) {
		most = v ? v->credit : next->credit;
		if (next && next->credit > most)
			most = next->credit;
		pcpu->resets += credit2_resets_due(most);
	}
	if (next)
		credit2_take(next, pcpu);
	if (v)
		credit2_take(v, pcpu);
	if (v)
		*turn_ns = credit2_turn_ns(v);
	if (v && next && v->credit > next->credit)
		return false;
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0);
}
