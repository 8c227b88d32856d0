// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who keeps a pCPU and who is told to choose, as Xen 4.12 has it for Credit2, and so for
//! ISACS which was built on it: `policy::host::credit::credit2::Xen`.

use std::cmp::Reverse;

use policy::host::credit::Credit;
use policy::host::credit::credit2::Xen;
use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Why;
use super::pools::Pools;
use crate::ids::Vcpu;

/// Who has had which pCPU since when, and which are about to choose.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) xen: Xen,
    /// By vCPU: when it was given its pCPU.
    since: Vec<Time>,
    /// By vCPU: the pCPU that was told to take it.
    meant_for: Vec<Option<CpuId>>,
    /// By pCPU: who had it until now and would run on.
    current: Vec<Option<usize>>,
    /// By pCPU: it was told to choose, or does so now.
    told: Vec<bool>,
}

impl Turns {
    pub(super) fn new(host: &Host<'_>, xen: Xen) -> Self {
        let (vcpus, pcpus) = (host.vcpus().count(), host.pcpu_count() as usize);
        Self {
            xen,
            since: vec![host.now(); vcpus],
            meant_for: vec![None; vcpus],
            current: vec![None; pcpus],
            told: vec![false; pcpus],
        }
    }

    /// A vCPU wants a pCPU: does anybody have to be told? Who has just been taken off
    /// its pCPU may be given it again.
    pub(super) fn must_tell(&mut self, host: &Host<'_>, vcpu: Vcpu, why: Why) -> bool {
        match (why, host.vcpu(vcpu).last_pcpu) {
            (Why::SliceEnd | Why::Preempted, Some(pcpu)) => {
                self.current[pcpu.index()] = Some(vcpu.index());
                false
            }
            _ => true,
        }
    }

    /// Tells a pCPU to choose, since this vCPU waits (`runq_tickle()`): an idle one, or
    /// else the one where it ran if it is better than who runs there, or else where it is
    /// better by most. It has `own` left, who runs `left(running)`.
    pub(super) fn tell(
        &mut self,
        host: &mut Host<'_>,
        pools: &Pools,
        vcpu: Vcpu,
        own: Credit,
        left: impl Fn(&Host<'_>, Vcpu) -> Credit,
    ) {
        let mut pcpus = pools.pcpus_for(host, vcpu);
        pcpus.retain(|&p| !self.told[p.index()]);
        if let Some(idle) = pcpus.iter().copied().find(|&p| host.is_idle(p)) {
            self.note(vcpu, idle);
            host.kick(idle);
            return;
        }
        let last = host.vcpu(vcpu).last_pcpu;
        let by = |&pcpu: &CpuId| -> Option<(i64, CpuId)> {
            let running = host.on(pcpu)?;
            let host = &*host;
            let may = self.xen.is_preemptable(self.ran(host, running.index()));
            let by = (self.xen).score(own, left(host, running), Some(pcpu) == last);
            (may && by > 0).then_some((by, pcpu))
        };
        let own = pcpus.iter().find(|&&p| Some(p) == last).and_then(by);
        let best = own.or_else(|| {
            let all = pcpus.iter().filter_map(by);
            all.max_by_key(|&(by, pcpu)| (by, Reverse(pcpu)))
        });
        if let Some((_, pcpu)) = best {
            self.note(vcpu, pcpu);
            host.kick_remote(pcpu);
        }
    }

    fn note(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        self.told[pcpu.index()] = true;
        self.meant_for[vcpu.index()] = Some(pcpu);
    }

    /// A pCPU begins to choose: who had it until now, if that one is still there.
    pub(super) fn begin(&mut self, pcpu: CpuId, queued: &[usize]) -> Option<usize> {
        self.told[pcpu.index()] = true;
        let current = self.current[pcpu.index()].take();
        current.filter(|v| queued.contains(v))
    }

    /// It has chosen, and who had it before has been told about.
    pub(super) fn end(&mut self, pcpu: CpuId) {
        self.told[pcpu.index()] = false;
    }

    /// Is it left for another pCPU, which was told to take it and has not chosen yet?
    pub(super) fn is_left(&self, vcpu: usize, pcpu: CpuId) -> bool {
        self.meant_for[vcpu].is_some_and(|p| p != pcpu && self.told[p.index()])
    }

    /// How long a vCPU has had its pCPU.
    pub(super) fn ran(&self, host: &Host<'_>, vcpu: usize) -> Ns {
        host.now().since(self.since[vcpu])
    }

    /// This one is given the pCPU of `current`; returns how long it had it before.
    pub(super) fn give(&mut self, host: &Host<'_>, vcpu: usize, current: Option<usize>) -> Ns {
        self.meant_for[vcpu] = None;
        if Some(vcpu) == current {
            return self.ran(host, vcpu);
        }
        self.since[vcpu] = host.now();
        Ns::ZERO
    }
}
