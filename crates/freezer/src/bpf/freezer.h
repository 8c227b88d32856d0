/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * What the freezer's BPF program and user space share, through memory that both
 * map. The Rust types are generated from the compiled object's BTF, so this file
 * is the only definition. All times are nanoseconds of CLOCK_MONOTONIC, which is
 * the clock of bpf_ktime_get_ns().
 */
#pragma once

/* Life of one run. User space only ever moves it forward. */
enum fz_state {
	FZ_PREPARING, /* timers poll, nothing freezes */
	FZ_RUNNING,   /* t0_ns is valid, slices count from there */
	FZ_STOPPED,   /* whoever spins leaves at once; for good */
};

/* The run as a whole. One per run, in .bss. */
struct fz_ctl {
	/* Written by user space. */
	__u64 t0_ns;            /* all lanes start their first slice here */
	__u64 deadline_ns;      /* nothing is frozen from here on */
	__u64 all_off_limit_ns; /* longest time that all lanes may be off at once */
	enum fz_state state;
	__u32 bank;     /* which half of the plans counts: 0 or 1 */
	__u32 nr_lanes; /* CPUs in the plan */
	__u32 __pad[23];
	/*
	 * Written by BPF, on cache lines of their own: every spinning CPU reads
	 * them all the time.
	 */
	__u64 last_out_ns; /* when the last CPU to go away went away */
	__u32 nr_off;      /* CPUs that are off now */
	__u32 __pad2[29];
};
_Static_assert(sizeof(struct fz_ctl) == 256, "two pairs of cache lines");

/*
 * The plan of one CPU. Two banks of these, indexed bank * nr_cpu_ids + cpu:
 * user space fills the unused bank and flips fz_ctl::bank.
 */
struct fz_plan {
	__u64 first_on_ns; /* length of the very first slice: the phase */
	__u64 on_ns;       /* used when nr_pairs == 0 */
	__u64 off_ns;
	__u32 first_pair; /* where this CPU's recorded pairs begin in its bank */
	__u32 nr_pairs;   /* 0: fixed lengths */
};

/* One recorded slice and the gap that follows it. */
struct fz_pair {
	__u64 on_ns;
	__u64 off_ns;
};

/*
 * One CPU's state and its counters, which never drop anything. Written only on
 * that CPU, except for `slot` and `member`, which user space writes before the
 * start. 128 bytes: no two CPUs share a cache line, nor the one beside it.
 */
struct fz_lane {
	__u64 next_out_ns; /* planned end of the present slice; 0: not started */
	__u32 bank;        /* the bank that `pair` counts in */
	__u32 pair;        /* index of the pair whose slice runs now */
	__u32 slot;        /* this CPU's part of the log */
	__u32 member;      /* 0: this CPU is never frozen */
	__u64 nr_gaps;
	__u64 frozen_ns; /* sum of back - out */
	__u64 late_ns;   /* sum of out - planned out */
	__u64 late_max_ns;
	__u64 overrun_ns; /* sum of back - planned back */
	__u64 overrun_max_ns;
	__u64 nr_capped; /* gaps that all_off_limit_ns ended early */
	__u64 nr_logged;
	__u64 nr_dropped;      /* gaps that found the log full */
	__u64 nr_timer_errors; /* the slice timer could not be set */
	__u64 behind_ns;       /* of what came late: not yet made up by shorter gaps */
	__u64 __pad[2];
};
_Static_assert(sizeof(struct fz_lane) == 128, "one lane per pair of cache lines");

/* One gap. */
struct fz_event {
	__u64 planned_out_ns;
	__u64 out_ns;
	__u64 planned_back_ns;
	__u64 back_ns;
};

/*
 * The steal page of one CPU: struct kvm_steal_time of the KVM guest ABI, 64
 * bytes, `preempted` at offset 16.
 */
#define FZ_VCPU_PREEMPTED 1

struct fz_steal {
	__u64 steal;   /* ns for which the CPU was off */
	__u32 version; /* odd while `steal` is being written */
	__u32 flags;
	__u8 preempted; /* FZ_VCPU_PREEMPTED while the CPU is off */
	__u8 u8_pad[3];
	__u32 pad[11];
};
_Static_assert(sizeof(struct fz_steal) == 64, "the KVM guest ABI");
_Static_assert(__builtin_offsetof(struct fz_steal, preempted) == 16, "the KVM guest ABI");

/* Argument of the program that user space calls on one CPU. */
struct fz_call {
	__u64 cpu; /* the CPU on which the program must find itself */
};
