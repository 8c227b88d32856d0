// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a vCPU's monitor has to look again: one timer, for what comes first.

use policy::guest::placement;
use policy::guest::placement::Looks;
use units::Ns;
use units::Time;

use super::Monitor;
use super::Ordering;

impl Monitor {
    /// Arms the timer for the next instant at which this vCPU has to look again,
    /// if there is one.
    pub(super) fn arm(&mut self) {
        let due = if self.core.sense.source().reads_steal() {
            let mine = self.push_point();
            let others = self.look_point();
            let longer = self.longer_from();
            let due = mine.into_iter().chain(others).chain(longer).min();
            let push = mine.map(|at| (at, self.longest_latency()));
            self.core.sense.shared().set_alarm(self.me, due, push);
            due
        } else {
            Some(self.heart.next(&self.core, &self.pace, self.views.now))
        };
        self.alarm.set(due);
        let armed = u64::from(self.alarm.due().is_some());
        self.counters().timers_armed.store(armed, Ordering::Relaxed);
    }

    /// The longest latency of the tasks here: who has no longer one is served by
    /// the same timer.
    fn longest_latency(&self) -> Ns {
        let here = self.views.tasks.iter().filter(|task| task.vcpu == self.me);
        here.map(|task| task.io_latency).max().unwrap_or(Ns::ZERO)
    }

    /// When a task here has to leave.
    fn push_point(&self) -> Option<Time> {
        let tasks = self.views.tasks_on(self.me);
        let view = self.vcpu_view(self.me)?;
        placement::push_point(self.views.now, view, &tasks, &self.placement)
    }

    /// From when on this vCPU's slice is known to be one of the longer ones: tasks here leave at
    /// another instant then.
    fn longer_from(&self) -> Option<Time> {
        let has_tasks = self.views.tasks.iter().any(|task| task.vcpu == self.me);
        self.views.longer_from.filter(|_| has_tasks)
    }

    /// When to look at the other vCPUs again.
    fn look_point(&self) -> Option<Time> {
        let settings = &self.core.settings;
        let real = Looks::default();
        let looks = Looks {
            after: settings.here(real.after),
            again: settings.here(real.again),
        };
        placement::look_point(
            self.views.now,
            self.me,
            &self.views.vcpus,
            &self.views.tasks,
            &self.placement,
            &looks,
        )
    }
}
