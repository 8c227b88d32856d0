// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The VMs that are scheduled and what each is worth: the file, what `scx_vcpu set`
//! said since, what its counters say. Pure; [`crate::run`] tells the kernel's side.

mod classes;
mod set;

use std::collections::BTreeMap;

use policy::host::ische::Core;
use policy::host::ische::Kind;
use policy::host::ische::classify::Classifier;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

pub use set::Change;
pub use set::SetError;

use crate::cgroup::ONE;
use crate::config::Class;
use crate::config::Config;
use crate::config::MAX_WEIGHT;
use crate::config::Worth;
use crate::policy::ische::Cores;
use crate::seat::Found;
use classes::Automatic;

/// What the kernel's side is told about one vCPU, as `struct sv_knobs` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Knobs {
    pub(crate) weight: u32,
    /// Thousandths of a pCPU; 0: no limit.
    pub(crate) cap_permille: u32,
    pub(crate) class: Class,
    pub(crate) home: Option<u32>,
    /// Zero: as its policy says.
    pub(crate) slice: Ns,
    pub(crate) latency: Ns,
    /// `None`: where its owner says.
    pub(crate) cpus: Option<CpuSet>,
}

#[derive(Debug)]
struct Seat {
    found: Found,
    allowed: Vec<u32>,
    home: Option<u32>,
}

impl Seat {
    /// Where it may run: what its owner says, within what the administrator does.
    fn may(&self, worth: &Worth) -> Vec<u32> {
        let within = |cpu: &&u32| worth.cpus.is_none_or(|cpus| cpus.contains(VcpuId(**cpu)));
        self.allowed.iter().filter(within).copied().collect()
    }
}

#[derive(Debug)]
struct Vm {
    line: String,
    worth: Worth,
    /// Thousandths of the weight that count, by its cgroups.
    factor: u64,
    classifier: Classifier,
    /// Events and demand at the last look.
    last: (u64, Ns),
    seats: BTreeMap<u32, Seat>,
}

impl Vm {
    /// What the kernel's side is told about one of its vCPUs.
    fn knobs(&self, seat: &Seat) -> Knobs {
        let (worth, vcpus) = (self.worth, self.seats.len() as u32);
        Knobs {
            weight: self.weight() as u32,
            // The cap is the VM's (K1), rounded up so that it is never none.
            cap_permille: worth.cap.map_or(0, |cap| (cap * 10).div_ceil(vcpus)),
            class: worth.class,
            home: seat.home,
            slice: worth.slice.unwrap_or_default(),
            latency: worth.latency.unwrap_or_default(),
            cpus: worth.cpus,
        }
    }

