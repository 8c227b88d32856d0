/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * Credit2 (K9..K15): the arithmetic. Units, ranges and conditions as in credit.h.
 */
#ifndef POLICY_CREDIT2_H
#define POLICY_CREDIT2_H

#include "credit.h"

/*
 * K11: the higher the weight, the slower credit burns: ran * reference / weight.
 * Rounded up: time that is used in crumbs is not free. Weight 0 counts as 1.
 */
static inline unsigned long long credit2_cost(unsigned long long ran_ns, unsigned int weight,
					      unsigned int reference)
{
	if (ran_ns > CREDIT_RAN_MAX)
		ran_ns = CREDIT_RAN_MAX;
	if (reference > CREDIT_WEIGHT_MAX)
		reference = CREDIT_WEIGHT_MAX;
	if (!weight)
		weight = 1;
	return (ran_ns * reference + weight - 1) / weight;
}

/* How long a vCPU of this weight can run on this credit; the inverse, rounded up. */
static inline unsigned long long credit2_lasts(long long credit, unsigned int weight,
					       unsigned int reference)
{
	unsigned long long left;

	if (credit <= 0)
		return 0;
	left = (unsigned long long)credit;
	if (left > CREDIT_RAN_MAX)
		left = CREDIT_RAN_MAX;
	if (weight > CREDIT_WEIGHT_MAX)
		weight = CREDIT_WEIGHT_MAX;
	if (!reference)
		reference = 1;
	return (left * weight + reference - 1) / reference;
}

/* K10: more credit preempts at once; as much does not. */
static inline unsigned int credit2_preempts(long long waking, long long running)
{
	return waking > running;
}

/* K12: the one that would run next has less than nothing (at_zero: nothing) left. */
static inline unsigned int credit2_reset_due(long long next, unsigned int at_zero)
{
	return next < 0 || (at_zero && !next);
}

/*
 * K12: credit after a reset. Not stated whether the default is added or replaces
 * the old credit; ISACS' algorithm 1 replaces. adds: a debt is carried over, a
 * surplus is not, so nobody gains by ending a round deep in debt.
 */
static inline long long credit2_reset(long long credit, unsigned long long default_ns,
				      unsigned int adds)
{
	if (adds && credit < 0)
		return credit_add(credit, default_ns);
	return credit_add(0, default_ns);
}

#endif /* POLICY_CREDIT2_H */
