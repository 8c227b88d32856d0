// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Algorithm 1: who runs next, and in which phase.

use units::Ns;

use super::EndTest;
use super::RunQ;
use super::Settings;
use super::Vcpu;
use super::WakeInBoost;
use super::reallocate;
use crate::host::credit::ffi;

/// What [`pick`] decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The vCPU that runs next.
    pub vcpu: usize,
    /// Credits were reallocated on the way: run algorithm 2 and start a new
    /// measuring period (A5).
    pub reallocated: bool,
}

/// Chooses among the `runnable` members of `queue`; equals in the order given.
///
/// `last_ran` is the running time just charged, used only by the reading A2;
/// `elapsed` the time since the last reallocation. Terminates: after a
/// reallocation the first one chosen by credit has the whole default left (or,
/// in debt, a bounded number of reallocations brings somebody above his limit).
/// None if nobody is runnable.
pub fn pick(
    queue: &mut RunQ,
    table: &mut [Vcpu],
    runnable: &[usize],
    last_ran: Ns,
    elapsed: Ns,
    settings: &Settings,
) -> Option<Pick> {
    let mut reallocated = false;
    for _ in 0..MAX_ROUNDS {
        if !queue.cpu_boost {
            let (vcpu, over) = phase_1(table, runnable, settings)?;
            if !over {
                return Some(Pick { vcpu, reallocated });
            }
            queue.cpu_boost = true;
            if settings.fall_through_burns && !reallocated {
                burn_first(table, runnable, last_ran);
            }
        }
        match phase_2(table, runnable, settings) {
            Some((vcpu, false)) => return Some(Pick { vcpu, reallocated }),
            // A3 as printed: the choice from the old group stands.
            Some((vcpu, true)) if settings.keeps_old_choice => {
                reallocate(queue, table, elapsed, settings);
                return Some(Pick {
                    vcpu,
                    reallocated: true,
                });
            }
            // Used up, or (A6, I15) no member of the group can run: nobody waits
            // for a group that sleeps.
            _ => {
                reallocate(queue, table, elapsed, settings);
                reallocated = true;
            }
        }
    }
    let (vcpu, _) = phase_1(table, runnable, settings)?;
    Some(Pick { vcpu, reallocated })
}

/// Debts are at most a slice at the lowest weight; the bound is for tables that
/// nothing sane has written.
const MAX_ROUNDS: u32 = 64;

/// The richest (I17) and whether phase 1 is over.
fn phase_1(table: &[Vcpu], runnable: &[usize], settings: &Settings) -> Option<(usize, bool)> {
    let first = best(table, runnable, |v| Some(v.credit.0))?;
    match settings.end_test {
        EndTest::Highest => Some((first, table[first].is_spent(settings))),
        EndTest::AllSpent => {
            let left = |v: &Vcpu| (!v.is_spent(settings)).then_some(v.credit.0);
            match best(table, runnable, left) {
                Some(vcpu) => Some((vcpu, false)),
                None => Some((first, true)),
            }
        }
    }
}

/// The member of the group with the most CVCredit and whether phase 2 is over.
fn phase_2(table: &[Vcpu], runnable: &[usize], settings: &Settings) -> Option<(usize, bool)> {
    let first = best(table, runnable, |v| v.in_group.then_some(v.cvcredit.0))?;
    let over = ffi::policy_isacs_boost_over(
        table[first].cvcredit.0,
        u32::from(settings.boost_strictly_below),
    ) != 0;
    Some((first, over))
}

/// A2 as printed.
fn burn_first(table: &mut [Vcpu], runnable: &[usize], last_ran: Ns) {
    if let Some(first) = best(table, runnable, |v| v.in_group.then_some(v.cvcredit.0)) {
        table[first].cvcredit = table[first].cvcredit.burn(last_ran);
    }
}

/// The first of those with the largest key; positions outside the table and
/// vCPUs without a key do not take part.
fn best(table: &[Vcpu], of: &[usize], key: impl Fn(&Vcpu) -> Option<i64>) -> Option<usize> {
    of.iter()
        .filter_map(|&v| table.get(v).and_then(&key).map(|key| (v, key)))
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(vcpu, _)| vcpu)
}

/// Does this vCPU, if it wakes in phase 2, compare CVCredits with other members of the
/// group? Not if it does I/O as well (I14) and such a vCPU preempts (A6).
#[must_use]
pub fn wakes_as_member(waking: &Vcpu, settings: &Settings) -> bool {
    ffi::policy_isacs_wakes_as_member(
        u32::from(waking.in_group),
        waking.endcredit.0,
        u32::from(settings.wake_in_boost == WakeInBoost::Preempts),
    ) != 0
}

/// Does `waking` preempt `running`, which has been charged up to now? K10 in
/// phase 1; in phase 2 as A6 is set. Members of the group compare CVCredits.
#[must_use]
pub fn wakes_before(queue: &RunQ, waking: &Vcpu, running: &Vcpu, settings: &Settings) -> bool {
    ffi::policy_isacs_wakes_before(
        u32::from(queue.cpu_boost),
        u32::from(wakes_as_member(waking, settings)),
        u32::from(running.in_group),
        waking.credit.0,
        running.credit.0,
        waking.cvcredit.0,
        running.cvcredit.0,
        u32::from(waking.is_spent(settings)),
        u32::from(settings.end_test == EndTest::AllSpent),
        u32::from(settings.wake_in_boost == WakeInBoost::Preempts),
    ) != 0
}