    /// Of each of its vCPUs, with what its cgroups make of it.
    fn weight(&self) -> u64 {
        (u64::from(self.worth.weight) * self.factor / ONE).clamp(1, u64::from(MAX_WEIGHT))
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Roster {
    config: Config,
    cores: Option<Cores>,
    automatic: Option<Automatic>,
    vms: BTreeMap<u32, Vm>,
}

/// vCPUs whose knobs are to be told to the kernel.
pub(crate) type Told = Vec<(Found, Knobs)>;

impl Roster {
    /// Nobody yet. `cores`: those of iSche.
    pub(crate) fn new(config: Config, cores: Option<Cores>) -> Self {
        let automatic = Automatic::of(&config, cores.as_ref());
        Self {
            config,
            cores,
            automatic,
            vms: BTreeMap::new(),
        }
    }

    /// A vCPU whose VMM has this command line and that may run on `allowed`; the
    /// first of the result is its own, the others are its siblings, whose part of the
    /// cap is a smaller one now.
    pub(crate) fn add(&mut self, found: Found, line: String, allowed: Vec<u32>) -> Told {
        let config = &self.config;
        let vm = self.vms.entry(found.vm).or_insert_with(|| {
            let worth = config.worth(&line);
            Vm {
                line,
                worth,
                factor: ONE,
                classifier: Classifier::new(kind(worth.class)),
                last: (0, Ns::ZERO),
                seats: BTreeMap::new(),
            }
        });
        // Seen a second time it keeps its home.
        vm.seats.entry(found.tid).or_insert(Seat {
            found,
            allowed,
            home: None,
        });
        let mut told = self.tell(found.vm);
        told.sort_by_key(|(other, _)| other.tid != found.tid);
        told
    }

    /// Forgets those of which `alive` says no. The result is for their siblings, whose part
    /// of the cap is a larger one now.
    pub(crate) fn retain(&mut self, alive: impl Fn(u32) -> bool) -> Told {
        let mut fewer = Vec::new();
        for (pid, vm) in &mut self.vms {
            let before = vm.seats.len();
            vm.seats.retain(|tid, _| alive(*tid));
            if vm.seats.len() < before {
                fewer.push(*pid);
            }
        }
        self.vms.retain(|_, vm| !vm.seats.is_empty());
        fewer.into_iter().flat_map(|pid| self.tell(pid)).collect()
    }

    /// Owners may say something else than when a vCPU was found: `allowed` has where each
    /// thread may run now, nowhere if it has gone. Not asked of VMs whose threads are
    /// narrowed by us.
    pub(crate) fn follow(&mut self, allowed: impl Fn(u32) -> Vec<u32>) -> Told {
        let mut changed = Vec::new();
        for (pid, vm) in &mut self.vms {
            if vm.worth.cpus.is_some() {
                continue;
            }
            for (tid, seat) in &mut vm.seats {
                let now = allowed(*tid);
                if !now.is_empty() && now != seat.allowed {
                    seat.allowed = now;
                    changed.push(*pid);
                }
            }
        }
        changed.dedup();
        changed.into_iter().flat_map(|pid| self.tell(pid)).collect()
    }

    /// What the cgroups of each VMM make of its weight, if that has changed.
    pub(crate) fn weigh(&mut self, factor: impl Fn(u32) -> u64) -> Told {
        let mut changed = Vec::new();
        for (pid, vm) in &mut self.vms {
            let now = factor(*pid);
            if std::mem::replace(&mut vm.factor, now) != now {
                changed.push(*pid);
            }
        }
        changed.into_iter().flat_map(|pid| self.tell(pid)).collect()
    }

    /// The file was changed: its word counts again, for every VM, and all cores are
    /// labelled anew (S2).
    pub(crate) fn reload(&mut self, config: Config, cores: Option<Cores>) -> Told {
        self.automatic = Automatic::of(&config, cores.as_ref());
        self.config = config;
        self.cores = cores;
        for vm in self.vms.values_mut() {
            vm.worth = self.config.worth(&vm.line);
            vm.classifier = Classifier::new(kind(vm.worth.class));
        }
        self.tell_all()
    }

    /// What the file said last.
    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    /// The cores of iSche.
    pub(crate) fn cores(&self) -> Option<&Cores> {
        self.cores.as_ref()
    }

    /// CPUs have come or gone: other cores. What VMs are worth stays.
    pub(crate) fn relabel(&mut self, cores: Option<Cores>) {
        self.cores = cores;
        for vm in self.vms.values_mut() {
            for seat in vm.seats.values_mut() {
                seat.home = None;
            }
        }
    }

    /// What the kernel's side is told about a vCPU; `None`: nobody knows it.
    pub(crate) fn knobs(&self, vm: u32, tid: u32) -> Option<Knobs> {
        let vm = self.vms.get(&vm)?;
        Some(vm.knobs(vm.seats.get(&tid)?))
    }

    /// A vCPU goes to another pCPU, if its affinity lets it; `None`: it needs no home
    /// any longer.
    pub(crate) fn move_home(&mut self, tid: u32, cpu: Option<u32>) -> Told {
        let mut seats = self.vms.iter_mut().flat_map(|(pid, vm)| {
            let (seats, worth) = (vm.seats.values_mut(), vm.worth);
            seats.map(move |seat| (*pid, worth, seat))
        });
        let fits = |worth: &Worth, seat: &Seat| {
            seat.found.tid == tid && cpu.is_none_or(|cpu| seat.may(worth).contains(&cpu))
        };
        match seats
            .find(|(_, worth, seat)| fits(worth, seat))
            .map(|(pid, _, seat)| (pid, seat))
        {
            Some((pid, seat)) => {
                seat.home = cpu;
                self.tell(pid)
            }
            None => Told::new(),
        }
    }

    /// The labels, for people; `None` without iSche.
    pub(crate) fn labels(&self) -> Option<String> {
        let cores = self.cores.as_ref()?;
        let of = |core| {
            let cpus: Vec<String> = cores.of(core).iter().map(u32::to_string).collect();
            cpus.join(",")
        };
        Some(format!(
            "general cores {}; I/O cores {}",
            of(Core::General),
            of(Core::Io)
        ))
    }

    fn tell_all(&mut self) -> Told {
        let pids: Vec<u32> = self.vms.keys().copied().collect();
        pids.into_iter().flat_map(|pid| self.tell(pid)).collect()
    }

    /// The knobs of all vCPUs of a VM, with homes chosen where they need new ones.
    fn tell(&mut self, pid: u32) -> Told {
        let mut homes: BTreeMap<u32, usize> = BTreeMap::new();
        let seats = self.vms.values().flat_map(|vm| vm.seats.values());
        for home in seats.filter_map(|seat| seat.home) {
            *homes.entry(home).or_default() += 1;
        }
        let Some(vm) = self.vms.get_mut(&pid) else {
            return Told::new();
        };
        let worth = vm.worth;
        for seat in vm.seats.values_mut() {
            let old = seat.home;
            if let Some(cores) = &self.cores {
                seat.home = cores.home(worth.class, &seat.may(&worth), old, &homes);
            }
            if seat.home != old {
                if let Some(count) = old.and_then(|old| homes.get_mut(&old)) {
                    *count -= 1;
                }
                if let Some(home) = seat.home {
                    *homes.entry(home).or_default() += 1;
                }
            }
        }
        let told = vm.seats.values().map(|seat| (seat.found, vm.knobs(seat)));
        told.collect()
    }
}

fn kind(class: Class) -> Kind {
    match class {
        Class::Cpu => Kind::Cpu,
        Class::Io => Kind::Io,
    }
}

#[cfg(test)]
mod tests;
