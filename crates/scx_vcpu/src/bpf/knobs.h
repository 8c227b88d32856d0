/* SPDX-License-Identifier: GPL-2.0 */
/* What is known of each vCPU thread: what it is, and what user space says of it. */
#pragma once

#include "kernel.h"

#include <bpf/bpf_helpers.h>

/*
 * What we know of a thread, for as long as it lives.
 *
 * Task storage: no size to choose, gone with the thread, no stale ids.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sv_knobs);
} vcpus SEC(".maps");
