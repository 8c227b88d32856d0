// SPDX-License-Identifier: GPL-2.0
/*
 * A host scheduler for vCPUs.
 *
 * Only vCPU threads are SCHED_EXT (SCX_OPS_SWITCH_PARTIAL); everything else,
 * the VMM's own threads and the kernel's among them, stays in the fair class,
 * which comes before ours: it preempts vCPUs at once and without any code here.
 *
 * One queue per pCPU. Who is next is the queue's order; for how long is the
 * policy's. A vCPU that is preempted by the fair class goes back to the head
 * with the rest of its slice: the kernel does that by itself.
 *
 * Limits: the kernel looks at slices in its tick, so they are up to one tick
 * too long (4 ms on Debian's kernels). A vCPU stays on the pCPU it ran on
 * unless its affinity says otherwise: balancing is the policy's business.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/*
 * libbpf looks a kfunc up without its last ___suffix: __k stands for the
 * kernel's own name, so that ours never clash with a generated header's.
 */
extern s32 scx_bpf_create_dsq___k(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_task_cpu___k(const struct task_struct *p) __ksym;
extern bool scx_bpf_dsq_insert___v2___k(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
	__ksym;
extern bool scx_bpf_dsq_move_to_local___v2___k(u64 dsq_id, u64 enq_flags) __ksym;
extern bool scx_bpf_task_set_slice___k(struct task_struct *p, u64 slice) __ksym;

#include "vcpu.h"
#include "policy_fixed.h"
#include "trace.h"

char LICENSE[] SEC("license") = "GPL";

/* Upper bound of the loop that makes the queues. */
#define MAX_CPUS 4096

const volatile u32 nr_cpu_ids = 1;

/* Why the kernel ended us, for user space. */
s32 exit_kind;
char exit_reason[128];
char exit_message[256];

/* Queue ids are the pCPU's number plus one: 0 is not a valid id. */
static __always_inline u64 queue_of(s32 cpu)
{
	return (u64)cpu + 1;
}

SEC("struct_ops/vcpu_select_cpu")
s32 BPF_PROG(vcpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

SEC("struct_ops/vcpu_enqueue")
void BPF_PROG(vcpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu___k(p);

	scx_bpf_dsq_insert___v2___k(p, queue_of(cpu), fixed_slice_ns(p, cpu), enq_flags);
}

SEC("struct_ops/vcpu_dispatch")
void BPF_PROG(vcpu_dispatch, s32 cpu, struct task_struct *prev)
{
	if (scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu), 0))
		return;
	/* Nobody waits: the one that ran has a further slice. */
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		scx_bpf_task_set_slice___k(prev, fixed_whole_ns(cpu));
}

SEC("struct_ops.s/vcpu_init")
s32 BPF_PROG(vcpu_init)
{
	for (u32 cpu = 0; cpu < MAX_CPUS && cpu < nr_cpu_ids; cpu++) {
		s32 error = scx_bpf_create_dsq___k(queue_of(cpu), -1);

		if (error)
			return error;
	}
	return 0;
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
	.init = (void *)vcpu_init,
	.exit = (void *)vcpu_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL,
	/* The kernel takes the machine back from a queue that stands so long. */
	.timeout_ms = 30000,
	.name = "scx_vcpu",
};
