// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a control group weighs on each pCPU: its shares, divided by load
//! (`calc_group_shares()` of Linux 4.x, `kernel/sched/fair.c`).
//!
//! One vCPU that wants to run while all others of its VM sleep has the shares of all.

use units::CpuId;
use units::Time;

use super::load::FULL;
use super::load::Load;
use crate::hypervisor::Host;
use crate::ids::Vcpu;

/// The least that a group weighs anywhere (`MIN_SHARES`).
const LEAST: u64 = 2;

/// The groups' shares and their members' loads.
#[derive(Debug)]
pub(super) struct Shares {
    pcpus: usize,
    /// By group: its shares, and the load of all its vCPUs.
    groups: Vec<(u64, u64)>,
    /// By group and pCPU: the load of its vCPUs that live there.
    there: Vec<u64>,
    /// By vCPU.
    members: Vec<Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    group: Option<usize>,
    weight: u64,
    load: Load,
    /// Its part of the sums.
    counted: u64,
    home: usize,
}

impl Shares {
    /// Without groups.
    pub(super) const fn new() -> Self {
        Self {
            pcpus: 0,
            groups: Vec::new(),
            there: Vec::new(),
            members: Vec::new(),
        }
    }

    /// Of the VMs that are groups.
    pub(super) fn of(host: &Host<'_>, home: &[CpuId], groups: bool) -> Self {
        let mut shares = Self::new();
        shares.pcpus = host.pcpu_count() as usize;
        for vm in &host.machine().vms {
            let group = vm.shares.filter(|_| groups).map(|own| {
                shares.groups.push((u64::from(own).max(LEAST), 0));
                shares.groups.len() - 1
            });
            for vcpu in vm.vcpus.clone().map(Vcpu) {
                shares.members.push(Member {
                    group,
                    weight: u64::from(host.vcpu(vcpu).weight.max(1)),
                    load: Load::new(host.now()),
                    counted: 0,
                    home: home[vcpu.index()].index(),
                });
            }
        }
        shares.there = vec![0; shares.groups.len() * shares.pcpus];
        shares
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn group_of(&self, vcpu: Vcpu) -> Option<usize> {
        self.members[vcpu.index()].group
    }

    /// From now on a vCPU wants to run, or not.
    pub(super) fn set(&mut self, vcpu: usize, now: Time, wants: bool) {
        if self.members[vcpu].group.is_some() {
            let load = self.members[vcpu].load.update(now, wants);
            self.recount(vcpu, load);
        }
    }

    /// A vCPU weighs this from now on among those of its group.
    pub(super) fn set_weight(&mut self, vcpu: usize, now: Time, weight: u64) {
        self.members[vcpu].weight = weight;
        if self.members[vcpu].group.is_some() {
            let load = self.members[vcpu].load.refresh(now);
            self.recount(vcpu, load);
        }
    }

    /// A group has so many shares from now on.
    pub(super) fn set_shares(&mut self, group: usize, shares: u64) {
        self.groups[group].0 = shares.max(LEAST);
    }

    /// Brings all loads up to date.
    pub(super) fn refresh(&mut self, now: Time) {
        for vcpu in 0..self.members.len() {
            if self.members[vcpu].group.is_some() {
                let load = self.members[vcpu].load.refresh(now);
                self.recount(vcpu, load);
            }
        }
    }

    fn recount(&mut self, vcpu: usize, load: u64) {
        let member = &mut self.members[vcpu];
        let Some(group) = member.group else {
            return;
        };
        let load = load * member.weight / FULL;
        let before = std::mem::replace(&mut member.counted, load);
        let there = &mut self.there[group * self.pcpus + member.home];
        *there = *there + load - before;
        let all = &mut self.groups[group].1;
        *all = *all + load - before;
    }

    /// A vCPU lives elsewhere from now on, and its load goes with it.
    pub(super) fn carry(&mut self, vcpu: usize, from: CpuId, to: CpuId) {
        let member = &mut self.members[vcpu];
        if let Some(group) = member.group {
            member.home = to.index();
            self.there[group * self.pcpus + from.index()] -= member.counted;
            self.there[group * self.pcpus + to.index()] += member.counted;
        }
    }

    /// The weight of a group on a pCPU where members of this weight want to run now.
    pub(super) fn weight(&self, group: usize, pcpu: usize, now: u64) -> u64 {
        let (shares, all) = self.groups[group];
        let there = self.there[group * self.pcpus + pcpu];
        let load = now.max(there);
        let total = (all - there + load).max(1);
        (shares * load / total).clamp(LEAST, shares)
    }
}
