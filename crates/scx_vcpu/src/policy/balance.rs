// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit2's balancing of load between pCPUs that are all busy (K14), which goes on beside
//! ISACS' algorithm 2 (A8). Pure.
//!
//! The load of a run queue is "the number of its vCPUs and their execution time". Read here
//! as the time in which they ran or wanted to: of pCPUs that are all busy the execution time
//! alone is the same, whether one vCPU has it or three.
//!
//! One step a period, as `policy::host::credit2::balance` chooses it: how often is not
//! stated. A vCPU moves by being given a home for one period; after that it goes where
//! it finds an idle pCPU again. What the two say of the same vCPU under ISACS is not stated:
//! here the later one counts.

use std::collections::BTreeMap;

use policy::host::credit::credit2;
use policy::host::credit::credit2::Load;
use units::Ns;

use crate::config::Time;
use crate::table::Vcpu;

/// How often, where the file says nothing of it; the sources do not.
pub(crate) const PERIOD: Ns = Ns::from_secs(1);

/// How often with these two keys; `None`: never.
pub(super) fn every(balances: Option<bool>, period: Option<Time>) -> Option<Ns> {
    (balances != Some(false)).then(|| period.map_or(PERIOD, |period| period.0))
}

/// What is in force, and so many times as long.
pub(super) fn dilated(period: Option<Time>, by: u32) -> Option<Time> {
    Time::dilated(period.map_or(PERIOD, |period| period.0), by)
}

/// A vCPU that wanted to run for less than this part of a period stays: what it would even
/// out is less than the chance by which it was awake.
const LEAST: u64 = 20;

/// What the last looks said.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    /// What each thread had run and waited.
    wanted: BTreeMap<u32, Ns>,
    /// The one that has been given a home.
    moved: Option<u32>,
}

/// What is to be told to the kernel's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// A thread that needs its home no longer.
    pub(crate) settled: Option<u32>,
    /// A thread, and the pCPU to which it goes.
    pub(crate) moves: Option<(u32, u32)>,
}

impl Balancer {
    /// Somebody else has given this thread a home, which is not to be taken back.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.moved = self.moved.filter(|moved| *moved != tid);
    }

    /// A period of this length is over. `cpus`: those that are online; `may(tid, cpu)`: does
    /// the thread's affinity let it?
    pub(crate) fn step(
        &mut self,
        table: &[Vcpu],
        length: Ns,
        cpus: &[u32],
        may: impl Fn(u32, u32) -> bool,
    ) -> Step {
        let mut loads = vec![Load::default(); cpus.len()];
        let mut wanted = BTreeMap::new();
        for (at, vcpu) in table.iter().enumerate() {
            let now = vcpu.ran + vcpu.waited;
            wanted.insert(vcpu.tid, now);
            let queue = cpus.iter().position(|cpu| *cpu == vcpu.cpu);
            if let (Some(queue), Some(before)) = (queue, self.wanted.get(&vcpu.tid)) {
                loads[queue].vcpus.push((at, now - *before));
            }
        }
        let enough = |at: usize| {
            let before = self.wanted.get(&table[at].tid).copied();
            let now = table[at].ran + table[at].waited;
            before.is_some_and(|before| (now - before) * LEAST >= length)
        };
        let may = |at: usize, to: usize| enough(at) && may(table[at].tid, cpus[to]);
        let moves =
            credit2::balance_among(&loads, may).map(|step| (table[step.vcpu].tid, cpus[step.to]));
        self.wanted = wanted;
        let settled = std::mem::replace(&mut self.moved, moves.map(|(tid, _)| tid));
        Step { settled, moves }
    }

    /// No further step comes: the thread that has a home until the next one.
    pub(crate) fn end(&mut self) -> Option<u32> {
        self.moved.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Ns = Ns::from_secs(1);

    /// One that wanted to run for so long so far, of which it had a third.
    fn vcpu(tid: u32, cpu: u32, wanted: Ns) -> Vcpu {
        Vcpu {
            ran: wanted / 3,
            waited: wanted - wanted / 3,
            ..crate::policy::vcpu(tid, cpu)
        }
    }

    fn step(balancer: &mut Balancer, places: [u32; 4], second: u64, pinned: &[u32]) -> Step {
        let table: Vec<Vcpu> = (0..4)
            .map(|at| vcpu(at, places[at as usize], PERIOD * second))
            .collect();
        balancer.step(&table, PERIOD, &[0, 1], |tid, _| !pinned.contains(&tid))
    }

    #[test]
    fn three_and_one_become_two_and_two_and_stay() {
        let mut balancer = Balancer::default();
        let nothing = Step::default();
        assert_eq!(
            step(&mut balancer, [0, 0, 0, 1], 1, &[]),
            nothing,
            "first look"
        );
        let moves = step(&mut balancer, [0, 0, 0, 1], 2, &[0]);
        assert_eq!(moves.moves, Some((1, 1)), "0 is pinned");
        let then = step(&mut balancer, [0, 1, 0, 1], 3, &[0]);
        assert_eq!((then.settled, then.moves), (Some(1), None));
        assert_eq!(step(&mut balancer, [0, 1, 0, 1], 4, &[]), nothing);
    }

    #[test]
    fn a_home_of_algorithm_2_is_not_taken_back() {
        for (own, settled) in [(1, None), (7, Some(1))] {
            let mut balancer = Balancer::default();
            step(&mut balancer, [0, 0, 0, 1], 1, &[0]);
            assert_eq!(
                step(&mut balancer, [0, 0, 0, 1], 2, &[0]).moves,
                Some((1, 1))
            );
            balancer.forget(own);
            let then = step(&mut balancer, [0, 1, 0, 1], 3, &[0]);
            assert_eq!(then.settled, settled, "{own}");
        }
    }

    #[test]
    fn it_is_on_every_second_and_both_can_be_said() {
        let half = Some(Time(Ns::from_ms(500)));
        assert_eq!(every(None, None), Some(PERIOD));
        assert_eq!(every(Some(true), half), Some(Ns::from_ms(500)));
        assert_eq!(every(Some(false), half), None);
        assert_eq!(dilated(None, 20), Some(Time(PERIOD * 20)));
        assert_eq!(dilated(half, 20), Some(Time(Ns::from_secs(10))));
    }

    #[test]
    fn one_that_hardly_runs_stays() {
        let mut balancer = Balancer::default();
        let table = |wanted: Ns| [vcpu(0, 0, wanted), vcpu(1, 1, Ns::ZERO)];
        balancer.step(&table(Ns::ZERO), PERIOD, &[0, 1], |_, _| true);
        let mut more = table(Ns::from_ms(40)).to_vec();
        more.push(vcpu(2, 0, Ns::ZERO));
        assert_eq!(
            balancer.step(&more, PERIOD, &[0, 1], |_, _| true),
            Step::default()
        );
    }
}
