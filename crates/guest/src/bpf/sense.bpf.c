// SPDX-License-Identifier: GPL-2.0
/*
 * The daemon's senses. What problem: user space learns too late, and at the
 * price of timers, that a vCPU was taken away or that a task waits for I/O. The
 * idea: look at both when something happens anyway (a timer interrupt, a context
 * switch, a block request), keep the sums here, and ring the daemon only when it
 * has to do something. No program arms a timer or takes a lock.
 *
 * vcpu.h: slices and gaps; task.h: I/O-bound tasks; path.h (crates/policy/include): where
 * completions arrive; candidate.h: is there anything for the detector to do; inactive.h: what
 * tasks lose to gaps.
 *
 * Two groups (docs/decisions/0008). Those at the timer interrupt, at block requests, at
 * the start of a wait for I/O and at the birth and death of a thread are attached for good: who does no I/O
 * does not meet them. Those that every context switch and every wake-up would pay
 * for (on_switch, on_waking, on_wakeup, on_migrate) are attached while they are wanted.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "iobound.h" /* crates/policy/include */

char LICENSE[] SEC("license") = "GPL";

/* One doorbell ring per vCPU and one for control: the thread of a vCPU waits on
 * its own, so that no vCPU ever waits for another. A page each is 255 bells. */
struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_VCPUS + 1);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

#include "vcpu.h"
#include "candidate.h"
#include "task.h"
#include "inactive.h"

/* Look around for the thread of this vCPU, which is about to wake. */
static __always_inline void look_around(u32 cpu, u64 now)
{
	struct vcpu_slot *v = &vcpus[cpu & (MAX_VCPUS - 1)];
	u32 word;

	for (word = 0; word < MAX_VCPUS / 64; word++)
		v->out[word] = vcpus_out(word);
	v->looked_ns = now;
}

static __always_inline bool check(u32 cpu, u64 now)
{
	bool back = vcpu_check(cpu, now);

	if (!back)
		return false;
	if (slots_used)
		account_gap(cpu);
	if (mode == MODE_ACTIVE) {
		look_around(cpu, now);
		ring_bell(cpu, BELL_GAP, BPF_RB_FORCE_WAKEUP);
	}
	return true;
}

/* An I/O-bound task came to this vCPU. If the timer is armed for others of its
 * kind, or for this one, because we know where it was sent, it has its alarm. */
static __always_inline void arrived(struct task_io *t, struct task_slot *s, u32 cpu, u64 now)
{
	struct vcpu_slot *v = &vcpus[cpu & (MAX_VCPUS - 1)];

	if (v->push_ns > now && s->latency_ns <= v->push_latency_ns)
		return;
	look_around(cpu, now);
	ring_bell(cpu, BELL_ARRIVED | (u64)t->slot << 8, BPF_RB_FORCE_WAKEUP);
}

/* At the exit, not the entry: a gap that ended in this interrupt is seen by then
 * wherever in the handler chain it happened. */
SEC("tp_btf/local_timer_exit")
int BPF_PROG(on_tick)
{
	struct task_struct *p = (struct task_struct *)bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_ns();
	u32 cpu = this_cpu();
	struct task_io *t;

	/* The interrupt of the thread's own timer is a timer interrupt, too. */
	if (!check(cpu, now) && mode == MODE_ACTIVE && vcpus[cpu].alarm_ns &&
	    now >= vcpus[cpu].alarm_ns)
		look_around(cpu, now);
	vcpu_tick(cpu, now, p->pid != 0);
	candidate_tick(&vcpus[cpu], p, now);
	if (mode == MODE_ASLEEP || !armed || !has_storage(p))
		return 0;
	/* A task that computes without a switch leaves its I/O phase here. */
	t = task_io_get(p);
	if (t && t->slot != NO_SLOT) {
		settle(t, own_slot(t, p), &vcpus[cpu], p->pid, now);
		window_check(t, p, cpu, now);
	}
	return 0;
}

