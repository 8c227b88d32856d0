/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of vCPUs: what each does, for how long it has, and what happened to
 * it. These counters are the input of every policy and of `scx_vcpu list`.
 *
 * An entry is its vCPU's from when the thread becomes SCHED_EXT until it leaves.
 * It is written under the lock of the run queue that the thread is on, except
 * for nr_io, nr_ipi, nr_wake_ipi and io_pending, which an interrupt's source writes, and
 * for its halts, which its own thread does.
 */
#pragma once

#include "past.h"
#include "table.h"
#include "vcpu.h"
#include "waiting.h"

/* Thread to entry, for those who know a vCPU by its kernel structure only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, u32);
} slot_of_tid SEC(".maps");

/* vCPUs that found no free entry: they run, without credit. */
u64 nr_table_full;

static __always_inline struct sv_vcpu *entry_of_task(struct task_struct *p)
{
	struct sv_knobs *knobs = vcpu_of(p);

	return knobs ? entry_of(knobs->slot) : NULL;
}

/* The time since the last change of state is added to what it was. */
static __always_inline u64 account(struct sv_vcpu *v, enum sv_state state)
{
	u64 now = bpf_ktime_get_ns(), past = now - v->since_ns;

	if (v->state == SV_RUNS) {
		v->ran_ns += past;
	} else if (v->state == SV_WAITS) {
		v->waited_ns += past;
		if (past > v->longest_wait_ns)
			v->longest_wait_ns = past;
	} else {
		v->slept_ns += past;
	}
	v->state = state;
	v->since_ns = now;
	return past;
}

struct search {
	struct sv_knobs *knobs;
	u32 tid;
	u32 slot;
};

static long try_entry(u32 index, struct search *search)
{
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &index);

	if (!v)
		return 1;
	/* Several threads may become SCHED_EXT at once. */
	if (v->state != SV_FREE || __sync_val_compare_and_swap(&v->state, SV_FREE, SV_ASLEEP))
		return 0;
	search->slot = index + 1;
	return 1;
}

static long raise_slots(u32 try, u32 *slot)
{
	u32 seen = nr_slots;

	return seen >= *slot || __sync_val_compare_and_swap(&nr_slots, seen, *slot) == seen;
}

/* Gives the thread an entry. */
static __always_inline void enter(struct task_struct *p)
{
	struct search search = {.tid = p->pid};
	struct sv_knobs *knobs = vcpu_of(p);
	struct sv_vcpu *v;
	u32 tid = p->pid;

	if (!knobs)
		return;
	bpf_loop(MAX_VCPUS, try_entry, &search, 0);
	v = entry_of(search.slot);
	if (!v) {
		__sync_fetch_and_add(&nr_table_full, 1);
		return;
	}
	v->vm = knobs->vm;
	v->tid = tid;
	v->vcpu = knobs->vcpu;
	v->weight = knobs->weight;
	v->cap_permille = v->cap_counted = knobs->cap_permille;
	v->class = knobs->class;
	v->home = knobs->home;
	v->slice_ns = knobs->slice_ns;
	v->latency_ns = knobs->latency_ns;
	v->due_ns = 0;
	v->queued = v->parked = 0;
	v->since_ns = bpf_ktime_get_ns();
	v->cpu = p->thread_info.cpu;
	v->boosted = v->io_pending = v->counted = 0;
	v->ran_ns = v->waited_ns = v->slept_ns = v->longest_wait_ns = 0;
	v->nr_turns = v->nr_preempted = v->nr_wakes = v->nr_io = v->nr_ipi = 0;
	v->nr_wake_ipi = v->nr_halts = v->halted_ns = v->halted_at = 0;
	v->credit = 0;
	v->taken = v->resets = v->used_ns = v->used_at = v->rest_ns = v->key = 0;
	v->held_until_ns = v->turn_ns = 0;
	v->left_ns = v->owed_ns = 0;
	v->endcredit = v->cvcredit = 0;
	v->ivcredit = v->consumed = 0;
	v->event_at_ns = v->events_counted = v->events = v->event_ema_ns = 0;
	v->event_ema_valid = v->in_group = 0;
	go_on(v);
	knobs->slot = search.slot;
	/* Only ever grows, also if several enter at once: who is above it is seen by nobody
	 * who walks over the table. */
	bpf_loop(MAX_VCPUS, raise_slots, &search.slot, 0);
	bpf_map_update_elem(&slot_of_tid, &tid, &search.slot, 0);
}

/* Takes it back. */
static __always_inline void leave(struct task_struct *p)
{
	struct sv_knobs *knobs = vcpu_of(p);
	struct sv_vcpu *v;
	u32 tid = p->pid, *slot;

	if (!knobs)
		return;
	v = entry_of(knobs->slot);
	/* A thread's id may be another one's before it has left its pCPU for the last time. */
	slot = bpf_map_lookup_elem(&slot_of_tid, &tid);
	if (slot && *slot == knobs->slot)
		bpf_map_delete_elem(&slot_of_tid, &tid);
	knobs->slot = 0;
	if (!v)
		return;
	waits_no_more(v);
	v->state = SV_FREE;
}
