// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs next on a vCPU: the fair class by virtual run time, and `SCHED_FIFO`.

use policy::guest::wakeup::Lever;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::Class;
use super::Guest;
use super::TaskState;
use crate::ids::TaskId;

impl Guest {
    /// Accounts a vCPU's time up to `now`: kernel work first, then the current
    /// task's step.
    pub(crate) fn account(&mut self, cpu: usize, now: Time) {
        let c = &mut self.cpus[cpu];
        if !c.on {
            return;
        }
        let elapsed = now.since(c.from);
        c.from = now;
        if elapsed == Ns::ZERO {
            return;
        }
        let kernel = elapsed.min(c.overhead);
        c.overhead = c.overhead - kernel;
        let foreign = kernel.min(c.foreign);
        c.foreign = c.foreign - foreign;
        let mut stood = Ns::ZERO;
        if c.stands {
            stood = kernel - foreign;
            c.stood += stood;
        }
        let Some(current) = c.current else {
            c.work += kernel;
            return;
        };
        let done = (elapsed - kernel).scaled(u64::from(c.pace.speed), 1000);
        c.work += kernel + done;
        let task = &mut self.tasks[current.index()];
        match &mut task.doing {
            super::Doing::Computing(left) | super::Doing::Spinning(left) => *left = *left - done,
            super::Doing::Ready | super::Doing::Leaving(_) => {}
        }
        task.on_cpu += elapsed;
        if c.pace.sibling_retains && task.profile.is_known() {
            task.profile.spend(done, &mut c.cycles);
        }
        if !task.in_flight.is_empty() {
            task.io_on_cpu += elapsed;
        }
        self.charge(cpu, current, elapsed - foreign - stood);
    }

    /// Charges a task's virtual run time.
    pub(crate) fn charge(&mut self, cpu: usize, task: TaskId, ran: Ns) {
        let t = &mut self.tasks[task.index()];
        t.slice_ran += ran;
        t.vruntime += ran.scaled(1024, u64::from(t.weight())).as_ns();
        if self.kernel.eevdf.is_none() {
            self.update_min(cpu);
        }
    }

    fn update_min(&mut self, cpu: usize) {
        let c = &self.cpus[cpu];
        let least = c
            .queue
            .iter()
            .chain(&c.current)
            .filter(|task| matches!(self.tasks[task.index()].class, Class::Fair(_)))
            .map(|task| self.tasks[task.index()].vruntime)
            .min();
        let c = &mut self.cpus[cpu];
        c.min_vruntime = c.min_vruntime.max(least.unwrap_or(0));
    }

    /// The queued task that should run next.
    pub(crate) fn first_queued(&self, cpu: usize) -> Option<usize> {
        if self.kernel.eevdf.is_some() {
            return self.first_eligible(cpu);
        }
        let queue = &self.cpus[cpu].queue;
        let free = |n: &usize| !self.is_held(cpu, queue[*n]);
        (0..queue.len()).filter(free).min_by_key(|n| {
            let task = &self.tasks[queue[*n].index()];
            (!matches!(task.class, Class::Fifo), task.vruntime, *n)
        })
    }

    /// Should `task`, just queued on `cpu`, run instead of the current one?
    pub(crate) fn preempts(&mut self, cpu: usize, task: TaskId) -> bool {
        let Some(current) = self.cpus[cpu].current else {
            return true;
        };
        let (new, old) = (&self.tasks[task.index()], &self.tasks[current.index()]);
        match (new.class, old.class) {
            (_, Class::Fifo) => false,
            (Class::Fifo, _) => true,
            (Class::Fair(_), Class::Fair(_)) => {
                if self.kernel.eevdf.is_some() {
                    return self.is_due_before(cpu, task, current);
                }
                match new.lever {
                    Some(Lever::Fifo) => return true,
                    // A short slice is served as soon as the task is not ahead.
                    Some(Lever::EevdfSlice(slice)) => {
                        return old.vruntime + slice.as_ns() > new.vruntime;
                    }
                    Some(Lever::Off) | None => {}
                }
                let limit = self
                    .kernel
                    .wakeup_granularity
                    .scaled(1024, u64::from(new.weight()));
                old.vruntime > new.vruntime + limit.as_ns()
            }
        }
    }

