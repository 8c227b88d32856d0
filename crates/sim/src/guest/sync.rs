// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barriers, locks and messages between the tasks of a guest.
//!
//! A waiting task spins on its vCPU for a while and then blocks, as futexes with
//! adaptive spinning and most barriers do. To let a blocked task go is a wake-up,
//! and where its vCPU is halted that is an IPI (J11).

use std::collections::VecDeque;

use units::Ns;
use units::Time;

use super::Awaits;
use super::Doing;
use super::Guest;
use super::Message;
use super::TaskState;
use super::World;
use crate::event::Event;
use crate::ids::TaskId;

/// Barriers and locks of a guest.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    barriers: Vec<Barrier>,
    locks: Vec<Lock>,
}

#[derive(Debug)]
struct Barrier {
    parties: u32,
    waiting: Vec<TaskId>,
}

#[derive(Debug, Default)]
struct Lock {
    holder: Option<TaskId>,
    waiting: VecDeque<TaskId>,
}

impl Syncs {
    pub(crate) fn add_barrier(&mut self, parties: u32) -> u32 {
        self.barriers.push(Barrier {
            parties,
            waiting: Vec::new(),
        });
        self.barriers.len() as u32 - 1
    }

    pub(crate) fn add_lock(&mut self) -> u32 {
        self.locks.push(Lock::default());
        self.locks.len() as u32 - 1
    }
}

impl Guest {
    /// A task comes to a barrier.
    pub(crate) fn arrive(
        &mut self,
        cpu: usize,
        task: TaskId,
        barrier: u32,
        spin: Ns,
        world: &mut World<'_>,
    ) {
        let Some(b) = self.syncs.barriers.get_mut(barrier as usize) else {
            debug_assert!(false, "barrier {barrier} does not exist");
            return;
        };
        if b.waiting.len() as u32 + 1 < b.parties {
            b.waiting.push(task);
            let t = &mut self.tasks[task.index()];
            t.awaits = Awaits::Barrier(barrier);
            t.doing = Doing::Spinning(spin);
            return;
        }
        for waiting in std::mem::take(&mut b.waiting) {
            self.let_go(cpu, waiting, world);
        }
    }

    /// A task wants a lock.
    pub(crate) fn lock(&mut self, task: TaskId, lock: u32, spin: Ns) {
        let Some(l) = self.syncs.locks.get_mut(lock as usize) else {
            debug_assert!(false, "lock {lock} does not exist");
            return;
        };
        if l.holder.is_none() {
            l.holder = Some(task);
            return;
        }
        l.waiting.push_back(task);
        let t = &mut self.tasks[task.index()];
        t.awaits = Awaits::Lock(lock);
        t.doing = Doing::Spinning(spin);
    }

    /// A task gives a lock back; the first that waits has it.
    pub(crate) fn unlock(&mut self, cpu: usize, lock: u32, world: &mut World<'_>) {
        let Some(l) = self.syncs.locks.get_mut(lock as usize) else {
            debug_assert!(false, "lock {lock} does not exist");
            return;
        };
        l.holder = l.waiting.pop_front();
        if let Some(next) = l.holder {
            self.let_go(cpu, next, world);
        }
    }

    /// A message for another task.
    pub(crate) fn send(&mut self, cpu: usize, to: TaskId, sent: Time, world: &mut World<'_>) {
        let Some(t) = self.tasks.get_mut(to.index()) else {
            debug_assert!(false, "task {to} does not exist");
            return;
        };
        t.mailbox.push_back(Message { sent, bytes: 0 });
        self.has_mail(cpu, to, world);
    }

    /// Wakes a task that waits for a message, if there is one.
    pub(crate) fn has_mail(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let t = &mut self.tasks[task.index()];
        if t.state == TaskState::Blocked
            && t.awaits == Awaits::Message
            && let Some(message) = t.mailbox.pop_front()
        {
            t.take(message);
            self.wake(cpu, task, world);
        }
    }

    /// What a spinning or blocked task waited for is there.
    fn let_go(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let now = world.agenda.now();
        let t = &mut self.tasks[task.index()];
        t.awaits = Awaits::Nothing;
        if t.state == TaskState::Blocked {
            self.wake(cpu, task, world);
            return;
        }
        // It spins: where its vCPU runs and it is current it sees that at once.
        let vcpu = t.vcpu.index();
        if t.state == TaskState::Current && self.cpus[vcpu].on {
            self.account(vcpu, now);
            self.tasks[task.index()].doing = Doing::Ready;
            if vcpu != cpu {
                // By an event of its own: two tasks that let each other go all the
                // time would otherwise be a recursion without end.
                let c = &mut self.cpus[vcpu];
                c.epoch += 1;
                let event = Event::Work {
                    vcpu: c.host,
                    epoch: c.epoch,
                };
                world.agenda.at(now, event);
            }
        } else {
            self.tasks[task.index()].doing = Doing::Ready;
        }
    }
}
