// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policy `isacs`: what the file may say, and algorithm 2. The rules are
//! `policy::host::isacs`; the kernel's side has its algorithm 1.

use policy::host::isacs;
use policy::host::isacs::Choice;
use policy::host::isacs::EndTest;
use policy::host::isacs::Equation2;
use policy::host::isacs::QueueLoad;
use policy::host::isacs::WakeInBoost;
use serde::Deserialize;
use units::Ns;

use super::balance;
use crate::config::Time;
use crate::table::Pcpu;
use crate::table::Vcpu;

/// `[isacs]` of the file. Each switch is a field of `policy::host::isacs::Settings`,
/// where the readings are explained.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isacs {
    /// Longest time without a new decision.
    pub slice: Option<Time>,
    /// Credit of each vCPU after a reallocation.
    pub default_credit: Option<Time>,
    /// Intervals above this do not count (I6).
    pub cutoff: Option<Time>,
    /// What the 1 of equation (3) is worth (I12).
    pub boost_unit: Option<Time>,
    /// Start from all fixes of ours instead of from the published system.
    pub hardened: Option<bool>,
    /// E_n counts an event whose interval was above the cut-off (I6).
    pub late_events_count: Option<bool>,
    /// Equation (2) as printed (I8).
    pub equation_2_as_printed: Option<bool>,
    /// Phase 1 ends below the end credit, not at it (I17).
    pub spent_strictly_below: Option<bool>,
    /// Phase 2 ends below 0, not at it (A1).
    pub boost_strictly_below: Option<bool>,
    /// The fall through of algorithm 1 burns CVCredit (A2).
    pub fall_through_burns: Option<bool>,
    /// After a reallocation the choice from the old group stands (A3).
    pub keeps_old_choice: Option<bool>,
    /// CVCredits while members still join (A4).
    pub one_pass: Option<bool>,
    /// A vCPU outside the group that wakes in phase 2 preempts (A6).
    pub wake_preempts_boost: Option<bool>,
    /// Time in phase 2 is consumed credit.
    pub boost_counts_as_consumed: Option<bool>,
    /// Algorithm 2 takes the best candidates, not the last ones (A7).
    pub balance_best: Option<bool>,
    /// Phase 1 ends when all are through, not when the first one is (I19).
    pub all_spent: Option<bool>,
    /// I/O strength is at most the time it was measured in.
    pub limit_strength: Option<bool>,
    /// A slice ends when the vCPU may use no more.
    pub slice_ends_with_credit: Option<bool>,
    /// A reallocation carries over what was used beyond the limit.
    pub keeps_debt: Option<bool>,
    /// Algorithm 2 runs (A5).
    pub io_balance: Option<bool>,
    /// Algorithm 2 moves vCPUs without IVCredit too, as printed.
    pub moves_any: Option<bool>,
    /// Credit2's own balancing goes on besides (A8); it does if nothing is said.
    pub balances: Option<bool>,
    /// How often.
    pub balance_period: Option<Time>,
}

impl Isacs {
    pub(crate) fn dilated(self, by: u32) -> Self {
        let now = self.settings();
        Self {
            slice: Time::dilated(now.slice, by),
            default_credit: Time::dilated(now.default_credit, by),
            cutoff: Time::dilated(now.cutoff, by),
            boost_unit: Time::dilated(now.boost_unit, by),
            balance_period: balance::dilated(self.balance_period, by),
            ..self
        }
    }

    /// How often Credit2's own balancing evens out load (A8); `None`: never.
    #[must_use]
    pub fn balances_every(&self) -> Option<Ns> {
        // Off until it has been measured beside algorithm 2: docs/scx_vcpu-measured.md.
        balance::every(Some(self.balances.unwrap_or(false)), self.balance_period)
    }

    /// Does algorithm 2 run?
    #[must_use]
    pub fn balances_io(&self) -> bool {
        self.io_balance.unwrap_or(true)
    }

    /// Does it move vCPUs without IVCredit, too?
    #[must_use]
    pub fn moves_all(&self) -> bool {
        self.moves_any.unwrap_or(false)
    }

