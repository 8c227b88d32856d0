/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * What every BPF program names and the kernel's ABI fixes: integers, kinds of maps,
 * flags. For BPF only; the formulas beside it need none of it.
 *
 * The kernel's structures are not here: each crate's kernel.h has those that its programs
 * touch, with the fields they touch, and so says what they rely on.
 */
#ifndef POLICY_KERNEL_ABI_H
#define POLICY_KERNEL_ABI_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

/* As libbpf's headers name them. */
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
	BPF_RB_NO_WAKEUP = 1 << 0,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
	/* bpf_timer_start(): an instant (6.4), on this CPU (6.7). */
	BPF_F_TIMER_ABS = 1 << 0,
	BPF_F_TIMER_CPU_PIN = 1 << 1,
};

/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1

/* Opaque to programs. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

#endif /* POLICY_KERNEL_ABI_H */
