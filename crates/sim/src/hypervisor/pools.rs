// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Run queues that one or several pCPUs share, for Credit2 and ISACS.

use units::CpuId;
use units::Ns;

use super::Host;
use super::Why;
use super::checks::ensure;
use super::checks::ready_once;
use crate::ids::Vcpu;

/// Which pCPU and which vCPU belongs to which run queue.
#[derive(Debug, Default)]
pub(super) struct Pools {
    of_pcpu: Vec<usize>,
    /// By queue: its pCPUs.
    pcpus: Vec<Vec<CpuId>>,
    of_vcpu: Vec<usize>,
    /// By queue: vCPUs in want of a pCPU, in order of arrival.
    queued: Vec<Vec<usize>>,
    /// A vCPU that is to change queues when it stops running.
    moving: Vec<Option<usize>>,
}

impl Pools {
    /// Queues of `per_queue` pCPUs each; vCPUs are spread over them evenly.
    pub(super) fn start(&mut self, host: &Host<'_>, per_queue: u32) {
        let per_queue = per_queue.max(1);
        let queues = host.pcpu_count().div_ceil(per_queue) as usize;
        *self = Self {
            pcpus: vec![Vec::new(); queues],
            queued: vec![Vec::new(); queues],
            ..Self::default()
        };
        for pcpu in host.pcpus() {
            let queue = (pcpu.0 / per_queue) as usize;
            self.of_pcpu.push(queue);
            self.pcpus[queue].push(pcpu);
        }
        let mut members = vec![0_u32; queues];
        for vcpu in host.vcpus() {
            let fits = |&q: &usize| self.pcpus[q].iter().any(|&p| host.allows(vcpu, p));
            let queue = (0..queues)
                .filter(fits)
                .min_by_key(|&q| (members[q], q))
                .unwrap_or(0);
            members[queue] += 1;
            self.of_vcpu.push(queue);
            self.moving.push(None);
        }
    }

    /// Is everybody who is ready in the queue that it belongs to, once?
    pub(super) fn check(&self, host: &Host<'_>) -> Result<(), String> {
        for (n, queue) in self.queued.iter().enumerate() {
            ensure(queue.iter().all(|&v| self.of_vcpu[v] == n), || {
                format!("one of {queue:?}, in queue {n}, belongs to another")
            })?;
        }
        let queued = self.queued.iter().flatten();
        ready_once(host, queued.map(|&v| Vcpu(v as u32)))
    }

    pub(super) fn count(&self) -> usize {
        self.pcpus.len()
    }

    pub(super) fn of(&self, vcpu: usize) -> usize {
        self.of_vcpu[vcpu]
    }

    pub(super) fn of_pcpu(&self, pcpu: CpuId) -> usize {
        self.of_pcpu[pcpu.index()]
    }

    /// All vCPUs of a queue, also those that sleep.
    pub(super) fn members(&self, queue: usize) -> Vec<usize> {
        (0..self.of_vcpu.len())
            .filter(|&v| self.of_vcpu[v] == queue)
            .collect()
    }

    /// Those of the queue of `pcpu` that wait and may run there.
    pub(super) fn waiting(&self, host: &Host<'_>, pcpu: CpuId) -> Vec<usize> {
        self.queued[self.of_pcpu(pcpu)]
            .iter()
            .copied()
            .filter(|&v| host.allows(Vcpu(v as u32), pcpu))
            .collect()
    }

    /// Puts a vCPU into its queue; a move that was put off is done now, and told.
    pub(super) fn insert(&mut self, vcpu: usize) -> Option<(usize, usize)> {
        let moved = self.settle(vcpu);
        self.queued[self.of_vcpu[vcpu]].push(vcpu);
        moved
    }

    /// Those of a queue that wait, wherever they may run.
    pub(super) fn queued(&self, queue: usize) -> &[usize] {
        &self.queued[queue]
    }

    /// A queue by this key, equals as they are.
    pub(super) fn sorted<K: Ord>(&mut self, queue: usize, key: impl Fn(usize) -> K) -> &[usize] {
        self.queued[queue].sort_by_key(|&v| key(v));
        &self.queued[queue]
    }

