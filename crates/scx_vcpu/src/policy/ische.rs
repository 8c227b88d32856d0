// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policy `ische`: what the file may say, and which pCPU a vCPU belongs on.
//!
//! The rules are `policy::host::ische`; the kernel's side runs Credit1 with slices
//! that depend on the pCPU and obeys the homes that are chosen here. What the papers
//! call DOM0, the driver domain, are the host's own threads under KVM: they are no
//! vCPUs and come first on every pCPU.

use std::collections::BTreeMap;

use policy::host::ische;
use policy::host::ische::Core;
use policy::host::ische::IdleIoCore;
use policy::host::ische::Kind;
use policy::host::ische::classify;
use serde::Deserialize;
use units::CpuSet;
use units::Ns;
use units::Permille;
use units::VcpuId;

use super::credit::Credit1;
use crate::config::Class;
use crate::config::Time;

/// `[ische]` of the file. What it does not say about credits is in `[credit1]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ische {
    /// The pCPUs that are general and I/O cores, `"2-7"`; all that are online if it is not
    /// said. A host keeps others for itself.
    pub cpus: Option<CpuSet>,
    /// How many of the pCPUs are general cores (S2).
    pub general_cores: Option<usize>,
    /// Slice on a general core.
    pub general_slice: Option<Time>,
    /// Slice on an I/O core.
    pub io_slice: Option<Time>,
    /// The same number chooses the same cores; else they are chosen afresh each time
    /// that the file is read (S2).
    pub seed: Option<u64>,
    /// An I/O core without work takes vCPUs that wait on general cores (S8).
    pub lends_idle: Option<bool>,
    /// Classes from counters instead of from this file.
    pub automatic: Option<Automatic>,
}

/// `[ische.automatic]`: see `policy::host::ische::classify`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Automatic {
    /// Interrupts from devices, per second and vCPU, that make a VM I/O-intensive.
    pub events_per_s: Option<u64>,
    /// CPU demand per vCPU, in thousandths, above which it never is.
    pub cpu_max_permille: Option<u32>,
    /// Seconds in a row that must say the same.
    pub periods: Option<u32>,
    /// Our fix, off as published: one that wants more than its share never is, and seconds are
    /// judged by their sum.
    pub within_share: Option<bool>,
}

impl Ische {
    pub(crate) fn dilated(self, credit: &Credit1, by: u32) -> Self {
        let now = self.settings(credit);
        Self {
            general_slice: Time::dilated(now.general_slice, by),
            io_slice: Time::dilated(now.io_slice, by),
            ..self
        }
    }

    /// The rules with these changes.
    #[must_use]
    pub fn settings(&self, credit: &Credit1) -> ische::Settings {
        let published = ische::Settings::default();
        let time = |own: Option<Time>, published: Ns| own.map_or(published, |time| time.0);
        ische::Settings {
            general_cores: self.general_cores.unwrap_or(published.general_cores),
            general_slice: time(self.general_slice, published.general_slice),
            io_slice: time(self.io_slice, published.io_slice),
            idle_io_core: if self.lends_idle == Some(true) {
                IdleIoCore::TakesCpuVms
            } else {
                published.idle_io_core
            },
            credit: credit.settings(),
        }
    }

    /// When a VM's counters change its class; `None`: never.
    #[must_use]
    pub fn automatic(&self) -> Option<classify::Settings> {
        let own = self.automatic.as_ref()?;
        let ours = classify::Settings::default();
        Some(classify::Settings {
            events_per_s: own.events_per_s.unwrap_or(ours.events_per_s),
            cpu_max: own.cpu_max_permille.map_or(ours.cpu_max, |permille| {
                u16::try_from(permille).map_or(Permille::ONE, Permille::new)
            }),
            periods: own.periods.unwrap_or(ours.periods),
        })
    }

    /// Does nobody gain by what its counters make of its class?
    #[must_use]
    pub fn within_share(&self) -> bool {
        let own = self.automatic.as_ref();
        own.and_then(|own| own.within_share).unwrap_or(false)
    }
}

/// The pCPUs with their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    cpus: Vec<u32>,
    labels: Vec<Core>,
}

