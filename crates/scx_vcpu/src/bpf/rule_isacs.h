/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who is next under ISACS, as policy::host::isacs: algorithm 1, equations (1) to (4),
 * credit concealing and the CPU-BOOST state.
 *
 * Works on the table alone and calls nothing of sched_ext, so that a kernel without
 * it can replay a stream of events through this very code (replay.bpf.c). The
 * formulas are policy's isacs.h; the order in which they are applied is here and in
 * policy::host::isacs, and the replay compares the two.
 *
 * Limits: a decision looks at the whole table once, a reallocation four times more.
 * The run queue is a pCPU's, so n of equation (2) are the vCPUs that live there.
 */
#pragma once

#include "members.h"
#include "settings.h"

#include "isacs.h"

/* Debts are at most a slice at the lowest weight: a few reallocations. */
#define ISACS_MAX_ROUNDS 64

/* EVENT CHECKER (I2, I5, I6): a device has raised an interrupt to `v`. */
static __always_inline void isacs_event(struct sv_vcpu *v, u64 now_ns)
{
	/* Several sources may come at once: each interval is somebody's. */
	u64 last = __sync_lock_test_and_set(&v->event_at_ns, now_ns);
	u64 interval = now_ns > last ? now_ns - last : 0;

	v->events++;
	/* The first one opens an interval and counts nothing. */
	if (!last)
		return;
	if (!isacs_interval_counts(interval, settings.cutoff_ns)) {
		v->events_counted += settings.late_events_count;
		return;
	}
	v->events_counted++;
	v->event_ema_ns = isacs_ema(interval, v->event_ema_ns, !v->event_ema_valid);
	v->event_ema_valid = 1;
}

/* What a reallocation adds up. */
struct isacs_totals {
	u32 nr_io;
	u32 group;
	u64 elapsed_ns;
	u64 consumed;
	u64 product;
	u64 ivcredit;
	u64 events;
};

/*
 * One for each pCPU; sized at load. Not on the stack, where the verifier follows each
 * value that a counter can have.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct isacs_totals);
} isacs_totals SEC(".maps");

static long isacs_sum(u32 position, u32 *cpu)
{
	struct isacs_totals *t = bpf_map_lookup_elem(&isacs_totals, cpu);
	struct sv_vcpu *v = member_at(position, *cpu);

	if (!v || !t)
		return 0;
	t->consumed += v->consumed;
	/* I8: as printed, in ms. */
	if (settings.equation_2_printed)
		t->product = credit_mul_div(t->product, v->consumed / 1000000, 1);
	return 0;
}

/* Equation (2) and I16. */
static long isacs_give(u32 position, u32 *cpu)
{
	struct isacs_totals *t = bpf_map_lookup_elem(&isacs_totals, cpu);
	struct sv_vcpu *v = member_at(position, *cpu);
	u64 strength, debt = 0, limit = 0;

	if (!v || !t)
		return 0;
	t->events += v->events;
	if (settings.limit_strength)
		limit = t->elapsed_ns ?: 1;
	strength =
		isacs_strength(v->events_counted, v->event_ema_valid ? v->event_ema_ns : 0, limit);
	v->ivcredit = isacs_ivcredit(strength, v->consumed, t->consumed, t->product);
	if (settings.keeps_debt)
		debt = isacs_debt(v->credit, v->endcredit);
	v->credit = credit_burn(isacs_credit(settings.default_credit_ns, v->ivcredit), debt);
	v->endcredit = credit_add(0, v->ivcredit);
	t->ivcredit += v->ivcredit;
	t->nr_io += v->ivcredit > 0;
	return 0;
}

static __always_inline s64 isacs_cvcredit_of(struct sv_vcpu *v, struct isacs_totals *t)
{
	return credit_add(
		0, isacs_cvcredit(t->ivcredit, t->group, v->consumed, settings.default_credit_ns));
}