    /// The pCPUs of this vCPU's queue that it may use, the one where it ran last first.
    pub(super) fn pcpus_for(&self, host: &Host<'_>, vcpu: Vcpu) -> Vec<CpuId> {
        let last = host.vcpu(vcpu).last_pcpu;
        let own = self.pcpus[self.of(vcpu.index())].iter().copied();
        let mut pcpus: Vec<CpuId> = own.filter(|&p| host.allows(vcpu, p)).collect();
        pcpus.sort_by_key(|&p| Some(p) != last);
        pcpus
    }

    pub(super) fn remove(&mut self, vcpu: usize) {
        self.queued[self.of_vcpu[vcpu]].retain(|&v| v != vcpu);
    }

    /// Does a move that was put off; returns (from, to).
    pub(super) fn settle(&mut self, vcpu: usize) -> Option<(usize, usize)> {
        let to = self.moving[vcpu].take()?;
        let from = std::mem::replace(&mut self.of_vcpu[vcpu], to);
        Some((from, to))
    }

    /// Moves a vCPU to another queue: at once if it waits or sleeps (then true),
    /// else when it stops. Not if it may not run there.
    pub(super) fn move_to(&mut self, host: &mut Host<'_>, vcpu: usize, to: usize) -> bool {
        let id = Vcpu(vcpu as u32);
        if !self.pcpus[to].iter().any(|&p| host.allows(id, p)) {
            return false;
        }
        if host.where_is(id).is_some() {
            self.moving[vcpu] = Some(to);
            return false;
        }
        let waits = self.queued[self.of_vcpu[vcpu]].contains(&vcpu);
        self.remove(vcpu);
        self.of_vcpu[vcpu] = to;
        if waits {
            self.queued[to].push(vcpu);
            if let Some(pcpu) = self.idle(host, id) {
                host.kick(pcpu);
            }
        }
        true
    }

    /// Finds an idle pCPU for a vCPU that has come into its queue, in another queue
    /// if `idle_takes`. False: none, and it has woken, so it may preempt somebody.
    pub(super) fn serve(
        &self,
        host: &mut Host<'_>,
        vcpu: Vcpu,
        why: Why,
        idle_takes: bool,
    ) -> bool {
        // The pCPU that it leaves chooses anew anyway.
        let left = match why {
            Why::Start | Why::Woken(_) => None,
            Why::SliceEnd | Why::Preempted => host.vcpu(vcpu).last_pcpu,
        };
        if let Some(pcpu) = self.idle(host, vcpu).filter(|&p| Some(p) != left) {
            host.kick(pcpu);
            return true;
        }
        let (Why::Start | Why::Woken(_)) = why else {
            return true;
        };
        match self.idle_elsewhere(host, vcpu).filter(|_| idle_takes) {
            Some(pcpu) => {
                host.kick_remote(pcpu);
                true
            }
            None => false,
        }
    }

    /// An idle pCPU of the vCPU's queue, the one where it ran last if possible.
    pub(super) fn idle(&self, host: &Host<'_>, vcpu: Vcpu) -> Option<CpuId> {
        let last = host.vcpu(vcpu).last_pcpu;
        let idle = || {
            self.pcpus[self.of(vcpu.index())]
                .iter()
                .copied()
                .filter(|&p| host.is_idle(p) && host.allows(vcpu, p))
        };
        idle().find(|&p| Some(p) == last).or_else(|| idle().next())
    }

    /// The running vCPUs of this vCPU's queue on pCPUs that it may use.
    pub(super) fn running(&self, host: &Host<'_>, vcpu: Vcpu) -> Vec<(CpuId, Vcpu)> {
        self.pcpus[self.of(vcpu.index())]
            .iter()
            .filter(|&&p| host.allows(vcpu, p))
            .filter_map(|&p| host.on(p).map(|running| (p, running)))
            .collect()
    }

