/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Changes of vCPUs while they are scheduled. User space writes all that a change of a VM
 * needs into a batch and runs this program once. A field is one aligned word, so whoever
 * reads it sees the old value or the new one. Each is looked at when its vCPU is next
 * charged or put into a queue.
 */
#pragma once

#include "period.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SV_BATCH);
	__type(key, u32);
	__type(value, struct sv_set);
} batch SEC(".maps");

static long set_one(u32 index, u64 *missing)
{
	struct sv_set *set = bpf_map_lookup_elem(&batch, &index);
	struct sv_vcpu *v;
	u32 *slot;
	u32 tid;

	if (!set)
		return 1;
	tid = set->tid;
	slot = bpf_map_lookup_elem(&slot_of_tid, &tid);
	v = slot ? entry_of(*slot) : NULL;
	if (!v || v->tid != tid || v->vm != set->vm) {
		*missing |= 1ULL << (index & (SV_BATCH - 1));
		return 0;
	}
	v->weight = set->weight;
	v->cap_permille = set->cap_permille;
	v->class = set->class;
	v->home = set->home;
	v->slice_ns = set->slice_ns;
	v->latency_ns = set->latency_ns;
	return 0;
}

SEC("syscall")
int set_vcpus(struct sv_apply *apply)
{
	u64 missing = 0;
	u32 count = apply->count;

	if (count > SV_BATCH)
		return 1;
	bpf_loop(count, set_one, &missing, 0);
	apply->missing = missing;
	return 0;
}
