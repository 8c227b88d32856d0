// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves, carried out: what `sched_setaffinity` does to a task.

use units::CpuSet;
use units::Ns;
use units::VcpuId;

use super::super::Effect;
use super::super::Guest;
use super::super::TaskState;
use super::super::World;
use crate::ids::TaskId;

impl Guest {
    /// Carries out the orders of a vCPU that are due.
    pub(super) fn carry_out_orders(&mut self, cpu: usize, world: &mut World<'_>) {
        let now = world.agenda.now();
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let mut due = Vec::new();
        migrater.monitors[cpu].orders.retain(|order| {
            if order.at <= now {
                due.push(*order);
            }
            order.at > now
        });
        for order in due {
            let Some(migrater) = &mut self.migrater else {
                return;
            };
            // Its phase may be over, and then its owner's mask is back.
            if !migrater.seat(order.task).held {
                continue;
            }
            let moved = self.move_task(order.task, order.to, cpu, world);
            if moved {
                let times = (order.decided, now);
                self.log_move(order.task, order.to, order.why, times);
            }
            let Some(migrater) = &mut self.migrater else {
                return;
            };
            if moved {
                migrater.seat(order.task).moved_at = now;
                let cost = now.since(order.decided);
                migrater.monitors[cpu].budget.migrated(cost);
                let to = order.to.index();
                if self.cpus[to].on && to != cpu {
                    self.ring(to, world);
                }
            } else {
                migrater.counts.failed += 1;
                migrater.seat(order.task).claimed_until = now;
            }
        }
    }

    /// Narrows a task's mask to one vCPU and takes it there; `cpu` is the vCPU
    /// that does so. False if that would block: the task is current on a vCPU
    /// that is away.
    fn move_task(&mut self, task: TaskId, to: VcpuId, cpu: usize, world: &mut World<'_>) -> bool {
        let now = world.agenda.now();
        let from = self.tasks[task.index()].vcpu.index();
        if self.tasks[task.index()].state == TaskState::Current
            && !self.cpus[from].on
            && from != to.index()
        {
            return false;
        }
        self.tasks[task.index()].mask = CpuSet::only(to).into();
        if from == to.index() {
            return true;
        }
        let state = self.tasks[task.index()].state;
        match state {
            TaskState::BlockedIo | TaskState::Blocked => {
                self.carry(task, from, to.index(), false);
                self.change_vcpu(task, to.index(), now);
            }
            TaskState::Queued | TaskState::Current => {
                self.account(from, now);
                self.set_state(task, now, TaskState::Queued);
                self.cpus[from].queue.retain(|other| *other != task);
                self.loads[from] -= 1;
                if self.cpus[from].current == Some(task) {
                    self.cpus[from].current = None;
                    if from != cpu {
                        let (a, b) = (self.cpus[cpu].host, self.cpus[from].host);
                        world.effects.push(Effect::Ipi { from: a, to: b });
                    }
                }
                self.account(to.index(), now);
                self.carry(task, from, to.index(), true);
                self.change_vcpu(task, to.index(), now);
                self.tasks[task.index()].slice_ran = Ns::ZERO;
                self.put_on(to.index(), task, cpu, world);
            }
            TaskState::Exited => {}
        }
        true
    }
}
