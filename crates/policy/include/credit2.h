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

/* Resets that leave nothing of a debt when they add to it, 1 if they add nothing; divided,
 * since BPF has no loop for it. */
static inline unsigned long long credit2_rounds(long long credit, unsigned long long default_ns)
{
	if (credit >= 0)
		return 0;
	if (!default_ns)
		return 1;
	if (default_ns > (unsigned long long)CREDIT_MAX)
		default_ns = CREDIT_MAX;
	return ((unsigned long long)-credit_clamp(credit) + default_ns - 1) / default_ns;
}

/* K12: so many resets until the one with most credit may run. */
static inline unsigned long long credit2_resets_due(long long most, unsigned long long default_ns,
						    unsigned int adds, unsigned int at_zero)
{
	unsigned long long rounds;

	if (!credit2_reset_due(most, at_zero))
		return 0;
	rounds = credit2_rounds(most, default_ns);
	if (!adds || !rounds)
		return 1;
	/* It comes to exactly nothing, and nothing is not enough. */
	if (at_zero && !credit_add(most, rounds * default_ns))
		rounds++;
	return rounds;
}

/* K12: credit after so many resets. */
static inline long long credit2_after(long long credit, unsigned long long resets,
				      unsigned long long default_ns, unsigned int adds)
{
	unsigned long long rounds;

	if (!resets)
		return credit;
	/* All but the last one add to a debt and leave the rest as it will be. */
	if (adds) {
		rounds = credit2_rounds(credit, default_ns);
		if (rounds > resets - 1)
			rounds = resets - 1;
		credit = credit_add(credit, rounds * default_ns);
	}
	return credit2_reset(credit, default_ns, adds);
}

/*
 * K9's order among those that wait: what a credit is worth there. All debtors are equal
 * where resets replace: none of them runs before the next reset, and that one gives all
 * the same. Equals take turns. Rejected: their debts. A vCPU that a late timer let run too
 * long would wait for all others until the reset, and for each of them once more after it.
 */
static inline long long credit2_rank(long long credit, unsigned int adds, unsigned int at_zero)
{
	if (adds || !credit2_reset_due(credit, at_zero))
		return credit;
	return at_zero ? 0 : -1;
}

#endif /* POLICY_CREDIT2_H */
