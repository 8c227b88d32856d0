/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interrupts that are raised to vCPUs: the EVENT CHECKER (I2), and wake-up IPIs.
 *
 * KVM calls this function for each interrupt that a vCPU's local APIC takes:
 * MSIs and IO-APIC lines of devices in the thread that raises them (the VMM's
 * I/O thread, a vhost worker), IPIs in the thread of the vCPU that sends, and
 * timers in the vCPU's own thread. (kvm_apic_set_irq has less in its way, but
 * compilers inline it.)
 *
 * Limits: with AVIC or posted interrupts, hardware delivers without KVM. Without
 * an I/O thread a VMM may complete requests in a vCPU's thread; they look like IPIs.
 * So does what an interrupt raises (an irqfd that a driver signals there) if it came into
 * a vCPU of the same VM, and what came into the vCPU itself is not counted. Rejected: to ask
 * __preempt_count for the context, for a program that names it does not load where
 * /proc/kallsyms has no variables (CONFIG_KALLSYMS_ALL).
 */
#pragma once

#include "account.h"
#include "rule_isacs.h"

/*
 * How often which vCPU has woken which. The least used go when it is full, so those of
 * threads that have gone do.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sv_waker);
	__type(value, u64);
} wakers SEC(".maps");

static __always_inline void count_waker(struct sv_vcpu *v, u32 source)
{
	struct sv_waker key = {.vm = v->vm, .tid = v->tid, .source = source};
	u64 *count = bpf_map_lookup_elem(&wakers, &key), one = 1;

	__sync_fetch_and_add(&v->nr_wake_ipi, 1);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&wakers, &key, &one, BPF_ANY);
}

SEC("fentry/__apic_accept_irq")
int BPF_PROG(irq_raised, struct kvm_lapic *apic)
{
	struct task_struct *source = bpf_get_current_task_btf();
	u32 tid = BPF_CORE_READ(apic, vcpu, pid, numbers[0].nr);
	u32 *slot = bpf_map_lookup_elem(&slot_of_tid, &tid);
	struct sv_vcpu *v = slot ? entry_of(*slot) : NULL;
	struct sv_knobs *from;

	if (!v)
		return 0;
	/* Its timer, or an IPI to itself. */
	if (source->pid == v->tid)
		return 0;
	from = source->policy == SCHED_EXT ? vcpu_of(source) : NULL;
	if (from && from->vm == v->vm) {
		__sync_fetch_and_add(&v->nr_ipi, 1);
		if (v->state == SV_ASLEEP)
			count_waker(v, from->vcpu);
	} else {
		__sync_fetch_and_add(&v->nr_io, 1);
		v->io_pending = 1;
		if (settings.policy == SV_ISACS)
			isacs_event(v, bpf_ktime_get_ns());
	}
	return 0;
}
