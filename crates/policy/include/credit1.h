/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * Credit1 (K1..K8): the arithmetic. Units, ranges and conditions as in credit.h.
 */
#ifndef POLICY_CREDIT1_H
#define POLICY_CREDIT1_H

#include "credit.h"

/* Priorities of Credit1; a larger one runs first (K3). */
enum credit1_priority {
	CREDIT1_OVER,
	CREDIT1_UNDER,
	CREDIT1_BOOST,
};

/*
 * K3: BOOST > UNDER > OVER. A credit of exactly 0 is not stated; zero_is_under
 * chooses (0: OVER, the vCPU has nothing left to spend).
 */
static inline unsigned int credit1_priority(long long credit, unsigned int boosted,
					    unsigned int zero_is_under)
{
	if (boosted)
		return CREDIT1_BOOST;
	if (credit > 0 || (!credit && zero_is_under))
		return CREDIT1_UNDER;
	return CREDIT1_OVER;
}

/*
 * K5: what a vCPU of this weight is given of pool_ns. Rounded down: the shares
 * of all vCPUs never add up to more than the pool. No weights: nothing.
 */
static inline unsigned long long credit1_share(unsigned long long pool_ns, unsigned int weight,
					       unsigned long long weight_sum)
{
	if (!weight_sum)
		return 0;
	return credit_mul_div(pool_ns, weight, weight_sum);
}

/*
 * Credit after a reallocation. limit_ns (0: none, as the sources say nothing)
 * bounds what a vCPU can save up where more is handed out than is burned.
 */
static inline long long credit1_refill(long long credit, unsigned long long share_ns,
				       unsigned long long limit_ns)
{
	long long refilled = credit_add(credit, share_ns);

	if (limit_ns && limit_ns < (unsigned long long)CREDIT_MAX && refilled > (long long)limit_ns)
		return (long long)limit_ns;
	return refilled;
}

/* Binary digits of credit1_unit() behind the point. */
#define CREDIT1_UNIT_SHIFT 16

/*
 * K5 for the vCPUs of one run queue that hand out what they have burned: what a unit
 * of weight gets, in ns << CREDIT1_UNIT_SHIFT, rounded down. No weights: nothing.
 */
static inline unsigned long long credit1_unit(unsigned long long burned_ns,
					      unsigned long long weight_sum)
{
	if (burned_ns > CREDIT_RAN_MAX)
		burned_ns = CREDIT_RAN_MAX;
	return weight_sum ? (burned_ns << CREDIT1_UNIT_SHIFT) / weight_sum : 0;
}

/* What a vCPU of this weight takes when a unit got so much; ns, rounded down. */
static inline unsigned long long credit1_part(unsigned long long unit, unsigned int weight)
{
	return credit_mul_div(unit, weight, 1ULL << CREDIT1_UNIT_SHIFT);
}

/* What a vCPU that goes to sleep may not keep: all above limit_ns (0: no limit). */
static inline unsigned long long credit1_excess(long long credit, unsigned long long limit_ns)
{
	credit = credit_clamp(credit);
	if (!limit_ns || credit <= 0 || (unsigned long long)credit <= limit_ns)
		return 0;
	return (unsigned long long)credit - limit_ns;
}

/*
 * K4: a sleeping vCPU that an I/O response wakes is boosted. needs_under: only
 * while it has credit left, or a vCPU that sleeps often runs on BOOST for ever.
 */
static inline unsigned int credit1_wakes_boosted(long long credit, unsigned int by_io,
						 unsigned int needs_under,
						 unsigned int zero_is_under)
{
	if (!by_io)
		return 0;
	return !needs_under || credit1_priority(credit, 0, zero_is_under) == CREDIT1_UNDER;
}

/* K4: a higher class preempts a lower one; inside a class there is round robin (K2). */
static inline unsigned int credit1_preempts(unsigned int waking, unsigned int running)
{
	return waking > running;
}

/* K4, K6: 10 ms in BOOST, 30 ms else, whatever the settings say they are. */
static inline unsigned long long credit1_slice(unsigned int priority, unsigned long long slice_ns,
					       unsigned long long boost_ns)
{
	return priority == CREDIT1_BOOST ? boost_ns : slice_ns;
}

/*
 * K1: has a domain with this cap (thousandths of one pCPU, 0: none) used its
 * part of the period? Then it waits for the next one even if pCPUs are idle.
 */
static inline unsigned int credit1_capped(unsigned long long used_ns, unsigned int cap_permille,
					  unsigned long long period_ns)
{
	return cap_permille && used_ns >= credit_mul_div(period_ns, cap_permille, 1000);
}

/*
 * K1: what a capped domain has still used after passed_ns more. A kernel stops it at
 * a tick, so it overruns; the overrun is paid back later instead of being forgiven,
 * or a short period would be worth more than its cap.
 */
static inline unsigned long long credit1_used_after(unsigned long long used_ns,
						    unsigned int cap_permille,
						    unsigned long long passed_ns)
{
	unsigned long long allowed = credit_mul_div(passed_ns, cap_permille, 1000);

	return used_ns > allowed ? used_ns - allowed : 0;
}

/*
 * K1: what a domain has used when it gets a new cap: no more than that one's part of a
 * period, which is over with the next one.
 */
static inline unsigned long long credit1_used_of_new_cap(unsigned long long used_ns,
							 unsigned int cap_permille,
							 unsigned long long period_ns)
{
	unsigned long long allowed = credit_mul_div(period_ns, cap_permille, 1000);

	return used_ns < allowed ? used_ns : allowed;
}

/* How long it may still run in this period; all ones without a cap. */
static inline unsigned long long credit1_cap_left(unsigned long long used_ns,
						  unsigned int cap_permille,
						  unsigned long long period_ns)
{
	unsigned long long allowed;

	if (!cap_permille)
		return ~0ULL;
	allowed = credit_mul_div(period_ns, cap_permille, 1000);
	return allowed > used_ns ? allowed - used_ns : 0;
}

#endif /* POLICY_CREDIT1_H */
