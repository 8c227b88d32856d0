// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit2 as Xen 4.12 has it: `policy::host::credit::credit2::Xen`.

use std::cmp::Reverse;

use policy::host::credit::Credit;
use policy::host::credit::credit2;
use policy::host::credit::credit2::Candidate;
use policy::host::credit::credit2::Waiting;
use units::CpuId;

use super::Credit2;
use crate::hypervisor::Host;
use crate::hypervisor::Pick;
use crate::hypervisor::turns::Turns;
use crate::ids::Vcpu;

impl Credit2 {
    pub(super) fn tell(&self, host: &mut Host<'_>, turns: &mut Turns, vcpu: Vcpu) {
        let own = self.table[vcpu.index()].credit;
        turns.tell(host, &self.pools, vcpu, own, |host, running| {
            let mut charged = self.table[running.index()].clone();
            charged.on_charge(self.ahead.owed(host, running), &self.settings.rules);
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
        let rules = &self.settings.rules;
        for running in self.pools.on(host, queue) {
            let owed = self.ahead.settle(host, running);
            self.table[running.index()].on_charge(owed, rules);
        }
        let table = &self.table;
        let order = self.pools.sorted(queue, |v| Reverse(table[v].credit));
        let current = turns.begin(pcpu, order);
        let others: Vec<usize> = (order.iter().copied())
            .filter(|&v| Some(v) != current)
            .collect();
        let stays = current.is_some_and(|v| xen.keeps(turns.ran(host, v)));
        let candidate = if stays {
            Candidate {
                vcpu: None,
                is_first: true,
            }
        } else {
            let waiting = others.iter().map(|&v| Waiting {
                vcpu: v,
                credit: table[v].credit,
                may: host.allows(Vcpu(v as u32), pcpu) && !turns.is_left(v, pcpu),
                here: host.vcpu(Vcpu(v as u32)).last_pcpu == Some(pcpu),
            });
            xen.candidate(current.map(|v| table[v].credit), waiting)
        };
        let chosen = candidate.vcpu.or(current)?;
        self.pools.remove(chosen);
        if candidate.is_first && self.table[chosen].credit <= Credit::ZERO {
            self.reset_as_xen(queue, chosen, &xen);
        }
        let last = host.vcpu(Vcpu(chosen as u32)).last_pcpu;
        if last.is_some_and(|last| last != pcpu) {
            let credit = &mut self.table[chosen].credit;
            *credit = credit.plus(xen.compensation);
        }
        let had = turns.give(host, chosen, current);
        if let Some(left) = current.filter(|&v| v != chosen) {
            self.tell(host, turns, Vcpu(left as u32));
        }
        let vcpu = &self.table[chosen];
        let first = others.into_iter().find(|&v| v != chosen);
        let first = first.map(|v| self.table[v].credit);
        let slice = xen.turn(vcpu.credit, first, had, |credit| {
            credit2::lasts(credit, vcpu.weight, self.settings.rules.reference)
        });
        Some(Pick {
            vcpu: Vcpu(chosen as u32),
            slice: Some(slice),
        })
    }

    /// Everybody of the queue is given credit until `next` has some.
    fn reset_as_xen(&mut self, queue: usize, next: usize, xen: &credit2::Xen) {
        let default_credit = self.settings.rules.default_credit;
        let resets = xen.resets(self.table[next].credit, default_credit);
        for member in self.pools.members(queue) {
            let credit = &mut self.table[member].credit;
            *credit = xen.after(*credit, resets, default_credit);
        }
        self.resets += 1;
    }
}
