// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's tasks under EEVDF: Linux 6.6 and later, as of 6.18
//! (`kernel/sched/fair.c`).
//!
//! A task that has had no more than the weighted average of its queue is eligible;
//! of those the one with the earliest virtual deadline runs. What CFS has not, and
//! what decides about a task that lives on I/O:
//!
//! - Sleeping earns nothing. A task keeps the lag with which it fell asleep (at
//!   most the longest slice of its queue and a tick of it), so one that needs a
//!   tenth of a CPU waits as long as it runs behind a task that computes: not a
//!   little at each wake-up but once, until the next tick after the other's
//!   deadline; then it preempts until the lag it got by waiting is used up.
//! - Who takes the CPU by waking pays for the time from its wake-up on, not from when it
//!   runs: the kernel does not look at its clock in between (`rq_clock_skip_update`).
//! - Who falls asleep ahead of the average stays in the queue until it is no
//!   longer (`DELAY_DEQUEUE`).
//! - The current task is safe until its deadline, but only while it is eligible
//!   (`RUN_TO_PARITY`); from a shorter slice it is not (`PREEMPT_SHORT`).
//!
//! Left out: groups; `PICK_BUDDY`.

#[cfg(test)]
mod tests;

use policy::guest::wakeup::Lever;
use units::Ns;

use super::Class;
use super::Guest;
use super::TaskState;
use crate::ids::TaskId;

/// Where virtual time begins: far enough from zero for any lag.
pub(crate) const ORIGIN: u64 = 1 << 40;

impl Guest {
    /// Work on a vCPU, before its current task's step, of a thread that is not
    /// simulated: nobody's lag changes. (Under CFS the current task is charged for
    /// it, as ever: lags of 4 ms and more do not notice.)
    pub(super) fn add_foreign(&mut self, cpu: usize, cost: Ns) {
        let c = &mut self.cpus[cpu];
        c.overhead += cost;
        if self.kernel.eevdf.is_some() {
            c.foreign += cost;
        }
    }

    /// A task of the queue takes the CPU when the interrupt is done that has woken it. The
    /// kernel saves itself a look at the clock on the way there (`wakeup_preempt()`), so
    /// that what the interrupt takes from now on is charged to that task: half as much again
    /// as it runs for a request, and it waits accordingly longer.
    pub(super) fn stop_clock(&mut self, cpu: usize) {
        if self.kernel.eevdf.is_some() {
            let c = &mut self.cpus[cpu];
            c.stands = c.resched || (c.current.is_none() && !c.queue.is_empty());
        }
    }

    /// The kernel has chosen: its clock goes on.
    pub(super) fn let_clock_go(&mut self, cpu: usize, chosen: TaskId) {
        let c = &mut self.cpus[cpu];
        c.stands = false;
        let stood = std::mem::take(&mut c.stood);
        if stood > Ns::ZERO {
            self.charge(cpu, chosen, stood);
        }
    }

    /// A task's slice.
    fn own_slice(&self, task: TaskId) -> Ns {
        match self.tasks[task.index()].lever {
            Some(Lever::EevdfSlice(slice)) => slice,
            Some(Lever::Off | Lever::Fifo) | None => self.kernel.eevdf.unwrap_or_default(),
        }
    }

    /// A length of a task's run time in virtual time.
    fn virtual_time(&self, task: TaskId, real: Ns) -> u64 {
        let weight = self.tasks[task.index()].weight();
        real.scaled(1024, u64::from(weight)).as_ns()
    }

