/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Takes a CPU away, as a host does with a vCPU.
 *
 * Problem. An experiment on vCPU time slices needs CPUs that stop for the other
 * VMs' turns: no task runs, no timer fires, no interrupt or IPI is answered, and
 * the task that was current stays current.
 *
 * Idea. local_timer_entry fires in the local APIC timer's interrupt, with
 * interrupts off, before the kernel has looked at any timer. Whoever spins there
 * has stopped the CPU in just that sense. One bpf_timer per CPU, pinned, keeps
 * such an interrupt due at the end of each slice; the periodic tick is the safety
 * net should that timer ever be lost.
 *
 * The slice accounting of one CPU, with p the planned end of a slice, t the
 * instant at which the interrupt came (late = t - p), r the planned return, b the
 * return (overrun = b - r) and d what the CPU is behind its plan:
 *     d  += late            r  = t + off - min(d, off / 4), which d is reduced by
 *     d  += overrun         p' = b + on
 * Whatever comes late shortens the gaps that follow, so that the period stays
 * on + off and the CPUs keep the phases of the plan: a recorded host says which
 * of them are off together. The quarter bounds it: after a stall (the real host
 * took the CPU) a gap is at least 3/4 of what was asked, and the rest is made up
 * in the next ones. Slices are never shorter than asked. With fixed lengths whole
 * periods are forgotten, as they do not change the phase.
 *
 * Safety, each rule by itself enough to give the CPU back:
 *   - state == FZ_STOPPED, which every turn of the spin looks at;
 *   - deadline_ns, which no gap outlives;
 *   - max_gap_ns, which no single gap outlives;
 *   - all_off_limit_ns: when all CPUs of the plan have been off at once for that
 *     long, each of them comes back. No lock: a CPU that goes away first writes
 *     the instant into last_out_ns and then counts itself in nr_off, so whoever
 *     reads nr_off == nr_lanes finds in last_out_ns the instant since when;
 *   - the owner's death closes the link and the timer map, and with them ends
 *     everything but the gap of the moment.
 *
 * Order among programs. Programs on one tracepoint run in the order in which they
 * were attached. One attached after this one runs after the gap, in the same
 * interrupt, and finds the steal page of the return. One attached before runs
 * before the gap and finds the CPU still on; it sees the gap at the next
 * interrupt.
 *
 * Limits. x86 only (irq_vectors tracepoints). An NMI is still answered. A CPU
 * with interrupts disabled cannot be taken away until it enables them: that is
 * the lateness in the log.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "freezer.h"

char LICENSE[] SEC("license") = "GPL";

/* Set before load; the defaults of user space are the only ones. */

/* Longest single gap, whatever a plan says. 0 would make every gap empty. */
const volatile __u64 max_gap_ns;
/* Possible CPUs: the stride between the two banks of `plans`. */
const volatile __u32 nr_cpu_ids;
/* Recorded pairs that one bank can hold: the stride between the banks of `pairs`. */
const volatile __u32 pairs_per_bank;
/* Events that one CPU can log. When they are used up, nr_dropped counts. */
const volatile __u32 log_per_cpu;

/*
 * Turns of the spin between two looks at the outer loop's count. bpf_loop stops
 * at 2^23 turns, at 20..40 ns each as little as 170 ms; nested it is bounded by
 * the clock only.
 */
#define SPIN_TURNS 4096
#define SPIN_ROUNDS (1 << 20)

/* How often a CPU looks whether the run has begun, while it is being prepared. */
#define POLL_NS 100000

volatile struct fz_ctl ctl;

/* The arrays are sized before load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_pair);
} pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_lane);
} lanes SEC(".maps");

/*
 * The log: per CPU a run of log_per_cpu events, filled once and never
 * overwritten, so that a reader needs no lock: what lies below nr_logged does
 * not change. Not a ring buffer: that wants a consumer, whose wake-ups would
 * disturb what is measured and which itself is frozen half of the time.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_event);
} events SEC(".maps");

/*
 * The published steal pages, one per possible CPU, index = CPU. Other processes
 * open this map by its id.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_steal);
} steal_page SEC(".maps");

struct fz_timer {
	struct bpf_timer timer;
};

/* A map of its own: one that holds timers cannot be mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fz_timer);
} slice_timers SEC(".maps");

struct spin {
	__u64 until_ns;
	__u32 done;
	__u32 capped;
};

static long spin_turn(__u32 i, struct spin *spin)
{
	__u64 now = bpf_ktime_get_ns();

	if (now >= spin->until_ns || ctl.state != FZ_RUNNING) {
		spin->done = 1;
		return 1;
	}
	if (ctl.nr_off >= ctl.nr_lanes && now >= ctl.last_out_ns + ctl.all_off_limit_ns) {
		spin->done = 1;
		spin->capped = 1;
		return 1;
	}
	return 0;
}

static long spin_round(__u32 i, struct spin *spin)
{
	bpf_loop(SPIN_TURNS, spin_turn, spin, 0);
	return spin->done;
}

/*
 * The lengths of the pair that `lane` is at: FIXED, RECORDED, or -1 if there are
 * none. A change of bank starts the new plan from its first pair.
 */
