/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every instant at which a vCPU gets a pCPU, loses it, or is woken.
 *
 * The tracepoint and not the scheduler's own callbacks: a thread of the fair
 * class that preempts a vCPU for 20 us is seen here too, and the trace is the
 * same whatever policy runs. User space empties the ring ten times a second; an
 * event that does not fit is counted, so that a gap in the trace is known. In
 * look.bpf.c the policy is the kernel's own, and each context switch costs two look-ups.
 */
#pragma once

#include "vcpu.h"

/* 8 MiB hold 260 000 events: two seconds of a host with 64 busy pCPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024);
} trace SEC(".maps");

/* Events that did not fit. */
u64 nr_trace_lost;

static __always_inline void trace_event(struct task_struct *p, struct sv_knobs *vcpu, u32 cpu,
					enum sv_kind kind)
{
	struct sv_event *event = bpf_ringbuf_reserve(&trace, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&nr_trace_lost, 1);
		return;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->vm = vcpu->vm;
	event->tid = p->pid;
	event->vcpu = vcpu->vcpu;
	event->cpu = cpu;
	event->kind = kind;
	__builtin_memset(event->pad, 0, sizeof(event->pad));
	/* The reader comes by itself: waking it for each event would preempt vCPUs. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switches, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct sv_knobs *from = may_be_ours(prev) ? vcpu_of(prev) : NULL;
	struct sv_knobs *to = may_be_ours(next) ? vcpu_of(next) : NULL;

	if (from) {
		enum sv_kind kind = SV_OFF_HOST;

		/* A task that is preempted on its way to sleep is still queued. */
		if (prev_state && !preempt)
			kind = SV_OFF_BLOCKED;
		else if (to)
			kind = SV_OFF_VCPU;
		trace_event(prev, from, cpu, kind);
	}
	if (to)
		trace_event(next, to, cpu, SV_ON);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(wakes, struct task_struct *p)
{
	struct sv_knobs *vcpu = may_be_ours(p) ? vcpu_of(p) : NULL;

	if (vcpu)
		trace_event(p, vcpu, p->thread_info.cpu, SV_WAKE);
	return 0;
}