static __always_inline bool waits_for_io(struct task_struct *task)
{
	u32 tid = task->pid;
	struct flight *f;

	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return true;
	f = bpf_map_lookup_elem(&in_flight, &tid);
	return f && is_in_flight(f);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	bool idle = !prev->pid || !next->pid;
	struct task_slot *s;
	struct task_io *t;
	u64 now;
	u32 cpu;

	/* Before anything else: most switches are between threads that do no I/O.
	 * A gap is seen without them: on a busy vCPU by the timer interrupt that
	 * fell due in it, on an idle one by the switch that ends the idling. */
	if (!idle && !has_storage(prev) && !has_storage(next))
		return 0;
	if (mode == MODE_ASLEEP || !armed)
		return 0;
	now = bpf_ktime_get_ns();
	cpu = this_cpu();
	check(cpu, now);
	if (idle) {
		vcpus[cpu].idle = next->pid == 0;
		if (prev->pid == 0)
			vcpus[cpu].idle_end_ns = now;
	}

	t = has_storage(prev) ? task_io_get(prev) : NULL;
	if (t) {
		s = own_slot(t, prev);
		settle(t, s, &vcpus[cpu], prev->pid, now);
		t->cpu = cpu;
		if (preempt || !prev_state) {
			if (by_heartbeat() && s && s->activity == ACT_RUNNING)
				stayed(s, cpu, s->since_ns, now, min_gap_ns);
			set_activity(t, s, ACT_QUEUED, cpu, now);
		} else {
			set_activity(t, s, waits_for_io(prev) ? ACT_BLOCKED_IO : ACT_BLOCKED, cpu,
				     now);
		}
		window_check(t, prev, cpu, now);
	}
	t = has_storage(next) ? task_io_get(next) : NULL;
	if (t) {
		s = own_slot(t, next);
		settle(t, s, &vcpus[cpu], next->pid, now);
		if (s) {
			s->nr_switches++;
			/* Not s->cpu, which its wake-up has set already. While it slept
			 * for long no timer was armed for it here. */
			if ((t->cpu != cpu || t->dozed) && s->state == SLOT_LIVE)
				arrived(t, s, cpu, now);
		}
		t->dozed = 0;
		set_activity(t, s, ACT_RUNNING, cpu, now);
		window_check(t, next, cpu, now);
	}
	return 0;
}

/* Runs on the vCPU that wakes, for I/O the one that handles the completion. */
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct vcpu_slot *v;
	struct task_slot *s;
	struct task_io *t;
	u64 now, since;
	u32 cpu;

	bool iowait = BPF_CORE_READ_BITFIELD(task, in_iowait);

	if (!iowait && !has_storage(task))
		return 0;
	if (mode == MODE_ASLEEP || !armed)
		return 0;
	t = task_io_get(task);
	if (!t) {
		/* Waits that no block request announced: a page that another
		 * thread reads, a network file system, an io_uring without disk. */
		if (iowait)
			task_io_make(task, ACT_WAKING, this_cpu(), bpf_ktime_get_ns());
		return 0;
	}
	if (t->activity != ACT_BLOCKED_IO && t->activity != ACT_BLOCKED)
		return 0;
	now = bpf_ktime_get_ns();
	cpu = this_cpu();
	check(cpu, now);
	v = &vcpus[cpu];
	s = own_slot(t, task);
	since = t->since_ns;
	if (s && t->activity == ACT_BLOCKED_IO) {
		u64 latency = now > since ? now - since : 0;

		s->nr_wakes++;
		if (!t->dev) {
			s->nr_requests++;
			path_learn(&s->path, t->cpu, cpu, false);
		}
		completed(s, v, cpu, since, now);
		if (v->back_ns <= since)
			track_latency(s, latency);
	}
	ended_by(t, s, task->pid, (struct task_struct *)bpf_get_current_task_btf(), since);
	if (t->activity == ACT_BLOCKED) {
		if (iob_long_sleep(now > since ? now - since : 0, stay_ns))
			dozed(t, s, cpu);
		phase_check(t, task, cpu, now);
	}
	settle(t, s, v, task->pid, now);
	set_activity(t, s, ACT_WAKING, s ? s->cpu : t->cpu, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	struct task_slot *s;
	struct task_io *t;

	if (!has_storage(p) || mode == MODE_ASLEEP || !armed)
		return 0;
	t = task_io_get(p);
	if (!t || t->activity != ACT_WAKING)
		return 0;
	t->activity = ACT_QUEUED;
	s = own_slot(t, p);
	if (s) {
		s->activity = ACT_QUEUED;
		s->cpu = p->thread_info.cpu;
	}
	return 0;
}

