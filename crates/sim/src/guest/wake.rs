// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a woken task goes, and how vCPUs even out their queues.
//!
//! The kernel does not know which of its vCPUs the host runs: to it, a vCPU that
//! is away looks like one that is busy with its current task.

use units::Time;
use units::VcpuId;

use super::Awaits;
use super::Effect;
use super::Guest;
use super::TaskState;
use super::World;
use crate::ids::TaskId;

impl Guest {
    /// Wakes a task; `cpu` is the vCPU that does so.
    pub(crate) fn wake(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let now = world.agenda.now();
        let old = self.tasks[task.index()].vcpu.index();
        let target = self.choose(task, cpu);
        self.detect_wake(cpu, task, now);
        self.set_state(task, now, TaskState::Queued);
        self.tasks[task.index()].awaits = Awaits::Nothing;
        if target != old {
            self.carry(task, old, target, false);
            self.change_vcpu(task, target, now);
        }
        self.account(target, now);
        self.place(target, task);
        self.put_on(target, task, cpu, world);
    }

    /// Queues a runnable task on a vCPU and lets that vCPU know if it should care.
    pub(crate) fn put_on(
        &mut self,
        target: usize,
        task: TaskId,
        cpu: usize,
        world: &mut World<'_>,
    ) {
        self.cpus[target].queue.push(task);
        self.loads[target] += 1;
        if self.cpus[target].on {
            self.look_at_current(target);
            self.note_current(target);
        }
        let preempts = self.preempts(target, task);
        self.cpus[target].resched |= preempts;
        if target == cpu {
            return;
        }
        // A running vCPU has to arm the end of the current task's slice, too.
        let to = self.cpus[target].host;
        if preempts || self.cpus[target].queue.len() == 1 {
            let from = self.cpus[cpu].host;
            world.effects.push(Effect::Ipi { from, to });
        }
    }

    /// Where a woken task goes: where it was, if that vCPU is idle or none is.
    fn choose(&self, task: TaskId, waker: usize) -> usize {
        let t = &self.tasks[task.index()];
        let count = self.cpus.len();
        let before = t.vcpu.index();
        // Who is still in a queue there is woken there (`ttwu_runnable`).
        if self.cpus[before].delayed.contains(&task) && t.mask.contains(t.vcpu) {
            return before;
        }
        let free = |n: usize| self.loads[n] == 0 && t.mask.contains(VcpuId(n as u32));
        if free(before) {
            return before;
        }
        if free(waker) {
            return waker;
        }
        if let Some(n) = (1..count)
            .map(|step| (before + step) % count)
            .find(|n| free(*n))
        {
            return n;
        }
        if t.mask.contains(t.vcpu) {
            return before;
        }
        if t.mask.contains(VcpuId(waker as u32)) {
            return waker;
        }
        t.mask
            .set()
            .iter()
            .map(VcpuId::index)
            .find(|n| *n < count)
            .unwrap_or(before)
    }

    /// A vCPU that has nothing (`idle`), or less than others, takes a queued task
    /// from the one that has most, by weight as Linux does: only if the two are
    /// closer afterwards.
    pub(crate) fn pull_work(&mut self, cpu: usize, idle: bool, now: Time) {
        let mine = self.queue_weight(cpu);
        let here = VcpuId(cpu as u32);
        // An idle vCPU takes whatever waits; of equal loads the first.
        let fits = |from: usize, task: TaskId| {
            let t = &self.tasks[task.index()];
            let gap = self.queue_weight(from).saturating_sub(mine);
            t.mask.contains(here) && (idle || gap >= 2 * u64::from(t.weight()))
        };
        let mut best: Option<(u64, usize)> = None;
        for (n, other) in self.cpus.iter().enumerate() {
            if n == cpu || other.queue.is_empty() {
                continue;
            }
            let weight = self.queue_weight(n);
            if best.is_none_or(|(most, _)| weight > most)
                && other.queue.iter().any(|task| fits(n, *task))
            {
                best = Some((weight, n));
            }
        }
        let Some((_, from)) = best else {
            return;
        };
        // The one that has waited longest in virtual time is next there: leave it.
        let queue = &self.cpus[from].queue;
        let last = (0..queue.len())
            .filter(|n| fits(from, queue[*n]))
            .max_by_key(|n| self.tasks[queue[*n].index()].vruntime);
        let Some(index) = last else {
            return;
        };
        let task = self.cpus[from].queue.remove(index);
        self.carry(task, from, cpu, true);
        self.change_vcpu(task, cpu, now);
        self.cpus[cpu].queue.push(task);
        self.loads[from] -= 1;
        self.loads[cpu] += 1;
    }

    /// Weight of a vCPU's runnable tasks.
    fn queue_weight(&self, cpu: usize) -> u64 {
        let c = &self.cpus[cpu];
        let weight = |task: &TaskId| u64::from(self.tasks[task.index()].weight());
        c.queue.iter().chain(&c.current).map(weight).sum()
    }
}