    /// How long the current task may go on before another one has its turn;
    /// `None`: for ever.
    pub(crate) fn slice_left(&self, cpu: usize) -> Option<Ns> {
        let c = &self.cpus[cpu];
        let current = &self.tasks[c.current?.index()];
        let Class::Fair(own) = current.class else {
            return None;
        };
        if self.kernel.eevdf.is_some() {
            let alone = c.queue.is_empty() && c.delayed.is_empty();
            let left = Ns(c.protected.saturating_sub(current.vruntime));
            return (!alone).then(|| left.scaled(u64::from(own), 1024));
        }
        if c.queue.is_empty() {
            return None;
        }
        let weight: u64 = c
            .queue
            .iter()
            .map(|task| u64::from(self.tasks[task.index()].weight()))
            .sum::<u64>()
            + u64::from(own);
        let count = c.queue.len() as u64 + 1;
        let period = self.kernel.latency.max(self.kernel.min_granularity * count);
        let slice = period
            .scaled(u64::from(own), weight)
            .max(self.kernel.min_granularity);
        Some(slice - current.slice_ran)
    }

    /// Places a woken or new task among those of a vCPU.
    pub(crate) fn place(&mut self, cpu: usize, task: TaskId) {
        if self.kernel.eevdf.is_some() {
            self.place_by_lag(cpu, task);
            return;
        }
        let floor = self.cpus[cpu]
            .min_vruntime
            .saturating_sub(self.kernel.sleeper_credit.as_ns());
        let t = &mut self.tasks[task.index()];
        t.vruntime = t.vruntime.max(floor);
    }

    /// Carries a task's lead or lag from one queue's virtual time to another's; it
    /// is in neither.
    pub(crate) fn carry(&mut self, task: TaskId, from: usize, to: usize, queued: bool) {
        if self.kernel.eevdf.is_some() {
            self.carry_lag(task, from, to, queued);
            return;
        }
        let (base, target) = (self.cpus[from].min_vruntime, self.cpus[to].min_vruntime);
        let t = &mut self.tasks[task.index()];
        t.vruntime = (t.vruntime + target).saturating_sub(base);
    }

    /// Books a task's time in its present state up to `now`.
    pub(crate) fn settle(&mut self, task: TaskId, now: Time) {
        self.book(task, now);
        let t = &self.tasks[task.index()];
        let cpu = &self.cpus[t.vcpu.index()];
        let length = now.since(t.since);
        let away = if cpu.on {
            Ns::ZERO
        } else {
            now.since(t.since.max(cpu.turned))
        };
        let total = cpu.away(now);
        // A blocked task is not settled whenever its vCPU comes and goes.
        let gone = (total - t.away_seen).min(length);
        let state = t.state;
        let t = &mut self.tasks[task.index()];
        t.since = t.since.max(now);
        t.away_seen = total;
        match state {
            TaskState::Current => t.inactive += away,
            TaskState::Queued => {
                t.inactive += away;
                t.queued += length - away;
            }
            TaskState::BlockedIo => {
                // To the detector it is a wait for I/O all the same.
                t.blocked_io += length;
                t.inactive += gone;
            }
            TaskState::Blocked if t.in_transit => {
                t.inactive += gone;
                t.held_up += length - gone;
            }
            TaskState::Blocked | TaskState::Exited => {}
        }
    }

    /// Changes the vCPU that a task belongs to.
    pub(crate) fn change_vcpu(&mut self, task: TaskId, to: usize, now: Time) {
        self.settle(task, now);
        let t = &mut self.tasks[task.index()];
        t.vcpu = VcpuId(to as u32);
        t.left_at = now;
        t.away_seen = self.cpus[to].away(now);
    }

    /// Changes what a task is doing.
    pub(crate) fn set_state(&mut self, task: TaskId, now: Time, state: TaskState) {
        self.settle(task, now);
        self.tasks[task.index()].state = state;
    }
}
