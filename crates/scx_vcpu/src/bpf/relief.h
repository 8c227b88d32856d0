/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vCPUs that host threads keep from their pCPU for too long, while another one has time
 * for vCPUs.
 *
 * Problem: a pCPU that always has a vCPU to run takes none of another one (balance.h). A
 * vCPU that waits where host threads compute has what the kernel's deadline server gives
 * there, 50 ms of each second, and one that has a pCPU for itself all of it. Worse under
 * `fixed`, and for one that was chosen in the moment in which a host thread came: the
 * kernel keeps those in its local queue, where no idle pCPU finds them either.
 *
 * Idea: with each period (parked.h) those are looked for that have waited HELD_NS on a
 * pCPU where no vCPU has run meanwhile. Such a vCPU goes into the queue of an idle pCPU, or
 * of the one with the fewest vCPUs of those that run vCPUs, and comes to its turn there
 * by its policy's order: what it gets is its share and no gift. If its old pCPU gets
 * free, that has no work and takes one back.
 *
 * That time is twice what the server gives at once: a shorter interruption is sat out, since
 * a move costs the caches and the turn. A vCPU stays where moving gives it less than the
 * server does, and iSche's stay on their core.
 *
 * Limits: one that is in the kernel's local queue needs a kernel since 7.1
 * (scx_bpf_dsq_reenq), and waits a period more.
 */
#pragma once

#include "balance.h"
#include "latency.h"

extern struct task_struct *bpf_task_from_pid___k(s32 pid) __ksym;
extern void bpf_task_release___k(struct task_struct *p) __ksym;
extern void bpf_rcu_read_lock___k(void) __ksym;
extern void bpf_rcu_read_unlock___k(void) __ksym;

/* A second has that many of what the server gives in it. */
#define SERVER_TURNS 20

/* vCPUs for which a place is looked for in one period: each is a walk over all pCPUs. */
#define MOST_RELIEVED 8

struct relief {
	u64 now;
	/* So many more in this period; where it begins. */
	u32 left;
	u32 first;
};

/* The position after the one that was relieved last: all have their turn. */
u32 relief_at;

static __always_inline bool no_vcpu_ran(struct sv_pcpu *pcpu, u64 now)
{
	return !pcpu->slot && (s64)(now - pcpu->left_ns) >= (s64)settings.held_ns;
}

/* How many run and wait on `cpu`. */
static __always_inline u32 vcpus_on(s32 cpu, struct sv_pcpu *pcpu)
{
	return scx_bpf_dsq_nr_queued___k(queue_of(cpu, QUEUE_FIRST)) +
	       scx_bpf_dsq_nr_queued___k(queue_of(cpu, QUEUE_REST)) + !!pcpu->slot;
}

/* A pCPU for `p`, which waits on `from` in vain; -1: none is better. */
static __always_inline s32 better_for(struct task_struct *p, s32 from, u64 now)
{
	s32 best = scx_bpf_pick_idle_cpu___k(p->cpus_ptr, 0), cpu;
	u32 fewest = SERVER_TURNS - 1;

	if (best >= 0)
		return best;
	bpf_for (cpu, 0, nr_cpu_ids) {
		struct sv_pcpu *pcpu = pcpu_of(cpu);
		u32 vcpus;

		if (!pcpu || cpu == from || no_vcpu_ran(pcpu, now) ||
		    !bpf_cpumask_test_cpu___k(cpu, p->cpus_ptr))
			continue;
		vcpus = vcpus_on(cpu, pcpu);
		if (vcpus >= fewest)
			continue;
		fewest = vcpus;
		best = cpu;
	}
	return best;
}

/* Its queue on a pCPU where it does not live yet, and its place there. */
static __always_inline enum queue key_elsewhere(struct sv_vcpu *v, struct sv_pcpu *there)
{
	if (has_credit1()) {
		credit1_take(v);
		return credit1_key(v, there);
	}
	if (settings.policy == SV_CREDIT2) {
		struct sv_pcpu *old = pcpu_of(v->cpu);

		if (old)
			credit2_take(v, old);
		v->key = credit2_place(v, there);
		return QUEUE_FIRST;
	}
	v->key = ++there->sequence;
	return settings.policy == SV_FIXED ? QUEUE_FIRST : QUEUE_REST;
}

