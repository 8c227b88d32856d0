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

/* Who decides which vCPU is next. */
enum sv_policy {
	SV_FIXED = 0,
	SV_CREDIT1 = 1,
	SV_CREDIT2 = 2,
	SV_VSLICER = 3,
	SV_ISCHE = 4,
	SV_ISACS = 5,
	/* Nobody: a scheduler that is broken. For tests of how the kernel ends it. */
	SV_NEVER = 6,
};

/* What kind of VM a vCPU belongs to; its administrator says so, or its counters. */
enum sv_class {
	/* It computes. */
	SV_CPU = 0,
	/* It waits for devices: short slices under vslicer, I/O cores under ische. */
	SV_IO = 1,
};

/* Parameters of the policies; read-only after load. Times in ns. */
struct sv_settings {
	/* enum sv_policy */
	u32 policy;
	/* Weight at which a nanosecond of running costs one of credit. */
	u32 reference;
	/* Longest turn; longest turn in BOOST. */
	u64 slice_ns;
	u64 boost_slice_ns;
	/* vSlicer: a turn of a latency-sensitive vCPU. */
	u64 micro_ns;
	/* How often Credit1 hands out credit, and the most that a vCPU can hold. */
	u64 refill_ns;
	u64 credit_limit_ns;
	/* What a reset of Credit2 and a reallocation of ISACS give. */
	u64 default_credit_ns;
	/* ISACS: intervals of events above this do not count; the 1 of equation (3). */
	u64 cutoff_ns;
	u64 boost_unit_ns;
	/* How long a vCPU waits on a pCPU that host threads hold, see relief.h. */
	u64 held_ns;
	/* How long a vCPU waits at all, see overdue.h. */
	u64 patience_ns;
	/* Switches, 0 or 1; see policy::host::credit. */
	u32 zero_is_under;
	u32 boost_needs_under;
	u32 reset_adds;
	u32 reset_at_zero;
	u32 slice_ends_with_credit;
	/* The same of policy::host::isacs. */
	u32 late_events_count;
	u32 equation_2_printed;
	u32 spent_strictly_below;
	u32 boost_strictly_below;
	u32 fall_through_burns;
	u32 keeps_old_choice;
	u32 one_pass;
	u32 preempts_boost;
	u32 boost_counts_as_consumed;
	u32 end_all;
	u32 limit_strength;
	u32 keeps_debt;
	/* iSche: an idle I/O core takes vCPUs of general cores (S8). */
	u32 lends_idle;
	/* Credit1: an idle pCPU takes nobody who is OVER (K7 as worded). */
	u32 over_stays;
};

/* What user space says about a vCPU before it is scheduled. */
struct sv_knobs {
	/* As in sv_found. */
	u32 vm;
	u32 vcpu;
	/* Position in the table plus one, 0: none; only the kernel's side sets it. */
	u32 slot;
	/* More is more CPU time; 256 is usual. */
	u32 weight;
	/* Most of a pCPU that it may use, in thousandths; 0: no limit. */
	u32 cap_permille;
	/* enum sv_class */
	u32 class;
	/* pCPU that it belongs on, plus one; 0: wherever it is. */
	u32 home;
	u32 pad;
	/* How long a turn of its own may last (vSlicer: its micro slice), ns; 0: as its
	 * policy says. */
	u64 slice_ns;
	/* How long it may wait when it wakes, ns, see latency.h; 0: as its policy says. */
	u64 latency_ns;
};

/* New values for a vCPU that is scheduled already. */
struct sv_set {
	/* As in sv_found: which one. */
	u32 vm;
	u32 tid;
	/* As in sv_knobs. */
	u32 weight;
	u32 cap_permille;
	u32 class;
	u32 home;
	u64 slice_ns;
	u64 latency_ns;
};

/* Most of them in one call; a bit each in its answer. */
#define SV_BATCH 64

/* A call: the first so many of the batch. */
struct sv_apply {
	u32 count;
	u32 pad;
	/* Answer: those that are not (or no longer) scheduled by us. */
	u64 missing;
};

/* A call: for which pCPU. */
struct sv_timers {
	u32 cpu;
	u32 pad;
};

/* Which vCPU has woken which by interrupts. */
struct sv_waker {
	/* As in sv_found: the one that was woken. */
	u32 vm;
	u32 tid;
	/* Number of the one that sent, in the same VM. */
	u32 source;
	u32 pad;
};

/* What a vCPU does. */
enum sv_state {
	SV_FREE = 0,
	SV_ASLEEP = 1,
	SV_WAITS = 2,
	SV_RUNS = 3,
};

