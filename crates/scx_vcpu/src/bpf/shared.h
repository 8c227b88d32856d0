/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What the BPF side and the Rust side both see. Plain integers only.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

/* A vCPU thread that was found. */
struct sv_found {
	/* Process id of the virtual machine monitor: names the VM. */
	u32 vm;
	/* Thread that runs the vCPU. */
	u32 tid;
	/* Number of the vCPU in its VM. */
	u32 vcpu;
	u32 pad;
};

/* What happened to a vCPU thread. */
enum sv_kind {
	/* It got a pCPU. */
	SV_ON = 1,
	/* It gave the pCPU up to sleep: the guest halted, or its VMM waits. */
	SV_OFF_BLOCKED = 2,
	/* It could run on; another vCPU has the pCPU now. */
	SV_OFF_VCPU = 3,
	/* It could run on; a thread that is no vCPU has the pCPU now. */
	SV_OFF_HOST = 4,
	/* It was woken and waits for a pCPU. */
	SV_WAKE = 5,
};

/* One event of the trace, as it lies in the file. */
struct sv_event {
	/* CLOCK_MONOTONIC of the host, ns. */
	u64 at_ns;
	/* As in sv_found. */
	u32 vm;
	u32 tid;
	u16 vcpu;
	/* pCPU; for SV_WAKE the one it last ran on. */
	u16 cpu;
	/* enum sv_kind */
	u8 kind;
	u8 pad[3];
};

_Static_assert(sizeof(struct sv_found) == 16, "read by Rust");
_Static_assert(sizeof(struct sv_event) == 24, "is the format of the trace file");
