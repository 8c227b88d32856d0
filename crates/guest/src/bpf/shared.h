/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * What the BPF programs and the daemon share in memory. The programs own these
 * as global variables; the daemon sees the same pages through the skeleton's
 * mapping, with types generated from the program's BTF, so nothing is declared
 * twice. Plain integers only. All instants are CLOCK_MONOTONIC nanoseconds.
 */
#pragma once

#include "path.h" /* crates/policy/include */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define MAX_VCPUS 256
#define MAX_TASKS 128
#define MAX_DEVICES 32
#define GAP_HISTORY 16
#define STAYS 8
#define NO_SLOT 0xffffffffu
#define CONTROL_RING MAX_VCPUS /* rings 0..MAX_VCPUS-1 are the vCPUs' own */

/* One descheduling of a vCPU. */
struct gap {
	u64 out_ns;  /* taken away */
	u64 back_ns; /* first seen running again */
};

/*
 * One vCPU. Written by programs that run on that vCPU only, so there is one
 * writer; readers on other vCPUs check nr_gaps before and after.
 */
struct vcpu_slot {
	u64 steal_ns;    /* last value of the steal counter */
	u64 seen_ns;     /* last time one of our programs ran here */
	u64 back_ns;     /* start of the present slice */
	u64 nr_gaps;     /* monotone; gaps[nr_gaps % GAP_HISTORY] comes next */
	u64 stolen_ns;   /* sum of all gaps */
	u64 ours_ns;     /* of it, with a thread of the daemon current */
	u64 idle_end_ns; /* last time the idle task gave way to another */
	u64 tick_ns;     /* last timer interrupt, for the tick-gap sense */
	u32 idle;        /* the idle task is current */
	u32 tick_busy;   /* the last timer interrupt found a task running */
	u32 ticks;       /* timer interrupts in the present sample, candidate.h */
	u32 iowait;      /* of them, those that found a task of this vCPU in iowait */
	struct gap gaps[GAP_HISTORY];
	/* Written by the daemon's thread of this vCPU: */
	u64 alarm_ns;        /* its timer will go off then; 0: it is not armed */
	u64 push_ns;         /* the part of that which is for tasks here; 0: none */
	u64 push_latency_ns; /* the longest latency of those tasks */
	/* Which vCPUs were descheduled when a program last saw reason to wake that
	 * thread, so that it need not ask. */
	u64 looked_ns;
	u64 out[MAX_VCPUS / 64];
} __attribute__((aligned(64)));

/* What an I/O-bound task is doing. */
enum activity {
	ACT_RUNNING,    /* current on its vCPU */
	ACT_QUEUED,     /* runnable, in its vCPU's queue */
	ACT_WAKING,     /* woken, not yet in a queue: its vCPU must act first */
	ACT_BLOCKED_IO, /* sleeps until a request completes */
	ACT_BLOCKED,    /* sleeps for another reason */
};

/* Life of a task slot. BPF: FREE -> LIVE -> LEFT or EXITED; the daemon, once it
 * has undone what it did to the task: -> FREE. */
enum slot_state {
	SLOT_FREE,
	SLOT_FILLING, /* being written by the program that took it */
	SLOT_LIVE,    /* I/O-bound now */
	SLOT_LEFT,    /* no longer I/O-bound; the daemon still holds it */
	SLOT_EXITED,  /* the thread is gone */
};

/* Time that a task spent on a vCPU, of which it may turn out that it was away. */
struct stay {
	u64 from_ns;
	u64 to_ns;
	u32 cpu;
	u32 pad;
};

/* One I/O-bound task. */
struct task_slot {
	u32 state; /* enum slot_state */
	u32 tid;
	u32 tgid;
	u32 activity;          /* enum activity */
	u64 start_boottime_ns; /* CLOCK_BOOTTIME; with tid it names the thread */
	u64 since_ns;          /* start of that activity */
	u32 cpu;               /* its vCPU */
	u32 load_permille;     /* of the last complete window (V15) */
	u64 window_ns;         /* end of the last complete window */
	u32 dev;               /* the block device it used last, or 0 */
	u32 by_kthread;        /* sleeps that a kernel thread ended, of 1000; see ended_by */
	u32 woken_here;        /* long sleeps ended from where it slept, of 1000; see dozed */
	u32 pad;
	u64 latency_ns; /* 90th percentile of issue to wake-up, tracked */
	u64 on_cpu_ns;  /* sums since the slot was taken ... */
	u64 blocked_io_ns;
	u64 asleep_ns;   /* ... asleep, but not on I/O, */
	u64 queued_ns;   /* ... queued while its vCPU ran, */
	u64 inactive_ns; /* ... ready or completion pending on a descheduled one */
	u64 nr_wakes;    /* wake-ups from I/O */
	u64 nr_switches; /* times it was put on a CPU */
	u64 nr_requests; /* block requests submitted; without a device, I/O wake-ups */
	u64 taken_ns;    /* when the slot was taken */
	u64 here_ns;     /* when it was last carried to another vCPU, awake */
	struct stay stays[STAYS];
	u32 nr_stays; /* so far; stays[nr_stays % STAYS] comes next */
	struct path path;
} __attribute__((aligned(64)));

/* One block device, by its number. */
struct device_slot {
	u32 dev; /* major << 20 | minor; 0: free */
	u32 pad;
	u64 nr_completions;
	struct path path;
};

/* A doorbell: one 64-bit word in a vCPU's ring, kind in the low byte, a task
 * slot or tid above it. */
enum bell {
	BELL_GAP,     /* this vCPU is back after a gap */
	BELL_ARRIVED, /* an I/O-bound task came to this vCPU */
	BELL_ENTER,   /* a task became I/O-bound (slot) */
	BELL_LEAVE,   /* a task ceased to be I/O-bound, or ended (slot) */
	BELL_FORK,    /* a task in a slot made a thread or process (slot, child tid) */
	BELL_SHARED,  /* control ring: vCPUs are being taken away */
	BELL_QUIET,   /* control ring: they have not been for long */
	BELL_IO,      /* control ring: somebody does I/O, the detector is wanted */
	BELL_CALM,    /* control ring: no task has been I/O-bound for long */
};

/* What the daemon wants, written by it. */
enum mode {
	MODE_ASLEEP,
	MODE_WATCHING,
	MODE_ACTIVE,
};
