// SPDX-License-Identifier: GPL-2.0
/*
 * A host scheduler for vCPUs.
 *
 * Only vCPU threads are SCHED_EXT (SCX_OPS_SWITCH_PARTIAL); everything else,
 * the VMM's own threads and the kernel's among them, stays in the fair class,
 * which comes before ours: it preempts vCPUs at once and without any code here.
 *
 * Queues per pCPU. Who is next, and for how long, is the policy's. This file has
 * the calls that the kernel makes and hands them on: account.h counts, event.h sees
 * interrupts, place.h knows homes and caps, parked.h when caps are over, relief.h who is kept
 * from its pCPU for too long, overdue.h that nobody waits until the kernel's watchdog ends
 * us, stranger.h threads that are no vCPUs, policy_*.h decide.
 *
 * Under `fixed` a vCPU that is preempted by the fair class goes back to the head
 * and its turn goes on: the kernel does that by itself. The credit policies take it
 * back into their own queue, see policy_credit.h. Turns end by timers, see turn.h.
 *
 * A vCPU stays on its pCPU unless another one is idle, see balance.h.
 *
 * Limits: caps need a policy other than `fixed`.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "account.h"
#include "balance.h"
#include "event.h"
#include "halt.h"
#include "latency.h"
#include "overdue.h"
#include "parked.h"
#include "place.h"
#include "policy_credit1.h"
#include "policy_credit2.h"
#include "policy_fixed.h"
#include "policy_isacs.h"
#include "policy_vslicer.h"
#include "set.h"
#include "trace.h"
#include "turn.h"
#include "unpark.h"

char LICENSE[] SEC("license") = "GPL";

/* Why the kernel ended us, for user space. */
s32 exit_kind;
s64 exit_code;
char exit_reason[128];
char exit_message[256];

SEC("struct_ops/vcpu_select_cpu")
s32 BPF_PROG(vcpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct sv_vcpu *v = entry_of_task(p);

	return free_cpu_for(p, v, v ? place(p, v, prev_cpu) : prev_cpu);
}

/* `v`, the vCPU of `p`, has woken and waits on `cpu`: ends the turn there if it comes first. */
static __always_inline void preempt_for(struct task_struct *p, struct sv_vcpu *v, s32 cpu)
{
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_knobs *knobs = vcpu_of(p);
	struct sv_vcpu *holder;
	u64 ran_ns = 0;
	bool first;

	if (!pcpu || !knobs)
		return;
	holder = turn_on(cpu, pcpu);
	if (!holder)
		return;
	if (holder->state == SV_RUNS)
		ran_ns = bpf_ktime_get_ns() - holder->since_ns;
	if (settings.policy == SV_CREDIT2)
		first = credit2_wakes_first(v, holder, ran_ns);
	else if (settings.policy == SV_VSLICER)
		first = vslicer_wakes_before(v, holder, pcpu, ran_ns);
	else if (settings.policy == SV_ISACS)
		first = isacs_wakes_first(v, knobs->slot, holder, pcpu, ran_ns);
	else
		first = credit1_wakes_first(v, holder);
	if (first)
		cut_turn(holder, cpu);
}

static __always_inline void fixed_enqueue(struct task_struct *p, struct sv_vcpu *v, s32 cpu,
					  u64 enq_flags)
{
	u64 whole_ns = fixed_whole_ns(cpu);

	if (v) {
		v->held_until_ns = 0;
		v->cpu = cpu;
		whole_ns = own_slice(v, whole_ns);
		waits_on(v, cpu);
	} else {
		stranger_waits_on(cpu);
		whole_ns = STRANGER_TURN_NS;
	}
	scx_bpf_dsq_insert___v2___k(p, queue_of(cpu, QUEUE_FIRST), fixed_slice_ns(p, whole_ns),
				    enq_flags);
	if (v)
		await_latency(v, cpu, enq_flags);
	if (!(enq_flags & SCX_ENQ_WAKEUP))
		call_idle_for(p, v);
}

SEC("struct_ops/vcpu_enqueue")
void BPF_PROG(vcpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 here = scx_bpf_task_cpu___k(p), cpu;
	struct sv_vcpu *v = entry_of_task(p);

	if (settings.policy == SV_FIXED || settings.policy == SV_NEVER)
		return fixed_enqueue(p, v, here, enq_flags);
	if (!v)
		return enqueue_stranger(p, here, enq_flags);
	cpu = place(p, v, here);
	if (is_capped(v))
		return park(p, v, cpu, enq_flags);
	if (settings.policy == SV_CREDIT2)
		credit2_enqueue(p, v, cpu, enq_flags);
	else if (has_credit1())
		credit1_enqueue(p, v, cpu, enq_flags);
	else
		await_choice(p, v, cpu, enq_flags);
	await_latency(v, cpu, enq_flags);
	/* The kernel looks after the pCPU that it chose. */
	if (cpu != here)
		scx_bpf_kick_cpu___k(cpu, SCX_KICK_IDLE);
	if (enq_flags & SCX_ENQ_WAKEUP)
		preempt_for(p, v, cpu);
	else
		call_idle_for(p, v);
}

