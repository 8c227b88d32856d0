/* SPDX-License-Identifier: GPL-2.0 */
/* Taking a vCPU that waits for another pCPU; when, is balance.h's and the policies'. */
#pragma once

#include "queue.h"
#include "waiting.h"

static bool take_from(struct theft *theft, s32 from)
{
	return scx_bpf_dsq_move_to_local___v2___k(queue_of(from, theft->queue), 0);
}

/* Does a pCPU without work take vCPUs of others at all? iSche's stay idle unless told (S8). */
static __always_inline bool takes_others(void)
{
	return settings.policy != SV_ISCHE || settings.lends_idle;
}

/* Takes a vCPU from such a queue of another pCPU; the kernel heeds affinities. */
WALKED_ONCE int steal(s32 cpu, u32 queue)
{
	struct theft theft = {.cpu = cpu, .queue = queue};

	if (!takes_others())
		return false;
	return look_where_they_wait(&theft);
}
