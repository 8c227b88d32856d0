// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a vCPU's monitor has to look again: one timer, for what comes first.

use policy::guest::placement;
use policy::guest::view::Completion;
use policy::guest::view::VcpuState;
use policy::guest::view::Window;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::Monitor;
use super::Ordering;
use crate::settings::Settings;

/// A vCPU that holds tasks and should be gone by now is looked at this long after
/// the latest instant at which its slice should have ended; if it still runs,
/// again after as long as it is overdue, but not less than this.
const LOOK_AFTER: Ns = Ns::from_us(50);

/// At most this long until the next look at a vCPU that holds tasks and whose end
/// is not known.
const LOOK_AGAIN: Ns = Ns::from_us(1200);

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

    /// When to see whether another vCPU has gone with tasks on it, or is overdue: its own
    /// thread cannot tell, and nothing rings here when it happens. Only the vCPU that will
    /// run longest looks.
    fn look_point(&self) -> Option<Time> {
        if !self.core.settings.placement.pull {
            return None;
        }
        let my_end = self.end_of(self.me);
        let looks = Looks::here(&self.core.settings);
        self.views
            .vcpus
            .iter()
            .filter(|vcpu| vcpu.id != self.me)
            .filter_map(|vcpu| match vcpu.state {
                VcpuState::Running { ends, .. } => {
                    Some((vcpu.id, looks.next(self.views.now, ends.as_ref())))
                }
                VcpuState::Descheduled { .. } => {
                    let point = placement::pull_point(self.views.now, vcpu, &self.placement)?;
                    Some((vcpu.id, point))
                }
                _ => None,
            })
            .filter(|(vcpu, _)| {
                self.views
                    .tasks
                    .iter()
                    .any(|task| task.vcpu == *vcpu && task.completion != Completion::On(*vcpu))
                    && self
                        .views
                        .vcpus
                        .iter()
                        .all(|other| other.id == *vcpu || self.end_of(other.id) <= my_end)
            })
            .map(|(_, at)| at)
            .min()
    }

    /// Expected end of a running vCPU's slice; the start of time for others.
    fn end_of(&self, vcpu: VcpuId) -> Time {
        match self.vcpu_view(vcpu).map(|view| view.state) {
            Some(VcpuState::Running {
                ends: Some(ends), ..
            }) => ends.expected,
            Some(VcpuState::Running { ends: None, .. }) => self.views.now,
            _ => Time::ZERO,
        }
    }
}

/// [`LOOK_AFTER`] and [`LOOK_AGAIN`] on this machine.
struct Looks {
    after: Ns,
    again: Ns,
}

impl Looks {
    fn here(settings: &Settings) -> Self {
        Self {
            after: settings.here(LOOK_AFTER),
            again: settings.here(LOOK_AGAIN),
        }
    }

    /// When to look again whether a vCPU whose slice ends then has gone.
    fn next(&self, now: Time, ends: Option<&Window>) -> Time {
        let Some(ends) = ends else {
            return now + self.again;
        };
        let first = ends.latest + self.after;
        if now < first {
            first
        } else {
            now + now.since(ends.latest).min(self.again)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_vcpu_is_looked_at_ever_more_seldom() {
        let latest = Time(50_000_000);
        let ends = Window {
            earliest: latest - Ns::from_ms(1),
            expected: latest - Ns::from_us(500),
            latest,
        };
        let looks_at = Looks::here(&Settings::default());
        let mut now = Time(40_000_000);
        let mut looks = Vec::new();
        while looks.len() < 8 {
            let next = looks_at.next(now, Some(&ends));
            assert!(next > now);
            looks.push(next.since(latest));
            now = next;
        }
        let us = [50, 100, 200, 400, 800, 1600, 2800, 4000].map(Ns::from_us);
        assert_eq!(looks, us);
        assert_eq!(looks_at.next(now, None), now + LOOK_AGAIN);
    }
}
