// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Xen 4.12 does in Credit2 beyond the published text (`xen/common/sched_credit2.c`).
//!
//! * Who has a pCPU keeps it for the **rate limit**, 1 ms, whoever wakes
//!   (`runq_candidate()`, `is_preemptable()`). Nobody looks again when it is over: a
//!   woken vCPU that found nobody to preempt waits until some pCPU's turn ends.
//! * A turn lasts until its vCPU has as little credit as the first of the run queue,
//!   also of one that may not run on that pCPU; for the rate limit at least, or 0.5 ms
//!   where the vCPU runs on; for 10 ms at most (`csched2_runtime()`).
//! * Who comes from another pCPU needs 0.5 ms more credit than who runs, and has 50 us
//!   more afterwards (migration resistance and compensation).
//! * A reset adds 10 ms, of which at most 0.5 ms of what was left is kept, and is due
//!   only where the first of the run queue, of all, has nothing left (`reset_credit()`).

use units::Ns;

use super::super::Credit;

/// Times of those rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xen {
    /// `sched_ratelimit_us`: 1 ms.
    pub rate_limit: Ns,
    /// How much earlier a waking vCPU may preempt: 50 us.
    pub tolerance: Ns,
    /// `CSCHED2_MIN_TIMER`: 500 us.
    pub least_turn: Ns,
    /// `CSCHED2_MAX_TIMER`: 10 ms.
    pub longest_turn: Ns,
    /// `sched_credit2_migrate_resist`: 500 us.
    pub resistance: Ns,
    /// `CSCHED2_MIGRATE_COMPENSATION`: 50 us.
    pub compensation: Ns,
    /// `CSCHED2_CARRYOVER_MAX`: 500 us.
    pub carried_over: Ns,
}

impl Default for Xen {
    fn default() -> Self {
        Self {
            rate_limit: Ns::from_ms(1),
            tolerance: Ns::from_us(50),
            least_turn: Ns::from_us(500),
            longest_turn: Ns::from_ms(10),
            resistance: Ns::from_us(500),
            compensation: Ns::from_us(50),
            carried_over: Ns::from_us(500),
        }
    }
}

/// One of a run queue, as a pCPU that chooses sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Position in the caller's table.
    pub vcpu: usize,
    /// What it has left.
    pub credit: Credit,
    /// May it run on this pCPU?
    pub may: bool,
    /// Did it run here last?
    pub here: bool,
}

/// Whom a pCPU chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// None: who has the pCPU runs on, or nobody does.
    pub vcpu: Option<usize>,
    /// Was nobody before it passed over? Only then may a reset be due.
    pub is_first: bool,
}

impl Xen {
    /// Has who ran for `ran` still a right to its pCPU?
    #[must_use]
    pub fn keeps(&self, ran: Ns) -> bool {
        ran < self.rate_limit
    }

    /// May a waking vCPU look at who has run for `ran`?
    #[must_use]
    pub fn is_preemptable(&self, ran: Ns) -> bool {
        ran > self.rate_limit - self.tolerance
    }

    /// How much better than `running` a waking vCPU is; positive: it preempts.
    #[must_use]
    pub fn score(&self, waking: Credit, running: Credit, here: bool) -> i64 {
        let resistance = if here { Ns::ZERO } else { self.resistance };
        waking.burn(resistance).0 - running.0
    }

    /// Who of the run queue, most credit first, takes the pCPU of `running`; `None`:
    /// nobody has it.
    #[must_use]
    pub fn candidate(
        &self,
        running: Option<Credit>,
        queue: impl IntoIterator<Item = Waiting>,
    ) -> Candidate {
        let mut is_first = true;
        for waiting in queue {
            let resists = running.is_some_and(|running| {
                !waiting.here && running.plus(self.resistance) > waiting.credit
            });
            if !waiting.may || resists {
                is_first = false;
                continue;
            }
            let better = running.is_none_or(|running| waiting.credit > running);
            return Candidate {
                vcpu: better.then_some(waiting.vcpu),
                is_first,
            };
        }
        Candidate {
            vcpu: None,
            is_first,
        }
    }

    /// How many default credits a reset adds where the next one has `credit`.
    #[must_use]
    pub fn resets(&self, credit: Credit, default_credit: Ns) -> u64 {
        match u64::try_from(-credit.0) {
            Err(_) => 0,
            Ok(debt) => match default_credit.as_ns() {
                0 => 1,
                default if debt > default => 1 + debt / default,
                _ => 1,
            },
        }
    }

    /// Credit after a reset that adds so many.
    #[must_use]
    pub fn after(&self, credit: Credit, resets: u64, default_credit: Ns) -> Credit {
        let most = Credit::of(default_credit + self.carried_over);
        credit.plus(default_credit * resets).min(most)
    }

    /// How long the vCPU with `credit` may run where `first` is the credit of the first
    /// of the run queue; it has its pCPU for `ran` already. `lasts`: how long it runs on
    /// so much credit.
    #[must_use]
    pub fn turn(
        &self,
        credit: Credit,
        first: Option<Credit>,
        ran: Ns,
        lasts: impl Fn(Credit) -> Ns,
    ) -> Ns {
        let until = first.filter(|first| *first > Credit::ZERO);
        let spare = until.map_or(credit, |first| Credit(credit.0.saturating_sub(first.0)));
        let least = self.least_turn.max(self.rate_limit - ran);
        lasts(spare).min(self.longest_turn).max(least)
    }
}
