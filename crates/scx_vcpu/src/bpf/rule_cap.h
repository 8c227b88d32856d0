/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Credit of a vCPU that waits because its cap is used up (K1), and its place among those
 * that may run when a period is over.
 *
 * Works on the table alone and calls nothing of sched_ext, so that a kernel without it
 * can replay a stream of events through this very code (replay.bpf.c). Which queue it is
 * in meanwhile is place.h's.
 */
#pragma once

#include "bits.h"
#include "rule_credit1.h"
#include "rule_credit2.h"

static __always_inline bool has_credit1(void)
{
	return settings.policy == SV_CREDIT1 || settings.policy == SV_ISCHE;
}

/* pCPUs where vCPUs wait for their caps: who has no work looks at these only. */
u64 parked_cpus[MAX_CPUS / 64];

/* It waits no longer for its cap, or never did; whether it had. Only one of those who ask
 * at the same moment, on different pCPUs, hears so. */
static __always_inline bool cap_over(struct sv_vcpu *v)
{
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	if (!v->parked || __sync_val_compare_and_swap(&v->parked, 1, 0) != 1)
		return false;
	if (pcpu)
		__sync_fetch_and_sub(&pcpu->parked, 1);
	return true;
}

/* It waits on `cpu` for the next period, and is given nothing meanwhile. */
static __always_inline void cap_waits(struct sv_vcpu *v, struct sv_pcpu *pcpu, s32 cpu)
{
	cap_over(v);
	if (has_credit1())
		credit1_sleep(v);
	else if (settings.policy == SV_CREDIT2)
		credit2_move(v, pcpu, cpu);
	v->cpu = cpu;
	v->rest_ns = 0;
	bits_join(parked_cpus, &pcpu->parked, cpu);
	v->parked = 1;
}

/* Credit2: it may run again on the pCPU where it waited; its place there. */
static __always_inline u64 credit2_returns(struct sv_vcpu *v, struct sv_pcpu *pcpu)
{
	credit2_take(v, pcpu);
	return credit2_place(v, pcpu);
}
