// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slow loops of the policies: what user space decides by the table.

use std::sync::Mutex;
use std::time::Instant;

use libbpf_rs::MapHandle;
use units::Ns;

use super::Options;
use super::Rules;
use super::lock;
use super::possible_cpus;
use super::refuse;
use crate::policy::balance::Balancer;
use crate::policy::isacs;
use crate::roster::Roster;
use crate::roster::Told;
use crate::seat;
use crate::skel::main::MainSkel;
use crate::sleep;
use crate::table;
use crate::table::Pcpu;
use crate::table::Vcpu;
use crate::watch;

/// Those of one scheduler, from its first vCPU to its end.
pub(super) struct Slow<'a> {
    options: &'a Options,
    roster: &'a Mutex<Roster>,
    /// The maps `table` and `pcpus`.
    entries: MapHandle,
    pcpus: MapHandle,
    possible: u32,
    balancer: Balancer,
    /// iSche's periods have begun.
    classifies: bool,
    /// When load was evened out last.
    balanced: Instant,
    /// Reallocations of each pCPU that algorithm 2 has seen.
    seen: Vec<u64>,
}

impl<'a> Slow<'a> {
    pub(super) fn new(
        options: &'a Options,
        roster: &'a Mutex<Roster>,
        skel: &MainSkel<'_>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            options,
            roster,
            entries: MapHandle::try_from(&skel.maps.table).map_err(refuse)?,
            pcpus: MapHandle::try_from(&skel.maps.pcpus).map_err(refuse)?,
            possible: possible_cpus()?,
            balancer: Balancer::default(),
            classifies: false,
            balanced: Instant::now(),
            seen: Vec::new(),
        })
    }

    /// The table, of which so many positions were ever used.
    pub(super) fn table(&self, positions: u32) -> anyhow::Result<Vec<Vcpu>> {
        table::entries(&self.entries, positions)
    }

    fn pcpus(&self) -> anyhow::Result<Vec<Pcpu>> {
        table::pcpus(&self.pcpus, self.possible, sleep::monotonic())
    }

    /// What is looked at after each round.
    pub(super) fn each_round(&mut self, positions: u32) -> anyhow::Result<Told> {
        let mut told = self.balance_io(positions)?;
        told.extend(self.balance(positions)?);
        Ok(told)
    }

    /// ISACS' algorithm 2 (A5).
    fn balance_io(&mut self, positions: u32) -> anyhow::Result<Told> {
        let config = &self.options.config.isacs;
        if !matches!(self.options.rules, Rules::Isacs(_)) || !config.balances_io() {
            return Ok(Told::new());
        }
        let (loads, table) = (self.pcpus()?, self.table(positions)?);
        let moves = isacs::moves(config, &loads, &table, &mut self.seen);
        for (tid, _) in &moves {
            self.balancer.forget(*tid);
        }
        let mut roster = lock(self.roster);
        let told = moves
            .into_iter()
            .flat_map(|(tid, cpu)| roster.move_home(tid, Some(cpu)));
        Ok(told.collect())
    }

    /// iSche's classes by the counters, after a period of this length. The first one begins with
    /// the first call.
    pub(super) fn classify(&mut self, positions: u32, length: Ns) -> anyhow::Result<Told> {
        if !lock(self.roster).is_automatic() {
            return Ok(Told::new());
        }
        let table = self.table(positions)?;
        let mut roster = lock(self.roster);
        if !std::mem::replace(&mut self.classifies, true) {
            roster.begin_periods(&table);
            return Ok(Told::new());
        }
        Ok(roster.period(&table, length))
    }

    /// Load balancing of Credit2 (K14), also as a part of ISACS (A8), if it is time.
    fn balance(&mut self, positions: u32) -> anyhow::Result<Told> {
        let config = &self.options.config;
        let every = match self.options.rules {
            Rules::Credit2(_) => config.credit2.balances_every(),
            Rules::Isacs(_) => config.isacs.balances_every(),
            _ => None,
        };
        let length = Ns(u64::try_from(self.balanced.elapsed().as_nanos())?);
        if every.is_none_or(|every| length < every) {
            return Ok(Told::new());
        }
        self.balanced = Instant::now();
        let may = |tid, cpu| seat::allowed(tid).contains(&cpu);
        let (table, pcpus) = (self.table(positions)?, self.pcpus()?);
        // Nobody goes where host threads leave no time.
        let mut cpus = watch::online()?;
        cpus.retain(|cpu| !pcpus.get(*cpu as usize).is_some_and(|pcpu| pcpu.held));
        let step = self.balancer.step(&table, length, &cpus, may);
        let mut roster = lock(self.roster);
        let settled = step.settled.map(|tid| roster.move_home(tid, None));
        let moved = step
            .moves
            .map(|(tid, cpu)| roster.move_home(tid, Some(cpu)));
        Ok([settled, moved].into_iter().flatten().flatten().collect())
    }

    /// Their scheduler has ended.
    pub(super) fn end(&mut self) {
        end(&mut self.balancer, &mut lock(self.roster));
    }
}

/// A home that was for one period goes with the scheduler: the next one knows nothing of it,
/// and nobody would take it back. That is told with the vCPU's mark.
fn end(balancer: &mut Balancer, roster: &mut Roster) {
    if let Some(tid) = balancer.end() {
        let _ = roster.move_home(tid, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::seat::Found;

    #[test]
    fn a_home_for_a_period_does_not_outlive_the_scheduler() {
        let mut roster = Roster::new(Config::default(), None);
        let mut balancer = Balancer::default();
        for vm in 1..=4 {
            let found = Found {
                vm,
                tid: vm,
                vcpu: 0,
            };
            roster.add(found, String::new(), vec![0, 1]);
        }
        let second = Ns::from_secs(1);
        let mut step = |ran| {
            let table = [(1, 0), (2, 0), (3, 0), (4, 1)].map(|(tid, cpu)| Vcpu {
                ran,
                ..crate::policy::vcpu(tid, cpu)
            });
            balancer.step(&table, second, &[0, 1], |_, _| true)
        };
        step(Ns::ZERO);
        let (tid, cpu) = step(second).moves.unwrap();
        roster.move_home(tid, Some(cpu));
        let home = |roster: &Roster| roster.knobs(tid, tid).unwrap().home;
        assert_eq!(home(&roster), Some(1));
        end(&mut balancer, &mut roster);
        assert_eq!(home(&roster), None);
        // Once.
        roster.move_home(tid, Some(cpu));
        end(&mut balancer, &mut roster);
        assert_eq!(home(&roster), Some(1));
    }
}
