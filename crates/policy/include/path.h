/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/*
 * Completion path: does a completion follow the vCPU that submitted, or does it
 * always arrive on the same one (single queue, managed interrupt)?
 *
 * One copy of the rules, as in iobound.h: the BPF programs learn with it, the daemon asks
 * with it, and tests run it through a shim.
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
 *
 * Before anything is learnt there may be a prior: what Linux says of the device's queues
 * and interrupts, which the daemon writes into `prior`. It is believed until
 *   something is learnt                    which always comes first
 *   four completions speak against it      then it is refuted
 *   PATH_SILENT completions where it says, by requests submitted there, which are no
 *   evidence: then it is doubted, so that a task is sent away once and there is some
 * and one crossing to where it says is as good as four: two sources agree.
 *
 * PATH_SENT_ON is a prior of another kind: the interrupt arrives at that vCPU, which
 * sends the completion on to the one that submitted (blk_mq_complete_need_ipi,
 * block/blk-mq.c). Then c == s is what is seen wherever the request was submitted, and
 * still nothing completes while that vCPU is away. So it comes before "follows", and only
 * a completion speaks against it that arrives although that vCPU was away all the while.
 */
#ifndef POLICY_PATH_H
#define POLICY_PATH_H

/* No vCPU, no prior. */
#define PATH_NONE 0xffffffffu
/* Completions arrive where requests are submitted. */
#define PATH_FOLLOWS 0xfffffffeu
/* A prior of which nobody has asked yet. */
#define PATH_UNASKED 0xfffffffdu
/* In a prior, beside the number of a vCPU. */
#define PATH_SENT_ON 0x40000000u

#define PATH_CROSSES 4
#define PATH_CONTRADICTIONS 8
#define PATH_AGAINST 4
/* Seconds of a busy reader, half a minute of one in short bursts: what is lost when it is
 * sent away then, a request that waits for a slice, is nothing beside that. */
#define PATH_SILENT 4096

struct path {
	unsigned int fixed_cpu;      /* every completion arrives here, or PATH_NONE */
	unsigned int follows;        /* seen to complete on two or more submitting vCPUs */
	unsigned int same_cpus;      /* bit (cpu % 32): completed where it was submitted */
	unsigned int contradictions; /* of fixed_cpu, since it was fixed */
	unsigned int cross_cpu;      /* the last completion elsewhere than submitted */
	unsigned int crosses;        /* how many in a row */
	unsigned int prior;          /* a vCPU, perhaps PATH_SENT_ON, or one of the above */
	unsigned int against;        /* completions that spoke against the prior */
	unsigned int silent;         /* completions that are evidence neither way */
};

static inline void path_reset(struct path *p, unsigned int prior)
{
	p->fixed_cpu = PATH_NONE;
	p->follows = 0;
	p->same_cpus = 0;
	p->contradictions = 0;
	p->cross_cpu = PATH_NONE;
	p->crosses = 0;
	p->prior = prior;
	p->against = 0;
	p->silent = 0;
}

/* The vCPU that the prior names, or PATH_NONE. */
static inline unsigned int path_prior_cpu(unsigned int prior)
{
	return prior >= PATH_UNASKED ? PATH_NONE : prior & ~PATH_SENT_ON;
}

/* Is the prior one that says where a request is sent on from? */
static inline unsigned int path_sent_on(unsigned int prior)
{
	return prior < PATH_UNASKED && prior & PATH_SENT_ON;
}

/* Nothing that was seen speaks against the prior, if there is one. */
static inline unsigned int path_believes_prior(const struct path *p)
{
	return p->prior != PATH_NONE && p->prior != PATH_UNASKED && p->against < PATH_AGAINST &&
	       p->silent < PATH_SILENT;
}

/* Where completions arrive: a vCPU, PATH_FOLLOWS, or PATH_NONE if that is not known. */
static inline unsigned int path_of(const struct path *p)
{
	if (p->fixed_cpu != PATH_NONE)
		return p->fixed_cpu;
	if (path_sent_on(p->prior) && path_believes_prior(p))
		return path_prior_cpu(p->prior);
	if (p->follows)
		return PATH_FOLLOWS;
	if (!path_believes_prior(p))
		return PATH_NONE;
	return p->prior == PATH_FOLLOWS ? PATH_FOLLOWS : path_prior_cpu(p->prior);
}

static inline void path_speaks_against(struct path *p)
{
	if (p->against < PATH_AGAINST)
		p->against++;
}

/*
 * A request that was submitted on s has completed on c. absent: the vCPU that the prior
 * names has been away since before that request was submitted.
 */
static inline void path_learn(struct path *p, unsigned int s, unsigned int c, unsigned int absent)
{
	unsigned int named = path_prior_cpu(p->prior);

	if (c != s) {
		p->crosses = p->cross_cpu == c ? p->crosses + 1 : 1;
		p->cross_cpu = c;
		if (p->crosses >= PATH_CROSSES || (c == named && p->against < PATH_AGAINST)) {
			p->fixed_cpu = c;
			p->follows = 0;
			p->same_cpus = 0;
			p->contradictions = 0;
		} else {
			path_speaks_against(p);
		}
		return;
	}
	p->crosses = 0;
	if (path_sent_on(p->prior) && p->against < PATH_AGAINST) {
		if (absent)
			path_speaks_against(p);
		return;
	}
	p->same_cpus |= 1u << (c & 31);
	if (p->fixed_cpu != PATH_NONE) {
		if (c == p->fixed_cpu || ++p->contradictions < PATH_CONTRADICTIONS)
			return;
		p->fixed_cpu = PATH_NONE;
		/* Nor is it to be believed because it was written somewhere. */
		p->against = PATH_AGAINST;
	}
	if (c == named)
		p->silent += p->silent < PATH_SILENT;
	else if (named != PATH_NONE)
		path_speaks_against(p);
	/* Against a prior one completion is not enough either. */
	if (named != PATH_NONE && path_believes_prior(p))
		return;
	if (p->same_cpus & (p->same_cpus - 1))
		p->follows = 1;
}

#endif /* POLICY_PATH_H */
