// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit2 (K9..K15).
//!
//! A run queue, which one or several pCPUs share, always runs the runnable vCPU
//! with the most credit (K9). Weight sets how fast credit burns (K11). When the
//! next one has less than nothing left, **all** vCPUs of the queue are given the
//! default credit (K12). A waking vCPU with more credit than the running one
//! preempts it (K10), which favours those that sleep.
//!
//! # Limits
//!
//! A reset that replaces the old credit also forgives debts. A vCPU that wakes
//! with a little credit left and runs a full slice gets more than its share;
//! [`Settings::slice_ends_with_credit`] or [`Reset::AddToDebt`] closes that.

use units::Ns;

use super::Credit;
use super::Weight;
use super::ffi;

mod xen;

pub use xen::Candidate;
pub use xen::Waiting;
pub use xen::Xen;

/// What the published text fixes and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest time without a new decision: 10 ms (our reading of K13).
    pub slice: Ns,
    /// What a reset gives. Not stated (K12). 10 ms, one slice.
    pub default_credit: Ns,
    /// What a reset does with what was there. Not stated (K12).
    pub reset: Reset,
    /// Is a reset due at exactly 0? K12: only below.
    pub reset_at_zero: bool,
    /// Our fix, off as published: a slice ends when the credit does.
    pub slice_ends_with_credit: bool,
    /// The weight at which a nanosecond costs one: 256.
    pub reference: Weight,
}

/// K12's open question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Credit becomes the default, as in ISACS' algorithm 1.
    Replace,
    /// Debts are carried over, surplus is not.
    AddToDebt,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice: Ns::from_ms(10),
            default_credit: Ns::from_ms(10),
            reset: Reset::Replace,
            reset_at_zero: false,
            slice_ends_with_credit: false,
            reference: Weight::DEFAULT,
        }
    }
}

impl Settings {
    /// With our fixes, as the gaming tests need them.
    #[must_use]
    pub fn hardened() -> Self {
        Self {
            reset: Reset::AddToDebt,
            slice_ends_with_credit: true,
            ..Self::default()
        }
    }
}

/// One vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// Most credit runs first (K9).
    pub credit: Credit,
    /// How slowly it burns (K11).
    pub weight: Weight,
}

impl Vcpu {
    /// With the default credit.
    #[must_use]
    pub fn new(weight: Weight, settings: &Settings) -> Self {
        Self {
            credit: Credit::of(settings.default_credit),
            weight,
        }
    }

    /// It ran for `ran`.
    pub fn on_charge(&mut self, ran: Ns, settings: &Settings) {
        self.credit = self.credit.burn(cost(ran, self.weight, settings.reference));
    }

    /// Does it preempt `running` when it wakes (K10)? `running` must have been
    /// charged up to now.
    #[must_use]
    pub fn preempts(&self, running: &Self) -> bool {
        ffi::policy_credit2_preempts(self.credit.0, running.credit.0) != 0
    }

    /// How long it may run until the next decision.
    #[must_use]
    pub fn slice(&self, settings: &Settings) -> Ns {
        if !settings.slice_ends_with_credit {
            return settings.slice;
        }
        // With nothing left but nobody better it runs on until a reset, which
        // the next decision takes.
        lasts(self.credit, self.weight, settings.reference)
            .max(Ns(1))
            .min(settings.slice)
    }
}

/// What running for `ran` costs at this weight (K11), rounded up.
#[must_use]
pub fn cost(ran: Ns, weight: Weight, reference: Weight) -> Ns {
    Ns(ffi::policy_credit2_cost(
        ran.as_ns(),
        weight.get(),
        reference.get(),
    ))
}

/// How long a vCPU of this weight can run on this credit, rounded up.
#[must_use]
pub fn lasts(credit: Credit, weight: Weight, reference: Weight) -> Ns {
    Ns(ffi::policy_credit2_lasts(
        credit.0,
        weight.get(),
        reference.get(),
    ))
}

/// What [`pick`] decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The vCPU that runs next.
    pub vcpu: usize,
    /// All credits were reset on the way (K12).
    pub reset: bool,
}

