/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Policy `fixed`: round robin, one length of slice per pCPU.
 *
 * What a host without any regard for I/O does, and what experiments need: the
 * slices are known. A vCPU that slept keeps the rest of its slice, so that a
 * short wait is no way to a longer turn. A rest too short to be of use is
 * rounded up to a whole slice.
 *
 * A turn has its end on the wall clock: host threads that run meanwhile are part of
 * it. Otherwise turns would be as long as their interruptions made them, and the
 * phases of pCPUs nobody's choice.
 */
#pragma once

#include "policy_credit.h"

/* Slice of each pCPU in ns; user space gives neighbours different ones so that
 * their phases sweep. Sized to the number of possible pCPUs at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} slices SEC(".maps");

static __always_inline u64 fixed_whole_ns(s32 cpu)
{
	u32 key = cpu;
	u64 *slice_ns = bpf_map_lookup_elem(&slices, &key);

	return slice_ns ? *slice_ns : 0;
}

/* It is being taken off: what it has when it comes back. */
static __always_inline void fixed_stopping(struct sv_vcpu *v, struct task_struct *p,
					   struct sv_pcpu *pcpu, bool runnable)
{
	u64 rest_ns = rest_of_turn(p, pcpu);

	v->held_until_ns = 0;
	if (runnable && pcpu && rest_ns)
		/* A host thread comes between: the kernel keeps its place for it. */
		v->held_until_ns = pcpu->turn_end_ns;
	else
		scx_bpf_task_set_slice___k(p, rest_ns);
}

/* How long `p`, whose turns last `whole_ns`, may run next. */
static __always_inline u64 fixed_slice_ns(struct task_struct *p, u64 whole_ns)
{
	u64 rest_ns = p->scx.slice;

	return rest_ns < MIN_REST_NS || rest_ns > whole_ns ? whole_ns : rest_ns;
}
