/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rescheduling latency: how long a vCPU that wakes may wait for a pCPU (J3, where it is a
 * number of its own for each vCPU; DASL sets it from counters).
 *
 * Whoever wakes waits as its policy says. When its latency is over it ends the turn
 * that goes on and is next, if its policy lets it run at all: one that has used up its
 * credit, its round or its cap has no right to that, so what it gets in all
 * stays its share. `fixed` counts nothing and has no such bound.
 *
 * A timer per pCPU is armed for the first of those that wait. It is not pinned: whoever
 * wakes a vCPU arms it, maybe on another pCPU.
 *
 * Limits: only wake-ups. One that was preempted waits for its turn as always, or one of
 * small weight would come as often as it liked.
 */
#pragma once

#include "members.h"
#include "place.h"
#include "policy_isacs.h"
#include "policy_vslicer.h"

struct latency_clock {
	struct bpf_timer timer;
};

/* Sized to the number of possible pCPUs at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct latency_clock);
} latency_clocks SEC(".maps");

struct latency_scan {
	u32 cpu;
	u32 slot;
	u64 due_ns;
};

static long latency_look(u32 position, struct latency_scan *scan)
{
	struct sv_vcpu *v = member_at(position, scan->cpu);

	if (!v || v->state != SV_WAITS || !v->due_ns || v->due_ns >= scan->due_ns)
		return 0;
	scan->slot = position + 1;
	scan->due_ns = v->due_ns;
	return 0;
}

static __always_inline void latency_arm(u32 cpu, struct sv_pcpu *pcpu, u64 due_ns)
{
	struct latency_clock *clock = bpf_map_lookup_elem(&latency_clocks, &cpu);

	if (!clock)
		return;
	pcpu->due_ns = due_ns;
	bpf_timer_start(&clock->timer, due_ns, BPF_F_TIMER_ABS);
}

/* Does its policy let it run before others? */
static __always_inline bool may_come_first(struct sv_vcpu *v)
{
	if (has_credit1())
		return credit1_class(v) != CREDIT1_OVER;
	if (settings.policy == SV_CREDIT2 || settings.policy == SV_ISACS)
		return v->credit > 0;
	return settings.policy != SV_VSLICER || v->left_ns;
}

/* Those of `cpu` that wait for their latency: chooses one that is due, or arms the timer. */
WALKED_ONCE int latency_next(u32 cpu)
{
	struct latency_scan scan = {.cpu = cpu, .due_ns = ~0ULL};
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_vcpu *v;

	if (!pcpu)
		return 0;
	pcpu->due_ns = 0;
	bpf_loop(nr_slots, latency_look, &scan, 0);
	if (!scan.slot)
		return 0;
	if (scan.due_ns > bpf_ktime_get_ns() + TURN_SLACK_NS) {
		latency_arm(cpu, pcpu, scan.due_ns);
		return 0;
	}
	v = entry_of(scan.slot);
	if (v && !may_come_first(v)) {
		/* It waits as its policy says; somebody else may be due. */
		v->due_ns = 0;
		latency_arm(cpu, pcpu, scan.due_ns);
		return 0;
	}
	pcpu->due_slot = scan.slot;
	return 1;
}

static int latency_over(void *map, u32 *cpu, struct latency_clock *clock)
{
	if (latency_next(*cpu))
		scx_bpf_kick_cpu___k(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* As make_turn_clock(). */
static __always_inline s32 make_latency_clock(u32 cpu)
{
	struct latency_clock *clock = bpf_map_lookup_elem(&latency_clocks, &cpu);
	long error;

	if (!clock)
		return -EINVAL;
	error = bpf_timer_init(&clock->timer, &latency_clocks, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	return bpf_timer_set_callback(&clock->timer, latency_over);
}

/* `v` has come into a queue of `cpu`. */
static __always_inline void await_latency(struct sv_vcpu *v, s32 cpu, u64 enq_flags)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);

	if (!v->latency_ns || !(enq_flags & SCX_ENQ_WAKEUP) || !pcpu)
		return;
	v->due_ns = bpf_ktime_get_ns() + v->latency_ns;
	if (!pcpu->due_ns || v->due_ns < pcpu->due_ns)
		latency_arm(cpu, pcpu, v->due_ns);
}

static __always_inline u64 turn_of_due(struct sv_vcpu *v, s32 cpu, struct sv_pcpu *pcpu)
{
	if (has_credit1())
		return credit1_turn_ns(v, credit1_class(v), cpu);
	if (settings.policy == SV_CREDIT2)
		return credit2_turn_ns(v);
	if (settings.policy == SV_ISACS)
		return isacs_turn_ns(v, pcpu);
	if (settings.policy == SV_VSLICER)
		return vslicer_micro_ns(v);
	return own_slice(v, fixed_whole_ns(cpu));
}

/* `cpu` is free: one whose latency is over has it. */
static __always_inline bool dispatch_due(s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_vcpu *v;
	bool taken = false;
	u64 turn_ns;
	u32 slot;

	if (!pcpu || !pcpu->due_slot)
		return false;
	slot = pcpu->due_slot;
	pcpu->due_slot = 0;
	v = entry_of(slot);
	if (v && v->state == SV_WAITS && v->due_ns) {
		/* It waits for nothing any more, also if it has no right now. */
		v->due_ns = 0;
		turn_ns = within_cap(v, turn_of_due(v, cpu, pcpu));
		if (turn_ns < MIN_REST_NS)
			turn_ns = MIN_REST_NS;
		taken = !v->parked && may_come_first(v) &&
			(take_out(cpu, QUEUE_FIRST, slot, turn_ns) ||
			 take_out(cpu, QUEUE_REST, slot, turn_ns));
	}
	/* Another one may be due as well: next time. */
	latency_next(cpu);
	return taken;
}
