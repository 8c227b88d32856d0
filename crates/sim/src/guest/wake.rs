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
        self.set_state(task, now, TaskState::Queued);
        self.tasks[task.index()].awaits = Awaits::Nothing;
        if target != old {
            self.carry(task, old, target);
            self.tasks[task.index()].vcpu = VcpuId(target as u32);
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
        let free = |n: usize| self.cpus[n].load() == 0 && t.mask.contains(VcpuId(n as u32));
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
            .iter()
            .map(VcpuId::index)
            .find(|n| *n < count)
            .unwrap_or(before)
    }

    /// A vCPU that has nothing (`idle`), or less than others, takes a queued task
    /// from the one that has most.
    pub(crate) fn pull_work(&mut self, cpu: usize, idle: bool, now: Time) {
        let mine = self.cpus[cpu].load();
        let least = if idle { mine + 1 } else { mine + 2 };
        let here = VcpuId(cpu as u32);
        let mut best: Option<(usize, usize)> = None;
        for (n, other) in self.cpus.iter().enumerate() {
            let load = other.load();
            if n == cpu || load < least || best.is_some_and(|(most, _)| load <= most) {
                continue;
            }
            let movable = |task: &TaskId| self.tasks[task.index()].mask.contains(here);
            if other.queue.iter().any(movable) {
                best = Some((load, n));
            }
        }
        let Some((_, from)) = best else {
            return;
        };
        // The one that has waited longest in virtual time is next there: leave it.
        let queue = &self.cpus[from].queue;
        let last = (0..queue.len())
            .filter(|n| self.tasks[queue[*n].index()].mask.contains(here))
            .max_by_key(|n| self.tasks[queue[*n].index()].vruntime);
        let Some(index) = last else {
            return;
        };
        let task = self.cpus[from].queue.remove(index);
        self.settle(task, now);
        self.carry(task, from, cpu);
        self.tasks[task.index()].vcpu = here;
        self.cpus[cpu].queue.push(task);
    }
}
