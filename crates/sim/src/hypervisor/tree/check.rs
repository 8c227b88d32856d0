// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Are the queues in order?

use super::At;
use super::Tree;
use crate::hypervisor::Host;
use crate::hypervisor::checks::ensure;
use crate::hypervisor::checks::ready_once;
use crate::ids::Vcpu;

impl Tree {
    /// Everybody who is ready is in the queue of its home, who runs in none, and weights
    /// and numbers are those of who is in a queue.
    pub(in crate::hypervisor) fn check(&self, host: &Host<'_>) -> Result<(), String> {
        ready_once(host, host.pcpus().flat_map(|pcpu| self.waiting(pcpu)))?;
        for pcpu in host.pcpus() {
            let p = pcpu.index();
            let (on, running) = (host.on(pcpu), self.running[p].map(|v| Vcpu(v as u32)));
            ensure(on == running, || {
                format!("{running:?} runs on pCPU {pcpu}, which {on:?} has")
            })?;
            let (waiting, counted) = (self.waiting(pcpu).count(), self.waiting[p]);
            ensure(waiting == counted, || {
                format!("{waiting} wait on pCPU {pcpu}, counted as {counted}")
            })?;
            let (counted, ran) = (self.counted[p], on.map(|vcpu| host.uncharged(vcpu)));
            ensure(ran.is_none_or(|ran| counted <= ran), || {
                format!("on pCPU {pcpu} {counted} of {ran:?} are counted")
            })?;
        }
        for vcpu in 0..self.vcpus {
            let e = &self.entities[vcpu];
            ensure(
                e.at != At::Queued || e.queue == self.queue_for(vcpu),
                || format!("vCPU {vcpu} waits away from home"),
            )?;
        }
        self.adds_up()
    }

    fn adds_up(&self) -> Result<(), String> {
        let mut sums = vec![(0, 0); self.queues.len()];
        for e in self.entities.iter().filter(|e| e.at != At::Off) {
            sums[e.queue].0 += e.weight;
            sums[e.queue].1 += 1;
        }
        for (n, (queue, sums)) in self.queues.iter().zip(sums).enumerate() {
            let counted = (queue.weight, queue.count);
            ensure(counted == sums, || {
                format!("weight and number of queue {n} are {sums:?}, counted {counted:?}")
            })?;
            let there = queue.queued.iter().count() + usize::from(queue.current.is_some());
            ensure(there as u64 == queue.count, || {
                format!("{there} are in queue {n}, counted {}", queue.count)
            })?;
        }
        Ok(())
    }
}
