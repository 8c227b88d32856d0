// SPDX-License-Identifier: GPL-2.0
/*
 * The trace without the scheduler: vCPUs are found and every on and off instant of
 * theirs is told, whoever schedules them. Nothing here is of sched_ext.
 */
#define ONLY_LOOKS

#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "trace.h"

char LICENSE[] SEC("license") = "GPL";