/* Equation (3), and with one_pass (A4) equation (4) for the group so far. */
static long isacs_join(u32 position, u32 *cpu)
{
	struct isacs_totals *t = bpf_map_lookup_elem(&isacs_totals, cpu);
	struct sv_vcpu *v = member_at(position, *cpu);

	if (!v || !t)
		return 0;
	v->cvcredit = 0;
	v->in_group = isacs_joins_boost(t->ivcredit, t->nr_io, v->ivcredit, settings.boost_unit_ns);
	if (v->in_group) {
		t->group++;
		v->cvcredit = isacs_cvcredit_of(v, t);
	}
	return 0;
}

/* Equation (4); and the next measuring period begins (I3). */
static long isacs_settle(u32 position, u32 *cpu)
{
	struct isacs_totals *t = bpf_map_lookup_elem(&isacs_totals, cpu);
	struct sv_vcpu *v = member_at(position, *cpu);

	if (!v || !t)
		return 0;
	if (v->in_group && !settings.one_pass)
		v->cvcredit = isacs_cvcredit_of(v, t);
	v->consumed = 0;
	v->events = v->events_counted = 0;
	v->event_ema_ns = v->event_ema_valid = 0;
	return 0;
}

static __always_inline void isacs_reallocate(u32 cpu, struct sv_pcpu *pcpu, u64 elapsed_ns)
{
	struct isacs_totals *t = bpf_map_lookup_elem(&isacs_totals, &cpu);
	u32 slots = nr_slots;

	if (!t)
		return;
	__builtin_memset(t, 0, sizeof(*t));
	t->elapsed_ns = elapsed_ns;
	t->product = 1;
	pcpu->cpu_boost = 0;
	bpf_loop(slots, isacs_sum, &cpu, 0);
	bpf_loop(slots, isacs_give, &cpu, 0);
	bpf_loop(slots, isacs_join, &cpu, 0);
	bpf_loop(slots, isacs_settle, &cpu, 0);
	pcpu->io_load_ns = t->ivcredit;
	pcpu->io_events = t->events;
}

struct isacs_scan {
	u32 cpu;
	/* The one that ran and can run on; 0: none. */
	u32 self;
	/* Positions plus one: most credit; most of those that are not through; most
	 * CVCredit of the group. */
	u32 first;
	u32 first_left;
	u32 member;
	s64 first_credit;
	s64 left_credit;
	s64 member_credit;
};

static long isacs_look(u32 position, struct isacs_scan *s)
{
	struct sv_vcpu *v = member_at(position, s->cpu);

	if (!v || (!v->queued && position + 1 != s->self))
		return 0;
	if (!s->first || v->credit > s->first_credit) {
		s->first = position + 1;
		s->first_credit = v->credit;
	}
	if (!isacs_spent(v->credit, v->endcredit, settings.spent_strictly_below) &&
	    (!s->first_left || v->credit > s->left_credit)) {
		s->first_left = position + 1;
		s->left_credit = v->credit;
	}
	if (v->in_group && (!s->member || v->cvcredit > s->member_credit)) {
		s->member = position + 1;
		s->member_credit = v->cvcredit;
	}
	return 0;
}

struct isacs_choice {
	u32 cpu;
	u32 self;
	u32 slot;
	u32 reallocated;
	u32 done;
	u64 elapsed_ns;
};

/* I17: who runs in phase 1; false if that phase is over. */
static __always_inline bool isacs_phase_1(struct isacs_scan *s, struct isacs_choice *choice)
{
	struct sv_vcpu *v;

	if (settings.end_all) {
		choice->slot = s->first_left ?: s->first;
		return s->first_left;
	}
	choice->slot = s->first;
	v = entry_of(s->first);
	return v && !isacs_spent(v->credit, v->endcredit, settings.spent_strictly_below);
}