    /// Average virtual run time of a vCPU's fair tasks and of `more`, and their
    /// weight.
    fn average(&self, cpu: usize, more: Option<TaskId>) -> (u64, i128) {
        let c = &self.cpus[cpu];
        let (mut sum, mut weight) = (0i128, 0i128);
        for task in self
            .counted(cpu)
            .chain(more.filter(|task| self.is_fair(*task)))
        {
            let t = &self.tasks[task.index()];
            let own = i128::from(t.weight());
            weight += own;
            sum += own * (i128::from(t.vruntime) - i128::from(c.min_vruntime));
        }
        if weight == 0 {
            return (c.min_vruntime.max(ORIGIN), 0);
        }
        // Rounded down, as a kernel's shift would: who is at the average counts as
        // eligible, a nanosecond is neither here nor there.
        let average = i128::from(c.min_vruntime) + sum.div_euclid(weight);
        (u64::try_from(average).unwrap_or(ORIGIN), weight)
    }

    /// Has it had no more than this average? Rounding down costs up to 1 ns.
    fn is_eligible(&self, task: TaskId, average: u64) -> bool {
        self.tasks[task.index()].vruntime <= average + 1
    }

    /// The fair tasks that count in a vCPU's queue, those that sleep there included.
    fn counted(&self, cpu: usize) -> impl Iterator<Item = TaskId> {
        let c = &self.cpus[cpu];
        let all = c.queue.iter().chain(&c.current).chain(&c.delayed).copied();
        all.filter(|task| self.is_fair(*task))
    }

    fn is_fair(&self, task: TaskId) -> bool {
        matches!(self.tasks[task.index()].class, Class::Fair(_))
    }

    /// The deadline of a new task: half a slice away, so that it comes in gently
    /// (`PLACE_DEADLINE_INITIAL`).
    pub(super) fn place_new(&mut self, task: TaskId) {
        if self.kernel.eevdf.is_some() {
            let slice = self.virtual_time(task, self.own_slice(task));
            self.tasks[task.index()].deadline += slice / 2;
        }
    }

    /// What the lag of a task of this vCPU may be at most, either way: the longest
    /// slice there and a tick (`update_entity_lag` of 6.18.44; before, two of its own
    /// slices or a tick, which is half as much where a queue of three needs it).
    fn limited(&self, cpu: usize, task: TaskId, lag: i64) -> i64 {
        let slices = self.counted(cpu).map(|other| self.own_slice(other));
        let longest = slices.fold(self.own_slice(task), Ns::max);
        let most = longest + self.kernel.tick;
        let most = i64::try_from(self.virtual_time(task, most)).unwrap_or(i64::MAX);
        lag.clamp(-most, most)
    }

