/* SPDX-License-Identifier: GPL-2.0 */
/*
 * No pCPU is idle while a vCPU waits elsewhere that may run on it (K7, K14).
 *
 * A vCPU that wakes goes to an idle pCPU if its own is busy, one that has to wait calls
 * an idle pCPU, and a pCPU that finds nobody takes from the others. Under Credit1 one
 * that has only OVER takes an UNDER first, as published, and one without work takes an OVER
 * too, unless it is told not to (`over_stays`). Affinity comes first, and so do
 * homes: iSche's vCPUs stay on the cores of their class, but for an idle I/O core if it
 * is to take others (S8).
 *
 * Load of pCPUs that are all busy is user space's, once a second: Credit2's, also beside
 * ISACS (K14, A8; src/policy/balance.rs), and ISACS' algorithm 2. Rejected: doing that here, where it would
 * be a walk over all vCPUs under a queue's lock to find out who waits how long.
 */
#pragma once

#include "place.h"
#include "steal.h"

/* May vCPUs leave their pCPU? A home says no. */
static __always_inline bool may_roam(struct sv_vcpu *v)
{
	return !v || !v->home;
}

/* The pCPU for `p`, which wakes and belongs on `cpu`. */
static __always_inline s32 free_cpu_for(struct task_struct *p, struct sv_vcpu *v, s32 cpu)
{
	s32 idle;

	if (!may_roam(v))
		return cpu;
	/* It may have been forbidden while `p` slept there: the kernel would choose another one,
	 * and this one would count as busy though nobody comes. */
	if (bpf_cpumask_test_cpu___k(cpu, p->cpus_ptr) && scx_bpf_test_and_clear_cpu_idle___k(cpu))
		return cpu;
	idle = scx_bpf_pick_idle_cpu___k(p->cpus_ptr, 0);
	return idle >= 0 ? idle : cpu;
}

/* `p` was preempted and waits: an idle pCPU may take it. */
static __always_inline void call_idle_for(struct task_struct *p, struct sv_vcpu *v)
{
	s32 idle;

	if (!may_roam(v) && !settings.lends_idle)
		return;
	idle = scx_bpf_pick_idle_cpu___k(p->cpus_ptr, 0);
	if (idle >= 0)
		scx_bpf_kick_cpu___k(idle, SCX_KICK_IDLE);
}

/* `v` runs on `cpu` without having been in its queue. */
static __always_inline void adopt(struct sv_vcpu *v, s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (v->cpu == cpu)
		return;
	if (has_credit1())
		credit1_move(v, cpu);
	else if (settings.policy == SV_CREDIT2 && pcpu)
		credit2_move(v, pcpu, cpu);
	v->cpu = cpu;
}
