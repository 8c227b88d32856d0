/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Is anybody I/O-bound at all? Asked while the detector proper is detached.
 *
 * The detector (on_switch, on_waking, on_wakeup) costs something at every context
 * switch, also of those who never do I/O. So it is attached only once there is a
 * candidate, and stays until no task has been I/O-bound for calm_after_ns. What
 * looks for candidates costs nothing where there is no I/O:
 *
 *   block requests     time in flight of a thread's own requests
 *   rings              how often a thread starts to wait for an io_uring, whatever it
 *                      waits for: not all of them have a disk behind them
 *   everything else    (pages of network file systems) each timer interrupt looks
 *                      whether a task of this vCPU sleeps in iowait, one load from the
 *                      run queue
 *
 * All ask for far less than the detector does (iobound.h), because a task that
 * queues behind compute for most of its time shows little of any; the price of
 * asking too little is only that the detector is attached for nothing.
 *
 * Limits of the third: a wait of 100 us behind compute is met by one tick in sixty,
 * and since 6.12 who sleeps owing CPU time stays in its queue for a while and is not
 * counted: only waits of a millisecond and more are found. It is blind on a vCPU that
 * is idle whenever its task waits, for its ticks are off then; nothing is lost there,
 * an idle vCPU serves its task at once. Where the run queue cannot be reached, the
 * first look says yes.
 *
 * Rejected: to count the sleepers that are still queued as well. They wait for
 * anything, and no machine is without: after a second there was always a candidate.
 * fentry at io_schedule, exact, is not for all: hardened kernels refuse it.
 */
#pragma once

/* In flight for 10 ms of 250 in 4 requests or more: 4 %, and not a single slow
 * write of a log. */
#define CAND_WINDOW_NS 250000000ull
#define CAND_IN_FLIGHT_NS 10000000ull
#define CAND_REQUESTS 4
/* 16 waits in a second. With 8 VMs per pCPU and a request per slice of compute
 * (4 ms), which is the least that a task gets, there are thirty. */
#define CAND_WAIT_WINDOW_NS 1000000000ull
#define CAND_WAITS 16
/* 8 of 64 ticks in iowait: an eighth of a quarter of a second at 250 Hz, longer
 * than a commit of a journal, and less than any task that lives on such waits. */
#define CAND_TICKS 64
#define CAND_IOWAIT 8

/* The detector counts: its programs are attached and sums are valid. Written by
 * the daemon. */
u32 armed;
u32 io_rung;   /* BELL_IO is in the ring already */
u32 calm_rung; /* BELL_CALM is */
/* Last time that a task was known to be I/O-bound, or that the daemon attached
 * the detector; racy on purpose. */
u64 io_bound_ns;
/* The windows; sums of two vCPUs may lose an addend, which the next request makes
 * up for. */
u64 cand_since_ns;
u64 cand_in_flight_ns;
u32 cand_requests;
u64 cand_waits_since_ns;
u32 cand_waits;

const volatile u64 calm_after_ns;

/* May this thread be I/O-bound to us? */
static __always_inline bool is_subject(struct task_struct *p)
{
	return !(p->flags & PF_KTHREAD) && (u32)p->tgid != own_tgid;
}

static __always_inline void candidate_found(void)
{
	if (io_rung)
		return;
	ring_once(&io_rung, BELL_IO);
}

/* The last of a thread's requests in flight is done, `len` after the first. */
static __always_inline void candidate_request(u64 len, u64 now)
{
	if (armed || mode == MODE_ASLEEP)
		return;
	if (now - cand_since_ns > CAND_WINDOW_NS) {
		cand_since_ns = now;
		cand_in_flight_ns = 0;
		cand_requests = 0;
	}
	cand_in_flight_ns += len;
	cand_requests++;
	if (cand_in_flight_ns >= CAND_IN_FLIGHT_NS && cand_requests >= CAND_REQUESTS)
		candidate_found();
}

/* The current thread is about to wait for a completion of its ring. */
static __always_inline void candidate_wait(void)
{
	struct task_struct *p;
	u64 now;

	if (armed || mode == MODE_ASLEEP)
		return;
	p = (struct task_struct *)bpf_get_current_task_btf();
	if (!is_subject(p))
		return;
	now = bpf_ktime_get_ns();
	if (now - cand_waits_since_ns > CAND_WAIT_WINDOW_NS) {
		cand_waits_since_ns = now;
		cand_waits = 0;
	}
	if (++cand_waits >= CAND_WAITS)
		candidate_found();
}

/* In the timer interrupt, with p current. */
static __always_inline void candidate_tick(struct vcpu_slot *v, struct task_struct *p, u64 now)
{
	if (armed) {
		v->ticks = v->iowait = 0;
		if (mode == MODE_ACTIVE)
			io_bound_ns = now;
		else if (!calm_rung && now > io_bound_ns && now - io_bound_ns > calm_after_ns)
			ring_once(&calm_rung, BELL_CALM);
		return;
	}
	if (mode == MODE_ASLEEP)
		return;
	if (!bpf_core_field_exists(p->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq, rq) ||
	    !bpf_core_field_exists(struct rq, nr_iowait)) {
		candidate_found();
		return;
	}
	if (p->se.cfs_rq->rq->nr_iowait.counter > 0 && ++v->iowait >= CAND_IOWAIT)
		candidate_found();
	if (++v->ticks >= CAND_TICKS)
		v->ticks = v->iowait = 0;
}