/// Who runs next: the one with the most credit of `runnable` (K9), after a reset
/// of all `members` of the run queue if that one has none left (K12). Equals go
/// in the order given, so a caller that appends gets round robin among equals.
///
/// `members` are all vCPUs assigned to the queue, also those that sleep or run.
/// None if nobody is runnable.
pub fn pick(
    table: &mut [Vcpu],
    members: &[usize],
    runnable: &[usize],
    settings: &Settings,
) -> Option<Pick> {
    let vcpu = richest(table, runnable, settings)?;
    let resets = ffi::policy_credit2_resets_due(
        table[vcpu].credit.0,
        settings.default_credit.as_ns(),
        u32::from(settings.reset == Reset::AddToDebt),
        u32::from(settings.reset_at_zero),
    );
    if resets == 0 {
        return Some(Pick { vcpu, reset: false });
    }
    // A debt above the default needs several under AddToDebt. Whoever came first by rank
    // does so by credit now.
    give(table, members, resets, settings);
    Some(Pick { vcpu, reset: true })
}

/// Gives every member its new credit (K12).
pub fn reset(table: &mut [Vcpu], members: &[usize], settings: &Settings) {
    give(table, members, 1, settings);
}

fn give(table: &mut [Vcpu], members: &[usize], resets: u64, settings: &Settings) {
    for &position in members {
        if let Some(vcpu) = table.get_mut(position) {
            vcpu.credit = Credit(ffi::policy_credit2_after(
                vcpu.credit.0,
                resets,
                settings.default_credit.as_ns(),
                u32::from(settings.reset == Reset::AddToDebt),
            ));
        }
    }
}

/// The first of those with the most credit; all debtors are equal where the next reset makes
/// them so.
fn richest(table: &[Vcpu], runnable: &[usize], settings: &Settings) -> Option<usize> {
    let rank = |v: usize| {
        ffi::policy_credit2_rank(
            table[v].credit.0,
            u32::from(settings.reset == Reset::AddToDebt),
            u32::from(settings.reset_at_zero),
        )
    };
    runnable
        .iter()
        .copied()
        .filter(|&v| v < table.len())
        .reduce(|best, v| if rank(v) > rank(best) { v } else { best })
}

/// K14: the load of a run queue is its vCPUs' execution time; I/O is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Running time of each vCPU of the queue in the last period, with its
    /// position in the table.
    pub vcpus: Vec<(usize, Ns)>,
}

impl Load {
    /// The execution time of all.
    #[must_use]
    pub fn total(&self) -> Ns {
        self.vcpus.iter().map(|&(_, ran)| ran).sum()
    }
}

/// One vCPU to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Position in the table.
    pub vcpu: usize,
    /// Index of the run queue it leaves.
    pub from: usize,
    /// Index of the run queue it goes to.
    pub to: usize,
}

/// One step of load balancing (K14): from the queue with most load to the one
/// with least, the vCPU that brings the two closest together; none if no move
/// does. How the load is averaged and how often this runs is the caller's, as
/// the sources do not say.
#[must_use]
pub fn balance(queues: &[Load]) -> Option<Move> {
    balance_among(queues, |_, _| true)
}

/// The same where `may(vcpu, to)` says whether a vCPU may go to a queue.
#[must_use]
pub fn balance_among(queues: &[Load], may: impl Fn(usize, usize) -> bool) -> Option<Move> {
    let total = |queue: usize| queues[queue].total();
    let from = (0..queues.len()).max_by_key(|&q| (total(q), std::cmp::Reverse(q)))?;
    let to = (0..queues.len()).min_by_key(|&q| (total(q), q))?;
    let gap = total(from) - total(to);
    let after = |ran: Ns| (ran * 2).abs_diff(gap);
    queues[from]
        .vcpus
        .iter()
        .filter(|&&(vcpu, ran)| after(ran) < gap && may(vcpu, to))
        .min_by_key(|&&(vcpu, ran)| (after(ran), vcpu))
        .map(|&(vcpu, _)| Move { vcpu, from, to })
}
