/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When a turn ends: at an instant of the wall clock, by a timer of its pCPU.
 *
 * The kernel charges slices by rq_clock_task, which leaves out what interrupts and a
 * hypervisor above us took, and looks at them in its tick only: a slice of 11 ms lasted
 * 12 to 16 ms where nothing else happened, and half as long again on a host that spends
 * much time in interrupts. The kernel's slice is the net below: NET_NS after the timer
 * the turn is over although the timer was lost. Not at the same instant, because the
 * kernel may charge too much: a pCPU whose own host stalls it inside __schedule() charges
 * the stall to the vCPU that it picks (exec_start is the clock before the stall).
 *
 * One timer per pCPU, armed for the end of some turn. A turn that ends later leaves it
 * alone; it is armed again when it finds that. So a vCPU that host threads interrupt
 * all the time costs no programming of the clock.
 */
#pragma once

#include "queue.h"
#include "settings.h"
#include "table.h"

/* From the end of a turn to that of the kernel's slice: longer than a pCPU is stalled. */
#define NET_NS 100000000ULL

/* A timer that comes so early is not armed again. */
#define TURN_SLACK_NS 20000ULL

struct turn_clock {
	struct bpf_timer timer;
};

/* Sized to the number of possible pCPUs at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turn_clock);
} turn_clocks SEC(".maps");

static __always_inline void arm_turn(u32 cpu, struct sv_pcpu *pcpu)
{
	struct turn_clock *clock = bpf_map_lookup_elem(&turn_clocks, &cpu);

	if (!clock)
		return;
	pcpu->armed_ns = pcpu->turn_end_ns;
	bpf_timer_start(&clock->timer, pcpu->turn_end_ns, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

static int turn_over(void *map, u32 *cpu, struct turn_clock *clock)
{
	struct sv_pcpu *pcpu = pcpu_of(*cpu);

	if (!pcpu)
		return 0;
	pcpu->armed_ns = 0;
	/* No vCPU runs: the next one arms it. */
	if (!pcpu->slot)
		return 0;
	if (bpf_ktime_get_ns() + TURN_SLACK_NS < pcpu->turn_end_ns)
		arm_turn(*cpu, pcpu);
	else
		scx_bpf_kick_cpu___k(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Called again after -ENOMEM: one that is there already (-EBUSY) is as good. */
static __always_inline s32 make_turn_clock(u32 cpu)
{
	struct turn_clock *clock = bpf_map_lookup_elem(&turn_clocks, &cpu);
	long error;

	if (!clock)
		return -EINVAL;
	error = bpf_timer_init(&clock->timer, &turn_clocks, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	return bpf_timer_set_callback(&clock->timer, turn_over);
}

/* The turn of `p`, which runs on `cpu` from `now_ns` on, ends at `end_ns`. */
static __always_inline void end_turn_at(struct task_struct *p, u32 cpu, struct sv_pcpu *pcpu,
					u64 now_ns, u64 end_ns)
{
	scx_bpf_task_set_slice___k(p, NET_NS + (end_ns > now_ns ? end_ns - now_ns : 0));
	pcpu->turn_end_ns = end_ns;
	if (!pcpu->armed_ns || pcpu->armed_ns > end_ns)
		arm_turn(cpu, pcpu);
}

/* What is left of the turn of `p`, which is being taken off its pCPU; 0: nothing of use.
 * One whose slice is 0 was told to go. */
static __always_inline u64 rest_of_turn(struct task_struct *p, struct sv_pcpu *pcpu)
{
	u64 now = bpf_ktime_get_ns();

	if (!pcpu || !p->scx.slice || pcpu->turn_end_ns < now + MIN_REST_NS)
		return 0;
	return pcpu->turn_end_ns - now;
}
