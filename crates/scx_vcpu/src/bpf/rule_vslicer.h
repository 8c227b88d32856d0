/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who is next under vSlicer, as policy::host::vslicer: rounds in which each vCPU of
 * a pCPU may run for one slice, a latency-sensitive one in several short turns that
 * come due at equal distances.
 *
 * Works on the table alone and calls nothing of sched_ext, so that a kernel without
 * it can replay a stream of events through this very code (replay.bpf.c).
 *
 * Limits: a decision looks at the whole table, twice. A vCPU that moves to another
 * pCPU brings what it has left into that one's round.
 */
#pragma once

#include "members.h"
#include "settings.h"

#include "vslicer.h"

struct vslicer_scan {
	u32 cpu;
	/* The one that ran and can run on; 0: none. */
	u32 self;
	u32 members;
	/* Those that could run. */
	u32 ready;
	u32 best;
	u64 positions;
	u64 cursor;
	u64 used_ns;
	u64 most_left_ns;
	u64 best_rank;
	u64 cut_ns;
};

/* A turn of a latency-sensitive vCPU. */
static __always_inline u64 vslicer_micro_ns(struct sv_vcpu *v)
{
	u64 micro_ns = own_slice(v, settings.micro_ns);

	return micro_ns < settings.slice_ns ? micro_ns : settings.slice_ns;
}

static __always_inline u64 vslicer_due_of(struct sv_vcpu *v, u32 members)
{
	return vslicer_due(v->left_ns, members, settings.slice_ns, vslicer_micro_ns(v));
}

/* How many live here, and what those who could run have left. */
static long vslicer_count(u32 position, struct vslicer_scan *scan)
{
	struct sv_vcpu *v = member_at(position, scan->cpu);

	if (!v)
		return 0;
	scan->members++;
	if (!v->queued && position + 1 != scan->self)
		return 0;
	scan->ready++;
	if (v->left_ns > scan->most_left_ns)
		scan->most_left_ns = v->left_ns;
	return 0;
}

static long vslicer_begin(u32 position, struct vslicer_scan *scan)
{
	struct sv_vcpu *v = member_at(position, scan->cpu);
	u64 pays;

	if (!v)
		return 0;
	pays = vslicer_pays(v->owed_ns, settings.slice_ns);
	v->owed_ns -= pays;
	v->left_ns = settings.slice_ns - pays;
	return 0;
}

static long vslicer_choose(u32 position, struct vslicer_scan *scan)
{
	struct sv_vcpu *v = member_at(position, scan->cpu);
	u64 due, rank, cut;

	if (!v)
		return 0;
	due = vslicer_due_of(v, scan->members);
	cut = vslicer_cut(v->class, v->left_ns, due, scan->used_ns);
	if (cut < scan->cut_ns)
		scan->cut_ns = cut;
	if (!v->queued && position + 1 != scan->self)
		return 0;
	rank = vslicer_rank(v->class, v->left_ns, due, scan->used_ns,
			    (position + scan->positions - scan->cursor) % scan->positions);
	if (!scan->best || rank < scan->best_rank) {
		scan->best = position + 1;
		scan->best_rank = rank;
	}
	return 0;
}

/*
 * The one of `cpu` that runs next, as position plus one; for how long is in turn_ns.
 * `self` ran, is charged and can run on; 0: nobody. 0 if nobody can run.
 */
WALKED_ONCE u32 vslicer_pick(u32 cpu, u32 self)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct vslicer_scan scan = {
		.cpu = cpu, .self = self, .positions = nr_slots, .cut_ns = VSLICER_NEVER};
	struct sv_vcpu *v;

	if (!pcpu || !scan.positions || scan.positions > MAX_VCPUS)
		return 0;
	bpf_loop(scan.positions, vslicer_count, &scan, 0);
	pcpu->members = scan.members;
	if (!scan.ready)
		return 0;
	if (!scan.most_left_ns) {
		pcpu->round_used_ns = 0;
		pcpu->cursor++;
		bpf_loop(scan.positions, vslicer_begin, &scan, 0);
	}
	scan.used_ns = pcpu->round_used_ns;
	scan.cursor = pcpu->cursor % scan.positions;
	bpf_loop(scan.positions, vslicer_choose, &scan, 0);
	v = entry_of(scan.best);
	if (!v)
		return 0;
	if (v->class == SV_CPU)
		/* It is continued after the micro slice that cuts it. */
		pcpu->cursor = scan.best - 1;
	pcpu->turn_ns = vslicer_length(v->class, v->left_ns, scan.cut_ns, settings.slice_ns,
				       vslicer_micro_ns(v));
	return scan.best;
}

static __always_inline void vslicer_charge(struct sv_vcpu *v, u64 ran_ns)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	v->owed_ns = vslicer_owes(v->left_ns, v->owed_ns, ran_ns, settings.slice_ns);
	v->left_ns = v->left_ns > ran_ns ? v->left_ns - ran_ns : 0;
	if (pcpu)
		pcpu->round_used_ns += ran_ns;
}

/* Does `v`, which wakes, preempt the one that has run for `ran_ns` since its charge? */
static __always_inline bool vslicer_wakes_before(struct sv_vcpu *v, struct sv_vcpu *running,
						 struct sv_pcpu *pcpu, u64 ran_ns)
{
	return vslicer_preempts(running->class, v->class, v->left_ns,
				vslicer_due_of(v, pcpu->members), pcpu->round_used_ns + ran_ns);
}
