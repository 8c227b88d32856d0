/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/* Gives the static inline functions of path.h a symbol that Rust can call. */
#include "path.h"

_Static_assert(sizeof(struct path) == 36, "as in path.rs");

void policy_path_reset(struct path *p, unsigned int prior)
{
	path_reset(p, prior);
}

unsigned int policy_path_of(const struct path *p)
{
	return path_of(p);
}

void policy_path_learn(struct path *p, unsigned int s, unsigned int c, unsigned int absent)
{
	path_learn(p, s, c, absent);
}
