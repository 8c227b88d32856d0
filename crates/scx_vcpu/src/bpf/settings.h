/* SPDX-License-Identifier: GPL-2.0 */
/* What user space says once, before the programs are loaded. */
#pragma once

#include "kernel.h"

#include <bpf/bpf_helpers.h>

const volatile struct sv_settings settings;
const volatile u32 nr_cpu_ids = 1;
