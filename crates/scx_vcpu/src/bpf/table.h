/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of vCPUs and what each pCPU has for its queue. Who writes an entry, and
 * when, is account.h's business.
 */
#pragma once

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#define MAX_VCPUS 4096
#define MAX_CPUS 4096

/* A turn, or the rest of one, below this is spent in the switch itself. */
#define MIN_REST_NS 100000ULL

/*
 * A function that the verifier walks once, for any arguments, instead of at each call
 * on each path that leads there: what loops over queues or over the table is one.
 */
#define WALKED_ONCE __attribute__((noinline))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, struct sv_vcpu);
} table SEC(".maps");

/* Sized to the number of possible pCPUs at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sv_pcpu);
} pcpus SEC(".maps");

/* Entries in use are all below this. */
u32 nr_slots;

static __always_inline struct sv_pcpu *pcpu_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&pcpus, &key);
}

/* The slice that user space gave this vCPU, else its policy's. */
static __always_inline u64 own_slice(struct sv_vcpu *v, u64 slice_ns)
{
	return v->slice_ns ?: slice_ns;
}

/* Entry of a position plus one. */
static __always_inline struct sv_vcpu *entry_of(u32 slot)
{
	u32 key = slot - 1;

	return slot ? bpf_map_lookup_elem(&table, &key) : NULL;
}
