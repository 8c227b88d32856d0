/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * What the recorder of threads and user space share, through memory that both
 * map. All times are nanoseconds of CLOCK_MONOTONIC, as in freezer.h.
 */
#pragma once

enum ft_kind {
	FT_IN,     /* the thread became current on `cpu` */
	FT_READY,  /* it stopped being current on `cpu` but wants to go on */
	FT_IO,     /* it stopped being current on `cpu` and waits for I/O */
	FT_SLEEP,  /* likewise, for something else */
	FT_WAKING, /* somebody on `cpu` wakes it */
	FT_MOVED,  /* its queue is now that of `cpu` */
};

/* In .bss. Nothing is written down while it is 0. */
struct ft_ctl {
	__u32 recording; /* written by user space */
	__u32 __pad;
};

/* One event of one thread. */
struct ft_event {
	__u64 at_ns;
	__u32 tid;
	__u32 cpu;
	enum ft_kind kind;
	__u32 __pad;
};
_Static_assert(sizeof(struct ft_event) == 24, "one stride of the log");

/* One CPU's part of the log. Written only on that CPU; 128 bytes, as fz_lane. */
struct ft_lane {
	__u64 nr_logged;
	__u64 nr_dropped; /* events that found the log full */
	__u64 __pad[14];
};
_Static_assert(sizeof(struct ft_lane) == 128, "one lane per pair of cache lines");
