// SPDX-License-Identifier: GPL-2.0
/*
 * Replays a stream of events through the rules that the scheduler runs, on any kernel:
 * nothing here is of sched_ext. The test in src/replay.rs runs it with
 * BPF_PROG_TEST_RUN and compares every credit with policy::host after each step.
 *
 * It is the very code of main.bpf.c (rule_*.h). Credit2's queue is the test's, ordered by
 * the places that this side names.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "knobs.h"
#include "replay.h"
#include "rule_cap.h"
#include "rule_credit1.h"
#include "rule_credit2.h"
#include "rule_isacs.h"
#include "rule_vslicer.h"
#include "waiting.h"

char LICENSE[] SEC("license") = "GPL";

/* pCPUs of the stub below. */
#define STUB_CPUS 8

/* How often it has no memory for each, and what it says then. */
u32 stub_refusals;
s32 stub_says;
/* How often it was called for each. */
u32 stub_calls[STUB_CPUS];

/* In place of make_timers(): a kernel that may not wait for memory has none for a while. */
SEC("syscall")
int stub_timers(struct sv_timers *ctx)
{
	u32 cpu = ctx->cpu;

	if (cpu >= STUB_CPUS)
		return -EINVAL;
	return stub_calls[cpu]++ < stub_refusals ? -ENOMEM : stub_says;
}

/* pCPUs where somebody without work looked, in this order; how many. Where he gets one, plus
 * one. */
u32 looked[MAX_CPUS];
u32 nr_looked;
u32 stub_has;

static bool take_from(struct theft *theft, s32 from)
{
	/* A crowd does not care. */
	if (nr_looked < MAX_CPUS)
		looked[nr_looked++ & (MAX_CPUS - 1)] = from;
	return stub_has == from + 1;
}

/* As go_over() and unpark() do. */
static __always_inline void goes(struct sv_vcpu *v, u32 to)
{
	struct sv_pcpu *there = pcpu_of(to);
	u64 note = v->noted;

	if (!there)
		return;
	bits_join(waiting_cpus, &there->waiting, to);
	note_moved(v, note, to);
}

static __always_inline u32 steals(u32 cpu)
{
	struct theft theft = {.cpu = cpu};

	return look_where_they_wait(&theft);
}

static __always_inline u32 random_below(struct sv_crowd *crowd, u32 n)
{
	/* xorshift */
	crowd->random ^= crowd->random << 13;
	crowd->random ^= crowd->random >> 17;
	crowd->random ^= crowd->random << 5;
	return crowd->random % n;
}

static long crowd_step(u32 step, struct sv_crowd *crowd)
{
	u32 cpu = random_below(crowd, nr_cpu_ids);
	u32 at = crowd->first + random_below(crowd, crowd->who ? 2 * SV_CROWD : SV_CROWD);
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &at);

	if (!v)
		return 1;
	if (crowd->who == 2)
		steals(cpu);
	else if (crowd->who == 1)
		goes(v, cpu);
	else if (random_below(crowd, 2))
		waits_on(v, cpu);
	else
		waits_no_more(v);
	return 0;
}

SEC("syscall")
int crowd(struct sv_crowd *ctx)
{
	struct sv_crowd crowd = *ctx;

	bpf_loop(crowd.steps, crowd_step, &crowd, 0);
	return 0;
}

/* Makes an entry of the table a vCPU of pCPU 0. */
static __always_inline int add(struct sv_vcpu *v, struct sv_step *step)
{
	v->state = SV_WAITS;
	v->cpu = 0;
	v->weight = step->weight;
	v->class = step->b;
	v->credit = settings.default_credit_ns;
	if (has_credit1())
		credit1_join(v);
	if (nr_slots < step->vcpu + 1)
		nr_slots = step->vcpu + 1;
	return 0;
}

