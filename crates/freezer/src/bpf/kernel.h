/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that the freezer's programs name.
 *
 * Not a generated vmlinux.h: that is 3 MB of one kernel's types for the five
 * that are needed. Not the UAPI headers either: with -target bpf, clang does not
 * find asm/types.h on Debian's multiarch layout. What is here is ABI and cannot
 * change; a kernel structure whose layout may differ would carry
 * preserve_access_index, and the freezer needs none.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

typedef _Bool bool;
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
};

#define BPF_F_MMAPABLE (1U << 10)

/* Flags of bpf_timer_start(): absolute instant (6.4), stay on this CPU (6.7). */
#define BPF_F_TIMER_ABS (1ULL << 0)
#define BPF_F_TIMER_CPU_PIN (1ULL << 1)

#define CLOCK_MONOTONIC 1

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));
