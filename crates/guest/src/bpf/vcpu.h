/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vCPU Monitor, kernel half: notice that this vCPU was away.
 *
 * KVM adds the time a vCPU waited for a pCPU to the steal counter of its page
 * when the vCPU enters the guest again. A jump of that counter is therefore the
 * exact length of the gap, and the first program that runs afterwards is at
 * most one timer interrupt late: an interrupt that fell due in the gap is
 * delivered at entry. So
 *     back = now, out = now - jump.
 *
 * Where no page can be read, the distance of two timer ticks on a busy vCPU
 * tells that vCPUs are shared at all (a tick is 1..10 ms: good enough to wake
 * the daemon, not to time a slice; the heartbeat does that).
 */
#pragma once

/* Addresses of the vCPUs' steal pages, found once by locate.bpf.c; 0: none. */
u64 steal_addr[MAX_VCPUS];
struct vcpu_slot vcpus[MAX_VCPUS];

/* A jump below this is the hypervisor's noise, not the end of a slice. */
const volatile u64 min_gap_ns;
/* Kernel tick, for the tick-gap sense; 0 if a steal page is there. */
const volatile u64 tick_ns;
/* Without a gap for this long the daemon goes to sleep. */
const volatile u64 quiet_after_ns;

const volatile u32 nr_vcpus; /* possible CPUs of this machine */
const volatile u32 own_tgid; /* the daemon: never I/O-bound to itself */
u32 mode;                    /* enum mode, set by the daemon */
u64 last_gap_ns;             /* of any vCPU; racy on purpose: a lost update is harmless */
u32 asleep_gaps;             /* gaps since the daemon fell asleep */
u32 quiet_rung;              /* BELL_QUIET is in the ring already */
u64 nr_lost_bells;

static __always_inline u32 this_cpu(void)
{
	return bpf_get_smp_processor_id() & (MAX_VCPUS - 1);
}

/* Is it the heartbeat that finds gaps, and no program? */
static __always_inline bool by_heartbeat(void)
{
	return tick_ns;
}

static __always_inline bool vcpu_is_out(u32 cpu)
{
	struct kvm_steal_time st;
	u64 addr = steal_addr[cpu & (MAX_VCPUS - 1)];

	if (!addr || bpf_probe_read_kernel(&st, sizeof(st.steal) + 16, (void *)addr))
		return false;
	return st.preempted & KVM_VCPU_PREEMPTED;
}

/* vCPUs 64 * word and the following: one bit for each that is out. */
VERIFIED_ONCE u64 vcpus_out(u32 word)
{
	u64 out = 0;
	u32 bit;

	for (bit = 0; bit < 64; bit++) {
		if (word * 64 + bit >= nr_vcpus)
			break;
		if (vcpu_is_out(word * 64 + bit))
			out |= 1ull << bit;
	}
	return out;
}

/* Returns whether the bell is in the ring. One that is not is counted, and the daemon
 * looks for what it would have said when it reads the others. */
static __always_inline bool ring_bell(u32 ring, u64 bell, u64 flags)
{
	void *rb = bpf_map_lookup_elem(&rings, &ring);

	if (!rb || !bpf_ringbuf_output(rb, &bell, sizeof(bell), flags))
		return rb;
	__sync_fetch_and_add(&nr_lost_bells, 1);
	return false;
}

/* For the control thread, which clears the flag when it has heard it: first the flag, or
 * it would be raised after that. */
static __always_inline void ring_once(u32 *rung, u64 bell)
{
	*rung = 1;
	if (!ring_bell(CONTROL_RING, bell, BPF_RB_FORCE_WAKEUP))
		*rung = 0;
}

static __always_inline void note_gap(struct vcpu_slot *v, u64 out, u64 back)
{
	struct gap *gap = &v->gaps[v->nr_gaps & (GAP_HISTORY - 1)];

	gap->out_ns = out;
	gap->back_ns = back;
	v->back_ns = back;
	v->stolen_ns += back - out;
	/* After the entry, so that a reader on another vCPU never counts a gap
	 * that is half written. */
	asm volatile("" ::: "memory");
	v->nr_gaps++;
	last_gap_ns = back;
	quiet_rung = 0;
}

static __always_inline void saw_gap(struct vcpu_slot *v, u64 out, u64 back)
{
	note_gap(v, out, back);
	/* A few, not one: a single hiccup is no sharing. Lost, it is rung at the next. */
	if (mode == MODE_ASLEEP && __sync_fetch_and_add(&asleep_gaps, 1) == 4 &&
	    !ring_bell(CONTROL_RING, BELL_SHARED, BPF_RB_FORCE_WAKEUP))
		asleep_gaps = 4;
}

/* Called by every program before it looks at anything else on this vCPU.
 * Returns true if the vCPU has just come back. */
static __always_inline bool vcpu_check(u32 cpu, u64 now)
{
	struct vcpu_slot *v = &vcpus[cpu & (MAX_VCPUS - 1)];
	u64 addr = steal_addr[cpu & (MAX_VCPUS - 1)];
	bool first = !v->seen_ns;
	u64 steal, jump;

	v->seen_ns = now;
	if (!addr || bpf_probe_read_kernel(&steal, sizeof(steal), (void *)addr))
		return false;
	jump = steal - v->steal_ns;
	if (!jump)
		return false;
	v->steal_ns = steal;
	/* The counter is as old as the VM: what was stolen before our time is no
	 * gap, and would be the longest of all. */
	if (first || jump < min_gap_ns || jump >= now)
		return false;
	saw_gap(v, now - jump, now);
	/* Who is current now was so all the while: what ends a gap is the timer interrupt
	 * that fell due in it, or a switch, at whose tracepoint `prev` still is. */
	if (bpf_get_current_pid_tgid() >> 32 == own_tgid)
		v->ours_ns += jump;
	return true;
}

/* The tick-gap sense and the way back to sleep. */
static __always_inline void vcpu_tick(u32 cpu, u64 now, bool busy)
{
	struct vcpu_slot *v = &vcpus[cpu & (MAX_VCPUS - 1)];

	if (tick_ns && mode == MODE_ASLEEP && busy && v->tick_busy && v->tick_ns &&
	    now - v->tick_ns > 2 * tick_ns && now - v->tick_ns < 1000000000ull)
		saw_gap(v, v->tick_ns, now);
	v->tick_ns = now;
	v->tick_busy = busy;
	if (mode != MODE_ASLEEP && !quiet_rung && now > last_gap_ns &&
	    now - last_gap_ns > quiet_after_ns)
		ring_once(&quiet_rung, BELL_QUIET);
}
