/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Credit1 and Credit2 have in common: charging, and turns that survive a
 * host thread. The arithmetic is in policy's headers, which the simulator and the
 * tests of policy::host call too.
 *
 * A vCPU that a host thread interrupts comes back to our queue with the rest of
 * its turn, not to the kernel's local queue: there a vCPU that a device wakes in
 * the meantime could not overtake it. Devices are served by host threads, so
 * that is the usual way for a vCPU to be woken.
 */
#pragma once

#include "period.h"
#include "turn.h"

/* A thread of SCHED_EXT that is no vCPU, or that found no entry: soon, shortly. */
static __always_inline void enqueue_stranger(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_FIRST), MIN_REST_NS * 10, 0, enq_flags);
}

/* What is left of the turn of `p`, which is being taken off its pCPU. */
static __always_inline void keep_rest(struct sv_vcpu *v, struct task_struct *p,
				      struct sv_pcpu *pcpu, bool runnable)
{
	v->rest_ns = runnable ? rest_of_turn(p, pcpu) : 0;
	if (runnable)
		scx_bpf_task_set_slice___k(p, 0);
}
