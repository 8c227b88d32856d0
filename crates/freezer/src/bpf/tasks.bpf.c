/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a few threads do while the CPUs are taken away: when they run, wait, are
 * woken and change CPU. Joined with the freezer's own log this says where their
 * time went.
 *
 * The idea: every change of a thread's state goes through one of three
 * tracepoints, and each is written down with its instant into the log of the CPU
 * where it happened. Nothing is interpreted here: which of these times were spent
 * on a CPU that was off is known only afterwards.
 *
 * Cost: two look-ups in a hash of a few entries per context switch, one per
 * wake-up, for every thread of the machine; 24 bytes per event of a watched one.
 *
 * Limits. A log that is full drops and counts. The order of two events on
 * different CPUs within the same microsecond is not certain: a waker stamps
 * before it waits for the sleeper to be off its CPU.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "tasks.h"

char LICENSE[] SEC("license") = "GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	int pid;
	unsigned in_iowait : 1;
};
#pragma clang attribute pop

/* Set before load; the default of user space is the only one. */

/* Events that one CPU can log. When they are used up, nr_dropped counts. */
const volatile __u32 log_per_cpu;

volatile struct ft_ctl task_ctl;

/* Filled before anything is attached and never changed: the threads to watch. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");

/* One per possible CPU; sized before load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ft_lane);
} task_lanes SEC(".maps");

/* Per CPU a run of log_per_cpu events, as the freezer's log and for its reasons. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ft_event);
} task_events SEC(".maps");

static __always_inline int is_watched(__u32 tid)
{
	return task_ctl.recording && bpf_map_lookup_elem(&watched, &tid) != NULL;
}

/*
 * The three tracepoints are called with interrupts disabled, so nothing comes
 * between the count and the entry.
 */
static __always_inline void note(__u32 tid, __u32 cpu, enum ft_kind kind)
{
	__u32 here = bpf_get_smp_processor_id();
	struct ft_lane *lane = bpf_map_lookup_elem(&task_lanes, &here);
	struct ft_event *event = NULL;
	__u32 key;

	if (!lane)
		return;
	key = here * log_per_cpu + (__u32)lane->nr_logged;
	if (lane->nr_logged < log_per_cpu)
		event = bpf_map_lookup_elem(&task_events, &key);
	if (!event) {
		lane->nr_dropped++;
		return;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->tid = tid;
	event->cpu = cpu;
	event->kind = kind;
	/* An atomic, so that the event is visible before the count that covers it. */
	__sync_fetch_and_add(&lane->nr_logged, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	__u32 cpu = bpf_get_smp_processor_id();

	if (is_watched(prev->pid)) {
		if (preempt || !prev_state)
			note(prev->pid, cpu, FT_READY);
		else
			note(prev->pid, cpu,
			     BPF_CORE_READ_BITFIELD(prev, in_iowait) ? FT_IO : FT_SLEEP);
	}
	if (is_watched(next->pid))
		note(next->pid, cpu, FT_IN);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *task)
{
	if (is_watched(task->pid))
		note(task->pid, bpf_get_smp_processor_id(), FT_WAKING);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(task_moved, struct task_struct *task, int dest_cpu)
{
	if (is_watched(task->pid))
		note(task->pid, dest_cpu, FT_MOVED);
	return 0;
}