/* One vCPU of the table. User space reads it at any time, field by field. */
struct sv_vcpu {
	/* enum sv_state; SV_FREE: the entry is nobody's. */
	u32 state;
	/* As in sv_found. */
	u32 vm;
	u32 tid;
	u32 vcpu;
	/* pCPU in whose queue it is. */
	u32 cpu;
	u32 weight;
	u32 cap_permille;
	/* Woken by a device and not yet through with the turn that came of it. */
	u32 boosted;
	/* A device has raised an interrupt since it ran. */
	u32 io_pending;
	/* The weight with which it counts among the active ones; 0: it does not. */
	u32 counted;
	/* Begin of the state, CLOCK_MONOTONIC. */
	u64 since_ns;
	/* Time in each state before this one. */
	u64 ran_ns;
	u64 waited_ns;
	u64 slept_ns;
	/* The longest time that it could run and did not, once. */
	u64 longest_wait_ns;
	/* Turns begun; ended by another vCPU or a host thread; wake-ups. */
	u64 nr_turns;
	u64 nr_preempted;
	u64 nr_wakes;
	/* Interrupts raised to it by devices, and by vCPUs of its own VM; of the latter
	 * those that found it asleep. */
	u64 nr_io;
	u64 nr_ipi;
	u64 nr_wake_ipi;
	/* Times that its guest halted, for how long in all (also while KVM polled), and since
	 * when it does (0: it does not). The vCPU's own thread writes them. */
	u64 nr_halts;
	u64 halted_ns;
	u64 halted_at;
	/* Credit, in ns of running at the reference weight. */
	s64 credit;
	/* Credit1: what its pCPU had given a unit of weight when it took its last part. */
	u64 taken;
	/* Credit2: resets of its queue until its last one. */
	u64 resets;
	/* What it has used of its cap, and up to which time that was given. */
	u64 used_ns;
	u64 used_at;
	/* Rest of a turn that a host thread interrupted, and its place in the queue. */
	u64 rest_ns;
	/* Fixed: end of such a turn, which goes on; 0: none. */
	u64 held_until_ns;
	/* How long its last turn might have become. */
	u64 turn_ns;
	u64 key;
	/* enum sv_class */
	u32 class;
	/* As in sv_knobs. */
	u32 home;
	/* It is in the queue of its pCPU. */
	u32 queued;
	/* It has used up its cap and waits for the next period. */
	u32 parked;
	/* As in sv_knobs. */
	u64 slice_ns;
	u64 latency_ns;
	/* The pCPU where it is counted as waiting, plus one (0: nowhere), and in the upper half
	 * a number of that wait; see waiting.h. */
	u64 noted;
	/* When its latency is over, while it waits; 0: it waits as its policy says. */
	u64 due_ns;
	/* vSlicer: what it may still run in this round, and what it ran beyond that and has not
	 * paid yet. */
	u64 left_ns;
	u64 owed_ns;
	/* ISACS, see policy::host::isacs::Vcpu. */
	s64 endcredit;
	s64 cvcredit;
	u64 ivcredit;
	u64 consumed;
	/* Its response events since the last reallocation: when the last one came (0:
	 * none yet), how many counted, all, EMA of the interval. */
	u64 event_at_ns;
	u64 events_counted;
	u64 events;
	u64 event_ema_ns;
	u32 event_ema_valid;
	/* Member of the CPU-BOOST group. */
	u32 in_group;
	/* The cap that used_ns counts against: another one than cap_permille until it is next
	 * looked at. */
	u32 cap_counted;
	u32 pad;
};

/* What a pCPU has for its queue. */
struct sv_pcpu {
	/* The vCPU that runs on it, as position in the table plus one. */
	u32 slot;
	/* How many vCPUs wait here for the next period because of their caps. */
	u32 parked;
	/* How many vCPUs wait here that another pCPU may take, and whether a thread without an
	 * entry ever did; see waiting.h. */
	u32 waiting;
	u32 strangers;
	/* When a vCPU ran here last. */
	u64 left_ns;
	/* When they were looked at last. */
	u64 unparked_at;
	/* Credit1: the vCPU whose turn a host thread interrupted last, as `slot`. */
	u32 interrupted;
	/* The one whose latency is over, as `slot`, and what the timer for those is armed
	 * for. */
	u32 due_slot;
	u64 due_ns;
	/* End of the turn of the one that runs, and what the timer is armed for (0: it
	 * is not); CLOCK_MONOTONIC. */
	u64 turn_end_ns;
	u64 armed_ns;
	/* Counts up: the order of those that came. */
	u64 sequence;
	/* Credit1: weights of the vCPUs that run or wait; what was burned since the last
	 * hand-out and when that was; what a unit of weight was given since the start, see
	 * credit1_unit(), and so much of it when the queue was last sorted. */
	u64 weight;
	u64 burned_ns;
	u64 given_at;
	u64 given;
	u64 sorted;
	/* Credit2: its resets. */
	u64 resets;
	/* vSlicer: what all have run in this round, the position at which the search
	 * for an ordinary vCPU begins, vCPUs that live here. */
	u64 round_used_ns;
	u32 cursor;
	u32 members;
	/* vSlicer: for how long the chosen one may run. */
	u64 turn_ns;
	/* ISACS: CPU-BOOST state; who runs out of turn (A6). */
	u32 cpu_boost;
	u32 forced;
	/* Sum of the IVCredits of the last reallocation, and the events before it. */
	u64 io_load_ns;
	u64 io_events;
	u64 nr_reallocations;
	u64 reallocated_at_ns;
	/* What was charged last (A2). */
	u64 last_ran_ns;
	/* Whoever ran last was no vCPU, see stranger.h. */
	u32 stranger_ran;
	/* The one that has waited for too long, as `slot`, see overdue.h. */
	u32 overdue_slot;
};

_Static_assert(sizeof(struct sv_found) == 16, "read by Rust");
_Static_assert(sizeof(struct sv_knobs) == 48, "written by Rust");
_Static_assert(sizeof(struct sv_set) == 40, "written by Rust");
_Static_assert(sizeof(struct sv_vcpu) == 368, "read by Rust");
_Static_assert(sizeof(struct sv_pcpu) == 200, "read by Rust");
_Static_assert(sizeof(struct sv_apply) == 16, "written by Rust");
_Static_assert(sizeof(struct sv_timers) == 8, "written by Rust");
_Static_assert(sizeof(struct sv_waker) == 16, "read by Rust");
_Static_assert(sizeof(struct sv_event) == 24, "is the format of the trace file");
