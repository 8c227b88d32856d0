// SPDX-License-Identifier: GPL-2.0
/*
 * Replays a stream of events through the rules that the scheduler runs, on any kernel:
 * nothing here is of sched_ext. The test in src/replay.rs runs it with
 * BPF_PROG_TEST_RUN and compares every credit with policy::host after each step.
 *
 * Credit1, ISACS and vSlicer: the very code of main.bpf.c (rule_*.h). Credit2: the
 * formulas of credit2.h in the order of policy::host; what main.bpf.c does in addition
 * (taking part in resets when a vCPU is next looked at) needs queues of sched_ext.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "knobs.h"
#include "replay.h"
#include "rule_credit1.h"
#include "rule_isacs.h"
#include "rule_vslicer.h"

char LICENSE[] SEC("license") = "GPL";

/* Makes an entry of the table a vCPU of pCPU 0. */
static __always_inline int add(struct sv_vcpu *v, struct sv_step *step)
{
	v->state = SV_WAITS;
	v->cpu = 0;
	v->weight = step->weight;
	v->class = step->b;
	v->credit = settings.default_credit_ns;
	if (settings.policy == SV_CREDIT1)
		credit1_join(v);
	if (nr_slots < step->vcpu + 1)
		nr_slots = step->vcpu + 1;
	return 0;
}

SEC("syscall")
int replay(struct sv_step *step)
{
	u32 at = step->vcpu;
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &at);
	struct sv_pcpu *pcpu = pcpu_of(0);

	if (!v || !pcpu)
		return -1;
	switch (step->what) {
	case SV_STEP_ADD:
		return add(v, step);
	case SV_STEP_READY:
		v->queued = step->b;
		if (settings.policy != SV_CREDIT1 || !v->counted == !step->b)
			return 0;
		if (step->b)
			credit1_join(v);
		else
			credit1_sleep(v);
		return 0;
	case SV_STEP_EVENT:
		isacs_event(v, step->a);
		return 0;
	case SV_STEP_CHARGE:
		if (settings.policy == SV_ISACS)
			isacs_charge(v, step->a);
		else if (settings.policy == SV_VSLICER)
			vslicer_charge(v, step->a);
		else if (settings.policy == SV_CREDIT1)
			credit1_charge(v, step->a);
		else
			v->credit = credit_burn(
				v->credit, credit2_cost(step->a, v->weight, settings.reference));
		return 0;
	case SV_STEP_PICK:
		if (settings.policy == SV_ISACS) {
			step->slot = isacs_pick(0, 0, step->a);
			v = entry_of(step->slot);
			step->length_ns = v ? isacs_turn_ns(v, pcpu) : 0;
		} else if (settings.policy == SV_CREDIT1) {
			credit1_hand_out(pcpu, step->a);
			credit1_take(v);
			step->slot = credit1_class(v);
		} else {
			step->slot = vslicer_pick(0, 0);
			step->length_ns = pcpu->turn_ns;
		}
		return 0;
	case SV_STEP_WEIGHT:
		v->weight = step->weight;
		return 0;
	case SV_STEP_WAKE:
		if (settings.policy == SV_ISACS) {
			struct sv_vcpu *running = entry_of(step->b + 1);

			if (!running)
				return -1;
			step->slot = isacs_comes_before(v, running, pcpu, 0);
			return 0;
		}
		v->io_pending = step->b;
		credit1_wake(v);
		return 0;
	case SV_STEP_RESET:
		v->credit =
			credit2_reset(v->credit, settings.default_credit_ns, settings.reset_adds);
		return 0;
	}
	return -1;
}
