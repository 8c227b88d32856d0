/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which threads are vCPUs.
 *
 * Problem: a scheduler that goes by thread names ("CPU 0/KVM") serves one VMM
 * and believes every impostor. Idea: what makes a thread a vCPU is that it
 * calls KVM_RUN on the descriptor of a vCPU. Two programs see that:
 *
 *  - the iterator walks all descriptors; one whose name is kvm-vcpu:N leads to
 *    the kernel's vCPU, and that knows the thread that ran it last. It finds
 *    the vCPUs that were there before us;
 *  - the fentry program is called for each KVM_RUN and finds new ones at once.
 *
 * The iterator sees whoever has the descriptor, and the thread that ran it last may have
 * ended since: user space looks whether that thread is one of this process.
 *
 * Limits: a vCPU that has never run is not found until it does. A thread that runs several
 * has the number of the first, and one that has run a vCPU counts as one until it ends.
 */
#pragma once

#include "knobs.h"

/* Weight of a vCPU of which user space says nothing. */
#define DEFAULT_WEIGHT 256

/* New vCPUs for user space. 64 KiB hold 2700; more at once are counted. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} found SEC(".maps");

/* vCPUs that did not fit into `found`; the next KVM_RUN tries again, or user space finds them
 * when it next walks over all descriptors. */
u64 nr_found_lost;

/* Times that there was no memory for what is known of a thread: the kernel may not wait for
 * it here. */
u64 nr_no_storage;

static __always_inline struct sv_knobs *vcpu_of(struct task_struct *p)
{
	return bpf_task_storage_get(&vcpus, p, NULL, 0);
}

/* Can the thread be a vCPU that is ours? Who only looks on has those of any class. */
static __always_inline bool may_be_ours(struct task_struct *p)
{
#ifdef ONLY_LOOKS
	return true;
#else
	return p->policy == SCHED_EXT;
#endif
}

/* Whoever made it a real-time thread has decided: it comes before all of ours and the fair
 * class, and is left alone. */
static __always_inline bool is_real_time(struct task_struct *p)
{
#ifdef ONLY_LOOKS
	return false;
#else
	return p->policy == SCHED_FIFO || p->policy == SCHED_RR || p->policy == SCHED_DEADLINE;
#endif
}

SEC("fentry/kvm_arch_vcpu_ioctl_run")
int BPF_PROG(vcpu_runs, struct kvm_vcpu *kvm_vcpu)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct sv_found *entry;
	struct sv_knobs *knobs;

	/* Still told again when user space could not make it SCHED_EXT. */
	if ((may_be_ours(p) && vcpu_of(p)) || is_real_time(p))
		return 0;
	knobs = bpf_task_storage_get(&vcpus, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (knobs) {
		knobs->vm = p->tgid;
		knobs->vcpu = kvm_vcpu->vcpu_id;
		if (!knobs->weight)
			knobs->weight = DEFAULT_WEIGHT;
	} else {
		/* No memory in this moment. User space makes it: there may be no next KVM_RUN,
		 * if the guest only computes. */
		__sync_fetch_and_add(&nr_no_storage, 1);
	}
	entry = bpf_ringbuf_reserve(&found, sizeof(*entry), 0);
	if (!entry) {
		__sync_fetch_and_add(&nr_found_lost, 1);
		return 0;
	}
	entry->vm = p->tgid;
	entry->tid = p->pid;
	entry->vcpu = kvm_vcpu->vcpu_id;
	entry->pad = 0;
	bpf_ringbuf_submit(entry, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* "kvm-vcpu:" as virt/kvm/kvm_main.c names the descriptor. */
static __always_inline bool is_vcpu_name(const char *name)
{
	const char want[] = "kvm-vcpu:";

	for (u32 i = 0; i < sizeof(want) - 1; i++)
		if (name[i] != want[i])
			return false;
	return true;
}

SEC("iter/task_file")
int list_vcpus(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sv_found entry = {};
	struct kvm_vcpu *kvm_vcpu;
	struct pid *pid;
	char name[16] = {};
	const unsigned char *at;

	if (!task || !file)
		return 0;
	at = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	if (bpf_probe_read_kernel_str(name, sizeof(name), at) < 0 || !is_vcpu_name(name))
		return 0;
	kvm_vcpu = BPF_CORE_READ(file, private_data);
	pid = BPF_CORE_READ(kvm_vcpu, pid);
	if (!pid)
		return 0;
	entry.vm = task->tgid;
	entry.tid = BPF_CORE_READ(pid, numbers[0].nr);
	entry.vcpu = BPF_CORE_READ(kvm_vcpu, vcpu_id);
	bpf_seq_write(ctx->meta->seq, &entry, sizeof(entry));
	return 0;
}
