/* SPDX-License-Identifier: (GPL-2.0 OR Apache-2.0 OR MIT) */
/* Gives the static inline functions of the headers a symbol that Rust can call. */
#include "credit1.h"
#include "credit2.h"
#include "isacs.h"

long long policy_credit_add(long long credit, unsigned long long ns)
{
	return credit_add(credit, ns);
}

long long policy_credit_burn(long long credit, unsigned long long ns)
{
	return credit_burn(credit, ns);
}

unsigned long long policy_credit_mul_div(unsigned long long a, unsigned long long b,
					 unsigned long long c)
{
	return credit_mul_div(a, b, c);
}

unsigned int policy_credit1_priority(long long credit, unsigned int boosted,
				     unsigned int zero_is_under)
{
	return credit1_priority(credit, boosted, zero_is_under);
}

unsigned long long policy_credit1_share(unsigned long long pool_ns, unsigned int weight,
					unsigned long long weight_sum)
{
	return credit1_share(pool_ns, weight, weight_sum);
}

long long policy_credit1_refill(long long credit, unsigned long long share_ns,
				unsigned long long limit_ns)
{
	return credit1_refill(credit, share_ns, limit_ns);
}

unsigned long long policy_credit1_unit(unsigned long long burned_ns, unsigned long long weight_sum)
{
	return credit1_unit(burned_ns, weight_sum);
}

unsigned long long policy_credit1_part(unsigned long long unit, unsigned int weight)
{
	return credit1_part(unit, weight);
}

unsigned long long policy_credit1_excess(long long credit, unsigned long long limit_ns)
{
	return credit1_excess(credit, limit_ns);
}

unsigned int policy_credit1_wakes_boosted(long long credit, unsigned int by_io,
					  unsigned int needs_under, unsigned int zero_is_under)
{
	return credit1_wakes_boosted(credit, by_io, needs_under, zero_is_under);
}

unsigned int policy_credit1_preempts(unsigned int waking, unsigned int running)
{
	return credit1_preempts(waking, running);
}

unsigned long long policy_credit1_slice(unsigned int priority, unsigned long long slice_ns,
					unsigned long long boost_ns)
{
	return credit1_slice(priority, slice_ns, boost_ns);
}

unsigned int policy_credit1_capped(unsigned long long used_ns, unsigned int cap_permille,
				   unsigned long long period_ns)
{
	return credit1_capped(used_ns, cap_permille, period_ns);
}

unsigned long long policy_credit2_cost(unsigned long long ran_ns, unsigned int weight,
				       unsigned int reference)
{
	return credit2_cost(ran_ns, weight, reference);
}

unsigned long long policy_credit2_lasts(long long credit, unsigned int weight,
					unsigned int reference)
{
	return credit2_lasts(credit, weight, reference);
}

unsigned int policy_credit2_preempts(long long waking, long long running)
{
	return credit2_preempts(waking, running);
}

unsigned int policy_credit2_reset_due(long long next, unsigned int at_zero)
{
	return credit2_reset_due(next, at_zero);
}

long long policy_credit2_reset(long long credit, unsigned long long default_ns, unsigned int adds)
{
	return credit2_reset(credit, default_ns, adds);
}

unsigned long long policy_credit2_resets_due(long long most, unsigned long long default_ns,
					     unsigned int adds, unsigned int at_zero)
{
	return credit2_resets_due(most, default_ns, adds, at_zero);
}

long long policy_credit2_after(long long credit, unsigned long long resets,
			       unsigned long long default_ns, unsigned int adds)
{
	return credit2_after(credit, resets, default_ns, adds);
}

long long policy_credit2_rank(long long credit, unsigned int adds, unsigned int at_zero)
{
	return credit2_rank(credit, adds, at_zero);
}

unsigned long long policy_isacs_ema(unsigned long long interval_ns, unsigned long long ema_ns,
				    unsigned int first)
{
	return isacs_ema(interval_ns, ema_ns, first);
}