impl Cores {
    /// Of those that are online, the ones that [`Ische::cpus`] names, or all of them: also if
    /// none that it names is.
    #[must_use]
    pub fn among(online: Vec<u32>, named: Option<CpuSet>) -> Vec<u32> {
        let Some(named) = named else { return online };
        let both: Vec<u32> = online
            .iter()
            .copied()
            .filter(|cpu| named.contains(VcpuId(*cpu)))
            .collect();
        if both.is_empty() {
            tracing::warn!(
                "ische.cpus is {named}, and none of these is online; all that are count"
            );
            return online;
        }
        both
    }

    /// Labels the pCPUs `cpus` (S2).
    #[must_use]
    pub fn new(cpus: Vec<u32>, general: usize, seed: u64) -> Self {
        let labels = ische::label(cpus.len(), general, seed);
        Self { cpus, labels }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.cpus.len()
    }

    /// Those with this label.
    #[must_use]
    pub fn of(&self, core: Core) -> Vec<u32> {
        let with = self.cpus.iter().zip(&self.labels);
        with.filter(|(_, label)| **label == core)
            .map(|(cpu, _)| *cpu)
            .collect()
    }

    /// The slice of each of `possible` pCPUs (S6).
    #[must_use]
    pub fn slices(&self, possible: u32, settings: &ische::Settings) -> Vec<Ns> {
        let io = self.of(Core::Io);
        (0..possible)
            .map(|cpu| {
                if io.contains(&cpu) {
                    settings.io_slice
                } else {
                    settings.general_slice
                }
            })
            .collect()
    }

    /// Where a vCPU belongs that may run on `allowed` and was at home on `now`; `None`:
    /// nowhere else than where it is. `homes` counts who lives on each pCPU already:
    /// the one with fewest is taken, so that a class spreads over its cores.
    #[must_use]
    pub fn home(
        &self,
        class: Class,
        allowed: &[u32],
        now: Option<u32>,
        homes: &BTreeMap<u32, usize>,
    ) -> Option<u32> {
        let kind = match class {
            Class::Cpu => Kind::Cpu,
            Class::Io => Kind::Io,
        };
        let pins: Vec<u32> = ische::pins(kind, &self.labels)
            .into_iter()
            .map(|at| self.cpus[at])
            .filter(|cpu| allowed.contains(cpu))
            .collect();
        now.filter(|cpu| pins.contains(cpu)).or_else(|| {
            pins.into_iter()
                .min_by_key(|cpu| (homes.get(cpu).copied().unwrap_or(0), *cpu))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_spreads_over_its_cores_and_stays_there() {
        let cores = Cores::new(vec![0, 1, 4, 5], 2, 7);
        let (general, io) = (cores.of(Core::General), cores.of(Core::Io));
        assert_eq!((general.len(), io.len()), (2, 2));
        let all = [0, 1, 4, 5];
        let mut homes = BTreeMap::new();
        for at in [0, 1, 0, 1] {
            let home = cores.home(Class::Cpu, &all, None, &homes).unwrap();
            assert_eq!(home, general[at]);
            *homes.entry(home).or_default() += 1;
        }
        let stays = cores.home(Class::Io, &all, Some(io[1]), &homes);
        assert_eq!(stays, Some(io[1]));
        let moves = cores.home(Class::Io, &all, Some(general[0]), &homes);
        assert_eq!(moves, Some(io[0]));
        let pinned = cores.home(Class::Io, &general[..1], None, &homes);
        assert_eq!(pinned, None, "its owner's affinity comes first");
    }

    #[test]
    fn a_host_keeps_cores_for_itself() {
        let among = |named: Option<&str>| {
            let named = named.map(|named| named.parse().unwrap());
            Cores::among(vec![0, 1, 2, 5], named)
        };
        assert_eq!(among(None), [0, 1, 2, 5]);
        assert_eq!(among(Some("1-4")), [1, 2]);
        assert_eq!(among(Some("8")), [0, 1, 2, 5], "none of them is online");
    }

    #[test]
    fn slices_follow_the_labels() {
        let cores = Cores::new(vec![0, 1], 1, 3);
        let settings = ische::Settings::default();
        let slices = cores.slices(3, &settings);
        let io = cores.of(Core::Io)[0];
        assert_eq!(slices[io as usize], Ns::from_ms(10));
        assert_eq!(slices[1 - io as usize], Ns::from_ms(30));
        assert_eq!(slices.len(), 3);
    }
}
