/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * What a credit is worth, and what those who count in credits have in common:
 * credit1.h (K1..K8), credit2.h (K9..K15), isacs.h (I1..I19, A1..A6), vslicer.h.
 *
 * One copy of each formula: the host scheduler's BPF programs include these
 * files and call them at each dispatch, and a shim makes the same functions callable
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

/*
 * The longest function. In BPF a function of its own that the verifier walks once, not
 * at each of the many calls: inlined, ISACS had more paths than it follows.
 */
#ifdef __bpf__
#define CREDIT_ONCE __attribute__((noinline))
#else
#define CREDIT_ONCE static inline
#endif

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

/*
 * A turn, when so many others wait: all of them are to have one as long within patience_ns
 * (0: they have all the time), but none is shorter than least_ns for that.
 */
static inline unsigned long long credit_turn_within(unsigned long long turn_ns,
						    unsigned long long waiting,
						    unsigned long long patience_ns,
						    unsigned long long least_ns)
{
	unsigned long long most = patience_ns / (waiting + 1);

	if (!patience_ns)
		return turn_ns;
	if (most < least_ns)
		most = least_ns;
	return turn_ns < most ? turn_ns : most;
}

#endif /* POLICY_CREDIT_H */