unsigned int policy_isacs_interval_counts(unsigned long long interval_ns,
					  unsigned long long cutoff_ns)
{
	return isacs_interval_counts(interval_ns, cutoff_ns);
}

unsigned long long policy_isacs_strength(unsigned long long events, unsigned long long ema_ns,
					 unsigned long long limit_ns)
{
	return isacs_strength(events, ema_ns, limit_ns);
}

unsigned long long policy_isacs_ivcredit(unsigned long long strength_ns,
					 unsigned long long consumed_ns, unsigned long long sum_ns,
					 unsigned long long product)
{
	return isacs_ivcredit(strength_ns, consumed_ns, sum_ns, product);
}

unsigned int policy_isacs_joins_boost(unsigned long long sum_ivcredit, unsigned int nr_io,
				      unsigned long long ivcredit, unsigned long long unit_ns)
{
	return isacs_joins_boost(sum_ivcredit, nr_io, ivcredit, unit_ns);
}

unsigned long long policy_isacs_cvcredit(unsigned long long sum_ivcredit, unsigned int group,
					 unsigned long long consumed_ns,
					 unsigned long long default_ns)
{
	return isacs_cvcredit(sum_ivcredit, group, consumed_ns, default_ns);
}

long long policy_isacs_credit(unsigned long long default_ns, unsigned long long ivcredit)
{
	return isacs_credit(default_ns, ivcredit);
}

unsigned int policy_isacs_spent(long long credit, long long endcredit, unsigned int strictly_below)
{
	return isacs_spent(credit, endcredit, strictly_below);
}

unsigned int policy_isacs_boost_over(long long cvcredit, unsigned int strictly_below)
{
	return isacs_boost_over(cvcredit, strictly_below);
}

unsigned long long policy_credit1_used_after(unsigned long long used_ns, unsigned int cap_permille,
					     unsigned long long passed_ns)
{
	return credit1_used_after(used_ns, cap_permille, passed_ns);
}

unsigned long long policy_credit1_cap_left(unsigned long long used_ns, unsigned int cap_permille,
					   unsigned long long period_ns)
{
	return credit1_cap_left(used_ns, cap_permille, period_ns);
}

unsigned long long policy_credit1_used_of_new_cap(unsigned long long used_ns,
						  unsigned int cap_permille,
						  unsigned long long period_ns)
{
	return credit1_used_of_new_cap(used_ns, cap_permille, period_ns);
}

unsigned long long policy_credit_turn_within(unsigned long long turn_ns, unsigned long long waiting,
					     unsigned long long patience_ns,
					     unsigned long long least_ns)
{
	return credit_turn_within(turn_ns, waiting, patience_ns, least_ns);
}

unsigned int policy_isacs_burns_cvcredit(unsigned int cpu_boost, unsigned int in_group)
{
	return isacs_burns_cvcredit(cpu_boost, in_group);
}

long long policy_isacs_left(unsigned int burns_cvcredit, long long credit, long long endcredit,
			    long long cvcredit)
{
	return isacs_left(burns_cvcredit, credit, endcredit, cvcredit);
}

unsigned long long policy_isacs_debt(long long credit, long long endcredit)
{
	return isacs_debt(credit, endcredit);
}

unsigned int policy_isacs_wakes_as_member(unsigned int in_group, long long endcredit,
					  unsigned int preempts_boost)
{
	return isacs_wakes_as_member(in_group, endcredit, preempts_boost);
}

unsigned int policy_isacs_wakes_before(unsigned int cpu_boost, unsigned int waking_as_member,
				       unsigned int running_in_group, long long waking,
				       long long running, long long waking_cv, long long running_cv,
				       unsigned int waking_spent, unsigned int end_all,
				       unsigned int preempts_boost)
{
	return isacs_wakes_before(cpu_boost, waking_as_member, running_in_group, waking, running,
				  waking_cv, running_cv, waking_spent, end_all, preempts_boost);
}
