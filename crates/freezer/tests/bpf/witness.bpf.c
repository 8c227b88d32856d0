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

volatile __u64 last_steal_ns;
/* Interrupts in which the counter had jumped. */
volatile __u64 nr_jumps;
/* Sum and longest of (now - return), where the return is read off the log. */
volatile __u64 last_jump_seen_ns;
volatile __u64 last_jump_steal_ns;
/* Interrupts that found the flag still set: must stay 0. */
volatile __u64 nr_still_preempted;
/* Interrupts that found the version odd: must stay 0. */
volatile __u64 nr_odd;

SEC("tp_btf/local_timer_entry")
int BPF_PROG(witness, int vector)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct fz_steal *page;

	if (cpu != watched_cpu)
		return 0;
	page = bpf_map_lookup_elem(&steal_page, &cpu);
	if (!page)
		return 0;
	if (page->preempted)
		nr_still_preempted++;
	if (page->version & 1)
		nr_odd++;
	if (page->steal != last_steal_ns) {
		last_steal_ns = page->steal;
		nr_jumps++;
		last_jump_steal_ns = page->steal;
		last_jump_seen_ns = bpf_ktime_get_ns();
	}
	return 0;
}
