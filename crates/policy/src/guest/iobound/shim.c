/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/* Gives the static inline functions of iobound.h a symbol that Rust can call. */
#include "iobound.h"

unsigned int policy_iob_load_permille(unsigned long long io_blocked_ns,
				      unsigned long long on_cpu_ns)
{
	return iob_load_permille(io_blocked_ns, on_cpu_ns);
}

unsigned int policy_iob_window_complete(unsigned long long start_ns, unsigned long long now_ns,
					unsigned long long accounted_ns,
					unsigned long long window_ns,
					unsigned long long min_accounted_ns)
{
	return iob_window_complete(start_ns, now_ns, accounted_ns, window_ns, min_accounted_ns);
}

unsigned int policy_iob_certain(unsigned long long start_ns, unsigned long long now_ns,
				unsigned long long io_blocked_ns, unsigned long long on_cpu_ns,
				unsigned long long window_ns, unsigned long long min_accounted_ns,
				unsigned int enter)
{
	return iob_certain(start_ns, now_ns, io_blocked_ns, on_cpu_ns, window_ns, min_accounted_ns,
			   enter);
}

unsigned int policy_iob_next(unsigned int state, unsigned int load, unsigned int enter,
			     unsigned int leave, unsigned int leave_windows)
{
	return iob_next(state, load, enter, leave, leave_windows);
}

unsigned int policy_iob_phase_over(unsigned long long asleep_ns, unsigned long long idle_ns)
{
	return iob_phase_over(asleep_ns, idle_ns);
}

unsigned int policy_iob_long_sleep(unsigned long long asleep_ns, unsigned long long stay_ns)
{
	return iob_long_sleep(asleep_ns, stay_ns);
}

unsigned int policy_iob_woken_here(unsigned int mean, unsigned int here)
{
	return iob_woken_here(mean, here);
}
