/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completion path: does a completion follow the vCPU that submitted, or does it
 * always arrive on the same one (single queue, managed interrupt)?
 *
 * Evidence, one request at a time, s = submitted on, c = completed on:
 *   c != s, four in a row to the same c    fixed at c
 *   c == s == fixed                        says nothing
 *   c == s, not the fixed one              contradicts; eight and it is not fixed
 *   c == s on two vCPUs, not fixed         it follows
 * Four, not one: a single completion goes astray when its submitter moves at
 * the wrong moment. What was learnt stays until contradicted: a task that has
 * moved to its completion vCPU gives no further evidence, and must not be
 * moved off again for that.
 */
#pragma once

static __always_inline void path_learn(struct path *p, u32 s, u32 c)
{
	if (c != s) {
		p->crosses = p->cross_cpu == c ? p->crosses + 1 : 1;
		p->cross_cpu = c;
		if (p->crosses >= 4) {
			p->fixed_cpu = c;
			p->follows = 0;
			p->same_cpus = 0;
			p->contradictions = 0;
		}
		return;
	}
	p->crosses = 0;
	p->same_cpus |= 1u << (c & 31);
	if (p->fixed_cpu != NO_CPU) {
		if (c == p->fixed_cpu || ++p->contradictions < 8)
			return;
		p->fixed_cpu = NO_CPU;
	}
	if (p->same_cpus & (p->same_cpus - 1))
		p->follows = 1;
}

static __always_inline void path_reset(struct path *p)
{
	p->fixed_cpu = NO_CPU;
	p->follows = 0;
	p->same_cpus = 0;
	p->contradictions = 0;
	p->cross_cpu = NO_CPU;
	p->crosses = 0;
}
