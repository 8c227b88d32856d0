/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that our programs touch, with only the fields they
 * touch. CO-RE relocates every access, and libbpf matches the members of
 * sched_ext_ops by name, so no generated vmlinux.h is needed. The kernel of
 * the build machine need not have sched_ext.
 */
#pragma once

#include "kernel_abi.h"
#include "shared.h"

/* include/uapi/asm-generic/errno-base.h */
#define ENOMEM 12
#define EBUSY 16
#define EINVAL 22

/* include/uapi/linux/sched.h */
#define SCHED_FIFO 1
#define SCHED_RR 2
#define SCHED_DEADLINE 6
#define SCHED_EXT 7

/* kernel/sched/ext: enum scx_ops_flags, enum scx_ent_flags */
#define SCX_OPS_SWITCH_PARTIAL (1ULL << 3)
#define SCX_TASK_QUEUED (1U << 0)
#define SCX_OPS_ENQ_LAST (1ULL << 1)
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_KICK_IDLE (1ULL << 0)
#define SCX_KICK_PREEMPT (1ULL << 1)
#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_DSQ_LOCAL_ON ((1ULL << 63) | (1ULL << 62))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct upid {
	int nr;
};

struct pid {
	struct upid numbers[1];
};

struct thread_info {
	u32 cpu;
};

struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
};

struct cpumask {
	unsigned long bits[1];
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	unsigned int policy;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	void *private_data;
};

/* include/linux/kvm_host.h; lives in the BTF of the module kvm */
struct kvm_vcpu {
	int vcpu_id;
	struct pid *pid;
};

/* arch/x86/kvm/lapic.h */
struct kvm_lapic {
	struct kvm_vcpu *vcpu;
};

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

#pragma clang attribute pop

/* Opaque to programs. */
struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

/* include/uapi/linux/bpf.h; bpf_for() of libbpf has one. */
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

/* The context of iter/task_file: its layout is fixed by the kernel. */
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	u32 pad;
	struct file *file;
};

/* A subset of the kernel's: members that are not here keep their defaults. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	u64 hotplug_seq;
	char name[128];
};
