/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A sensing program that is attached after the freezer: what does it find on the
 * steal page in the very interrupt in which its CPU came back?
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "freezer.h"

char LICENSE[] SEC("license") = "GPL";

/* Set to the freezer's map before load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_steal);
} steal_page SEC(".maps");

/* The CPU that is watched. */
const volatile __u32 watched_cpu;

#define MAX_JUMPS 256

struct jump {
	__u64 steal_ns; /* the counter after the jump */
	__u64 seen_ns;  /* when it was seen first */
};

volatile struct jump jumps[MAX_JUMPS];
volatile __u64 nr_jumps;
/* Interrupts that found the flag set: the page was not of the return. */
volatile __u64 nr_preempted;
/* Interrupts that found the version odd. */
volatile __u64 nr_odd;

SEC("tp_btf/local_timer_entry")
int BPF_PROG(witness, int vector)
{
	__u32 cpu = bpf_get_smp_processor_id();
	static __u64 last_steal_ns;
	struct fz_steal *page;

	if (cpu != watched_cpu)
		return 0;
	page = bpf_map_lookup_elem(&steal_page, &cpu);
	if (!page)
		return 0;
	nr_preempted += page->preempted;
	nr_odd += page->version & 1;
	if (page->steal == last_steal_ns)
		return 0;
	last_steal_ns = page->steal;
	jumps[nr_jumps % MAX_JUMPS].steal_ns = page->steal;
	jumps[nr_jumps % MAX_JUMPS].seen_ns = bpf_ktime_get_ns();
	nr_jumps++;
	return 0;
}