#define FIXED 0
#define RECORDED 1

static __always_inline int lengths(struct fz_lane *lane, __u32 cpu, struct fz_pair *out)
{
	__u32 bank = ctl.bank & 1;
	__u32 key = bank * nr_cpu_ids + cpu;
	struct fz_plan *plan = bpf_map_lookup_elem(&plans, &key);
	struct fz_pair *pair;

	if (!plan)
		return -1;
	if (lane->bank != bank) {
		lane->bank = bank;
		lane->pair = 0;
	}
	if (!plan->nr_pairs) {
		out->on_ns = plan->on_ns;
		out->off_ns = plan->off_ns;
		return FIXED;
	}
	if (lane->pair >= plan->nr_pairs)
		lane->pair = 0;
	key = bank * pairs_per_bank + plan->first_pair + lane->pair;
	pair = bpf_map_lookup_elem(&pairs, &key);
	if (!pair)
		return -1;
	*out = *pair;
	return RECORDED;
}

/* `lane` has come `ns` late at a pair of this kind and these lengths. */
static __always_inline void behind(struct fz_lane *lane, __u64 ns, int kind,
				   const struct fz_pair *length)
{
	__u64 period = length->on_ns + length->off_ns;

	lane->behind_ns += ns;
	if (kind == FIXED && lane->behind_ns >= period)
		lane->behind_ns %= period;
}

/*
 * The page as KVM leaves it. Taken away: kvm_steal_time_set_preempted() sets the
 * flag and touches nothing else, so the counter is stale during the gap. Back:
 * record_steal_time() clears the flag, then adds to the counter between an odd
 * and an even version. The atomics are there for their barriers.
 */
static __always_inline void steal_out(struct fz_steal *page)
{
	*(volatile __u8 *)&page->preempted = FZ_VCPU_PREEMPTED;
}

static __always_inline void steal_back(struct fz_steal *page, __u64 gap_ns)
{
	*(volatile __u8 *)&page->preempted = 0;
	__sync_fetch_and_add(&page->version, 1);
	*(volatile __u64 *)&page->steal += gap_ns;
	__sync_fetch_and_add(&page->version, 1);
}

static __always_inline void log_gap(struct fz_lane *lane, const struct fz_event *gap)
{
	__u64 n = lane->nr_logged;
	__u32 key = lane->slot * log_per_cpu + (__u32)n;
	struct fz_event *event = NULL;

	if (n < log_per_cpu)
		event = bpf_map_lookup_elem(&events, &key);
	if (!event) {
		lane->nr_dropped++;
		return;
	}
	*event = *gap;
	/* An atomic, so that the event is visible before the count that covers it. */
	__sync_fetch_and_add(&lane->nr_logged, 1);
}

