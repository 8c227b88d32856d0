/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/* One step of a replay, seen by both sides; see replay.bpf.c. */
#pragma once

#include "shared.h"

enum sv_step_kind {
	/* Entry `vcpu` is a vCPU: `weight`, class `b`. */
	SV_STEP_ADD = 0,
	/* It could run: `b`. */
	SV_STEP_READY = 1,
	/* A device has raised an interrupt to it at `a`. */
	SV_STEP_EVENT = 2,
	/* It ran for `a`. */
	SV_STEP_CHARGE = 3,
	/* Who is next at `a`: says `slot`, position plus one, and `length_ns`. Credit1: what
	 * was burned is handed out at `a`, and this one takes its part; `slot` is its class.
	 * Credit2, on the pCPU of `vcpu`: entry `a` - 1 waits first, entry `b` - 1 ran and can
	 * run on; 0: nobody. */
	SV_STEP_PICK = 4,
	/* Its weight is `weight` from now on. */
	SV_STEP_WEIGHT = 5,
	/* It wakes. Credit1: by a device if `b`. ISACS, Credit2: beside entry `b`, which runs
	 * (Credit2: for `a` since its charge); `slot` says whether it comes before. */
	SV_STEP_WAKE = 6,
	/* Credit2: it comes into the queue of pCPU `b`; `length_ns` is its place there. */
	SV_STEP_WAIT = 7,
	/* Credit2: pCPU `b` takes it from where it waits. */
	SV_STEP_MOVE = 8,
	/* Credit2: its cap is used up, and it waits on pCPU `b` for the next period. */
	SV_STEP_PARK = 9,
	/* Credit2: a period is over for it; `length_ns` is its place in the queue. */
	SV_STEP_UNPARK = 10,
	/* Credit2: its turn begins, for which it was given `a` before; the rest of an
	 * interrupted one if `b`. `length_ns` is how long it lasts. */
	SV_STEP_BEGIN = 11,
	/* It comes into a queue of pCPU `b`, from which others may take it. */
	SV_STEP_QUEUED = 12,
	/* It has left that. */
	SV_STEP_LEFT = 13,
	/* Somebody who holds no lock takes it from one pCPU's queue to pCPU `b`'s. */
	SV_STEP_GOES = 14,
	/* A thread without an entry comes into a queue of pCPU `b`. */
	SV_STEP_STRANGE = 15,
	/* pCPU `b` has no work, and pCPU `a` - 1 one for it, or none has: `slot` says whether it
	 * got that, `looked` where it looked. */
	SV_STEP_STEAL = 16,
};

/* Somebody who does so many steps at random beside others. */
struct sv_crowd {
	/* 0: comes and goes, of the vCPUs from `first` on; 1: takes vCPUs elsewhere; 2: steals. */
	u32 who;
	u32 first;
	u32 steps;
	u32 random;
};

/* vCPUs of each who comes and goes. */
#define SV_CROWD 4

struct sv_step {
	/* enum sv_step_kind */
	u32 what;
	u32 vcpu;
	u64 a;
	u32 weight;
	u32 b;
	/* Answers. */
	u64 length_ns;
	u32 slot;
	u32 pad;
};

_Static_assert(sizeof(struct sv_crowd) == 16, "written by Rust");
_Static_assert(sizeof(struct sv_step) == 40, "written by Rust");
