/* SPDX-License-Identifier: GPL-2.0 */
/*
 * I/O inactivity: time in which an I/O-bound task was ready to run, or had its
 * completion pending, on a vCPU that was away.
 *
 * It is booked when that vCPU is back, for until then nobody knows when it went. A task
 * that is still there has lost the gap since it became ready there. What it did
 * there that is over by then (struct stay) is kept with it, until a gap of that vCPU
 * shows how much of it was lost:
 *
 *   - it was carried to another vCPU from the queue of one that is away;
 *   - by heartbeat only: it ran, or its completion was due. The steal counter
 *     has shown the gap before the first change after it, but the monitor whose beat is late
 *     runs only when the interrupts that fell due have woken, and it has preempted.
 *
 * Rejected: to book a task's wait when it gets to run. By then it may have waited
 * on several vCPUs, one of them still away.
 *
 * Limit: of the stays that ended in one gap the last STAYS are kept.
 */
#pragma once

/* A shorter wait in a queue that a task left is not worth a place: most are the
 * microsecond between a wake-up and the choice of another vCPU. */
#define LEAST_STAY_NS 10000

static __always_inline void stayed(struct task_slot *s, u32 cpu, u64 from, u64 to, u64 least)
{
	struct stay *stay;

	if (to < from + least)
		return;
	stay = &s->stays[s->nr_stays++ & (STAYS - 1)];
	stay->from_ns = from;
	stay->to_ns = to;
	stay->cpu = cpu;
}

/* Since when has it been ready where it is? */
static __always_inline u64 ready_since(struct task_slot *s)
{
	return s->here_ns > s->since_ns ? s->here_ns : s->since_ns;
}

/* A task that is ready to run was carried to another vCPU. */
static __always_inline void carried(struct task_slot *s, u32 cpu, u64 now)
{
	stayed(s, s->cpu, ready_since(s), now, LEAST_STAY_NS);
	s->cpu = cpu;
	s->here_ns = now;
}

static __always_inline void lost(struct task_slot *s, u64 ns)
{
	/* Two vCPUs may be back at once. */
	if (ns)
		__sync_fetch_and_add(&s->inactive_ns, ns);
}

/* How much of that time fell into the gap? */
static __always_inline u64 within(struct gap *g, u64 from, u64 to)
{
	if (from < g->out_ns)
		from = g->out_ns;
	if (to > g->back_ns)
		to = g->back_ns;
	return to > from ? to - from : 0;
}

/* What did the task in a slot lose to the gap that has just ended on this vCPU? One that
 * sleeps is asked when its completion arrives. */
VERIFIED_ONCE int account_slot(u32 slot, u32 cpu)
{
	struct task_slot *s = &tasks[slot & (MAX_TASKS - 1)];
	struct vcpu_slot *v = &vcpus[cpu & (MAX_VCPUS - 1)];
	struct gap *g = &v->gaps[(v->nr_gaps - 1) & (GAP_HISTORY - 1)];
	u64 ns = 0;
	u32 i;

	if (s->state != SLOT_LIVE)
		return 0;
	if (s->cpu == cpu) {
		if (s->activity == ACT_RUNNING)
			ns = g->back_ns - g->out_ns;
		else if (s->activity == ACT_QUEUED || s->activity == ACT_WAKING)
			ns = within(g, ready_since(s), g->back_ns);
	}
	for (i = 0; i < STAYS; i++) {
		struct stay *stay = &s->stays[i];

		if (stay->cpu == cpu)
			ns += within(g, stay->from_ns, stay->to_ns);
	}
	lost(s, ns);
	return 0;
}

/* This vCPU has just come back. */
static __always_inline void account_gap(u32 cpu)
{
	u32 i;

	for (i = 0; i < MAX_TASKS; i++) {
		if (i >= slots_used)
			break;
		account_slot(i, cpu);
	}
}

/* A request that waited since `since` has completed on this vCPU. */
static __always_inline void completed(struct task_slot *s, struct vcpu_slot *v, u32 cpu, u64 since,
				      u64 now)
{
	u64 due = since + s->latency_ns;

	if (by_heartbeat())
		stayed(s, cpu, due, now, min_gap_ns);
	else if (v->back_ns > since && v->nr_gaps && now - v->back_ns < 1000000)
		/* The completion waited for this vCPU: since it was due (the usual
		 * latency after issue) or since the gap began. */
		lost(s, within(&v->gaps[(v->nr_gaps - 1) & (GAP_HISTORY - 1)], due, v->back_ns));
}