static __always_inline void charge(struct sv_vcpu *v, u64 ran_ns)
{
	if (v->cap_permille)
		v->used_ns += ran_ns;
	if (has_credit1())
		credit1_charge(v, ran_ns);
	else if (settings.policy == SV_CREDIT2)
		credit2_charge(v, ran_ns);
	else if (settings.policy == SV_VSLICER)
		vslicer_charge(v, ran_ns);
	else if (settings.policy == SV_ISACS)
		isacs_charge(v, ran_ns);
}

/*
 * Is there no vCPU for a pCPU whose own none goes on? What a pCPU is asked each time that
 * its host threads sleep, so it looks at counts and bits and searches for no queue.
 * Strangers and those that are due or overdue count among those that wait.
 */
static __always_inline bool nobody_waits(struct sv_pcpu *pcpu)
{
	if (pcpu->waiting || pcpu->parked || bits_any(parked_cpus))
		return false;
	/* Where nobody takes, nobody clears the bits either. */
	return !takes_others() || !bits_any(waiting_cpus);
}

SEC("struct_ops/vcpu_dispatch")
void BPF_PROG(vcpu_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 turn_ns = settings.policy == SV_FIXED ? fixed_whole_ns(cpu) : settings.slice_ns;
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	struct sv_knobs *knobs = NULL;
	struct sv_vcpu *v = NULL;
	bool other;

	if (settings.policy == SV_NEVER)
		return;
	/* One that goes to sleep is not asked. */
	if (prev && !(prev->scx.flags & SCX_TASK_QUEUED))
		prev = NULL;
	if (!prev && pcpu && nobody_waits(pcpu))
		return;
	if (prev) {
		knobs = vcpu_of(prev);
		v = entry_of_task(prev);
	}
	if (v)
		charge(v, account(v, SV_RUNS));
	if (dispatch_overdue(cpu) || dispatch_due(cpu))
		return;
	if (settings.policy == SV_FIXED) {
		if (v)
			turn_ns = own_slice(v, turn_ns);
		other = scx_bpf_dsq_move_to_local___v2___k(queue_of(cpu, QUEUE_FIRST), 0);
	} else if (pcpu && stranger_is_next(cpu, pcpu)) {
		other = true;
	} else {
		unpark(cpu);
		/* One that may not go on here comes to vcpu_enqueue next. */
		if (v && (is_capped(v) || place(prev, v, cpu) != cpu)) {
			prev = NULL;
			v = NULL;
		}
		if (settings.policy == SV_CREDIT2)
			other = credit2_dispatch(cpu, v, &turn_ns);
		else if (settings.policy == SV_VSLICER)
			other = vslicer_dispatch(cpu, v && knobs ? knobs->slot : 0, &turn_ns);
		else if (settings.policy == SV_ISACS)
			other = isacs_dispatch(cpu, v && knobs ? knobs->slot : 0, &turn_ns);
		else
			other = credit1_dispatch(cpu, v, &turn_ns);
	}
	/* No vCPU waits here. */
	if (other || (pcpu && !v && take_stranger(cpu, pcpu)))
		return;
	if (!prev) {
		unpark_all();
		if (!steal(cpu, QUEUE_FIRST) && (settings.over_stays || !steal(cpu, QUEUE_REST)))
			steal(cpu, QUEUE_STRANGERS);
		return;
	}
	/* Nobody waits who comes before it: the one that ran has a further turn, and goes
	 * on without vcpu_running. */
	if (!v || !pcpu) {
		scx_bpf_task_set_slice___k(prev, STRANGER_TURN_NS);
		return;
	}
	v->turn_ns = within_patience(within_cap(v, turn_ns), cpu, pcpu);
	end_turn_at(prev, cpu, pcpu, v->since_ns, v->since_ns + v->turn_ns);
}

SEC("struct_ops/vcpu_runnable")
void BPF_PROG(vcpu_runnable, struct task_struct *p, u64 enq_flags)
{
	struct sv_vcpu *v = entry_of_task(p);

	if (!v)
		return;
	account(v, SV_WAITS);
	if (enq_flags & SCX_ENQ_WAKEUP)
		v->nr_wakes++;
	if (has_credit1())
		credit1_join(v);
}

