/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What vCPUs had under a scheduler that has left the kernel, and between that one and us:
 * with that their counters go on. User space writes it before it attaches us, every second
 * while we rest: all memory at once, below 2 MB, rather than none in some moment.
 */
#pragma once

#include "table.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, struct sv_vcpu);
} past SEC(".maps");

/* Counters of a new entry. */
static __always_inline void go_on(struct sv_vcpu *v)
{
	u32 tid = v->tid;
	struct sv_vcpu *was = bpf_map_lookup_elem(&past, &tid);

	/* The id may have been another thread's. */
	if (!was || was->vm != v->vm)
		return;
	v->ran_ns = was->ran_ns;
	v->waited_ns = was->waited_ns;
	v->slept_ns = was->slept_ns;
	v->longest_wait_ns = was->longest_wait_ns;
	v->nr_turns = was->nr_turns;
	v->nr_preempted = was->nr_preempted;
	v->nr_wakes = was->nr_wakes;
	v->nr_io = was->nr_io;
	v->nr_ipi = was->nr_ipi;
	v->nr_wake_ipi = was->nr_wake_ipi;
	v->nr_halts = was->nr_halts;
	v->halted_ns = was->halted_ns;
}
