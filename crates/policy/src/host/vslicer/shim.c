/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/* Gives the functions of vslicer.h that Rust calls a symbol. */
#include "vslicer.h"

unsigned long long policy_vslicer_turns(unsigned long long slice_ns, unsigned long long micro_ns)
{
	return vslicer_turns(slice_ns, micro_ns);
}

unsigned long long policy_vslicer_due(unsigned long long left_ns, unsigned long long members,
				      unsigned long long slice_ns, unsigned long long micro_ns)
{
	return vslicer_due(left_ns, members, slice_ns, micro_ns);
}

unsigned long long policy_vslicer_rank(unsigned int sensitive, unsigned long long left_ns,
				       unsigned long long due_ns, unsigned long long used_ns,
				       unsigned long long distance)
{
	return vslicer_rank(sensitive, left_ns, due_ns, used_ns, distance);
}

unsigned long long policy_vslicer_cut(unsigned int sensitive, unsigned long long left_ns,
				      unsigned long long due_ns, unsigned long long used_ns)
{
	return vslicer_cut(sensitive, left_ns, due_ns, used_ns);
}

unsigned long long policy_vslicer_length(unsigned int sensitive, unsigned long long left_ns,
					 unsigned long long cut_ns, unsigned long long slice_ns,
					 unsigned long long micro_ns)
{
	return vslicer_length(sensitive, left_ns, cut_ns, slice_ns, micro_ns);
}

unsigned long long policy_vslicer_owes(unsigned long long left_ns, unsigned long long owed_ns,
				       unsigned long long ran_ns, unsigned long long slice_ns)
{
	return vslicer_owes(left_ns, owed_ns, ran_ns, slice_ns);
}

unsigned long long policy_vslicer_pays(unsigned long long owed_ns, unsigned long long slice_ns)
{
	return vslicer_pays(owed_ns, slice_ns);
}

unsigned int policy_vslicer_preempts(unsigned int running_sensitive, unsigned int sensitive,
				     unsigned long long left_ns, unsigned long long due_ns,
				     unsigned long long used_ns)
{
	return vslicer_preempts(running_sensitive, sensitive, left_ns, due_ns, used_ns);
}