/* One round of algorithm 1; ends with a choice or with new credits for everybody. */
static long isacs_round(u32 round, struct isacs_choice *choice)
{
	struct sv_pcpu *pcpu = pcpu_of(choice->cpu);
	struct isacs_scan s = {.cpu = choice->cpu, .self = choice->self};
	bool over;

	if (!pcpu)
		return 1;
	bpf_loop(nr_slots, isacs_look, &s, 0);
	choice->done = 1;
	if (!s.first)
		return 1;
	if (!pcpu->cpu_boost) {
		if (isacs_phase_1(&s, choice))
			return 1;
		pcpu->cpu_boost = 1;
		if (settings.fall_through_burns && !choice->reallocated) {
			struct sv_vcpu *member = entry_of(s.member);

			/* A2 as printed; another one may have most then. */
			if (member)
				member->cvcredit = credit_burn(member->cvcredit, pcpu->last_ran_ns);
			s = (struct isacs_scan){.cpu = choice->cpu, .self = choice->self};
			bpf_loop(nr_slots, isacs_look, &s, 0);
		}
	}
	over = isacs_boost_over(s.member_credit, settings.boost_strictly_below);
	if (s.member && (!over || settings.keeps_old_choice))
		choice->slot = s.member;
	if (s.member && !over)
		return 1;
	/* Used up; or no member of the group can run (A6, I15): nobody waits for those. */
	isacs_reallocate(choice->cpu, pcpu, choice->elapsed_ns);
	choice->reallocated = 1;
	/* A3 as printed: the choice from the old group stands. */
	choice->done = s.member && settings.keeps_old_choice;
	return choice->done;
}

/*
 * The one of `cpu` that runs next, as position plus one. `self` ran, is charged and can
 * run on; 0: nobody. 0 if nobody can run.
 */
WALKED_ONCE u32 isacs_pick(u32 cpu, u32 self, u64 now_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct isacs_choice choice = {.cpu = cpu, .self = self};

	if (!pcpu)
		return 0;
	choice.elapsed_ns = now_ns - pcpu->reallocated_at_ns;
	bpf_loop(ISACS_MAX_ROUNDS, isacs_round, &choice, 0);
	if (!choice.done) {
		struct isacs_scan s = {.cpu = cpu, .self = self};

		bpf_loop(nr_slots, isacs_look, &s, 0);
		isacs_phase_1(&s, &choice);
	}
	if (choice.reallocated) {
		pcpu->reallocated_at_ns = now_ns;
		pcpu->nr_reallocations++;
	}
	return choice.slot;
}

static __always_inline void isacs_charge(struct sv_vcpu *v, u64 ran_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);
	u64 cost = credit2_cost(ran_ns, v->weight, settings.reference);

	if (!pcpu)
		return;
	pcpu->last_ran_ns = ran_ns;
	if (isacs_burns_cvcredit(pcpu->cpu_boost, v->in_group)) {
		v->cvcredit = credit_burn(v->cvcredit, cost);
		if (!settings.boost_counts_as_consumed)
			return;
	} else {
		v->credit = credit_burn(v->credit, cost);
	}
	v->consumed += cost;
}

static __always_inline u64 isacs_turn_ns(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	u64 slice_ns = own_slice(v, settings.slice_ns), lasts;

	if (!settings.slice_ends_with_credit)
		return slice_ns;
	lasts = credit2_lasts(isacs_left(isacs_burns_cvcredit(pcpu->cpu_boost, v->in_group),
					 v->credit, v->endcredit, v->cvcredit),
			      v->weight, settings.reference);
	if (!lasts)
		return 1;
	return lasts < slice_ns ? lasts : slice_ns;
}

/* Does `v`, which wakes, run before the one that has run for `ran_ns` since its charge? */
static __always_inline bool isacs_comes_before(struct sv_vcpu *v, struct sv_vcpu *running,
					       struct sv_pcpu *pcpu, u64 ran_ns)
{
	u64 cost = credit2_cost(ran_ns, running->weight, settings.reference);
	s64 credit = running->credit, cvcredit = running->cvcredit;

	if (isacs_burns_cvcredit(pcpu->cpu_boost, running->in_group))
		cvcredit = credit_burn(cvcredit, cost);
	else
		credit = credit_burn(credit, cost);
	return isacs_wakes_before(
		pcpu->cpu_boost,
		isacs_wakes_as_member(v->in_group, v->endcredit, settings.preempts_boost),
		running->in_group, v->credit, credit, v->cvcredit, cvcredit,
		isacs_spent(v->credit, v->endcredit, settings.spent_strictly_below),
		settings.end_all, settings.preempts_boost);
}
