/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that our programs touch, with only the fields they
 * touch. CO-RE relocates every access, so this file fits all kernels and no
 * generated vmlinux.h (three megabytes that age) is needed.
 */
#pragma once

#include "kernel_abi.h"
#include "shared.h"

/*
 * A loop that the verifier walks once, and not once for every path that leads to
 * it: a global function of its own (weak, or clang would tailor it to its
 * callers). Inlined loops within loops took it a second at every start. Only
 * scalars go in and one comes out, which all kernels since 5.6 accept.
 */
#define VERIFIED_ONCE __attribute__((noinline, weak))

/* include/linux/sched.h */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	u32 cpu;
};

typedef struct {
	int counter;
} atomic_t;

struct rq;

struct cfs_rq {
	struct rq *rq;
};

struct rq {
	atomic_t nr_iowait;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct bpf_local_storage;

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	struct sched_entity se;
	int pid;
	int tgid;
	u64 start_boottime;
	struct task_struct *group_leader;
	unsigned in_iowait : 1;
	char comm[16];
	struct bpf_local_storage *bpf_storage;
};

struct block_device {
	u32 bd_dev;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
};

struct request {
	struct bio *bio;
};

struct request_queue;

#pragma clang attribute pop

/* arch/x86/include/uapi/asm/kvm_para.h: the page KVM shares with each vCPU */
struct kvm_steal_time {
	u64 steal;
	u32 version;
	u32 flags;
	u8 preempted;
	u8 u8_pad[3];
	u32 pad[11];
};

#define KVM_VCPU_PREEMPTED 1