    /// The rules with these changes.
    #[must_use]
    pub fn settings(&self) -> isacs::Settings {
        let base = if self.hardened == Some(true) {
            isacs::Settings::hardened()
        } else {
            isacs::Settings::default()
        };
        let time = |own: Option<Time>, base: Ns| own.map_or(base, |time| time.0);
        /// What the file says, or what `base` has.
        fn which<T>(own: Option<bool>, yes: T, no: T, base: T) -> T {
            own.map_or(base, |own| if own { yes } else { no })
        }
        isacs::Settings {
            slice: time(self.slice, base.slice),
            default_credit: time(self.default_credit, base.default_credit),
            cutoff: time(self.cutoff, base.cutoff),
            boost_unit: time(self.boost_unit, base.boost_unit),
            late_events_count: self.late_events_count.unwrap_or(base.late_events_count),
            equation_2: which(
                self.equation_2_as_printed,
                Equation2::AsPrinted,
                Equation2::Share,
                base.equation_2,
            ),
            spent_strictly_below: self
                .spent_strictly_below
                .unwrap_or(base.spent_strictly_below),
            boost_strictly_below: self
                .boost_strictly_below
                .unwrap_or(base.boost_strictly_below),
            fall_through_burns: self.fall_through_burns.unwrap_or(base.fall_through_burns),
            keeps_old_choice: self.keeps_old_choice.unwrap_or(base.keeps_old_choice),
            one_pass: self.one_pass.unwrap_or(base.one_pass),
            wake_in_boost: which(
                self.wake_preempts_boost,
                WakeInBoost::Preempts,
                WakeInBoost::Waits,
                base.wake_in_boost,
            ),
            boost_counts_as_consumed: self
                .boost_counts_as_consumed
                .unwrap_or(base.boost_counts_as_consumed),
            choice: which(self.balance_best, Choice::Best, Choice::Last, base.choice),
            end_test: which(
                self.all_spent,
                EndTest::AllSpent,
                EndTest::Highest,
                base.end_test,
            ),
            limit_strength: self.limit_strength.unwrap_or(base.limit_strength),
            slice_ends_with_credit: self
                .slice_ends_with_credit
                .unwrap_or(base.slice_ends_with_credit),
            keeps_debt: self.keeps_debt.unwrap_or(base.keeps_debt),
            ..base
        }
    }
}

/// Algorithm 2 for the queues that have reallocated since `seen` (how often each had,
/// brought up to date here): vCPUs, as thread ids, with the pCPUs that they go to. At
/// most one per queue (A7).
///
/// User space looks a few times a second, so several reallocations may be one look:
/// it is the last one's loads that count.
pub(crate) fn moves(
    config: &Isacs,
    pcpus: &[Pcpu],
    table: &[Vcpu],
    seen: &mut Vec<u64>,
) -> Vec<(u32, u32)> {
    let rules = config.settings();
    seen.resize(pcpus.len(), 0);
    let queues: Vec<QueueLoad> = pcpus
        .iter()
        .map(|pcpu| QueueLoad {
            io_load: pcpu.io_load,
            io_events: pcpu.io_events,
        })
        .collect();
    let mut moves = Vec::new();
    for (source, pcpu) in pcpus.iter().enumerate() {
        if std::mem::replace(&mut seen[source], pcpu.reallocations) == pcpu.reallocations {
            continue;
        }
        let members: Vec<(usize, Ns)> = table
            .iter()
            .enumerate()
            .filter(|(_, vcpu)| vcpu.cpu as usize == source)
            .map(|(at, vcpu)| (at, vcpu.ivcredit))
            .filter(|(_, ivcredit)| config.moves_all() || *ivcredit > Ns::ZERO)
            .collect();
        if let Some(step) = isacs::balance(source, &queues, &members, &rules)
            && !pcpus[step.to].held
        {
            moves.push((table[step.vcpu].tid, step.to as u32));
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vcpu(tid: u32, cpu: u32, ivcredit: Ns) -> Vcpu {
        Vcpu {
            ivcredit,
            ..crate::policy::vcpu(tid, cpu)
        }
    }

    /// Two I/O vCPUs on pCPU 0, none on pCPU 1: one of them moves, once per
    /// reallocation, and a computing one never does by default.
    #[test]
    fn algorithm_2_moves_one_vcpu_with_ivcredit_per_reallocation() {
        let table = [
            vcpu(10, 0, Ns::from_ms(4)),
            vcpu(11, 0, Ns::from_ms(3)),
            vcpu(12, 0, Ns::ZERO),
        ];
        let mut pcpus = [Pcpu::default(), Pcpu::default()];
        pcpus[0].io_load = Ns::from_ms(7);
        pcpus[0].io_events = 40;
        pcpus[0].reallocations = 3;
        let (config, mut seen) = (Isacs::default(), Vec::new());
        assert_eq!(moves(&config, &pcpus, &table, &mut seen), [(11, 1)]);
        assert_eq!(moves(&config, &pcpus, &table, &mut seen), []);
        pcpus[0].reallocations = 4;
        let any = Isacs {
            moves_any: Some(true),
            ..Isacs::default()
        };
        assert_eq!(moves(&any, &pcpus, &table, &mut seen), [(12, 1)]);
        // Host threads hold it: whoever came would wait for them.
        pcpus[1].held = true;
        pcpus[0].reallocations = 5;
        assert_eq!(moves(&any, &pcpus, &table, &mut seen), []);
    }

    #[test]
    fn the_file_begins_with_the_published_system_or_with_our_fixes() {
        let hardened = Isacs {
            hardened: Some(true),
            keeps_debt: Some(false),
            ..Isacs::default()
        };
        let settings = hardened.settings();
        assert_eq!(settings.end_test, EndTest::AllSpent);
        assert!(settings.limit_strength && !settings.keeps_debt);
        assert_eq!(Isacs::default().settings(), isacs::Settings::default());
    }
}
