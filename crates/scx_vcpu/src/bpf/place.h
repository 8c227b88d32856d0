/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a vCPU may be right now: on which pCPU, and whether its cap lets it run.
 *
 * User space gives a vCPU a home (iSche's cores); it goes there the next time that
 * it is put into a queue. A vCPU that has used up its cap waits in a queue of its own
 * until a period is over (K1), and does not count among those that are given credit.
 */
#pragma once

#include "choose.h"
#include "policy_credit1.h"
#include "policy_credit2.h"
#include "rule_cap.h"

/* The pCPU in whose queue `p` belongs. Its affinity comes first. */
static __always_inline s32 place(struct task_struct *p, struct sv_vcpu *v, s32 cpu)
{
	u32 home = v->home;

	if (!home || home > nr_cpu_ids || !bpf_cpumask_test_cpu___k(home - 1, p->cpus_ptr))
		return cpu;
	return home - 1;
}

/* `p` waits on `cpu` for the next period. */
static __always_inline void park(struct task_struct *p, struct sv_vcpu *v, s32 cpu, u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (!pcpu)
		return enqueue_stranger(p, cpu, enq_flags);
	cap_waits(v, pcpu, cpu);
	waits_no_more(v);
	scx_bpf_dsq_insert_vtime___k(p, queue_of(cpu, QUEUE_CAPPED), MIN_REST_NS, ++pcpu->sequence,
				     enq_flags);
}
