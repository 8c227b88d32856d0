/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * Is this thread I/O-bound? (V14..V16)
 *
 * One copy of the arithmetic: the BPF Task Detector includes this file, and so
 * does a small shim through which Rust (settings checks, tests, simulator)
 * calls the same code. Plain C integer types only, so it needs no other header
 * and can stand after any of them.
 *
 * The idea: at each context switch the detector adds the time that just passed
 * to one of two sums of the thread's present window,
 *
 *	io_blocked_ns	it slept with in_iowait set or with requests in flight
 *	on_cpu_ns	it ran, without the time its vCPU was stolen meanwhile
 *
 * and when the window is complete
 *
 *	load = io_blocked_ns * 1000 / (io_blocked_ns + on_cpu_ns)
 *
 * V15 divides by the period instead. The two agree on an undisturbed thread.
 * They differ on one that was runnable but not running, or whose vCPU was
 * stolen: with the period below the line, a thread that the host stops for
 * half of the time would look half as I/O-bound, drop out of the set exactly
 * when it needs help, and come back when it no longer does. So that time counts
 * neither way. Time asleep for other reasons (a timer, a lock, a pipe) does not
 * count either; a long sleep of that kind ends the phase (iob_phase_over).
 *
 * Limits: a window that is open while nothing is accounted stays open; who
 * reads the class of a sleeping thread must also ask iob_phase_over.
 */
#ifndef POLICY_IOBOUND_H
#define POLICY_IOBOUND_H

/* Bit 0 of the packed state: the thread is I/O-bound. */
#define IOB_FLAG 1u
/* Above it: how many windows in a row were below the leave threshold. */
#define IOB_LOW_SHIFT 1
#define IOB_LOW_MAX 0x7fffffffu

/*
 * Load level of a window in thousandths, 0..1000, rounded down.
 * A window with nothing in it has load 0.
 */
static inline unsigned int iob_load_permille(unsigned long long io_blocked_ns,
					     unsigned long long on_cpu_ns)
{
	unsigned long long total;

	/*
	 * Keep total * 1000 below 2^64: sums above 2^52 ns (52 days) lose their
	 * low bits, which no ratio in thousandths can show.
	 */
	if ((io_blocked_ns | on_cpu_ns) >> 52) {
		io_blocked_ns >>= 12;
		on_cpu_ns >>= 12;
	}

	total = io_blocked_ns + on_cpu_ns;
	if (!total)
		return 0;
	return (unsigned int)(io_blocked_ns * 1000 / total);
}

/*
 * Is the window that began at start_ns complete at now_ns?
 *
 * Two conditions: it is long enough, and enough of it is accounted. Without the
 * second one a window that a thread spent on a stolen vCPU would be judged by
 * the few microseconds that are left of it; such a window simply goes on.
 */
static inline unsigned int iob_window_complete(unsigned long long start_ns,
					       unsigned long long now_ns,
					       unsigned long long accounted_ns,
					       unsigned long long window_ns,
					       unsigned long long min_accounted_ns)
{
	/* Stamps of two CPUs may be swapped by some nanoseconds. */
	if (now_ns <= start_ns)
		return 0;
	return now_ns - start_ns >= window_ns && accounted_ns >= min_accounted_ns;
}

/*
 * Is it certain already, before its end, that this window will reach the enter
 * threshold?
 *
 * The worst that can still come is that the thread runs for the rest of the
 * window. If the load would reach the threshold even so, waiting for the end
 * decides nothing: the threshold and the window are those of V15, only the
 * verdict is known sooner. Only entering is decided early; a phase ends by
 * complete windows alone.
 *
 * The rest is what is left of window_ns by the clock, and not less than what
 * min_accounted_ns still wants to see: a window goes on until it has that.
 */
static inline unsigned int iob_certain(unsigned long long start_ns, unsigned long long now_ns,
				       unsigned long long io_blocked_ns,
				       unsigned long long on_cpu_ns, unsigned long long window_ns,
				       unsigned long long min_accounted_ns, unsigned int enter)
{
	unsigned long long past = now_ns > start_ns ? now_ns - start_ns : 0, rest, missing;
	unsigned long long accounted = io_blocked_ns + on_cpu_ns;

	/* Sums beyond the window are complete, torn or absurd: not ours to judge. */
	if (past >= window_ns || io_blocked_ns > window_ns || on_cpu_ns > window_ns)
		return 0;
	rest = window_ns - past;
	missing = accounted < min_accounted_ns ? min_accounted_ns - accounted : 0;
	if (rest < missing)
		rest = missing;
	return iob_load_permille(io_blocked_ns, on_cpu_ns + rest) >= enter;
}

/*
 * The packed state after one complete window.
 *
 * In at once: the published period of 5 ms is the whole delay, at most
 * (iob_certain). Out only after
 * leave_windows windows in a row below the lower threshold, because one window
 * of computing between two requests is not the end of an I/O phase, and each
 * exit and re-entry costs a change of affinity.
 *
 * A leave threshold above the enter threshold would flap; it is lowered to it.
 */
static inline unsigned int iob_next(unsigned int state, unsigned int load, unsigned int enter,
				    unsigned int leave, unsigned int leave_windows)
{
	unsigned int low;

	if (!(state & IOB_FLAG))
		return load >= enter ? IOB_FLAG : 0;

	if (leave > enter)
		leave = enter;
	if (load >= leave)
		return IOB_FLAG;

	low = (state >> IOB_LOW_SHIFT) + 1;
	if (low >= leave_windows || low >= IOB_LOW_MAX)
		return 0;
	return low << IOB_LOW_SHIFT | IOB_FLAG;
}

/*
 * Has a sleep that is not on I/O lasted so long that the I/O phase is over?
 * No window completes while a thread sleeps, so this is asked when it wakes and
 * by whoever looks at its class in the meantime. idle_ns 0: never.
 */
static inline unsigned int iob_phase_over(unsigned long long asleep_ns, unsigned long long idle_ns)
{
	return idle_ns && asleep_ns >= idle_ns;
}

/*
 * Is a sleep that is not on I/O so long that it is no part of what a thread does with a
 * request? Such a thread stays where it is if its waker runs there (iob_woken_here).
 * stay_ns 0: never.
 */
static inline unsigned int iob_long_sleep(unsigned long long asleep_ns, unsigned long long stay_ns)
{
	return stay_ns && asleep_ns >= stay_ns;
}

/*
 * Of a thousand long sleeps of a thread, those that were ended from the vCPU on which it
 * slept, after one more: a running mean of four, since there are few of them.
 */
static inline unsigned int iob_woken_here(unsigned int mean, unsigned int here)
{
	return here ? mean + (1000 - mean) / 4 : mean - mean / 4;
}

#endif /* POLICY_IOBOUND_H */
