// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ISACS, the I/O-strength-aware credit scheduler, on Credit2 (I1..I19, A1..A8).
//!
//! # Problem
//!
//! Credit2 runs whoever has the most credit. A vCPU that does I/O and also
//! computes has little when a response arrives; and compute-bound vCPUs cause
//! resets that make all credits equal (K15).
//!
//! # Approach
//!
//! Each vCPU's I/O strength is the number of response events since the last
//! reallocation times their smoothed interval ([`Events`], equation (1)). At a
//! reallocation it becomes an IVCredit on top of the default credit (equation
//! (2)), so I/O vCPUs are first in line; but the test for "used up" is against
//! the IVCredit, not 0, so nobody may *use* more than the default (credit
//! concealing, I16). When that is through, the vCPUs with little I/O run for a
//! while alone on CVCredit (CPU-BOOST, equations (3) and (4)), then credits are
//! reallocated.
//!
//! * [`RunQ`] holds the members of one run queue and its state.
//! * [`pick()`] is algorithm 1, [`reallocate`] its inner part, [`balance()`]
//!   algorithm 2.
//!
//! # Weaknesses
//!
//! The published strength can exceed the time it was measured in, and the vCPU
//! with the largest one ends phase 1 for all (I19). [`Settings::limit_strength`]
//! and [`EndTest::AllSpent`] are the fixes; the gaming tests show both sides.

use units::Ns;

use crate::host::credit::Credit;
use crate::host::credit::Weight;
use crate::host::credit::credit2;
use crate::host::credit::ffi;

mod balance;
mod events;
mod pick;
mod realloc;

pub use balance::Balance;
pub use balance::QueueLoad;
pub use balance::balance;
pub use events::Events;
pub use pick::Pick;
pub use pick::pick;
pub use pick::wakes_as_member;
pub use pick::wakes_before;
pub use realloc::Totals;
pub use realloc::reallocate;

/// What the published text fixes, its readings, and our fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest time without a new decision; Credit2's 10 ms (K13).
    pub slice: Ns,
    /// Credit of each vCPU after a reallocation. Not stated. 10 ms.
    pub default_credit: Ns,
    /// The weight at which a nanosecond costs one (K11): 256.
    pub reference: Weight,
    /// Intervals above this do not count: 10 ms (I6).
    pub cutoff: Ns,
    /// Does E_n count an event whose interval was above the cut-off? Ambiguous
    /// (I6); our reading: no.
    pub late_events_count: bool,
    /// How equation (2) is read (I8).
    pub equation_2: Equation2,
    /// What the 1 of equation (3) is worth (I12). 1 ns, the unit of credit here.
    /// Xen counts credits of 1 ms / 1000; a larger unit keeps vCPUs with little
    /// I/O out of the group only when all IVCredits are small.
    pub boost_unit: Ns,
    /// I17: phase 1 ends at `credit < endcredit` (prose) instead of `<=`
    /// (algorithm 1, our reading).
    pub spent_strictly_below: bool,
    /// A1: phase 2 ends at `CVCredit < 0` (prose) instead of `<= 0` (our reading).
    pub boost_strictly_below: bool,
    /// A2: is the running time of the vCPU that ended phase 1 also charged to the
    /// CVCredit of the one that phase 2 begins with, as printed? Our reading: no.
    pub fall_through_burns: bool,
    /// A3: after a reallocation return the vCPU chosen from the old group, as
    /// printed, instead of choosing again by credit (our reading).
    pub keeps_old_choice: bool,
    /// A4: compute CVCredits while members still join, as printed, instead of in
    /// a second pass with the final group size (our reading).
    pub one_pass: bool,
    /// A6: what a member that wakes in phase 2 and is not in the group does.
    pub wake_in_boost: WakeInBoost,
    /// Not stated: does time in phase 2 count as consumed credit in (2) and (4)?
    /// No: it burns CVCredit.
    pub boost_counts_as_consumed: bool,
    /// A7: how algorithm 2 chooses among several candidates.
    pub choice: Choice,
    /// Who has to be through before phase 1 ends (I17, I19).
    pub end_test: EndTest,
    /// Our fix, off as published: I/O strength is at most the time since the
    /// last reallocation, which is the most that DOM0 can have spent (I7).
    pub limit_strength: bool,
    /// Our fix, off as published: a slice ends when the vCPU may use no more.
    pub slice_ends_with_credit: bool,
    /// Our fix, off as published: a reallocation carries over what a vCPU used
    /// beyond its limit.
    pub keeps_debt: bool,
}

/// I8: the text layer of equation (2) is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equation2 {
    /// strength * consumed / sum(cc): what the prose says twice.
    Share,
    /// strength * consumed / (sum(cc) / prod(cc)): as printed, with credits in
    /// milliseconds so that the product means anything at all.
    AsPrinted,
}

/// A6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeInBoost {
    /// It waits: only members of the group run (I18 as worded).
    Waits,
    /// It preempts and runs on its credit; phase 2 goes on when it sleeps. So does a member
    /// of the group that does I/O as well (I14).
    Preempts,
}

