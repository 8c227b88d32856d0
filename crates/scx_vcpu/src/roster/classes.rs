// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSche's classes from counters (S4), where the file has `[ische.automatic]`.

use policy::host::ische::Kind;
use policy::host::ische::classify;
use policy::host::ische::classify::Classifier;
use units::Ns;
use units::Permille;

use super::Roster;
use super::Told;
use crate::config::Class;
use crate::config::Config;
use crate::policy::ische::Cores;
use crate::table::Vcpu;

/// When counters change a class.
#[derive(Clone, Debug)]
pub(super) struct Automatic {
    settings: classify::Settings,
    /// How many pCPUs VMs share, if nobody is to gain by his class
    /// ([`Classifier::on_period_of_share`]); `None`: as published.
    within_share: Option<u64>,
}

impl Automatic {
    /// What the file says; `None` if classes are from there.
    pub(super) fn of(config: &Config, cores: Option<&Cores>) -> Option<Self> {
        let cores = cores?;
        let within = config.ische.within_share();
        Some(Self {
            settings: config.ische.automatic()?,
            within_share: within.then_some(cores.count() as u64),
        })
    }

    /// Does the class of a VM change after this period? Each of its vCPUs has this weight, all
    /// vCPUs together have `all`.
    fn changes(
        &self,
        classifier: &mut Classifier,
        period: &classify::Period,
        weight: u64,
        all: u64,
    ) -> bool {
        match self.within_share {
            None => classifier.on_period(period, &self.settings),
            Some(pcpus) => {
                let share = share(weight, all, pcpus);
                classifier.on_period_of_share(period, share, &self.settings)
            }
        }
    }
}

/// What a vCPU of this weight would have of a pCPU if all vCPUs, whose weights are `all`
/// together, took their parts of so many pCPUs.
fn share(weight: u64, all: u64, pcpus: u64) -> Permille {
    let each = pcpus * 1000 * weight / all.max(1);
    Permille::new(u16::try_from(each).unwrap_or(1000))
}

impl Roster {
    /// Do counters decide on classes?
    pub(crate) fn is_automatic(&self) -> bool {
        self.automatic.is_some()
    }

    /// Periods begin when the table says this. Counters go on from one scheduler to the next:
    /// what they have counted until now was no period's.
    pub(crate) fn begin_periods(&mut self, table: &[Vcpu]) {
        for (pid, vm) in &mut self.vms {
            vm.last = had(table, *pid);
        }
    }

    /// One more period of this length, after which the table says this.
    pub(crate) fn period(&mut self, table: &[Vcpu], length: Ns) -> Told {
        let Some(automatic) = self.automatic.clone() else {
            return Told::new();
        };
        let weights = self.vms.values();
        let all = weights.map(|vm| vm.weight() * vm.seats.len() as u64).sum();
        let mut changed = Vec::new();
        for (pid, vm) in &mut self.vms {
            let (events, demand) = had(table, *pid);
            let period = classify::Period {
                length,
                vcpus: table.iter().filter(|vcpu| vcpu.vm == *pid).count() as u32,
                events: events.saturating_sub(vm.last.0),
                demand: demand - vm.last.1,
            };
            vm.last = (events, demand);
            let weight = vm.weight();
            if automatic.changes(&mut vm.classifier, &period, weight, all) {
                vm.worth.class = match vm.classifier.kind() {
                    Kind::Io => Class::Io,
                    Kind::Cpu | Kind::Dom0 => Class::Cpu,
                };
                changed.push(*pid);
            }
        }
        changed.into_iter().flat_map(|pid| self.tell(pid)).collect()
    }
}

/// Events and demand of a VM so far.
fn had(table: &[Vcpu], pid: u32) -> (u64, Ns) {
    let mine = || table.iter().filter(|vcpu| vcpu.vm == pid);
    let events = mine().map(|vcpu| vcpu.io).sum();
    (events, mine().map(|vcpu| vcpu.ran + vcpu.waited).sum())
}

#[cfg(test)]
mod tests {
    use super::super::Found;
    use super::*;

    const SECOND: Ns = Ns::from_secs(1);

    /// VM 1 of this weight beside VM 2 of 256, one vCPU each, on a general and an I/O core.
    fn roster(weight: u32, within_share: bool) -> Roster {
        let text = format!(
            "[ische]\ngeneral_cores = 1\n[ische.automatic]\nevents_per_s = 10\n\
             cpu_max_permille = 1000\nperiods = 4\nwithin_share = {within_share}\n\
             [[vm]]\nmatch = \"web\"\nweight = {weight}\n"
        );
        let config = Config::parse(&text, "f").unwrap();
        let mut roster = Roster::new(config, Some(Cores::new(vec![0, 1], 1, 1)));
        for (vm, line) in [(1, "web"), (2, "db"), (3, "mail")] {
            let (tid, vcpu) = (vm, 0);
            roster.add(Found { vm, tid, vcpu }, line.to_owned(), vec![0, 1]);
        }
        roster
    }

    /// What VM 1 becomes after seconds in which it wanted so many thousandths of a pCPU and
    /// had 100 interrupts each.
    fn class(roster: &mut Roster, wanted: &[u64]) -> Class {
        let (mut ran, mut io) = (Ns::ZERO, 0);
        for permille in wanted {
            ran += SECOND * *permille / 1000;
            io += 100;
            let vcpu = Vcpu {
                ran,
                io,
                ..crate::policy::vcpu(1, 0)
            };
            roster.period(&[vcpu], SECOND);
        }
        roster.vms[&1].worth.class
    }

    #[test]
    fn a_share_is_by_weight_and_never_more_than_a_pcpu() {
        let of = |weight, all, pcpus| share(weight, all, pcpus).get();
        assert_eq!(of(256, 3 * 256, 2), 666);
        assert_eq!(of(512, 4 * 256, 2), 1000);
        assert_eq!(of(65_535, 65_535, 1024), 1000);
        assert_eq!(of(1, 0, 1), 1000, "nobody is there");
        assert_eq!(of(1, 65_536, 1), 0);
    }

    /// Fake interrupts beside a demand of 0.9 of a pCPU, where 2/3 is its part: an I/O core
    /// to itself, as published.
    #[test]
    fn who_wants_more_than_its_share_gains_no_core_by_fake_interrupts() {
        let wants = [900; 8];
        assert_eq!(class(&mut roster(256, false), &wants), Class::Io);
        assert_eq!(class(&mut roster(256, true), &wants), Class::Cpu);
        // By its weight it may: 1024 of 1536 of two pCPUs are more than one.
        assert_eq!(class(&mut roster(1024, true), &wants), Class::Io);
        // Who wants little is served as before.
        assert_eq!(class(&mut roster(256, true), &[500; 8]), Class::Io);
    }

    /// Three seconds at full speed and a modest one, again and again: never four in a row
    /// that say the same.
    #[test]
    fn a_pattern_of_periods_hides_nothing() {
        let modest = [100; 8];
        let pattern = [1000, 1000, 1000, 100].repeat(3);
        let wants = [&modest[..], &pattern[..]].concat();
        assert_eq!(class(&mut roster(256, false), &wants), Class::Io);
        assert_eq!(class(&mut roster(256, true), &wants), Class::Cpu);
    }
}
