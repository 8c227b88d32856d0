// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the steal pages and stores their addresses, once; 0 for one that is not
 * there or cannot be read, because the programs of sense.bpf.c, which read them in
 * the same way, take what they cannot read for a vCPU that is never away.
 *
 * Objects of their own, because a kernel without KALLSYMS_ALL refuses to load a
 * program that names the per-CPU symbol, used or not: such a kernel must refuse
 * this one only. Two builds of one source: LOCATE_MAP takes the pages from a map
 * with the same layout (a test bed's), otherwise they are KVM's own.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

u64 page_addr[MAX_VCPUS];

#ifdef LOCATE_MAP
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, struct kvm_steal_time);
} steal_page SEC(".maps");
#else
extern struct kvm_steal_time steal_time __ksym;
#endif

SEC("syscall")
int locate(void *ctx)
{
	struct kvm_steal_time st;
	u32 i;

	for (i = 0; i < MAX_VCPUS; i++) {
#ifdef LOCATE_MAP
		u32 key = i;
		void *page = bpf_map_lookup_elem(&steal_page, &key);
#else
		void *page = bpf_per_cpu_ptr(&steal_time, i);
#endif
		if (page && bpf_probe_read_kernel(&st, sizeof(st), page))
			page = NULL;
		page_addr[i & (MAX_VCPUS - 1)] = (u64)page;
	}
	return 0;
}
