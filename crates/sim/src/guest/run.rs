// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU's flow: from step to step of its tasks.

use units::Ns;
use units::Time;
use units::VcpuId;

use super::Awaits;
use super::Doing;
use super::Effect;
use super::Guest;
use super::TaskState;
use super::World;
use crate::event::Event;
use crate::ids::TaskId;
use crate::machine::Pace;
use crate::program::Cx;
use crate::program::Step;

/// Steps in a row that take no time: more is a program that never ends one.
const MAX_STEPS: u32 = 1_000_000;

impl Guest {
    /// The host begins to run a vCPU.
    pub(crate) fn enter(&mut self, vcpu: VcpuId, pace: Pace, world: &mut World<'_>) {
        let now = world.agenda.now();
        let cpu = vcpu.index();
        debug_assert!(!self.cpus[cpu].on, "vCPU {vcpu} entered twice");
        for n in 0..self.cpus[cpu].queue.len() {
            let task = self.cpus[cpu].queue[n];
            self.settle(task, now);
        }
        if let Some(current) = self.cpus[cpu].current {
            self.settle(current, now);
            if !self.kernel.steal_accounted {
                // The kernel's clock ran on: the gap looks like run time.
                let gap = now.since(self.cpus[cpu].turned);
                self.charge(cpu, current, gap);
                self.look_at_current(cpu);
            }
        }
        let c = &mut self.cpus[cpu];
        c.gaps = c.away(now);
        c.called = None;
        let out = std::mem::replace(&mut c.turned, now);
        c.on = true;
        c.from = now;
        c.pace = pace;
        let was_idle = std::mem::replace(&mut c.idle, false);
        let slept = was_idle && !c.taken;
        if !slept {
            self.add_foreign(cpu, self.kernel.catch_up);
        }
        self.daemon_entered(cpu, out, slept, world);
        self.balloon_entered(cpu, !slept, world);
        self.handle_pending(cpu, world);
        // The tick is late; its timer expired after those that wake somebody.
        self.note_current(cpu);
        self.go_on(cpu, world);
    }

    /// A vCPU does not run any more: the host has `taken` it away, or it sleeps.
    pub(crate) fn leave(&mut self, vcpu: VcpuId, taken: bool, now: Time) {
        let cpu = vcpu.index();
        self.account(cpu, now);
        for n in 0..self.cpus[cpu].queue.len() {
            let task = self.cpus[cpu].queue[n];
            self.settle(task, now);
        }
        if let Some(current) = self.cpus[cpu].current {
            self.settle(current, now);
        }
        let c = &mut self.cpus[cpu];
        c.on = false;
        c.taken = taken;
        c.turned = now;
        c.epoch += 1;
    }

    /// A vCPU that waited on its pCPU runs on, after so much kernel work.
    pub(crate) fn resume(&mut self, vcpu: VcpuId, pace: Pace, cost: Ns, now: Time) {
        self.account(vcpu.index(), now);
        let c = &mut self.cpus[vcpu.index()];
        c.pace = pace;
        c.idle = false;
        self.add_foreign(vcpu.index(), cost);
    }

    /// The sibling of a vCPU's pCPU does something else.
    pub(crate) fn set_pace(&mut self, vcpu: VcpuId, pace: Pace, world: &mut World<'_>) {
        let cpu = vcpu.index();
        if !self.cpus[cpu].on {
            return;
        }
        if self.cpus[cpu].pace.speed == pace.speed {
            // Where nobody asks what cycles go into there is nothing to account for.
            let current = self.cpus[cpu].current;
            let measured = current.is_some_and(|task| self.tasks[task.index()].profile.is_known());
            if measured {
                self.account(cpu, world.agenda.now());
            }
            self.cpus[cpu].pace = pace;
            return;
        }
        self.account(cpu, world.agenda.now());
        self.cpus[cpu].pace = pace;
        if !self.cpus[cpu].idle {
            self.arm(cpu, world);
        }
    }

    /// The next thing on a vCPU is due.
    pub(crate) fn work(&mut self, vcpu: VcpuId, epoch: u32, world: &mut World<'_>) {
        let cpu = vcpu.index();
        if self.cpus[cpu].epoch != epoch || !self.cpus[cpu].on {
            return;
        }
        let now = world.agenda.now();
        self.account(cpu, now);
        if self.kernel.eevdf.is_some() {
            let tick = self.kernel.tick.as_ns();
            if tick == 0 || now.as_ns().is_multiple_of(tick) {
                self.look_at_current(cpu);
                self.note_current(cpu);
            }
        } else if self.slice_left(cpu) == Some(Ns::ZERO) {
            self.cpus[cpu].resched = true;
        }
        if self.kernel.balance_period > Ns::ZERO && now >= self.cpus[cpu].balance_at {
            self.cpus[cpu].balance_at = now + self.kernel.balance_period;
            self.pull_work(cpu, false, now);
        }
        self.go_on(cpu, world);
    }

