/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who lives on a pCPU: what a policy's rule looks through when it decides.
 *
 * A walk over the whole table: it holds no more than the host's vCPUs, and a list per
 * pCPU would need locks between pCPUs.
 */
#pragma once

#include "table.h"

/* The entry at a position of the table, if its vCPU lives on `cpu`. */
static __always_inline struct sv_vcpu *member_at(u32 position, u32 cpu)
{
	struct sv_vcpu *v = bpf_map_lookup_elem(&table, &position);

	return v && v->state != SV_FREE && v->cpu == cpu ? v : NULL;
}