    /// Who runs on the pCPUs of a queue.
    pub(super) fn on(&self, host: &Host<'_>, queue: usize) -> Vec<Vcpu> {
        let pcpus = self.pcpus[queue].iter();
        pcpus.filter_map(|&pcpu| host.on(pcpu)).collect()
    }

    /// An idle pCPU of another queue that could take this vCPU over, if its own
    /// queue has none: no pCPU idles while somebody waits.
    pub(super) fn idle_elsewhere(&self, host: &Host<'_>, vcpu: Vcpu) -> Option<CpuId> {
        host.pcpus().find(|&p| {
            host.is_idle(p) && host.allows(vcpu, p) && self.queued[self.of_pcpu(p)].is_empty()
        })
    }

    /// Somebody who waits in another queue, the longest of those in which anybody is
    /// who may run on `pcpu`.
    pub(super) fn longest_elsewhere(&self, host: &Host<'_>, pcpu: CpuId) -> Option<usize> {
        let own = self.of_pcpu(pcpu);
        let may = |&&v: &&usize| host.allows(Vcpu(v as u32), pcpu);
        let first = |q: usize| Some((q, *self.queued[q].iter().find(may)?));
        (0..self.queued.len())
            .filter(|&q| q != own)
            .filter_map(first)
            .max_by_key(|&(q, _)| (self.queued[q].len(), std::cmp::Reverse(q)))
            .map(|(_, vcpu)| vcpu)
    }
}

/// What running vCPUs were charged for before the engine did: where a pCPU of a queue
/// chooses, the credit that those on its other pCPUs have spent so far counts
/// (`reset_credit()` of Xen burns it first).
#[derive(Debug, Default)]
pub(super) struct Ahead(Vec<Ns>);

impl Ahead {
    pub(super) fn new(vcpus: usize) -> Self {
        Self(vec![Ns::ZERO; vcpus])
    }

    /// What a vCPU has run and was not charged for yet.
    pub(super) fn owed(&self, host: &Host<'_>, vcpu: Vcpu) -> Ns {
        host.uncharged(vcpu) - self.0[vcpu.index()]
    }

    /// The same; it is charged for it now.
    pub(super) fn settle(&mut self, host: &Host<'_>, vcpu: Vcpu) -> Ns {
        let owed = self.owed(host, vcpu);
        self.0[vcpu.index()] += owed;
        owed
    }

    /// Nobody has been charged for more than it ran.
    pub(super) fn check(&self, host: &Host<'_>) -> Result<(), String> {
        for (vcpu, &ahead) in host.vcpus().zip(&self.0) {
            let ran = host.uncharged(vcpu);
            ensure(ahead <= ran, || {
                format!("vCPU {vcpu} was charged for {ahead} of {ran}")
            })?;
        }
        Ok(())
    }

    /// The engine charges it for `ran`: what is left of that.
    pub(super) fn charge(&mut self, vcpu: Vcpu, ran: Ns) -> Ns {
        ran - std::mem::take(&mut self.0[vcpu.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Requests;
    use crate::hypervisor::tests::staged;

    /// Two wait in the queue of pCPU 0 and may run there alone, one in that of pCPU 1 and
    /// may run anywhere: pCPU 2 takes that one, though the other queue is longer.
    #[test]
    fn the_longest_queue_counts_only_with_somebody_who_may_come() {
        let (mut machine, mut requests) = (staged::machine(3, 3), Requests::default());
        for vcpu in [0, 2] {
            machine.vcpus[vcpu].allowed = vec![CpuId(0)];
        }
        let host = staged::host(&machine, &mut requests, 0);
        let mut pools = Pools::default();
        pools.start(&host, 1);
        let queues: Vec<usize> = (0..3).map(|v| pools.of(v)).collect();
        assert_eq!(queues, [0, 1, 0]);
        for vcpu in 0..3 {
            pools.insert(vcpu);
        }
        assert_eq!(pools.longest_elsewhere(&host, CpuId(2)), Some(1));
        assert_eq!(pools.longest_elsewhere(&host, CpuId(1)), None);
    }
}
