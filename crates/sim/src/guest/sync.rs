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

/// How those who wait at a barrier go on once the last has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// All of them at once: the last to come wakes them, or they see it where they spin.
    #[default]
    AtOnce,
    /// One after another: each wakes the next once it runs. So does a barrier made of a mutex
    /// and a condition variable with a C library that moves all who wait for the condition but
    /// one over to the mutex, as glibc up to 2.24 does (`FUTEX_CMP_REQUEUE` in
    /// nptl/pthread_cond_broadcast.c). Whose vCPU is off then keeps all behind it waiting.
    InTurn,
}

#[derive(Debug)]
struct Barrier {
    parties: u32,
    leave: Leave,
    waiting: Vec<TaskId>,
    /// Who goes on in turn, and has not been let go.
    leaving: VecDeque<TaskId>,
}

#[derive(Debug, Default)]
struct Lock {
    holder: Option<TaskId>,
    waiting: VecDeque<TaskId>,
}

impl Syncs {
    pub(crate) fn add_barrier(&mut self, parties: u32, leave: Leave) -> u32 {
        self.barriers.push(Barrier {
            parties,
            leave,
            waiting: Vec::new(),
            leaving: VecDeque::new(),
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
        let waiting = std::mem::take(&mut b.waiting);
        match b.leave {
            Leave::AtOnce => {
                for waiting in waiting {
                    self.let_go(cpu, waiting, Doing::Ready, world);
                }
            }
            Leave::InTurn => {
                // All parties are here, so nobody is left of the meeting before.
                debug_assert!(b.leaving.is_empty(), "barrier {barrier} is still left");
                b.leaving = waiting.into();
                self.next_leaves(cpu, barrier, world);
            }
        }
    }

    /// A task that was let go runs: it goes on, and the next after it may.
    pub(crate) fn pass_on(
        &mut self,
        cpu: usize,
        task: TaskId,
        barrier: u32,
        world: &mut World<'_>,
    ) {
        self.tasks[task.index()].doing = Doing::Ready;
        self.next_leaves(cpu, barrier, world);
    }

    fn next_leaves(&mut self, cpu: usize, barrier: u32, world: &mut World<'_>) {
        let b = self.syncs.barriers.get_mut(barrier as usize);
        if let Some(next) = b.and_then(|b| b.leaving.pop_front()) {
            self.let_go(cpu, next, Doing::Leaving(barrier), world);
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
            self.let_go(cpu, next, Doing::Ready, world);
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

    /// What a spinning or blocked task waited for is there; what it does when it runs.
    fn let_go(&mut self, cpu: usize, task: TaskId, then: Doing, world: &mut World<'_>) {
        let now = world.agenda.now();
        let t = &mut self.tasks[task.index()];
        t.awaits = Awaits::Nothing;
        if t.state == TaskState::Blocked {
            t.doing = then;
            self.wake(cpu, task, world);
            return;
        }
        // It spins: where its vCPU runs and it is current it sees that at once.
        let vcpu = t.vcpu.index();
        if t.state == TaskState::Current && self.cpus[vcpu].on {
            self.account(vcpu, now);
            self.tasks[task.index()].doing = then;
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
            self.tasks[task.index()].doing = then;
        }
    }
}