/// A7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The last candidate found wins, as the loops are written.
    Last,
    /// The queue with the fewest events, and the vCPU that evens out most.
    Best,
}

/// I17, I19: whose credit ends phase 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndTest {
    /// That of the vCPU with the highest credit, as published.
    Highest,
    /// That of every runnable vCPU; until then the richest that is not through
    /// runs. Our fix for I19: nobody's default credit lapses.
    AllSpent,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice: Ns::from_ms(10),
            default_credit: Ns::from_ms(10),
            reference: Weight::DEFAULT,
            cutoff: Ns::from_ms(10),
            late_events_count: false,
            equation_2: Equation2::Share,
            boost_unit: Ns(1),
            spent_strictly_below: false,
            boost_strictly_below: false,
            fall_through_burns: false,
            keeps_old_choice: false,
            one_pass: false,
            wake_in_boost: WakeInBoost::Waits,
            boost_counts_as_consumed: false,
            choice: Choice::Last,
            end_test: EndTest::Highest,
            limit_strength: false,
            slice_ends_with_credit: false,
            keeps_debt: false,
        }
    }
}

impl Settings {
    /// All our fixes on: what to run if the tenants are not friends. The extra
    /// turn of phase 2 is given for I/O that was measured, so its size is
    /// bounded by the time that passed.
    #[must_use]
    pub fn hardened() -> Self {
        Self {
            end_test: EndTest::AllSpent,
            limit_strength: true,
            slice_ends_with_credit: true,
            keeps_debt: true,
            boost_counts_as_consumed: true,
            ..Self::default()
        }
    }
}

/// One vCPU: the scheduler's part of ISACS_vCPU_INFO (I1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// Most runs first in phase 1 (I17).
    pub credit: Credit,
    /// Where its credit counts as used up (I16).
    pub endcredit: Credit,
    /// Most runs first in phase 2 (I18).
    pub cvcredit: Credit,
    /// What the last reallocation gave for I/O (equation 2).
    pub ivcredit: Ns,
    /// Member of the CPU-BOOST group (I12).
    pub in_group: bool,
    /// Credit used since the last reallocation: cc_i of equation (2).
    pub consumed: Ns,
    /// How slowly its credit burns (K11).
    pub weight: Weight,
    /// Its response events since the last reallocation (I2).
    pub events: Events,
}

impl Vcpu {
    /// As after a reallocation without any I/O.
    #[must_use]
    pub fn new(weight: Weight, settings: &Settings) -> Self {
        Self {
            credit: Credit::of(settings.default_credit),
            weight,
            ..Self::default()
        }
    }

    /// Has it used what it may in phase 1 (I16, I17)?
    #[must_use]
    pub fn is_spent(&self, settings: &Settings) -> bool {
        ffi::policy_isacs_spent(
            self.credit.0,
            self.endcredit.0,
            u32::from(settings.spent_strictly_below),
        ) != 0
    }
}

/// One run queue: which vCPUs are assigned to it, and which phase it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQ {
    /// Positions in the table of all vCPUs assigned to it, also those that sleep.
    pub members: Vec<usize>,
    /// CPU-BOOST STATE (I17).
    pub cpu_boost: bool,
    /// The sum of the IVCredits of the last reallocation (algorithm 2).
    pub io_load: Ns,
    /// All response events of the period before it (algorithm 2).
    pub io_events: u64,
}

impl RunQ {
    /// `vcpu` ran for `ran` under this queue and stops.
    pub fn on_charge(&self, vcpu: &mut Vcpu, ran: Ns, settings: &Settings) {
        let cost = credit2::cost(ran, vcpu.weight, settings.reference);
        if self.burns_cvcredit(vcpu) {
            vcpu.cvcredit = vcpu.cvcredit.burn(cost);
            if settings.boost_counts_as_consumed {
                vcpu.consumed += cost;
            }
        } else {
            vcpu.credit = vcpu.credit.burn(cost);
            vcpu.consumed += cost;
        }
    }

    /// How long `vcpu` may run until the next decision.
    #[must_use]
    pub fn slice(&self, vcpu: &Vcpu, settings: &Settings) -> Ns {
        if !settings.slice_ends_with_credit {
            return settings.slice;
        }
        let left = Credit(ffi::policy_isacs_left(
            u32::from(self.burns_cvcredit(vcpu)),
            vcpu.credit.0,
            vcpu.endcredit.0,
            vcpu.cvcredit.0,
        ));
        credit2::lasts(left, vcpu.weight, settings.reference)
            .max(Ns(1))
            .min(settings.slice)
    }

    fn burns_cvcredit(&self, vcpu: &Vcpu) -> bool {
        ffi::policy_isacs_burns_cvcredit(u32::from(self.cpu_boost), u32::from(vcpu.in_group)) != 0
    }
}

#[cfg(test)]
mod tests;
