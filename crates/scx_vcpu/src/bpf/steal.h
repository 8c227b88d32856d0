/* SPDX-License-Identifier: GPL-2.0 */
/* Taking a vCPU that waits for another pCPU; when, is balance.h's and the policies'. */
#pragma once

#include "queue.h"
#include "settings.h"

struct theft {
	s32 cpu;
	enum queue queue;
	bool done;
};

static long take_from(u32 step, struct theft *theft)
{
	/* The neighbours first, and not all from the same one. */
	s32 from = (theft->cpu + 1 + step) % nr_cpu_ids;

	if (from == theft->cpu ||
	    !scx_bpf_dsq_move_to_local___v2___k(queue_of(from, theft->queue), 0))
		return 0;
	theft->done = true;
	return 1;
}

/* Takes a vCPU from such a queue of another pCPU; the kernel heeds affinities. */
static __always_inline bool steal(s32 cpu, enum queue queue)
{
	struct theft theft = {.cpu = cpu, .queue = queue};

	if (settings.policy == SV_ISCHE && !settings.lends_idle)
		return false;
	bpf_loop(nr_cpu_ids, take_from, &theft, 0);
	return theft.done;
}
