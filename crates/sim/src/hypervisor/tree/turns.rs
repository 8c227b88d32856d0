// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a turn is and who ends it: preemption by waking up and by the tick.

use units::CpuId;
use units::Ns;

use super::Tree;
use crate::hypervisor::Host;
use crate::ids::Vcpu;

/// How long turns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hypervisor) struct Turns {
    /// Everybody in a queue runs once within this, while they are few.
    pub(in crate::hypervisor) latency: Ns,
    /// For many: at least so long for each.
    pub(in crate::hypervisor) min_granularity: Ns,
}

impl Tree {
    /// Does `vcpu`, just woken, lag whoever runs at its home by more than the wake-up
    /// granularity? They are compared where their ways up meet: two vCPUs of a group as
    /// such, others as their groups (`find_matching_se()`). The granularity counts in
    /// the virtual time of the one that wakes, the sleeper's credit does not: a group of
    /// a small share (one with many vCPUs that want to run) never preempts by waking.
    pub(in crate::hypervisor) fn preempts(
        &self,
        host: &Host<'_>,
        vcpu: Vcpu,
        granularity: Ns,
    ) -> bool {
        let home = self.home[vcpu.index()].index();
        let Some(running) = self.running[home] else {
            return false;
        };
        let (mut own, mut other) = (vcpu.index(), running);
        if self.entities[own].queue != self.entities[other].queue {
            own = self.parent(own).unwrap_or(own);
            other = self.parent(other).unwrap_or(other);
        }
        let limit = self.virtual_time(own, granularity);
        let more = self.virtual_time(other, self.uncounted(host, home, running));
        self.entities[own].vruntime + limit < self.entities[other].vruntime + more
    }

    /// An entity's part of its queue's latency, of which the group has its part of the
    /// pCPU's (`sched_slice()`).
    fn ideal(&self, entity: usize) -> Ns {
        let count = self.queues[self.entities[entity].queue].count;
        let all = self.turns.min_granularity * count;
        let mut slice = self.turns.latency.max(all);
        for entity in [Some(entity), self.parent(entity)].into_iter().flatten() {
            let e = &self.entities[entity];
            slice = slice.scaled(e.weight, self.queues[e.queue].weight);
        }
        slice
    }

    /// The slice of whoever runs on a pCPU, without ticks; none while it is alone.
    pub(in crate::hypervisor) fn slice(&self, pcpu: CpuId) -> Option<Ns> {
        let running = self.running[pcpu.index()]?;
        let alone = self.waiting[pcpu.index()] == 0;
        (!alone).then(|| self.ideal(running).max(self.turns.min_granularity))
    }

    /// A tick: shares follow loads; who has had its turn (`check_preempt_tick()`)?
    /// Linux compares a lead in virtual time with a slice in real time, so the turns
    /// of groups of a small share end with the first tick after the least granularity.
    pub(in crate::hypervisor) fn tick(&mut self, host: &mut Host<'_>) {
        self.shares.refresh(host.now());
        for pcpu in 0..self.pcpus {
            let Some(running) = self.running[pcpu] else {
                continue;
            };
            self.count(host, CpuId(pcpu as u32));
            self.reweigh(self.entities[running].queue);
            let ended = |entity| self.has_ended(entity);
            if self.up(running).into_iter().flatten().any(ended) {
                host.kick(CpuId(pcpu as u32));
            }
        }
    }

    fn has_ended(&self, entity: usize) -> bool {
        let e = &self.entities[entity];
        let Some(&(first, ..)) = self.queues[e.queue].queued.first() else {
            return false;
        };
        let ideal = self.ideal(entity);
        e.turn > ideal
            || (e.turn >= self.turns.min_granularity && e.vruntime > first + ideal.as_ns())
    }
}