static __always_inline void arm(struct fz_lane *lane, __u32 cpu)
{
	struct fz_timer *t = bpf_map_lookup_elem(&slice_timers, &cpu);

	if (!t ||
	    bpf_timer_start(&t->timer, lane->next_out_ns, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN))
		lane->nr_timer_errors++;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(freeze_cpu, int vector)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct spin spin = {};
	struct fz_pair length = {};
	struct fz_event gap = {};
	struct fz_steal *page;
	struct fz_lane *lane;
	__u64 now, late, over, shorter;
	int kind;

	if (ctl.state != FZ_RUNNING)
		return 0;
	now = bpf_ktime_get_ns();
	if (now >= ctl.deadline_ns)
		return 0;
	lane = bpf_map_lookup_elem(&lanes, &cpu);
	page = bpf_map_lookup_elem(&steal_page, &cpu);
	if (!lane || !page || !lane->member)
		return 0;

	if (!lane->next_out_ns) {
		__u32 key = (ctl.bank & 1) * nr_cpu_ids + cpu;
		struct fz_plan *plan = bpf_map_lookup_elem(&plans, &key);

		if (!plan)
			return 0;
		lane->bank = ctl.bank & 1;
		lane->next_out_ns = ctl.t0_ns + plan->first_on_ns;
		arm(lane, cpu);
	}
	if (now < lane->next_out_ns)
		return 0;
	kind = lengths(lane, cpu, &length);
	if (kind < 0)
		return 0;

	late = now - lane->next_out_ns;
	behind(lane, late, kind, &length);
	shorter = lane->behind_ns < length.off_ns / 4 ? lane->behind_ns : length.off_ns / 4;
	lane->behind_ns -= shorter;
	gap.planned_out_ns = lane->next_out_ns;
	gap.out_ns = now;
	gap.planned_back_ns = now + length.off_ns - shorter;
	spin.until_ns = gap.planned_back_ns;
	if (spin.until_ns > now + max_gap_ns)
		spin.until_ns = now + max_gap_ns;
	if (spin.until_ns > ctl.deadline_ns)
		spin.until_ns = ctl.deadline_ns;

	steal_out(page);
	ctl.last_out_ns = now;
	/* An atomic also for its order: last_out_ns is written before. */
	__sync_fetch_and_add(&ctl.nr_off, 1);
	bpf_loop(SPIN_ROUNDS, spin_round, &spin, 0);
	__sync_fetch_and_sub(&ctl.nr_off, 1);
	gap.back_ns = bpf_ktime_get_ns();
	steal_back(page, gap.back_ns - gap.out_ns);

	lane->nr_gaps++;
	lane->frozen_ns += gap.back_ns - gap.out_ns;
	lane->late_ns += late;
	if (late > lane->late_max_ns)
		lane->late_max_ns = late;
	over = gap.back_ns > gap.planned_back_ns ? gap.back_ns - gap.planned_back_ns : 0;
	behind(lane, over, kind, &length);
	lane->overrun_ns += over;
	if (over > lane->overrun_max_ns)
		lane->overrun_max_ns = over;
	lane->nr_capped += spin.capped;
	log_gap(lane, &gap);

	lane->pair++;
	if (lengths(lane, cpu, &length) < 0)
		return 0;
	lane->next_out_ns = gap.back_ns + length.on_ns;
	/*
	 * Here and not in the timer's own callback: that runs in the softirq after
	 * this interrupt, which a busy CPU may hand to ksoftirqd, late.
	 */
	arm(lane, cpu);
	return 0;
}

/*
 * Runs only when the tracepoint has not set the timer again: while the run is
 * being prepared, or when an interrupt came a moment before its time.
 */
static int timer_fired(void *map, __u32 *key, struct fz_timer *t)
{
	struct fz_lane *lane;
	__u64 now, due;
	__u32 cpu = *key;

	/* A CPU that went offline left its timer to another: let it end. */
	if (cpu != bpf_get_smp_processor_id())
		return 0;
	if (ctl.state == FZ_STOPPED)
		return 0;
	lane = bpf_map_lookup_elem(&lanes, &cpu);
	if (!lane)
		return 0;
	now = bpf_ktime_get_ns();
	if (ctl.state == FZ_RUNNING && now >= ctl.deadline_ns)
		return 0;
	due = lane->next_out_ns;
	if (due <= now)
		due = now + POLL_NS;
	if (bpf_timer_start(&t->timer, due, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN))
		lane->nr_timer_errors++;
	return 0;
}

/*
 * Sets this CPU's slice timer polling. User space calls it on each CPU of the
 * plan. Returns 0 or the negative errno of the step that failed; EINVAL comes
 * from bpf_timer_start() alone, on kernels that do not know its flags.
 */
SEC("syscall")
int prepare_cpu(struct fz_call *call)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct fz_timer *t;
	int error;

	if (cpu != call->cpu)
		return -18; /* EXDEV: the caller is on another CPU */
	t = bpf_map_lookup_elem(&slice_timers, &cpu);
	if (!t)
		return -2; /* ENOENT */
	error = bpf_timer_init(&t->timer, &slice_timers, CLOCK_MONOTONIC);
	if (error)
		return error;
	error = bpf_timer_set_callback(&t->timer, timer_fired);
	if (error)
		return error;
	return bpf_timer_start(&t->timer, bpf_ktime_get_ns() + POLL_NS,
			       BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}
