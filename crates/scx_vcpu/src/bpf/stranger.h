/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads of SCHED_EXT that are no vCPUs, or that found no entry in the table.
 *
 * Problem: nobody needs a privilege to make his thread SCHED_EXT (kernel/sched/syscalls.c
 * asks for none), and our policies have no share for it. Before all vCPUs, two of them that
 * compute kept every vCPU from their pCPU until the kernel's watchdog ended us; after
 * all vCPUs, they would wait for ever themselves, and the watchdog would as well.
 *
 * Idea: in turn. They have a queue of their own; when a turn of a vCPU is over one of them
 * comes first, for STRANGER_TURN_NS, and then a vCPU if one waits. So all strangers of a
 * pCPU together have no more of it than that in each turn of a vCPU.
 *
 * Limits: the kernel looks at its tick whether that time is over.
 *
 * Under `fixed` they wait among the vCPUs: everybody has one turn in a round there.
 */
#pragma once

#include "queue.h"
#include "waiting.h"

#define STRANGER_TURN_NS 1000000ULL

static __always_inline void enqueue_stranger(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	stranger_waits_on(cpu);
	scx_bpf_dsq_insert___v2___k(p, queue_of(cpu, QUEUE_STRANGERS), STRANGER_TURN_NS, enq_flags);
}

static __always_inline bool take_stranger(s32 cpu, struct sv_pcpu *pcpu)
{
	return pcpu->strangers &&
	       scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_STRANGERS), 0);
}

/* How many wait on `cpu`. */
static __always_inline u32 strangers_on(s32 cpu, struct sv_pcpu *pcpu)
{
	enum queue queue = settings.policy == SV_FIXED ? QUEUE_FIRST : QUEUE_STRANGERS;

	return pcpu->strangers ? scx_bpf_dsq_nr_queued___k(queue_of(cpu, queue)) : 0;
}
