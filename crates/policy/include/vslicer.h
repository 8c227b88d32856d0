/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * vSlicer (SL1..SL7) at a dispatch: when a turn is due, who comes first, how long.
 * The rules are explained in policy::host::vslicer, which calls these functions as
 * the host scheduler's BPF programs do. Conditions as in credit.h: plain integers,
 * no state, no loops, every value accepted. Times in ns.
 */
#ifndef POLICY_VSLICER_H
#define POLICY_VSLICER_H

#include "credit.h"

/* Rank of one that may not run any more in this round, and "never". */
#define VSLICER_NEVER (~0ULL)
/* Ranks: a turn that is due, below an ordinary vCPU, below a turn that comes early. */
#define VSLICER_ORDINARY (1ULL << 62)
#define VSLICER_EARLY (1ULL << 63)

/* m: turns of a latency-sensitive vCPU per round, at least one. */
static inline unsigned long long vslicer_turns(unsigned long long slice_ns,
					       unsigned long long micro_ns)
{
	unsigned long long turns = slice_ns / (micro_ns ? micro_ns : 1);

	return turns ? turns : 1;
}

/* What it has run of its slice in this round. */
static inline unsigned long long vslicer_had(unsigned long long left_ns,
					     unsigned long long slice_ns)
{
	return slice_ns > left_ns ? slice_ns - left_ns : 0;
}

/*
 * When its next turn is due, as time that all have used in the round: turn k of m
 * at k/m of a round, which is one slice for each of the members.
 */
static inline unsigned long long vslicer_due(unsigned long long left_ns, unsigned long long members,
					     unsigned long long slice_ns,
					     unsigned long long micro_ns)
{
	unsigned long long had = vslicer_had(left_ns, slice_ns) / (micro_ns ? micro_ns : 1);

	return credit_mul_div(credit_mul_div(slice_ns, members, 1), had,
			      vslicer_turns(slice_ns, micro_ns));
}

static inline unsigned int vslicer_is_due(unsigned int sensitive, unsigned long long left_ns,
					  unsigned long long due_ns, unsigned long long used_ns)
{
	return sensitive && left_ns && due_ns <= used_ns;
}

/*
 * The lowest rank runs: the longest overdue turn, else the ordinary vCPU that is
 * nearest behind the one that ran last (distance, in table positions), else the
 * turn that comes due first. Equals: the lower position.
 */
static inline unsigned long long vslicer_rank(unsigned int sensitive, unsigned long long left_ns,
					      unsigned long long due_ns, unsigned long long used_ns,
					      unsigned long long distance)
{
	if (!left_ns)
		return VSLICER_NEVER;
	if (!sensitive)
		return VSLICER_ORDINARY | (distance & (VSLICER_ORDINARY - 1));
	if (due_ns > VSLICER_ORDINARY - 1)
		due_ns = VSLICER_ORDINARY - 1;
	return vslicer_is_due(sensitive, left_ns, due_ns, used_ns) ? due_ns
								   : VSLICER_EARLY | due_ns;
}

/* How long an ordinary vCPU can run until this one's turn cuts it. */
static inline unsigned long long vslicer_cut(unsigned int sensitive, unsigned long long left_ns,
					     unsigned long long due_ns, unsigned long long used_ns)
{
	return sensitive && left_ns && due_ns > used_ns ? due_ns - used_ns : VSLICER_NEVER;
}

/* The rest of the present micro slice. */
static inline unsigned long long vslicer_micro_left(unsigned long long left_ns,
						    unsigned long long slice_ns,
						    unsigned long long micro_ns)
{
	unsigned long long rest;

	if (!micro_ns)
		micro_ns = 1;
	rest = micro_ns - vslicer_had(left_ns, slice_ns) % micro_ns;
	return rest < left_ns ? rest : left_ns;
}

/* How long the chosen one may run; cut_ns: the smallest vslicer_cut of all members. */
static inline unsigned long long vslicer_length(unsigned int sensitive, unsigned long long left_ns,
						unsigned long long cut_ns,
						unsigned long long slice_ns,
						unsigned long long micro_ns)
{
	if (sensitive)
		return vslicer_micro_left(left_ns, slice_ns, micro_ns);
	return left_ns < cut_ns ? left_ns : cut_ns;
}

/*
 * A turn lasts until its pCPU has heard of its end, and that is later for a guest whose
 * device interrupts it all the time. What it ran beyond its slice is owed, or it would gain
 * that in each round. One slice at most: what a stalled machine charges to whoever ran is
 * not of its making.
 */
static inline unsigned long long vslicer_owes(unsigned long long left_ns,
					      unsigned long long owed_ns, unsigned long long ran_ns,
					      unsigned long long slice_ns)
{
	unsigned long long over = ran_ns > left_ns ? ran_ns - left_ns : 0;

	if (over > slice_ns || owed_ns > slice_ns - over)
		return slice_ns;
	return owed_ns + over;
}

/* What it pays of that when a round begins: half of its slice at most, so that nobody's
 * round is empty. */
static inline unsigned long long vslicer_pays(unsigned long long owed_ns,
					      unsigned long long slice_ns)
{
	return owed_ns < slice_ns / 2 ? owed_ns : slice_ns / 2;
}

/* A latency-sensitive vCPU whose turn is due preempts an ordinary one when it wakes. */
static inline unsigned int vslicer_preempts(unsigned int running_sensitive, unsigned int sensitive,
					    unsigned long long left_ns, unsigned long long due_ns,
					    unsigned long long used_ns)
{
	return !running_sensitive && vslicer_is_due(sensitive, left_ns, due_ns, used_ns);
}

#endif /* POLICY_VSLICER_H */