/* Who is next of the two that `step` names, on the pCPU of `v`. */
static __always_inline int credit2_next(struct sv_vcpu *v, struct sv_step *step)
{
	struct sv_vcpu *next = entry_of(step->a), *self = entry_of(step->b);
	struct sv_pcpu *pcpu = pcpu_of(v->cpu);

	if (!pcpu)
		return -1;
	step->slot = credit2_yields(self, next, pcpu) ? step->a : step->b;
	v = entry_of(step->slot);
	step->length_ns = v ? credit2_turn_ns(v) : 0;
	return 0;
}

SEC("syscall")
int replay(struct sv_step *step)
{
	u32 at = step->vcpu;
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &at);
	struct sv_pcpu *pcpu = pcpu_of(0);

	if (!v || !pcpu)
		return -1;
	switch (step->what) {
	case SV_STEP_ADD:
		return add(v, step);
	case SV_STEP_READY:
		v->queued = step->b;
		if (!has_credit1() || !v->counted == !step->b)
			return 0;
		if (step->b)
			credit1_join(v);
		else
			credit1_sleep(v);
		return 0;
	case SV_STEP_EVENT:
		isacs_event(v, step->a);
		return 0;
	case SV_STEP_CHARGE:
		if (settings.policy == SV_ISACS)
			isacs_charge(v, step->a);
		else if (settings.policy == SV_VSLICER)
			vslicer_charge(v, step->a);
		else if (has_credit1())
			credit1_charge(v, step->a);
		else
			credit2_charge(v, step->a);
		return 0;
	case SV_STEP_PICK:
		if (settings.policy == SV_ISACS) {
			step->slot = isacs_pick(0, 0, step->a);
			v = entry_of(step->slot);
			step->length_ns = v ? isacs_turn_ns(v, pcpu) : 0;
		} else if (has_credit1()) {
			credit1_hand_out(pcpu, step->a);
			credit1_take(v);
			step->slot = credit1_class(v);
		} else if (settings.policy == SV_CREDIT2) {
			return credit2_next(v, step);
		} else {
			step->slot = vslicer_pick(0, 0);
			step->length_ns = pcpu->turn_ns;
		}
		return 0;
	case SV_STEP_WEIGHT:
		v->weight = step->weight;
		return 0;
	case SV_STEP_WAKE:
		if (settings.policy == SV_ISACS) {
			struct sv_vcpu *running = entry_of(step->b + 1);

			if (!running)
				return -1;
			step->slot = isacs_comes_before(v, running, pcpu, 0);
			return 0;
		}
		if (settings.policy == SV_CREDIT2) {
			struct sv_vcpu *running = entry_of(step->b + 1);

			if (!running)
				return -1;
			step->slot = credit2_wakes_first(v, running, step->a);
			return 0;
		}
		v->io_pending = step->b;
		credit1_wake(v);
		return 0;
	case SV_STEP_WAIT:
	case SV_STEP_MOVE:
		pcpu = pcpu_of(step->b);
		if (!pcpu)
			return -1;
		credit2_move(v, pcpu, step->b);
		if (step->what == SV_STEP_MOVE)
			return 0;
		credit2_take(v, pcpu);
		step->length_ns = credit2_place(v, pcpu);
		return 0;
	case SV_STEP_PARK:
		pcpu = pcpu_of(step->b);
		if (!pcpu)
			return -1;
		cap_waits(v, pcpu, step->b);
		return 0;
	case SV_STEP_UNPARK:
		pcpu = pcpu_of(v->cpu);
		if (!pcpu || !cap_over(v))
			return -1;
		step->length_ns = credit2_returns(v, pcpu);
		return 0;
	case SV_STEP_BEGIN:
		v->rest_ns = step->b ? step->a : 0;
		step->length_ns = credit2_begins(v, step->a);
		return 0;
	case SV_STEP_QUEUED:
		waits_on(v, step->b);
		return 0;
	case SV_STEP_LEFT:
		waits_no_more(v);
		return 0;
	case SV_STEP_GOES:
		goes(v, step->b);
		return 0;
	case SV_STEP_STRANGE:
		stranger_waits_on(step->b);
		return 0;
	case SV_STEP_STEAL:
		stub_has = step->a;
		nr_looked = 0;
		step->slot = steals(step->b);
		return 0;
	}
	return -1;
}