/* Carried to the queue of another vCPU, or woken there. A vCPU that is away does
 * not keep this from happening, nor run a program that would tell of it. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *p, int dest_cpu)
{
	struct task_slot *s;
	struct task_io *t;

	if (!has_storage(p) || mode == MODE_ASLEEP || !armed)
		return 0;
	t = task_io_get(p);
	if (!t || (t->activity != ACT_QUEUED && t->activity != ACT_WAKING))
		return 0;
	s = own_slot(t, p);
	if (s)
		carried(s, dest_cpu, bpf_ktime_get_ns());
	return 0;
}

/* The number of the device's slot, or MAX_DEVICES. */
VERIFIED_ONCE u32 device_of(u32 dev)
{
	u32 i;

	for (i = 0; i < MAX_DEVICES; i++) {
		struct device_slot *d = &devices[i];

		if (d->dev == dev)
			return i;
		if (d->dev)
			continue;
		if (__sync_val_compare_and_swap(&d->dev, 0, dev) == 0)
			path_reset(&d->path, PATH_UNASKED);
		if (d->dev == dev)
			return i;
	}
	return MAX_DEVICES;
}

SEC("tp_btf/io_uring_cqring_wait")
int BPF_PROG(on_cqring_wait)
{
	candidate_wait();
	return 0;
}

/* One of a thread's requests in flight is done, which was counted in that epoch. */
VERIFIED_ONCE int flight_done(u32 tid, u32 counted)
{
	struct flight *f = bpf_map_lookup_elem(&in_flight, &tid);
	u64 now;
	s64 before;

	if (!f || f->epoch != counted)
		return 0;
	now = bpf_ktime_get_ns();
	before = __sync_fetch_and_sub(&f->count, 1);
	f->done_ns = now;
	f->done_pid = (u32)bpf_get_current_pid_tgid();
	if (before <= 0)
		f->count = 0;
	else if (before == 1 && now > f->since_ns)
		candidate_request(now - f->since_ns, now);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue, struct bio *bio)
{
	struct task_struct *p = (struct task_struct *)bpf_get_current_task_btf();
	struct bio_key key = {.bio = (u64)bio, .epoch = epoch};
	struct bio_owner owner = {}, *before;
	struct flight *f, first = {.count = 1};
	struct task_slot *s;
	struct task_io *t;
	u64 now;

	if (mode == MODE_ASLEEP)
		return 0;
	now = bpf_ktime_get_ns();
	t = task_io_make(p, ACT_RUNNING, this_cpu(), now);
	if (!t)
		return 0;
	owner.tid = p->pid;
	owner.cpu = this_cpu();
	owner.dev = bio->bi_bdev->bd_dev;
	owner.since_ns = now;
	t->dev = owner.dev;
	s = own_slot(t, p);
	if (s)
		s->nr_requests++;
	/* Its memory is in use again: the one before is complete, and nobody has told. */
	before = bpf_map_lookup_elem(&bio_owner, &key);
	if (before && before->tid)
		flight_done(before->tid, key.epoch);
	if (bpf_map_update_elem(&bio_owner, &key, &owner, BPF_ANY))
		return 0;
	f = bpf_map_lookup_elem(&in_flight, &owner.tid);
	if (!f || !is_in_flight(f)) {
		/* The last wait is over, a new one begins. */
		if (armed && t->io_ns)
			settle(t, s, &vcpus[owner.cpu & (MAX_VCPUS - 1)], owner.tid, now);
		t->io_ns = now;
	}
	if (f) {
		if (!is_in_flight(f))
			f->since_ns = now;
		if (f->epoch != (u32)key.epoch) {
			f->epoch = key.epoch;
			f->count = 0;
		}
		__sync_fetch_and_add(&f->count, 1);
	} else {
		first.since_ns = now;
		first.epoch = key.epoch;
		bpf_map_update_elem(&in_flight, &owner.tid, &first, BPF_ANY);
	}
	return 0;
}

/* Has this vCPU been away since before that instant, by more than the tick that would have
 * shown it? Until it is back nobody knows when it went. */
static __always_inline bool absent_since(u32 cpu, u64 since)
{
	struct vcpu_slot *v = &vcpus[cpu & (MAX_VCPUS - 1)];

	return !v->idle && v->seen_ns + 20000000 < since && vcpu_is_out(cpu);
}