/* The vCPU of this entry leaves that queue for another pCPU's, if it is there. */
static __always_inline bool leave_queue(u64 from, u32 slot, u64 to, u64 turn_ns, u64 key)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool moved = false;

	bpf_iter_scx_dsq_new___k(&it, from, 0);
	while ((p = bpf_iter_scx_dsq_next___k(&it))) {
		struct sv_knobs *knobs = vcpu_of(p);

		if (!knobs || knobs->slot != slot)
			continue;
		scx_bpf_dsq_move_set_slice___k(&it, turn_ns);
		if (settings.policy == SV_FIXED) {
			moved = scx_bpf_dsq_move___k(&it, p, to, 0);
		} else {
			scx_bpf_dsq_move_set_vtime___k(&it, key);
			moved = scx_bpf_dsq_move_vtime___k(&it, p, to, 0);
		}
		break;
	}
	bpf_iter_scx_dsq_destroy___k(&it);
	return moved;
}

/* The vCPU of this entry goes to `to`, if it waits in a queue of ours. */
static __always_inline bool go_over(struct sv_vcpu *v, u32 slot, s32 to)
{
	struct sv_pcpu *there = pcpu_of(to);
	u64 target, turn_ns;
	u64 note = v->noted;
	u32 from = v->cpu;
	bool moved;

	/* On its way into a queue, or out of it. */
	if (!there || (u32)note != from + 1)
		return false;
	/* Its turn here is over. */
	v->rest_ns = 0;
	v->held_until_ns = 0;
	target = queue_of(to, key_elsewhere(v, there));
	turn_ns = within_cap(v, turn_of_due(v, to, there));
	if (turn_ns < MIN_REST_NS)
		turn_ns = MIN_REST_NS;
	bits_join(waiting_cpus, &there->waiting, to);
	moved = leave_queue(queue_of(from, QUEUE_FIRST), slot, target, turn_ns, v->key) ||
		leave_queue(queue_of(from, QUEUE_REST), slot, target, turn_ns, v->key);
	if (!moved) {
		__sync_fetch_and_sub(&there->waiting, 1);
		return false;
	}
	note_moved(v, note, to);
	if (settings.policy != SV_ISCHE)
		v->home = 0;
	adopt(v, to);
	if (v->due_ns && (!there->due_ns || v->due_ns < there->due_ns))
		latency_arm(to, there, v->due_ns);
	return true;
}

/* The vCPU at this position has waited for long. */
static __always_inline void relieve(struct sv_vcpu *v, u32 position, struct relief *relief)
{
	struct sv_pcpu *here = pcpu_of(v->cpu), *there;
	struct task_struct *p;
	s32 on, to;

	if (!relief->left || (settings.policy == SV_ISCHE && v->home))
		return;
	p = bpf_task_from_pid___k(v->tid);
	if (!p)
		return;
	bpf_rcu_read_lock___k();
	on = scx_bpf_task_cpu___k(p);
	/* Taken by another pCPU, where a host thread was faster. */
	there = pcpu_of(on);
	if (!here || !there ||
	    (!no_vcpu_ran(here, relief->now) && !no_vcpu_ran(there, relief->now)))
		goto out;
	relief->left--;
	relief_at = position + 1;
	to = better_for(p, on, relief->now);
	if (to < 0)
		goto out;
	/* If it is not in a queue of ours it is in the kernel's: back to ours, and next time
	 * from there. */
	if ((!no_vcpu_ran(here, relief->now) || !go_over(v, position + 1, to)) &&
	    no_vcpu_ran(there, relief->now) && bpf_ksym_exists(scx_bpf_dsq_reenq___k))
		scx_bpf_dsq_reenq___k(SCX_DSQ_LOCAL_ON | (u32)on, 0);
	/* It was idle when it was chosen, and counts as busy since. */
	scx_bpf_kick_cpu___k(to, SCX_KICK_IDLE);
out:
	bpf_rcu_read_unlock___k();
	bpf_task_release___k(p);
}
