// SPDX-License-Identifier: GPL-2.0
/*
 * A host scheduler for vCPUs.
 *
 * Only vCPU threads are SCHED_EXT (SCX_OPS_SWITCH_PARTIAL); everything else,
 * the VMM's own threads and the kernel's among them, stays in the fair class,
 * which comes before ours: it preempts vCPUs at once and without any code here.
 *
 * Two queues per pCPU. Who is next is their order; for how long is the policy's.
 * This file has the calls that the kernel makes and hands them on: account.h
 * counts, event.h sees interrupts, policy_*.h decide.
 *
 * Under `fixed` a vCPU that is preempted by the fair class goes back to the head
 * with the rest of its slice: the kernel does that by itself. The credit policies
 * take it back into their own queue, see policy_credit.h.
 *
 * Limits: the kernel looks at slices in its tick, so they are up to one tick
 * too long (4 ms on Debian's kernels). A vCPU stays on the pCPU it ran on
 * unless its affinity says otherwise: balancing is the policy's business.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "account.h"
#include "event.h"
#include "policy_credit1.h"
#include "policy_credit2.h"
#include "policy_fixed.h"
#include "trace.h"

char LICENSE[] SEC("license") = "GPL";

const volatile u32 nr_cpu_ids = 1;

/* Why the kernel ended us, for user space. */
s32 exit_kind;
char exit_reason[128];
char exit_message[256];

SEC("struct_ops/vcpu_select_cpu")
s32 BPF_PROG(vcpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

SEC("struct_ops/vcpu_enqueue")
void BPF_PROG(vcpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu___k(p);
	struct sv_vcpu *v;

	if (settings.policy == SV_FIXED) {
		scx_bpf_dsq_insert___v2___k(p, queue_of(cpu, QUEUE_FIRST), fixed_slice_ns(p, cpu),
					    enq_flags);
		return;
	}
	v = entry_of_task(p);
	if (!v)
		enqueue_stranger(p, cpu, enq_flags);
	else if (settings.policy == SV_CREDIT1)
		credit1_enqueue(p, v, cpu, enq_flags);
	else
		credit2_enqueue(p, v, cpu, enq_flags);
}

static __always_inline void charge(struct sv_vcpu *v, u64 ran_ns)
{
	if (settings.policy == SV_CREDIT1)
		credit1_charge(v, ran_ns);
	else if (settings.policy == SV_CREDIT2)
		credit2_charge(v, ran_ns);
}

SEC("struct_ops/vcpu_dispatch")
void BPF_PROG(vcpu_dispatch, s32 cpu, struct task_struct *prev)
{
	struct sv_vcpu *v = NULL;
	bool other;

	/* One that goes to sleep is not asked. */
	if (prev && !(prev->scx.flags & SCX_TASK_QUEUED))
		prev = NULL;
	if (prev)
		v = entry_of_task(prev);
	if (v)
		charge(v, account(v, SV_RUNS));
	if (settings.policy == SV_CREDIT1)
		other = credit1_dispatch(cpu, v);
	else if (settings.policy == SV_CREDIT2)
		other = credit2_dispatch(cpu, v);
	else
		other = scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0);
	if (other || !prev)
		return;
	/* Nobody waits who comes before it: the one that ran has a further turn. */
	if (settings.policy == SV_FIXED)
		scx_bpf_task_set_slice___k(prev, fixed_whole_ns(cpu));
	else if (settings.policy == SV_CREDIT1)
		scx_bpf_task_set_slice___k(prev, settings.slice_ns);
	else
		scx_bpf_task_set_slice___k(prev, v ? credit2_turn_ns(v) : settings.slice_ns);
}

SEC("struct_ops/vcpu_runnable")
void BPF_PROG(vcpu_runnable, struct task_struct *p, u64 enq_flags)
{
	struct sv_vcpu *v = entry_of_task(p);

	if (!v)
		return;
	account(v, SV_WAITS);
	if (enq_flags & SCX_ENQ_WAKEUP)
		v->nr_wakes++;
	if (settings.policy == SV_CREDIT1)
		credit1_runnable(v);
}

SEC("struct_ops/vcpu_running")
void BPF_PROG(vcpu_running, struct task_struct *p)
{
	struct sv_vcpu *v = entry_of_task(p);
	struct sv_knobs *knobs = vcpu_of(p);
	struct pcpu *pcpu;

	if (!v || !knobs)
		return;
	account(v, SV_RUNS);
	v->nr_turns++;
	pcpu = pcpu_of(scx_bpf_task_cpu___k(p));
	if (pcpu)
		pcpu->slot = knobs->slot;
}

SEC("struct_ops/vcpu_stopping")
void BPF_PROG(vcpu_stopping, struct task_struct *p, bool runnable)
{
	struct sv_vcpu *v = entry_of_task(p);
	struct pcpu *pcpu = pcpu_of(scx_bpf_task_cpu___k(p));

	if (pcpu)
		pcpu->slot = 0;
	if (!v)
		return;
	charge(v, account(v, runnable ? SV_WAITS : SV_ASLEEP));
	if (runnable)
		v->nr_preempted++;
	if (settings.policy == SV_CREDIT1)
		credit1_stopping(v, p, runnable);
	else if (settings.policy == SV_CREDIT2)
		keep_rest(v, p, runnable);
}

SEC("struct_ops/vcpu_quiescent")
void BPF_PROG(vcpu_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct sv_vcpu *v = entry_of_task(p);

	if (!v)
		return;
	account(v, SV_ASLEEP);
	if (settings.policy == SV_CREDIT1)
		credit1_quiescent(v);
}

SEC("struct_ops/vcpu_enable")
void BPF_PROG(vcpu_enable, struct task_struct *p)
{
	struct sv_vcpu *v;

	enter(p);
	v = entry_of_task(p);
	if (v && settings.policy == SV_CREDIT2)
		v->credit = settings.default_credit_ns;
}

SEC("struct_ops/vcpu_disable")
void BPF_PROG(vcpu_disable, struct task_struct *p)
{
	leave(p);
}

SEC("struct_ops.s/vcpu_init")
s32 BPF_PROG(vcpu_init)
{
	for (u32 cpu = 0; cpu < MAX_CPUS && cpu < nr_cpu_ids; cpu++) {
		for (u32 queue = 0; queue < NR_QUEUES; queue++) {
			s32 error = scx_bpf_create_dsq___k(queue_of(cpu, queue), -1);

			if (error)
				return error;
		}
	}
	return settings.policy == SV_CREDIT1 ? credit1_init() : 0;
}

SEC("struct_ops/vcpu_exit")
void BPF_PROG(vcpu_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_reason, sizeof(exit_reason), info->reason);
	bpf_probe_read_kernel_str(exit_message, sizeof(exit_message), info->msg);
	/* Last: user space looks at the texts when it sees this. */
	exit_kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops vcpu_ops = {
	.select_cpu = (void *)vcpu_select_cpu,
	.enqueue = (void *)vcpu_enqueue,
	.dispatch = (void *)vcpu_dispatch,
	.runnable = (void *)vcpu_runnable,
	.running = (void *)vcpu_running,
	.stopping = (void *)vcpu_stopping,
	.quiescent = (void *)vcpu_quiescent,
	.enable = (void *)vcpu_enable,
	.disable = (void *)vcpu_disable,
	.init = (void *)vcpu_init,
	.exit = (void *)vcpu_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL,
	/* The kernel takes the machine back from a queue that stands so long. */
	.timeout_ms = 30000,
	.name = "scx_vcpu",
};
