/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * ISACS (I1..I19, A1..A6, equations (1) to (4)): the arithmetic, on top of Credit2's.
 * Units, ranges and conditions as in credit.h.
 */
#ifndef POLICY_ISACS_H
#define POLICY_ISACS_H

#include "credit2.h"

/*
 * Equation (1), EMA_e = 0.9 I_e + 0.1 EMA_(e-1), with the 0.9 on the newest
 * interval (I5), rounded down. first: there is none before; EMA = I_e (I6).
 */
static inline unsigned long long isacs_ema(unsigned long long interval_ns,
					   unsigned long long ema_ns, unsigned int first)
{
	if (first)
		return interval_ns;
	if (interval_ns > CREDIT_RAN_MAX)
		interval_ns = CREDIT_RAN_MAX;
	if (ema_ns > CREDIT_RAN_MAX)
		ema_ns = CREDIT_RAN_MAX;
	return (9 * interval_ns + ema_ns) / 10;
}

/* I6: an interval above the cut-off (10 ms) is not used. */
static inline unsigned int isacs_interval_counts(unsigned long long interval_ns,
						 unsigned long long cutoff_ns)
{
	return interval_ns <= cutoff_ns;
}

/*
 * I7: I/O strength E_n * EMA, a time. limit_ns (0: none, as published) bounds it
 * by the time it was collected in: with 0.9 on the newest interval many close
 * events and one late one look like much more time than has passed.
 */
static inline unsigned long long
isacs_strength(unsigned long long events, unsigned long long ema_ns, unsigned long long limit_ns)
{
	unsigned long long strength = credit_mul_div(events, ema_ns, 1);

	return limit_ns && strength > limit_ns ? limit_ns : strength;
}

/*
 * Equation (2): strength * consumed / sum of what all vCPUs of the queue
 * consumed (I8). product is 1, or the product of all cc_i to compute the formula
 * as printed. Nothing consumed (I11) or nothing strong: 0.
 */
static inline unsigned long long isacs_ivcredit(unsigned long long strength_ns,
						unsigned long long consumed_ns,
						unsigned long long sum_ns,
						unsigned long long product)
{
	unsigned long long ivcredit;

	if (!sum_ns)
		return 0;
	ivcredit = credit_mul_div(strength_ns, consumed_ns, sum_ns);
	if (product != 1)
		ivcredit = credit_mul_div(ivcredit, product, 1);
	return ivcredit > (unsigned long long)CREDIT_MAX ? (unsigned long long)CREDIT_MAX
							 : ivcredit;
}

/*
 * Equation (3): does this vCPU join the CPU-BOOST group? Its IVCredit + 1 is
 * below the mean IVCredit of the nr_io vCPUs that have some (I12). unit_ns is
 * what the 1 is worth. Nobody has any: nobody joins (I15).
 */
static inline unsigned int isacs_joins_boost(unsigned long long sum_ivcredit, unsigned int nr_io,
					     unsigned long long ivcredit,
					     unsigned long long unit_ns)
{
	unsigned long long mean;

	if (!nr_io)
		return 0;
	mean = sum_ivcredit / nr_io;
	if (ivcredit > ~0ULL - unit_ns)
		return 0;
	ivcredit += unit_ns;
	/* sum / nr > ivcredit: compare the remainder too, the mean is rounded down. */
	return mean > ivcredit || (mean == ivcredit && sum_ivcredit % nr_io);
}

/*
 * Equation (4): CVCredit = (sum of IVCredit / group size) * consumed / default.
 * An empty group or no default: 0 (I15).
 */
static inline unsigned long long isacs_cvcredit(unsigned long long sum_ivcredit, unsigned int group,
						unsigned long long consumed_ns,
						unsigned long long default_ns)
{
	unsigned long long cvcredit;

	if (!group || !default_ns)
		return 0;
	cvcredit = credit_mul_div(sum_ivcredit / group, consumed_ns, default_ns);
	return cvcredit > (unsigned long long)CREDIT_MAX ? (unsigned long long)CREDIT_MAX
							 : cvcredit;
}

/* I16: credit after a reallocation; the IVCredit is also the end credit. */
static inline long long isacs_credit(unsigned long long default_ns, unsigned long long ivcredit)
{
	return credit_add(credit_add(0, default_ns), ivcredit);
}

/*
 * I17: has this vCPU used what it may? Algorithm 1 says <=, the prose <. With
 * I16 that is default - consumed against 0, the same for every vCPU.
 */
static inline unsigned int isacs_spent(long long credit, long long endcredit,
				       unsigned int strictly_below)
{
	return strictly_below ? credit < endcredit : credit <= endcredit;
}

/* I18, A1: is the CPU-BOOST state over? The prose says below 0, our reading <= 0. */
static inline unsigned int isacs_boost_over(long long cvcredit, unsigned int strictly_below)
{
	return strictly_below ? cvcredit < 0 : cvcredit <= 0;
}

/* I18: members of the group burn CVCredit in phase 2, everybody else credit. */
static inline unsigned int isacs_burns_cvcredit(unsigned int cpu_boost, unsigned int in_group)
{
	return cpu_boost && in_group;
}

/* What it may still burn where it is: CVCredit, or credit down to the end credit (I16). */
static inline long long isacs_left(unsigned int burns_cvcredit, long long credit,
				   long long endcredit, long long cvcredit)
{
	if (burns_cvcredit)
		return cvcredit;
	return credit_burn(credit, endcredit > 0 ? (unsigned long long)endcredit : 0);
}

/* What a vCPU used beyond its limit (keeps_debt). */
static inline unsigned long long isacs_debt(long long credit, long long endcredit)
{
	credit = credit_clamp(credit);
	endcredit = credit_clamp(endcredit);
	return endcredit > credit ? (unsigned long long)(endcredit - credit) : 0;
}

/*
 * Does a vCPU that wakes in phase 2 compare CVCredits with other members? Not if
 * it does I/O as well (I14: one that holds both credits) and such a vCPU preempts
 * (A6): the little CPU time that it uses is worth little CVCredit.
 */
static inline unsigned int isacs_wakes_as_member(unsigned int in_group, long long endcredit,
						 unsigned int preempts_boost)
{
	return in_group && !(preempts_boost && endcredit > 0);
}

/*
 * Does a vCPU that wakes run before the one that runs? K10 in phase 1, but one
 * that is through does not if all have to be (end_all). In phase 2 members
 * compare CVCredits and precede others, or are preempted by them (A6).
 */
static inline unsigned int isacs_wakes_before(unsigned int cpu_boost, unsigned int waking_as_member,
					      unsigned int running_in_group, long long waking,
					      long long running, long long waking_cv,
					      long long running_cv, unsigned int waking_spent,
					      unsigned int end_all, unsigned int preempts_boost)
{
	if (!cpu_boost)
		return !(end_all && waking_spent) && credit2_preempts(waking, running);
	if (waking_as_member && running_in_group)
		return credit2_preempts(waking_cv, running_cv);
	if (waking_as_member)
		return !preempts_boost;
	if (running_in_group)
		return preempts_boost;
	return credit2_preempts(waking, running);
}

#endif /* POLICY_ISACS_H */
