/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Task Detector, kernel half: how much of its time does a thread spend waiting
 * for I/O? (V14..V16)
 *
 * A thread waits for I/O while it sleeps with in_iowait set (direct and buffered
 * reads, fsync, io_uring) or has block requests of its own in flight, asleep (AIO,
 * whose wait the kernel does not mark) or not: a paravirtual disk often completes
 * a request within the call that submits it, and a thread that spends its time
 * there lives on I/O although it never sleeps. Time is summed per thread and judged once a
 * window by iobound.h, the same lines that the simulator runs.
 *
 * Threads that never touch I/O have no storage here, which a look at task_struct
 * tells (has_storage). Storage is made when a thread submits, or when it is woken
 * from an I/O wait: no run queue is locked then. At sched_switch one is, and an
 * allocation that wakes kswapd on the same queue would deadlock.
 */
#pragma once

struct task_io {
	u64 window_ns;  /* start of the window */
	u64 since_ns;   /* start of the present activity */
	u64 blocked_ns; /* in this window: waited for I/O */
	u64 on_cpu_ns;  /* in this window: ran */
	u32 class;      /* iobound.h: flag and count of low windows */
	u32 slot;       /* in tasks[], or NO_SLOT */
	u32 activity;   /* enum activity */
	u32 cpu;        /* where it blocked */
	u32 dev;        /* last device it submitted to, or 0 */
	u32 epoch;      /* of the sums above, see below */
	u32 by_kthread; /* sleeps that a kernel thread ended, of 1000; see ended_by */
	u32 woken_here; /* long sleeps ended from where it slept, of 1000; see dozed */
	u32 dozed;      /* woken from a long sleep, has not run since */
	u64 io_ns;      /* since when it has had requests in flight; 0: none that we know */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_io);
} task_io SEC(".maps");

/* Requests in flight per submitting thread. A hash and not the storage above:
 * a completion knows the thread id only (bpf_task_from_pid needs 6.2). LRU, so
 * that a thread that died with requests in flight leaves nothing behind. */
struct flight {
	s64 count;
	u64 since_ns; /* when the count left zero */
	u64 done_ns;  /* when the last one completed, */
	u32 done_pid; /* and whom that interrupted */
	u32 epoch;    /* of the count: completions have been missed since an older one */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct flight);
} in_flight SEC(".maps");

/* A bio, and the epoch of the flight that counts it: what the daemon throws away, which is
 * of an older one, cannot have come back meanwhile. */
struct bio_key {
	u64 bio;
	u64 epoch;
};

/* Who submitted a bio, from block_bio_queue to its completion. Not LRU: a bio that is pushed
 * out is never seen complete, and its thread would wait for it for good. When the map is
 * full, those that are too many are not counted; the daemon throws away what an epoch left
 * behind. As many as Settings::bios_in_flight. */
struct bio_owner {
	u32 tid; /* 0: counted out */
	u32 cpu;
	u32 dev;
	u32 pad;
	u64 since_ns; /* when */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct bio_key);
	__type(value, struct bio_owner);
} bio_owner SEC(".maps");

struct task_slot tasks[MAX_TASKS];
struct device_slot devices[MAX_DEVICES];

/* policy::guest::iobound::Settings */
const volatile u64 window_ns; /* T_det of V15 */
const volatile u64 min_accounted_ns;
const volatile u64 idle_ns;
const volatile u64 stay_ns; /* 0: moved in its sleep */
const volatile u32 enter_permille;
const volatile u32 leave_permille;
const volatile u32 leave_windows;

/* Raised by the daemon each time it wakes: what was summed before it fell asleep
 * has a hole in it and starts anew. */
u32 epoch;
u64 nr_lost_tasks; /* became I/O-bound when every slot was taken */
u32 slots_used;    /* high-water mark, so that scans stay short */

static __always_inline struct task_slot *slot_of(struct task_io *t)
{
	u32 i = t->slot;

	if (i >= MAX_TASKS)
		return NULL;
	return &tasks[i & (MAX_TASKS - 1)];
}