SEC("struct_ops/vcpu_running")
void BPF_PROG(vcpu_running, struct task_struct *p)
{
	struct sv_vcpu *v = entry_of_task(p);
	struct sv_knobs *knobs = vcpu_of(p);
	s32 cpu = scx_bpf_task_cpu___k(p);
	struct sv_pcpu *pcpu = pcpu_of(cpu);
	u64 slice_ns = p->scx.slice;

	if (pcpu)
		pcpu->stranger_ran = !v;
	if (!v || !knobs)
		return;
	account(v, SV_RUNS);
	v->nr_turns++;
	v->queued = 0;
	waits_no_more(v);
	v->due_ns = 0;
	adopt(v, cpu);
	if (settings.policy == SV_CREDIT2)
		slice_ns = credit2_begins(v, slice_ns);
	if (v->cap_permille)
		slice_ns = within_cap(v, slice_ns);
	if (!pcpu)
		return;
	slice_ns = within_patience(slice_ns, cpu, pcpu);
	pcpu->slot = knobs->slot;
	if (!v->held_until_ns && !v->rest_ns)
		v->turn_ns = slice_ns;
	end_turn_at(p, cpu, pcpu, v->since_ns, v->held_until_ns ?: v->since_ns + slice_ns);
}

SEC("struct_ops/vcpu_stopping")
void BPF_PROG(vcpu_stopping, struct task_struct *p, bool runnable)
{
	struct sv_vcpu *v = entry_of_task(p);
	struct sv_pcpu *pcpu = pcpu_of(scx_bpf_task_cpu___k(p));

	if (pcpu)
		pcpu->slot = 0;
	if (!v)
		return;
	charge(v, account(v, runnable ? SV_WAITS : SV_ASLEEP));
	if (pcpu)
		pcpu->left_ns = v->since_ns;
	if (runnable)
		v->nr_preempted++;
	if (has_credit1())
		credit1_stopping(v, p, pcpu, runnable);
	else if (settings.policy == SV_FIXED)
		fixed_stopping(v, p, pcpu, runnable);
	else
		keep_rest(v, p, pcpu, runnable);
}

SEC("struct_ops/vcpu_quiescent")
void BPF_PROG(vcpu_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct sv_vcpu *v = entry_of_task(p);

	if (!v)
		return;
	account(v, SV_ASLEEP);
	v->queued = 0;
	waits_no_more(v);
	if (!cap_over(v) && has_credit1())
		credit1_sleep(v);
}

SEC("struct_ops/vcpu_enable")
void BPF_PROG(vcpu_enable, struct task_struct *p)
{
	struct sv_vcpu *v;

	enter(p);
	/* No rest of a turn: the kernel's default would be taken for one. */
	scx_bpf_task_set_slice___k(p, 0);
	v = entry_of_task(p);
	if (v && (settings.policy == SV_CREDIT2 || settings.policy == SV_ISACS))
		v->credit = settings.default_credit_ns;
}

SEC("struct_ops/vcpu_disable")
void BPF_PROG(vcpu_disable, struct task_struct *p)
{
	leave(p);
}

/*
 * Makes the timers of a pCPU, and of caps with the first. Not in vcpu_init: the kernel may
 * not wait for the memory of a timer and now and then has none at once (-ENOMEM, a
 * moment later all is well), and user space can wait and try again.
 */
SEC("syscall")
int make_timers(struct sv_timers *ctx)
{
	u32 cpu = ctx->cpu;
	s32 error = make_turn_clock(cpu) ?: make_latency_clock(cpu);

	return error || cpu ? error : make_periods();
}

SEC("struct_ops.s/vcpu_init")
s32 BPF_PROG(vcpu_init)
{
	for (u32 cpu = 0; cpu < MAX_CPUS && cpu < nr_cpu_ids; cpu++) {
		for (u32 queue = 0; queue < NR_QUEUES; queue++) {
			s32 error = scx_bpf_create_dsq___k(queue_of(cpu, queue), -1);

			if (error)
				return error;
		}
	}
	return settings.policy == SV_NEVER ? 0 : start_periods();
}

SEC("struct_ops/vcpu_exit")
void BPF_PROG(vcpu_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_reason, sizeof(exit_reason), info->reason);
	bpf_probe_read_kernel_str(exit_message, sizeof(exit_message), info->msg);
	exit_code = info->exit_code;
	/* Last: user space looks at the texts when it sees this. */
	exit_kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops vcpu_ops = {
	.select_cpu = (void *)vcpu_select_cpu,
	.enqueue = (void *)vcpu_enqueue,
	.dispatch = (void *)vcpu_dispatch,
	.runnable = (void *)vcpu_runnable,
	.running = (void *)vcpu_running,
	.stopping = (void *)vcpu_stopping,
	.quiescent = (void *)vcpu_quiescent,
	.enable = (void *)vcpu_enable,
	.disable = (void *)vcpu_disable,
	.init = (void *)vcpu_init,
	.exit = (void *)vcpu_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	/* Set at load: timeout_ms, after which the kernel takes the machine back from a queue
	 * that stands, and hotplug_seq, by which it knows that a CPU has come or gone since
	 * user space looked which there are. */
	.name = "scx_vcpu",
};