/* A request that was submitted on vCPU `submitter` then completes here. */
VERIFIED_ONCE int device_done(u32 dev, u32 submitter, u64 since)
{
	u32 device = device_of(dev), prior;
	struct device_slot *d;

	if (device >= MAX_DEVICES)
		return 0;
	d = &devices[device];
	__sync_fetch_and_add(&d->nr_completions, 1);
	prior = d->path.prior;
	path_learn(&d->path, submitter, this_cpu(),
		   path_sent_on(prior) && absent_since(path_prior_cpu(prior), since));
	return 0;
}

static __always_inline void bio_done(u64 bio)
{
	struct bio_key key = {.bio = bio, .epoch = epoch};
	struct bio_owner *owner = bpf_map_lookup_elem(&bio_owner, &key);

	if (!owner || !owner->tid)
		return;
	flight_done(owner->tid, key.epoch);
	device_done(owner->dev, owner->cpu, owner->since_ns);
	/* Should it stay (6.1 refuses while this CPU is at the same bucket), it does not
	 * count twice. */
	owner->tid = 0;
	bpf_map_delete_elem(&bio_owner, &key);
}

/* A request has at most as many bios as its queue has segments, whose number is 16 bits
 * long (struct queue_limits). */
#define MAX_BIOS 65536

static long one_bio_done(u32 i, u64 *bio)
{
	if (!*bio)
		return 1;
	bio_done(*bio);
	*bio = (u64)BPF_CORE_READ((struct bio *)*bio, bi_next);
	return 0;
}

/* Request-based drivers: their bios are not traced one by one. Every one counts: with one
 * that is not seen complete its thread would seem to wait for it for good, and pages that
 * lie side by side on the disk are read by one request of hundreds. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_rq_complete, struct request *rq)
{
	struct bio *bio = rq->bio;
	u64 rest;

	if (mode == MODE_ASLEEP || !bio)
		return 0;
	bio_done((u64)bio);
	rest = (u64)bio->bi_next;
	if (rest)
		bpf_loop(MAX_BIOS, one_bio_done, &rest, 0);
	return 0;
}

/* Bio-based drivers. */
SEC("tp_btf/block_bio_complete")
int BPF_PROG(on_bio_complete, struct request_queue *q, struct bio *bio)
{
	if (mode != MODE_ASLEEP)
		bio_done((u64)bio);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct task_io *t;

	if (mode == MODE_ASLEEP || !has_storage(parent))
		return 0;
	t = task_io_get(parent);
	if (t && own_slot(t, parent))
		ring_bell(this_cpu(),
			  BELL_FORK | (u64)(t->slot & 0xff) << 8 | (u64)child->pid << 16,
			  BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	u32 tid = p->pid, slot;
	struct task_slot *s;
	struct task_io *t;

	if (!has_storage(p))
		return 0;
	t = task_io_get(p);
	if (!t)
		return 0;
	bpf_map_delete_elem(&in_flight, &tid);
	s = own_slot(t, p);
	if (!s)
		return 0;
	slot = t->slot;
	t->slot = NO_SLOT;
	s->state = SLOT_EXITED;
	ring_bell(this_cpu(), BELL_LEAVE | (u64)slot << 8, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Which vCPUs are descheduled at this moment, asked by the daemon's threads before
 * a decision for which no program has looked around. One bit per vCPU. */
struct snapshot {
	u64 now_ns;
	u64 out[MAX_VCPUS / 64];
};

SEC("syscall")
int snapshot(struct snapshot *ctx)
{
	u32 word;

	/* The context must be written at constant offsets. */
#pragma unroll
	for (word = 0; word < MAX_VCPUS / 64; word++)
		ctx->out[word] = vcpus_out(word);
	ctx->now_ns = bpf_ktime_get_ns();
	return 0;
}

/* A beat was late: this vCPU was away. Said by its monitor, which runs there, where
 * no program can see it (source heartbeat). */
struct late_beat {
	u64 out_ns;
	u64 back_ns;
	u32 cpu;
	u32 pad;
};

SEC("syscall")
int late_beat(struct late_beat *ctx)
{
	u32 cpu = ctx->cpu & (MAX_VCPUS - 1);

	note_gap(&vcpus[cpu], ctx->out_ns, ctx->back_ns);
	if (slots_used)
		account_gap(cpu);
	return 0;
}
