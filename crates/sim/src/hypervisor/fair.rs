// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CFS's queues (C7) with vCPUs laid out by balance scheduling: the ground on which
//! coscheduling, JUPITER and vSMT-IO stand, all of them changes to CFS.

use std::ops::Deref;
use std::ops::DerefMut;

use policy::host::cosched::balance;
use units::CpuId;
use units::Ns;

use super::CfsSettings;
use super::Host;
use super::tree::Tree;
use super::tree::Turns;
use crate::ids::Vcpu;
use crate::machine::State;

/// Which vCPUs of its VM a vCPU is kept apart from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Siblings {
    All,
    /// Those that do not sleep.
    Awake,
}

/// The queues; whoever wants to run queues at home.
#[derive(Debug)]
pub(super) struct Fair {
    tree: Tree,
    slice: Ns,
}

impl Fair {
    /// Queues in which two that are alike have slices of this length.
    pub(super) fn new(slice: Ns) -> Self {
        let linux = CfsSettings::with_slice(slice);
        let turns = Turns {
            latency: linux.latency,
            min_granularity: linux.min_granularity,
        };
        let tree = Tree::new(turns);
        Self { tree, slice }
    }

    /// Places every VM's vCPUs on different pCPUs (O2, J15), within their pins. `groups`:
    /// VMs that are control groups compete as such.
    pub(super) fn start(&mut self, host: &Host<'_>, groups: bool) {
        let count = host.pcpu_count() as usize;
        let mut homes = Vec::new();
        let mut cores = vec![balance::Core::default(); count];
        let mut vm = None;
        for vcpu in host.vcpus() {
            let facts = host.vcpu(vcpu);
            if vm.replace(facts.vm) != Some(facts.vm) {
                for core in &mut cores {
                    core.siblings = 0;
                }
            }
            let mut allowed: Vec<usize> = (0..count)
                .filter(|&p| host.allows(vcpu, CpuId(p as u32)))
                .collect();
            // Of equal ones the one whose other hyperthread has least.
            allowed.sort_by_key(|&p| {
                let sibling = host.pcpu(CpuId(p as u32)).sibling;
                sibling.map_or(0, |s| cores[s.index()].vcpus)
            });
            let seen: Vec<balance::Core> = allowed.iter().map(|&p| cores[p]).collect();
            let pcpu = balance::choose(&seen).map_or(0, |nth| allowed[nth]);
            cores[pcpu].vcpus += 1;
            cores[pcpu].siblings += 1;
            homes.push(CpuId(pcpu as u32));
        }
        self.tree.start(host, homes, groups);
    }

    /// A vCPU wakes; one that slept has half of the latency for it, as in Linux.
    pub(super) fn wake(&mut self, host: &Host<'_>, vcpu: Vcpu) {
        self.tree.count(host, self.home(vcpu));
        self.tree.wake(host, vcpu, self.slice);
    }

    /// How often [`Tree::tick`] is due: control groups' turns end at a tick, others
    /// when their slice is over.
    pub(super) fn tick_period(&self) -> Option<Ns> {
        self.tree.has_groups().then_some(super::cfs::TICK)
    }

    /// The slice under contention where CFS decides alone.
    pub(super) fn turn(&self) -> Option<Ns> {
        (!self.tree.has_groups()).then_some(self.slice)
    }

    /// What balance scheduling sees of each pCPU for this vCPU: homes and siblings,
    /// itself left out.
    pub(super) fn cores(
        &self,
        host: &Host<'_>,
        vcpu: Vcpu,
        siblings: Siblings,
    ) -> Vec<balance::Core> {
        let mut cores = vec![balance::Core::default(); host.pcpu_count() as usize];
        let vm = host.vcpu(vcpu).vm;
        for other in host.vcpus().filter(|&v| v != vcpu) {
            let core = &mut cores[self.home(other).index()];
            core.vcpus += 1;
            let counts = siblings == Siblings::All || host.vcpu(other).state != State::Halted;
            core.siblings += u32::from(host.vcpu(other).vm == vm && counts);
        }
        cores
    }
}

impl Deref for Fair {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl DerefMut for Fair {
    fn deref_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }
}