    /// Runs a vCPU's tasks until one needs time or none is left.
    pub(crate) fn go_on(&mut self, cpu: usize, world: &mut World<'_>) {
        let now = world.agenda.now();
        for _ in 0..MAX_STEPS {
            if self.cpus[cpu].resched {
                let c = &self.cpus[cpu];
                if self.kernel.eevdf.is_some() && c.current.is_some() && c.overhead > Ns::ZERO {
                    // The interrupt is at work, at the cost of whom it came upon.
                    self.arm(cpu, world);
                    return;
                }
                self.cpus[cpu].resched = false;
                self.put_back(cpu, now);
                if let Some(current) = self.cpus[cpu].current {
                    self.let_clock_go(cpu, current);
                }
            }
            let c = &self.cpus[cpu];
            if self.kernel.eevdf.is_some()
                && c.current.is_none()
                && c.overhead > Ns::ZERO
                && !c.queue.is_empty()
            {
                // An interrupt is at work on an idle CPU: whom it has woken waits.
                self.cpus[cpu].idle = false;
                self.arm(cpu, world);
                return;
            }
            let Some(current) = self.cpus[cpu]
                .current
                .or_else(|| self.take_next(cpu, world))
            else {
                let c = &mut self.cpus[cpu];
                c.epoch += 1;
                if c.overhead > Ns::ZERO && !c.idle {
                    // An interrupt is at work: it halts after that.
                    self.arm(cpu, world);
                    return;
                }
                if !c.idle {
                    c.idle = true;
                    world.effects.push(Effect::Idle(c.host));
                }
                return;
            };
            self.cpus[cpu].idle = false;
            match self.tasks[current.index()].doing {
                Doing::Computing(Ns(0)) => self.tasks[current.index()].doing = Doing::Ready,
                Doing::Spinning(Ns(0)) => {
                    // It has spun in vain: it blocks until it is let go.
                    self.tasks[current.index()].doing = Doing::Ready;
                    self.block(cpu, current, TaskState::Blocked, now);
                }
                Doing::Computing(_) | Doing::Spinning(_) => {
                    self.arm(cpu, world);
                    return;
                }
                Doing::Leaving(barrier) => self.pass_on(cpu, current, barrier, world),
                Doing::Ready => self.step(cpu, current, world),
            }
        }
        debug_assert!(false, "a program makes steps without end");
    }

    /// Lets the next thing on a vCPU happen when it is due.
    pub(crate) fn arm(&mut self, cpu: usize, world: &mut World<'_>) {
        let now = world.agenda.now();
        let c = &mut self.cpus[cpu];
        c.epoch += 1;
        let (epoch, host) = (c.epoch, c.host);
        let c = &self.cpus[cpu];
        let interrupted = c.current.is_none() || (c.resched && self.kernel.eevdf.is_some());
        if interrupted && c.overhead > Ns::ZERO {
            let at = now + c.overhead;
            world.agenda.at(at, Event::Work { vcpu: host, epoch });
            return;
        }
        let Some(current) = c.current else {
            return;
        };
        let Some(left) = self.tasks[current.index()].left() else {
            // It was let go where it spun and has not gone on yet: the event that was to tell
            // it is void by now.
            world.agenda.at(now, Event::Work { vcpu: host, epoch });
            return;
        };
        let mut at = now + c.overhead + c.time_for(left);
        if let Some(slice) = self.slice_left(cpu) {
            let end = now + slice.max(Ns(1));
            let tick = self.kernel.tick.as_ns();
            let end = if tick > 0 {
                Time(end.as_ns().div_ceil(tick) * tick)
            } else {
                end
            };
            at = at.min(end);
        }
        world.agenda.at(at, Event::Work { vcpu: host, epoch });
    }

    /// The current task makes way.
    fn put_back(&mut self, cpu: usize, now: Time) {
        let Some(current) = self.cpus[cpu].current else {
            return;
        };
        if self.kernel.eevdf.is_some() {
            self.release_before(cpu, current);
        }
        let Some(next) = self.first_queued(cpu) else {
            return;
        };
        if self.kernel.eevdf.is_some() && !self.makes_way(cpu, current, next) {
            return;
        }
        let next = &self.tasks[self.cpus[cpu].queue[next].index()];
        let (fifo, vruntime) = (matches!(next.class, super::Class::Fifo), next.vruntime);
        let task = &mut self.tasks[current.index()];
        task.slice_ran = Ns::ZERO;
        if !fifo && self.kernel.eevdf.is_none() && vruntime >= task.vruntime {
            return;
        }
        self.set_state(current, now, TaskState::Queued);
        self.cpus[cpu].current = None;
        self.cpus[cpu].queue.push(current);
    }

