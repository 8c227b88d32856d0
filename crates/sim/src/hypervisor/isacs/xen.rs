// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ISACS in what else there is in Xen 4.12's Credit2, in which it was built: algorithm 1
//! says who runs, `policy::host::credit::credit2::Xen` who keeps a pCPU, who preempts and
//! how long a turn lasts, all by `credit`, which is not what phase 2 goes by.

use policy::host::credit::credit2;
use units::CpuId;

use super::Isacs;
use crate::hypervisor::Host;
use crate::hypervisor::Pick;
use crate::hypervisor::turns::Turns;
use crate::ids::Vcpu;

impl Isacs {
    pub(super) fn tell(&self, host: &mut Host<'_>, turns: &mut Turns, vcpu: Vcpu) {
        let queue = &self.queues[self.pools.of(vcpu.index())];
        let own = self.table[vcpu.index()].credit;
        turns.tell(host, &self.pools, vcpu, own, |host, running| {
            let mut charged = self.table[running.index()].clone();
            let owed = self.ahead.owed(host, running);
            queue.on_charge(&mut charged, owed, &self.settings.rules);
            charged.credit
        });
    }

    pub(super) fn pick_as_xen(
        &mut self,
        host: &mut Host<'_>,
        turns: &mut Turns,
        pcpu: CpuId,
    ) -> Option<Pick> {
        let xen = turns.xen;
        let queue = self.pools.of_pcpu(pcpu);
        self.settle(host, queue);
        let waiting = self.pools.waiting(host, pcpu);
        let current = turns.begin(pcpu, &waiting);
        let chosen = match current.filter(|&v| xen.keeps(turns.ran(host, v))) {
            Some(stays) => {
                self.pools.remove(stays);
                stays
            }
            None => {
                let free = waiting.into_iter().filter(|&v| !turns.is_left(v, pcpu));
                let free: Vec<usize> = free.collect();
                self.choose(host, pcpu, &free)?
            }
        };
        let had = turns.give(host, chosen, current);
        if let Some(left) = current.filter(|&v| v != chosen) {
            self.tell(host, turns, Vcpu(left as u32));
        }
        let others = self.pools.queued(queue).iter();
        let credits = others.filter(|&&v| Some(v) != current);
        let first = credits.map(|&v| self.table[v].credit).max();
        let vcpu = &self.table[chosen];
        let slice = xen.turn(vcpu.credit, first, had, |credit| {
            credit2::lasts(credit, vcpu.weight, self.settings.rules.reference)
        });
        Some(Pick {
            vcpu: Vcpu(chosen as u32),
            slice: Some(slice),
        })
    }
}
