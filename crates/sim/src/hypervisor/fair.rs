// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fair queues, one per pCPU, ordered by weighted run time (C7): the ground on
//! which coscheduling, JUPITER and vSMT-IO stand, all of them changes to CFS.

use policy::host::cosched::balance;
use units::CpuId;
use units::Ns;

use super::Host;
use super::ordered::Ordered;
use crate::ids::Vcpu;
use crate::machine::NORMAL_WEIGHT;

/// Queues by pCPU and what each vCPU has had.
#[derive(Debug, Default)]
pub(super) struct Fair {
    vruntime: Vec<u64>,
    weight: Vec<u64>,
    home: Vec<CpuId>,
    /// Equal ones in order of arrival: see `Cfs`.
    queued: Vec<Ordered<(u64, u64, Vcpu)>>,
    arrivals: u64,
    arrival: Vec<u64>,
    /// The least that anybody has had on each pCPU: newcomers begin there.
    floor: Vec<u64>,
}

impl Fair {
    /// Places every VM's vCPUs on different pCPUs (O2, J15), within their pins.
    pub(super) fn start(&mut self, host: &Host<'_>) {
        let count = host.pcpu_count() as usize;
        *self = Self {
            queued: vec![Ordered::default(); count],
            floor: vec![0; count],
            ..Self::default()
        };
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
            self.home.push(CpuId(pcpu as u32));
            self.weight.push(u64::from(facts.weight.max(1)));
            self.vruntime.push(0);
            self.arrival.push(0);
        }
    }

    pub(super) fn home(&self, vcpu: Vcpu) -> CpuId {
        self.home[vcpu.index()]
    }

    /// Puts a vCPU into the queue of its home.
    pub(super) fn insert(&mut self, vcpu: Vcpu) {
        let home = self.home[vcpu.index()];
        self.arrivals += 1;
        self.arrival[vcpu.index()] = self.arrivals;
        let key = self.key(vcpu);
        self.queued[home.index()].insert(key);
    }

    pub(super) fn remove(&mut self, vcpu: Vcpu) {
        let home = self.home[vcpu.index()];
        let key = self.key(vcpu);
        self.queued[home.index()].remove(&key);
    }

    fn key(&self, vcpu: Vcpu) -> (u64, u64, Vcpu) {
        let n = vcpu.index();
        (self.vruntime[n], self.arrival[n], vcpu)
    }

    /// A vCPU wakes: it is not more than `credit` behind those that ran on (in
    /// virtual time, as Linux' sleeper credit).
    pub(super) fn wake(&mut self, host: &Host<'_>, vcpu: Vcpu, credit: Ns) {
        let home = self.home[vcpu.index()];
        self.update_floor(host, home);
        let floor = self.floor[home.index()].saturating_sub(credit.as_ns());
        let v = &mut self.vruntime[vcpu.index()];
        *v = (*v).max(floor);
    }

    /// The least that anybody on a pCPU has had, as of now; never goes back.
    fn update_floor(&mut self, host: &Host<'_>, pcpu: CpuId) {
        let running = host.on(pcpu).map(|vcpu| self.had(host, vcpu));
        let first = self.queued[pcpu.index()].first().map(|(had, ..)| *had);
        if let Some(least) = running.into_iter().chain(first).min() {
            let floor = &mut self.floor[pcpu.index()];
            *floor = (*floor).max(least);
        }
    }

    /// Changes where a vCPU that is not queued lives; its lead goes with it.
    pub(super) fn settle(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        let from = self.floor[self.home[vcpu.index()].index()];
        let v = &mut self.vruntime[vcpu.index()];
        *v = (*v + self.floor[pcpu.index()]).saturating_sub(from);
        self.home[vcpu.index()] = pcpu;
    }

    /// As [`Fair::settle`], whether it is queued or not.
    pub(super) fn carry(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        let home = self.home[vcpu.index()];
        let key = self.key(vcpu);
        let queued = self.queued[home.index()].remove(&key);
        self.settle(vcpu, pcpu);
        if queued {
            self.insert(vcpu);
        }
    }

    /// It ran.
    pub(super) fn charge(&mut self, vcpu: Vcpu, ran: Ns) {
        let weight = self.weight[vcpu.index()];
        self.vruntime[vcpu.index()] += ran.scaled(u64::from(NORMAL_WEIGHT), weight).as_ns();
    }

    /// What it has had, by weight, as of now.
    pub(super) fn had(&self, host: &Host<'_>, vcpu: Vcpu) -> u64 {
        let more = host
            .uncharged(vcpu)
            .scaled(u64::from(NORMAL_WEIGHT), self.weight[vcpu.index()]);
        self.vruntime[vcpu.index()] + more.as_ns()
    }

    /// Does `vcpu`, just woken, lag the running one by more than the wake-up
    /// granularity? As in Linux the granularity counts in the virtual time of the
    /// one that wakes, the sleeper's credit does not: a vCPU of a small share (one
    /// of many in a VM that is a control group) never preempts by waking.
    pub(super) fn preempts(
        &self,
        host: &Host<'_>,
        vcpu: Vcpu,
        running: Vcpu,
        granularity: Ns,
    ) -> bool {
        let limit = granularity.scaled(u64::from(NORMAL_WEIGHT), self.weight[vcpu.index()]);
        self.had(host, vcpu) + limit.as_ns() < self.had(host, running)
    }

    /// Who waits on a pCPU, the one that had least first.
    pub(super) fn waiting(&self, pcpu: CpuId) -> impl Iterator<Item = Vcpu> + '_ {
        self.queued[pcpu.index()].iter().map(|&(.., vcpu)| vcpu)
    }

    pub(super) fn len(&self, pcpu: CpuId) -> usize {
        self.queued[pcpu.index()].len()
    }

    /// Takes a vCPU off the queues to run it on `pcpu`, which becomes its home.
    pub(super) fn take(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        self.remove(vcpu);
        if self.home[vcpu.index()] != pcpu {
            self.settle(vcpu, pcpu);
        }
        let first = self.queued[pcpu.index()].first().map(|(had, ..)| *had);
        let own = self.vruntime[vcpu.index()];
        let floor = &mut self.floor[pcpu.index()];
        *floor = (*floor).max(first.map_or(own, |first| first.min(own)));
    }

    /// What balance scheduling sees of each pCPU for this vCPU: homes and siblings,
    /// itself left out.
    pub(super) fn cores(&self, host: &Host<'_>, vcpu: Vcpu) -> Vec<balance::Core> {
        let mut cores = vec![balance::Core::default(); self.queued.len()];
        let vm = host.vcpu(vcpu).vm;
        for other in host.vcpus().filter(|&v| v != vcpu) {
            let core = &mut cores[self.home[other.index()].index()];
            core.vcpus += 1;
            core.siblings += u32::from(host.vcpu(other).vm == vm);
        }
        cores
    }
}
