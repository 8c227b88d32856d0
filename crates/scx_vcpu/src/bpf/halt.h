/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Halts of guests: how often and for how long a vCPU had nothing to do.
 *
 * KVM calls this function in the vCPU's own thread for HLT; it polls there for a moment
 * and then sleeps. The time asleep that the scheduler sees lacks the polling, and has
 * what the VMM itself waits for.
 *
 * Limits: where the guest may halt without KVM (KVM_CAP_X86_DISABLE_EXITS), and for
 * MWAIT, nothing is seen.
 */
#pragma once

#include "account.h"

SEC("fentry/kvm_vcpu_halt")
int BPF_PROG(halt_begins, struct kvm_vcpu *kvm_vcpu)
{
	struct sv_vcpu *v = entry_of_task(bpf_get_current_task_btf());

	if (v)
		v->halted_at = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit/kvm_vcpu_halt")
int BPF_PROG(halt_ends, struct kvm_vcpu *kvm_vcpu)
{
	struct sv_vcpu *v = entry_of_task(bpf_get_current_task_btf());

	/* One that was found, or found an entry, in the middle of its halt. */
	if (!v || !v->halted_at)
		return 0;
	v->nr_halts++;
	v->halted_ns += bpf_ktime_get_ns() - v->halted_at;
	v->halted_at = 0;
	return 0;
}
