// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What arrives at a vCPU from outside.

use units::Ns;
use units::VcpuId;

use super::Awaits;
use super::Guest;
use super::Irq;
use super::Message;
use super::TaskState;
use super::World;
use crate::ids::TaskId;

impl Guest {
    /// An interrupt for a vCPU. Handled at once where the host runs it, else when
    /// it runs again. True if it waits.
    pub(crate) fn interrupt(&mut self, vcpu: VcpuId, irq: Irq, world: &mut World<'_>) -> bool {
        let cpu = vcpu.index();
        // One reminder is enough.
        if irq != Irq::Reschedule || !self.cpus[cpu].pending.contains(&irq) {
            self.cpus[cpu].pending.push(irq);
        }
        if !self.cpus[cpu].on {
            if let Irq::Complete { task, request } = irq {
                self.completion_waits(task, request, vcpu, world.agenda.now());
            }
            let called = &mut self.cpus[cpu].called;
            *called = called.or(Some(world.agenda.now()));
            return true;
        }
        self.handle_pending(cpu, world);
        self.go_on(cpu, world);
        false
    }

    /// What the kernel does for an interrupt, up to the turn of whom it wakes.
    fn cost_of(&self, irq: Irq) -> Ns {
        let wakes = |task: TaskId| self.tasks[task.index()].state == TaskState::BlockedIo;
        let own = match irq {
            Irq::Complete { task, .. } if !wakes(task) => {
                self.kernel.batched.or(self.kernel.completion)
            }
            Irq::Complete { .. } => self.kernel.completion,
            Irq::Reschedule => self.kernel.ipi,
            _ => None,
        };
        own.unwrap_or(self.kernel.interrupt)
    }

    /// Handles what is pending on a vCPU that runs.
    pub(crate) fn handle_pending(&mut self, cpu: usize, world: &mut World<'_>) {
        let now = world.agenda.now();
        self.account(cpu, now);
        if !self.cpus[cpu].pending.is_empty() {
            self.look_at_current(cpu);
        }
        while !self.cpus[cpu].pending.is_empty() {
            let irq = self.cpus[cpu].pending.remove(0);
            let cost = self.cost_of(irq);
            self.cpus[cpu].overhead += cost;
            match irq {
                Irq::Complete { task, request } => {
                    self.completion_handled(task, request, now);
                    let t = &mut self.tasks[task.index()];
                    let Some(place) = t.in_flight.iter().position(|(n, _)| *n == request) else {
                        debug_assert!(false, "request {request} completes twice");
                        continue;
                    };
                    let (_, since) = t.in_flight.remove(place);
                    self.in_flight -= 1;
                    self.detect_completion(task, now.since(since));
                    let t = &mut self.tasks[task.index()];
                    if t.state == TaskState::BlockedIo {
                        t.told = since;
                        self.wake(cpu, task, world);
                    } else {
                        t.completed.push(since);
                    }
                }
                Irq::Timer { task, epoch } => {
                    let t = &self.tasks[task.index()];
                    if t.sleep_epoch == epoch && t.awaits == Awaits::Timer {
                        self.wake(cpu, task, world);
                    }
                }
                Irq::Daemon { epoch } => self.daemon_event(cpu, epoch, world),
                Irq::Message { task, bytes } => {
                    let message = Message { sent: now, bytes };
                    self.tasks[task.index()].mailbox.push_back(message);
                    self.has_mail(cpu, task, world);
                }
                Irq::Balloon { epoch } => self.balloon_timer(cpu, epoch, world),
                Irq::Reschedule => {}
            }
        }
        self.stop_clock(cpu);
    }
}