    /// Makes the next queued task current; takes one from elsewhere if there is
    /// none.
    fn take_next(&mut self, cpu: usize, world: &mut World<'_>) -> Option<TaskId> {
        let now = world.agenda.now();
        loop {
            if self.cpus[cpu].queue.is_empty() {
                self.pull_work(cpu, true, now);
            }
            let Some(index) = self.first_queued(cpu) else {
                self.release_all(cpu);
                return None;
            };
            let task = self.cpus[cpu].queue.remove(index);
            if self.is_delayed(cpu, task, world) {
                continue;
            }
            self.set_state(task, now, TaskState::Current);
            self.detect(cpu, task, world);
            self.detect_arrival(cpu, task, world);
            let t = &mut self.tasks[task.index()];
            t.slice_ran = Ns::ZERO;
            t.in_transit = false;
            t.switches += 1;
            let mut cost = self.kernel.switch;
            if t.ran_on.index() != cpu {
                t.ran_on = VcpuId(cpu as u32);
                t.moved += 1;
                cost += self.kernel.migration;
            }
            cost += self
                .daemon_costs()
                .map_or(Ns::ZERO, |costs| costs.traced_switch);
            let c = &mut self.cpus[cpu];
            c.overhead += cost;
            c.current = Some(task);
            if self.kernel.eevdf.is_some() {
                self.let_clock_go(cpu, task);
                self.protect(cpu, task);
            }
            return Some(task);
        }
    }

    /// A task that has just come from another vCPU may have to wait here first. The time
    /// counts from when it left, whatever becomes of it and of its new vCPU meanwhile.
    fn is_delayed(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) -> bool {
        let delay = self.kernel.migration_delay;
        let now = world.agenda.now();
        let host = self.cpus[cpu].host;
        let t = &mut self.tasks[task.index()];
        let left = (t.left_at + delay).since(now);
        if left == Ns::ZERO || t.ran_on.index() == cpu {
            return false;
        }
        t.ran_on = VcpuId(cpu as u32);
        t.moved += 1;
        t.in_transit = true;
        t.sleep_epoch += 1;
        t.awaits = Awaits::Timer;
        let event = Event::Timer {
            vcpu: host,
            task,
            epoch: t.sleep_epoch,
        };
        world.agenda.at(now + left, event);
        self.set_state(task, now, TaskState::Blocked);
        self.loads[cpu] -= 1;
        true
    }

    /// The current task stops until something wakes it.
    fn block(&mut self, cpu: usize, task: TaskId, state: TaskState, now: Time) {
        debug_assert_eq!(self.cpus[cpu].current, Some(task));
        if self.kernel.eevdf.is_some() {
            self.leave_queue(cpu, task, state);
        }
        self.set_state(task, now, state);
        if state == TaskState::Blocked {
            self.detect_sleep(task, now);
        }
        self.cpus[cpu].current = None;
        self.loads[cpu] -= 1;
    }

    /// Asks the current task's program for its next step and carries it out.
    fn step(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let now = world.agenda.now();
        let t = &mut self.tasks[task.index()];
        let step = t.program.next(&mut Cx {
            now,
            random: &mut t.random,
            done: &mut t.done,
            since: t.told,
            bytes: t.received,
            ready: t.completed.len(),
        });
        match step {
            Step::Compute(work) => t.doing = Doing::Computing(work),
            Step::Submit(request) => {
                let number = self.next_request;
                t.in_flight.push((number, now));
                self.next_request += 1;
                self.in_flight += 1;
                let traced = self
                    .daemon_costs()
                    .map_or(Ns::ZERO, |costs| costs.traced_request);
                self.cpus[cpu].overhead += traced;
                world.effects.push(Effect::Submit {
                    vcpu: self.cpus[cpu].host,
                    vm: self.vm,
                    task,
                    number,
                    request,
                });
            }
            Step::Await if t.completed.is_empty() => {
                t.awaits = Awaits::Request;
                self.block(cpu, task, TaskState::BlockedIo, now);
            }
            Step::Await => t.told = t.completed.remove(0),
            Step::Receive => match t.mailbox.pop_front() {
                Some(message) => t.take(message),
                None => {
                    t.awaits = Awaits::Message;
                    self.block(cpu, task, TaskState::Blocked, now);
                }
            },
            Step::Sleep(length) => {
                t.sleep_epoch += 1;
                t.awaits = Awaits::Timer;
                let event = Event::Timer {
                    vcpu: self.cpus[cpu].host,
                    task,
                    epoch: t.sleep_epoch,
                };
                world.agenda.at(now + length, event);
                self.block(cpu, task, TaskState::Blocked, now);
            }
            Step::Barrier { barrier, spin } => self.arrive(cpu, task, barrier, spin, world),
            Step::Lock { lock, spin } => self.lock(task, lock, spin),
            Step::Unlock { lock } => self.unlock(cpu, lock, world),
            Step::Send { task: to } => self.send(cpu, TaskId(to), now, world),
            Step::Serve => {
                let vm = self.vm;
                world.effects.push(Effect::Serve { vm, task });
            }
            Step::Exit => self.block(cpu, task, TaskState::Exited, now),
        }
    }
}
