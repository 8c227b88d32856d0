/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * What a credit is worth: the arithmetic of Credit1 (K1..K8), Credit2 (K9..K15)
 * and ISACS (I1..I19, A1..A6, equations (1) to (4)).
 *
 * One copy of each formula: the host scheduler's BPF programs include this file
 * and call it at each dispatch, and a shim makes the same functions callable
 * from Rust (policy::host, the simulator, the tests). Plain C integer types
 * only, no state, no loops, no signed division, no 128-bit arithmetic: all of
 * that is what BPF does not have everywhere.
 *
 * The unit of a credit is the nanosecond of CPU time at the reference weight
 * (I9: a credit is a time). Durations are unsigned, credits signed. Every
 * function accepts every value: credits are clamped to +-CREDIT_MAX, so sums of
 * two never overflow, and a denominator of zero has a stated result.
 */
#ifndef POLICY_CREDIT_H
#define POLICY_CREDIT_H

/* The largest credit, about 36 years: no time that is measured comes near. */
#define CREDIT_MAX (1LL << 60)
/* The longest duration that is charged at once, 39 hours; keeps products in 64 bits. */
#define CREDIT_RAN_MAX (1ULL << 47)
/* The largest weight; Xen's is 65535. */
#define CREDIT_WEIGHT_MAX (1U << 16)

/* Priorities of Credit1; a larger one runs first (K3). */
enum credit1_priority {
	CREDIT1_OVER,
	CREDIT1_UNDER,
	CREDIT1_BOOST,
};

/*
 * The longest function. In BPF a function of its own that the verifier walks once, not
 * at each of the many calls: inlined, ISACS had more paths than it follows.
 */
#ifdef __bpf__
#define CREDIT_ONCE __attribute__((noinline))
#else
#define CREDIT_ONCE static inline
#endif

/* ---- common ---- */

static inline long long credit_clamp(long long credit)
{
	if (credit > CREDIT_MAX)
		return CREDIT_MAX;
	return credit < -CREDIT_MAX ? -CREDIT_MAX : credit;
}

/* credit + ns, clamped. */
static inline long long credit_add(long long credit, unsigned long long ns)
{
	if (ns > (unsigned long long)CREDIT_MAX)
		ns = CREDIT_MAX;
	return credit_clamp(credit_clamp(credit) + (long long)ns);
}

/* credit - ns, clamped: K5, credit burns while running. */
static inline long long credit_burn(long long credit, unsigned long long ns)
{
	if (ns > (unsigned long long)CREDIT_MAX)
		ns = CREDIT_MAX;
	return credit_clamp(credit_clamp(credit) - (long long)ns);
}

/* The factor a * b / c of times and shares; all ones if it does not fit or c is 0.
 *
 * Rounded down and exact while a * b, or the smaller factor times the remainder
 * of the larger one by c, is below 2^64: always with two values below 4.29 s.
 * Beyond that low bits of the remainder and of c are dropped: with a smaller factor
 * below 2^48 (3 days) the result is too small by less than 2^-14 of it.
 */
CREDIT_ONCE unsigned long long credit_mul_div(unsigned long long a, unsigned long long b,
					      unsigned long long c)
{
	unsigned long long max = ~0ULL, quotient, rest, high, low;
	unsigned int bits;

	/* Or clang makes a 128-bit product of the test for overflow, which BPF has not. */
	__asm__("" : "+r"(max));

	if (!c)
		return max;
	if (!a || !b)
		return 0;
	if (a < b) {
		rest = a;
		a = b;
		b = rest;
	}
	if (a <= max / b)
		return a * b / c;

	quotient = a / c;
	rest = a % c;
	if (quotient > max / b)
		return max;
	high = quotient * b;
	if (!rest)
		return high;
	if (rest > max / b) {
		bits = 64 - (unsigned int)__builtin_clzll(rest) - (unsigned int)__builtin_clzll(b);
		if (bits > 63)
			bits = 63;
		rest >>= bits;
		/* rest < c, so c keeps at least as many bits; rounded up against too much. */
		c = (c >> bits) + 1;
	}
	low = rest * b / c;
	return high > max - low ? max : high + low;
}

/* ---- Credit1 ---- */

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
 * bounds what a vCPU that sleeps can save up.
 */
static inline long long credit1_refill(long long credit, unsigned long long share_ns,
				       unsigned long long limit_ns)
{
	long long refilled = credit_add(credit, share_ns);

	if (limit_ns && limit_ns < (unsigned long long)CREDIT_MAX && refilled > (long long)limit_ns)
		return (long long)limit_ns;
	return refilled;
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

/* ---- Credit2 ---- */

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

/* ---- ISACS ---- */

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
 * Does a vCPU that wakes run before the one that runs? K10 in phase 1, but one
 * that is through does not if all have to be (end_all). In phase 2 members
 * compare CVCredits and precede others, or are preempted by them (A6).
 */
static inline unsigned int isacs_wakes_before(unsigned int cpu_boost, unsigned int waking_in_group,
					      unsigned int running_in_group, long long waking,
					      long long running, long long waking_cv,
					      long long running_cv, unsigned int waking_spent,
					      unsigned int end_all, unsigned int preempts_boost)
{
	if (!cpu_boost)
		return !(end_all && waking_spent) && credit2_preempts(waking, running);
	if (waking_in_group && running_in_group)
		return credit2_preempts(waking_cv, running_cv);
	if (waking_in_group)
		return !preempts_boost;
	if (running_in_group)
		return preempts_boost;
	return credit2_preempts(waking, running);
}

#endif /* POLICY_CREDIT_H */
