/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What all policies but `fixed` have in common: turns that survive a host thread.
 *
 * A vCPU that a host thread interrupts comes back to our queue with the rest of
 * its turn, not to the kernel's local queue: there a vCPU that a device wakes in
 * the meantime could not overtake it. Devices are served by host threads, so
 * that is the usual way for a vCPU to be woken.
 *
 * Until the turn is over nothing is decided: the sources' schedulers decide when a
 * slice ends (K6, K13, SL1, I17) and when a vCPU wakes (K4, K10), and know nothing
 * of threads that are no vCPUs. Rejected: a new decision after each interruption.
 * The vCPU that has just run has least credit, so a thread that runs for 100 us
 * ended a turn of 30 ms.
 */
#pragma once

#include "period.h"
#include "stranger.h"
#include "turn.h"

/* What is left of the turn of `p`, which is being taken off its pCPU. */
static __always_inline void keep_rest(struct sv_vcpu *v, struct task_struct *p,
				      struct sv_pcpu *pcpu, bool runnable)
{
	struct sv_knobs *knobs = vcpu_of(p);

	v->rest_ns = runnable ? rest_of_turn(p, pcpu) : 0;
	if (runnable)
		scx_bpf_task_set_slice___k(p, 0);
	if (v->rest_ns && pcpu && knobs)
		pcpu->interrupted = knobs->slot;
}

/* `v` comes into a queue of `cpu`: its turn is over if it slept or was elsewhere. */
static __always_inline void end_turn_of_other(struct sv_vcpu *v, s32 cpu, u64 enq_flags)
{
	if (v->cpu != cpu || enq_flags & SCX_ENQ_WAKEUP)
		v->rest_ns = 0;
}

/* The vCPU that waits on `cpu` for the rest of a turn that a host thread interrupted. */
static __always_inline struct sv_vcpu *interrupted_on(s32 cpu, struct sv_pcpu *pcpu)
{
	struct sv_vcpu *v = entry_of(pcpu->interrupted);

	return v && v->state == SV_WAITS && v->cpu == cpu && v->rest_ns && !v->parked ? v : NULL;
}

/* Whose turn it is on `cpu`: it runs, or a host thread interrupts it. */
static __always_inline struct sv_vcpu *turn_on(s32 cpu, struct sv_pcpu *pcpu)
{
	return entry_of(pcpu->slot) ?: interrupted_on(cpu, pcpu);
}

/* The turn of `v`, whose turn it is on `cpu`, is over: a vCPU that wakes comes first. */
static __always_inline void cut_turn(struct sv_vcpu *v, s32 cpu)
{
	if (v->state == SV_RUNS)
		scx_bpf_kick_cpu___k(cpu, SCX_KICK_PREEMPT);
	else
		v->rest_ns = 0;
}

/* The vCPU of this entry gets `cpu` next. */
WALKED_ONCE int take_out(s32 cpu, u32 queue, u32 slot, u64 slice_ns)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	int taken = 0;

	bpf_iter_scx_dsq_new___k(&it, queue_of(cpu, queue), 0);
	while ((p = bpf_iter_scx_dsq_next___k(&it))) {
		struct sv_knobs *knobs = vcpu_of(p);

		if (!knobs || knobs->slot != slot)
			continue;
		scx_bpf_dsq_move_set_slice___k(&it, slice_ns);
		taken = scx_bpf_dsq_move___k(&it, p, SCX_DSQ_LOCAL, 0);
		break;
	}
	bpf_iter_scx_dsq_destroy___k(&it);
	return taken;
}

/* `cpu` is free: one of the strangers has it, if a vCPU had it last and its turn is over. */
static __always_inline bool stranger_is_next(s32 cpu, struct sv_pcpu *pcpu)
{
	return !pcpu->stranger_ran && !interrupted_on(cpu, pcpu) && take_stranger(cpu, pcpu);
}

/* No vCPU ran on `cpu`: does an interrupted turn go on? */
static __always_inline bool turn_goes_on(s32 cpu, struct sv_pcpu *pcpu, enum queue queue)
{
	struct sv_vcpu *v = interrupted_on(cpu, pcpu);

	return v && take_out(cpu, queue, pcpu->interrupted, within_cap(v, v->rest_ns));
}