/* Is the slot still this thread's? The daemon frees slots, and another thread
 * may have taken it since. */
static __always_inline struct task_slot *own_slot(struct task_io *t, struct task_struct *p)
{
	struct task_slot *s = slot_of(t);

	if (!s)
		return NULL;
	if (s->tid != (u32)p->pid || s->state == SLOT_FREE || s->state == SLOT_EXITED) {
		t->slot = NO_SLOT;
		return NULL;
	}
	return s;
}

/* Takes a free slot, which is the caller's to fill: its number, or MAX_TASKS. */
VERIFIED_ONCE u32 take_slot(void)
{
	u32 i;

	for (i = 0; i < MAX_TASKS; i++) {
		struct task_slot *s = &tasks[i];

		if (s->state == SLOT_FREE &&
		    __sync_val_compare_and_swap(&s->state, SLOT_FREE, SLOT_FILLING) == SLOT_FREE)
			return i;
	}
	return MAX_TASKS;
}

static __always_inline void forget_stays(struct task_slot *s)
{
	u32 i;

	for (i = 0; i < STAYS; i++)
		s->stays[i].to_ns = 0;
	s->here_ns = 0;
}

static __always_inline void enter_class(struct task_io *t, struct task_struct *p, u32 cpu, u64 now,
					u32 load)
{
	struct task_slot *s;
	u32 i;

	/* What is left of its life (to free its memory takes milliseconds) is judged as
	 * well, but on_exit has been by then, and nobody would empty the slot. */
	if (p->flags & PF_EXITING)
		return;
	s = own_slot(t, p);
	if (s) { /* it left, but the daemon has not let go of it yet */
		if (__sync_val_compare_and_swap(&s->state, SLOT_LEFT, SLOT_LIVE) == SLOT_LEFT)
			ring_bell(cpu, BELL_ENTER | (u64)t->slot << 8, BPF_RB_FORCE_WAKEUP);
		return;
	}
	i = take_slot();
	if (i >= MAX_TASKS) {
		__sync_fetch_and_add(&nr_lost_tasks, 1);
		return;
	}
	s = &tasks[i];
	s->tid = p->pid;
	s->tgid = p->tgid;
	s->start_boottime_ns = p->start_boottime;
	s->activity = t->activity;
	s->since_ns = t->since_ns;
	s->cpu = cpu;
	s->load_permille = load;
	s->window_ns = now;
	s->dev = t->dev;
	s->by_kthread = t->by_kthread;
	s->woken_here = t->woken_here;
	s->latency_ns = 0;
	s->on_cpu_ns = s->blocked_io_ns = s->asleep_ns = 0;
	s->queued_ns = s->inactive_ns = 0;
	s->nr_wakes = s->nr_switches = s->nr_requests = 0;
	s->taken_ns = now;
	forget_stays(s);
	path_reset(&s->path, PATH_NONE);
	t->slot = i;
	if (i >= slots_used)
		slots_used = i + 1;
	asm volatile("" ::: "memory");
	s->state = SLOT_LIVE;
	ring_bell(cpu, BELL_ENTER | (u64)i << 8, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void leave_class(struct task_io *t, struct task_struct *p, u32 cpu)
{
	struct task_slot *s = own_slot(t, p);

	if (s && __sync_val_compare_and_swap(&s->state, SLOT_LIVE, SLOT_LEFT) == SLOT_LIVE)
		ring_bell(cpu, BELL_LEAVE | (u64)t->slot << 8, BPF_RB_FORCE_WAKEUP);
}

/* Close the window if it is complete, or judge it before if nothing that may yet
 * come can change the verdict. Only here does a class change. */
static __always_inline void window_check(struct task_io *t, struct task_struct *p, u32 cpu, u64 now)
{
	u32 before = t->class, load;
	struct task_slot *s;

	if (!(before & IOB_FLAG) && iob_certain(t->window_ns, now, t->blocked_ns, t->on_cpu_ns,
						window_ns, min_accounted_ns, enter_permille)) {
		t->class = before = IOB_FLAG;
		enter_class(t, p, cpu, now, iob_load_permille(t->blocked_ns, t->on_cpu_ns));
	}
	if (!iob_window_complete(t->window_ns, now, t->blocked_ns + t->on_cpu_ns, window_ns,
				 min_accounted_ns))
		return;
	load = iob_load_permille(t->blocked_ns, t->on_cpu_ns);
	t->class = iob_next(before, load, enter_permille, leave_permille, leave_windows);
	t->window_ns = now;
	t->blocked_ns = 0;
	t->on_cpu_ns = 0;
	if (t->class & IOB_FLAG) {
		s = own_slot(t, p);
		if (s && s->state == SLOT_LIVE) {
			s->load_permille = load;
			s->window_ns = now;
			s->dev = t->dev;
		} else {
			enter_class(t, p, cpu, now, load);
		}
	} else if (before & IOB_FLAG) {
		leave_class(t, p, cpu);
	}
}

/* A thread wakes after a sleep that was not on I/O: a long one ends the phase. */
static __always_inline void phase_check(struct task_io *t, struct task_struct *p, u32 cpu, u64 now)
{
	u64 asleep = now > t->since_ns ? now - t->since_ns : 0;

	if (!iob_phase_over(asleep, idle_ns))
		return;
	if (t->class & IOB_FLAG)
		leave_class(t, p, cpu);
	t->class = 0;
	t->window_ns = now;
	t->blocked_ns = 0;
	t->on_cpu_ns = 0;
}

/* Time from `since` to `now` that this vCPU did not take away: the part of it in
 * the last gap is subtracted. */
static __always_inline u64 present_ns(struct vcpu_slot *v, u64 since, u64 now)
{
	u64 len = now - since;
	struct gap *g;
	u64 out;

	if (since >= now)
		return 0;
	if (!v->nr_gaps || v->back_ns <= since)
		return len;
	g = &v->gaps[(v->nr_gaps - 1) & (GAP_HISTORY - 1)];
	out = g->out_ns > since ? g->out_ns : since;
	if (v->back_ns - out > len)
		return 0;
	return len - (v->back_ns - out);
}

/* Are requests of this thread in flight? Nobody saw those complete that did while the
 * daemon was asleep: a count of before is none. */
static __always_inline bool is_in_flight(const struct flight *f)
{
	return f->count > 0 && f->epoch == epoch;
}

/* How much of its last `len` ns on the CPU had the thread requests in flight? */
static __always_inline u64 waited_running(struct task_io *t, u32 tid, u64 len, u64 now)
{
	u64 end = now, start = t->io_ns > t->since_ns ? t->io_ns : t->since_ns;
	struct flight *f;

	if (!t->io_ns)
		return 0;
	f = bpf_map_lookup_elem(&in_flight, &tid);
	if (!f || !is_in_flight(f)) {
		end = f ? f->done_ns : start;
		t->io_ns = 0;
	}
	if (end <= start)
		return 0;
	return end - start < len ? end - start : len;
}

/* Add what has passed since the last change of activity to the right sum. */
static __always_inline void settle(struct task_io *t, struct task_slot *s, struct vcpu_slot *v,
				   u32 tid, u64 now)
{
	u64 len = now > t->since_ns ? now - t->since_ns : 0, io;

	switch (t->activity) {
	case ACT_RUNNING:
		len = present_ns(v, t->since_ns, now);
		io = waited_running(t, tid, len, now);
		t->blocked_ns += io;
		t->on_cpu_ns += len - io;
		if (s)
			s->on_cpu_ns += len;
		break;
	case ACT_BLOCKED_IO:
		t->blocked_ns += len;
		if (s)
			s->blocked_io_ns += len;
		break;
	case ACT_BLOCKED:
		if (s)
			s->asleep_ns += len;
		break;
	case ACT_QUEUED:
	case ACT_WAKING:
		if (s)
			s->queued_ns += present_ns(v, t->since_ns, now);
		break;
	}
	t->since_ns = now;
}

static __always_inline void set_activity(struct task_io *t, struct task_slot *s, u32 activity,
					 u32 cpu, u64 now)
{
	t->activity = activity;
	t->since_ns = now;
	if (s) {
		s->activity = activity;
		s->since_ns = now;
		s->cpu = cpu;
	}
}

/* The 90th percentile, tracked with one number: rises nine steps when a sample
 * is above, falls one step when it is below. The step follows the value. */
static __always_inline void track_latency(struct task_slot *s, u64 sample)
{
	u64 step = s->latency_ns / 64 + 1;

	if (!s->latency_ns)
		s->latency_ns = sample;
	else if (sample > s->latency_ns)
		s->latency_ns += 9 * step;
	else if (s->latency_ns > step)
		s->latency_ns -= step;
}

/*
 * Who ends a thread's sleeps: its own completions, or a kernel thread that waits for
 * the device in its place (a journal's commit, ext4's worker that finishes a write, a
 * network file system)? Then no vCPU is where its completions arrive.
 *
 * A completion that wakes by itself does it in the context in which it was recorded,
 * with the same thread current: that is how it is told from a worker that it has
 * woken in turn. Rejected: to ask for the context (preempt_count is kept elsewhere in each
 * of the kernels we load on), or the time since the completion. The idle task is no
 * partner, only what an interrupt found.
 *
 * A running mean of 32 sleeps, stuck at most 31 short of either end.
 */
static __always_inline void ended_by(struct task_io *t, struct task_slot *s, u32 tid,
				     struct task_struct *waker, u64 since)
{
	struct flight *f = bpf_map_lookup_elem(&in_flight, &tid);

	bool own = f && f->done_ns >= since && f->done_pid == (u32)waker->pid;

	if (!own && waker->pid && waker->flags & PF_KTHREAD)
		t->by_kthread += (1000 - t->by_kthread) / 32;
	else
		t->by_kthread -= t->by_kthread / 32;
	if (s)
		s->by_kthread = t->by_kthread;
}

/*
 * A sleep that was not on I/O and longer than stay_ns is over: did its waker run where
 * the thread had fallen asleep, as its own timer does? Then that is where it has to sleep,
 * for when it is woken that vCPU runs, and no other is sure to.
 */
static __always_inline void dozed(struct task_io *t, struct task_slot *s, u32 waker_cpu)
{
	t->woken_here = iob_woken_here(t->woken_here, waker_cpu == t->cpu);
	if (s)
		s->woken_here = t->woken_here;
	t->dozed = 1;
}

static __always_inline void task_io_reset(struct task_io *t, u32 activity, u32 cpu, u64 now)
{
	t->window_ns = now;
	t->since_ns = now;
	t->blocked_ns = 0;
	t->on_cpu_ns = 0;
	t->class = 0;
	t->slot = NO_SLOT;
	t->activity = activity;
	t->cpu = cpu;
	t->epoch = epoch;
	t->by_kthread = 0;
	t->woken_here = 1000;
	t->dozed = 0;
	t->io_ns = 0;
}

/* Of ours or of another BPF program's: false says that task_io_get would fail, for
 * the price of one load. */
static __always_inline bool has_storage(struct task_struct *p)
{
	return !bpf_core_field_exists(p->bpf_storage) || p->bpf_storage;
}

static __always_inline struct task_io *task_io_get(struct task_struct *p)
{
	struct task_io *t = bpf_task_storage_get(&task_io, p, 0, 0);

	if (t && t->epoch != epoch)
		task_io_reset(t, ACT_BLOCKED, this_cpu(), bpf_ktime_get_ns());
	return t;
}

/* Never with a run queue locked, see above. */
static __always_inline struct task_io *task_io_make(struct task_struct *p, u32 activity, u32 cpu,
						    u64 now)
{
	struct task_io *t = task_io_get(p);

	if (t)
		return t;
	if (!is_subject(p))
		return NULL;
	t = bpf_task_storage_get(&task_io, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return NULL;
	task_io_reset(t, activity, cpu, now);
	return t;
}