    /// The kernel looks at the current task (`update_curr`): at a tick, in an
    /// interrupt, when a task comes to the queue. Past its deadline it gets a new
    /// one and makes way.
    pub(super) fn look_at_current(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].current else {
            return;
        };
        if self.kernel.eevdf.is_none() || matches!(self.tasks[task.index()].class, Class::Fifo) {
            return;
        }
        let slice = self.virtual_time(task, self.own_slice(task));
        let t = &mut self.tasks[task.index()];
        let had = t.vruntime;
        if had >= t.deadline {
            t.deadline = had + slice;
        } else if had < self.cpus[cpu].protected {
            return;
        }
        let c = &mut self.cpus[cpu];
        c.resched |= !c.queue.is_empty() || !c.delayed.is_empty();
    }

    /// The best of a vCPU's queue by class, eligibility and deadline; a task that
    /// a balloon holds is none.
    pub(super) fn first_eligible(&self, cpu: usize) -> Option<usize> {
        let (average, _) = self.average(cpu, None);
        let queue = &self.cpus[cpu].queue;
        (0..queue.len())
            .filter(|n| !self.is_held(cpu, queue[*n]))
            .min_by_key(|n| (self.rank(queue[*n], average), *n))
    }

    /// The smaller, the sooner it runs.
    fn rank(&self, task: TaskId, average: u64) -> (bool, bool, u64) {
        let t = &self.tasks[task.index()];
        let first = matches!(t.class, Class::Fifo) || t.lever == Some(Lever::Fifo);
        let eligible = self.is_eligible(task, average);
        (!first, !eligible, t.deadline)
    }

    /// Lets those who slept in the queue go, where they would be next: they owe
    /// nothing any more (`DELAY_ZERO`).
    fn release_delayed(&mut self, cpu: usize, best: (bool, bool, u64)) {
        let (average, _) = self.average(cpu, None);
        let mut delayed = std::mem::take(&mut self.cpus[cpu].delayed);
        delayed.retain(|task| {
            let goes = self.is_eligible(*task, average) && self.rank(*task, average) < best;
            if goes {
                self.tasks[task.index()].lag = 0;
            }
            !goes
        });
        self.cpus[cpu].delayed = delayed;
    }

    /// A vCPU has nothing to run: who slept in its queue is alone there and owes
    /// nobody.
    pub(super) fn release_all(&mut self, cpu: usize) {
        for task in std::mem::take(&mut self.cpus[cpu].delayed) {
            self.tasks[task.index()].lag = 0;
        }
    }

    /// Should `task`, just queued, run instead of the current one?
    pub(super) fn is_due_before(&mut self, cpu: usize, task: TaskId, current: TaskId) -> bool {
        if self.tasks[task.index()].lever == Some(Lever::Fifo) {
            return true;
        }
        let (average, _) = self.average(cpu, None);
        let shorter = self.own_slice(task) < self.own_slice(current);
        let safe = self.is_eligible(current, average);
        let c = &self.cpus[cpu];
        if safe && !shorter && self.tasks[current.index()].vruntime < c.protected {
            return false;
        }
        let own = self.rank(task, average);
        let of_others = c.queue.iter().chain(&c.delayed);
        let first = of_others
            .filter(|other| **other != task)
            .all(|other| own < self.rank(*other, average));
        let wins = first && !own.1 && (!safe || own < self.rank(current, average));
        if shorter {
            // `cancel_protect_slice`, or `update_protect_slice`: it is safe for no
            // longer than the shortest slice.
            let most = self.tasks[current.index()].vruntime + self.shortest(cpu, current);
            let c = &mut self.cpus[cpu];
            c.protected = if wins { 0 } else { c.protected.min(most) };
        }
        wins
    }

    /// The shortest slice of a vCPU's queue, in the virtual time of `task`.
    fn shortest(&self, cpu: usize, task: TaskId) -> u64 {
        let slices = self.counted(cpu).map(|other| self.own_slice(other));
        self.virtual_time(task, slices.fold(self.own_slice(task), Ns::min))
    }

    /// The current task is asked to make way: those who sleep in the queue and would
    /// be next leave it first.
    pub(super) fn release_before(&mut self, cpu: usize, current: TaskId) {
        let (average, _) = self.average(cpu, None);
        let c = &self.cpus[cpu];
        let safe = self.tasks[current.index()].vruntime < c.protected;
        if safe && self.is_eligible(current, average) {
            return;
        }
        let best = c.queue.iter().chain(&c.current);
        let best = best.map(|task| self.rank(*task, average)).min();
        self.release_delayed(cpu, best.unwrap_or((true, true, u64::MAX)));
    }

    /// Does the current task, told to, make way for this one of the queue?
    pub(super) fn makes_way(&mut self, cpu: usize, current: TaskId, next: usize) -> bool {
        let (average, _) = self.average(cpu, None);
        let own = self.rank(current, average);
        let is_safe = self.tasks[current.index()].vruntime < self.cpus[cpu].protected;
        let next = self.rank(self.cpus[cpu].queue[next], average);
        if matches!(self.tasks[current.index()].class, Class::Fifo) {
            return false;
        }
        !next.0 || own.1 || (!is_safe && next < own)
    }

    /// The kernel counts what the current task has run (`update_curr()`).
    pub(super) fn note_current(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        if let Some(task) = c.current {
            c.known = self.tasks[task.index()].vruntime;
        }
    }

    /// A task has become current: how long it is safe.
    pub(super) fn protect(&mut self, cpu: usize, task: TaskId) {
        self.note_current(cpu);
        let (average, _) = self.average(cpu, None);
        self.release_delayed(cpu, self.rank(task, average));
        let shortest = self.shortest(cpu, task);
        let slice = self.virtual_time(task, self.own_slice(task));
        let t = &self.tasks[task.index()];
        let until = if shortest < slice {
            t.deadline.min(t.vruntime + shortest)
        } else {
            t.deadline
        };
        self.cpus[cpu].protected = until;
    }

    /// The current task falls asleep: it keeps its lag, or stays while it is ahead.
    pub(super) fn leave_queue(&mut self, cpu: usize, task: TaskId, state: TaskState) {
        let (average, _) = self.average(cpu, None);
        self.cpus[cpu].min_vruntime = average;
        if matches!(self.tasks[task.index()].class, Class::Fifo) {
            return;
        }
        let lag = average as i64 - self.tasks[task.index()].vruntime as i64;
        self.tasks[task.index()].lag = self.limited(cpu, task, lag);
        if !self.is_eligible(task, average) && state != TaskState::Exited {
            self.cpus[cpu].delayed.push(task);
        }
    }

    /// Places a woken task: at the average less its lag, its own weight counted.
    pub(super) fn place_by_lag(&mut self, cpu: usize, task: TaskId) {
        if let Some(place) = self.cpus[cpu].delayed.iter().position(|t| *t == task) {
            // `requeue_delayed_entity()` does not count what the current task has run
            // since the kernel looked last; of a gap that may be all of it.
            let current = self.cpus[cpu].current;
            let now = current.map(|current| {
                let known = self.cpus[cpu].known;
                let t = &mut self.tasks[current.index()];
                let now = t.vruntime;
                t.vruntime = now.min(known);
                now
            });
            let (average, _) = self.average(cpu, None);
            self.cpus[cpu].delayed.remove(place);
            // One that is still ahead goes on where it was.
            let t = &mut self.tasks[task.index()];
            if t.vruntime <= average {
                t.lag = 0;
                t.deadline = 0;
                self.put_at_lag(cpu, task);
            }
            if let Some((current, now)) = current.zip(now) {
                self.tasks[current.index()].vruntime = now;
            }
            return;
        }
        self.tasks[task.index()].deadline = 0;
        self.put_at_lag(cpu, task);
    }

    /// Sets a task's run time from its lag; a deadline that is not past is kept as
    /// far away as it was.
    fn put_at_lag(&mut self, cpu: usize, task: TaskId) {
        let (average, load) = self.average(cpu, None);
        let slice = self.virtual_time(task, self.own_slice(task));
        let t = &mut self.tasks[task.index()];
        let own = i128::from(t.weight());
        let lag = if load == 0 {
            0
        } else {
            i128::from(t.lag) * (load + own) / load
        };
        let ahead = t.deadline.checked_sub(t.vruntime).filter(|left| *left > 0);
        t.vruntime = u64::try_from(i128::from(average) - lag).unwrap_or(ORIGIN);
        t.deadline = t.vruntime + ahead.unwrap_or(slice);
    }

    /// Takes a task from one vCPU's virtual time to another's; it was in `from`'s
    /// queue, or asleep.
    pub(super) fn carry_lag(&mut self, task: TaskId, from: usize, to: usize, queued: bool) {
        let place = self.cpus[from].delayed.iter().position(|t| *t == task);
        if let Some(place) = place {
            self.cpus[from].delayed.remove(place);
        }
        if queued || place.is_some() {
            let (average, _) = self.average(from, Some(task));
            let lag = average as i64 - self.tasks[task.index()].vruntime as i64;
            self.tasks[task.index()].lag = self.limited(from, task, lag);
        }
        if queued {
            self.put_at_lag(to, task);
        }
    }
}
