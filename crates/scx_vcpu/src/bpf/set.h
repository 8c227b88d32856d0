/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Changes of a vCPU while it is scheduled. User space runs this program; a field is
 * one aligned word, so whoever reads it sees the old value or the new one. Each is
 * looked at when its vCPU is next charged or put into a queue.
 */
#pragma once

#include "period.h"

/* 0, or 1: this vCPU is not (or no longer) scheduled by us. */
SEC("syscall")
int set_vcpu(struct sv_set *set)
{
	u32 tid = set->tid;
	u32 *slot = bpf_map_lookup_elem(&slot_of_tid, &tid);
	struct sv_vcpu *v = slot ? entry_of(*slot) : NULL;

	if (!v || v->tid != tid || v->vm != set->vm)
		return 1;
	v->weight = set->weight;
	v->cap_permille = set->cap_permille;
	v->class = set->class;
	v->home = set->home;
	return 0;
}
