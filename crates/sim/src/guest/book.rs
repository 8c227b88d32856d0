// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of tasks goes: every nanosecond of a task is in exactly one of the
//! parts of [`super::Task::spent`].

use policy::guest::view::Why;
use units::Time;
use units::VcpuId;

use super::Guest;
use super::Task;
use super::TaskState;
use crate::ids::TaskId;
use crate::record::Does;
use crate::record::Moved;
use crate::record::TaskLog;
use crate::record::TaskSpell;

impl Guest {
    /// Keeps what the tasks of a group do until `until`.
    pub(crate) fn record(&mut self, group: u32, until: Time) {
        self.log = Some(Box::new(TaskLog {
            group,
            until,
            tasks: Vec::new(),
            moves: Vec::new(),
        }));
    }

    /// What a task does now, and on which vCPU.
    fn does(&self, task: TaskId) -> (Does, VcpuId) {
        let t = &self.tasks[task.index()];
        let on = self.cpus[t.vcpu.index()].on;
        let does = match (t.state, on) {
            (TaskState::Current, true) => Does::Running,
            (TaskState::Current, false) => Does::CurrentOff,
            (TaskState::Queued, true) => Does::Queued,
            (TaskState::Queued, false) => Does::QueuedOff,
            (TaskState::BlockedIo, _) => match t.arrived.first() {
                Some((_, vcpu)) => return (Does::Pending, *vcpu),
                None => Does::Device,
            },
            (TaskState::Blocked | TaskState::Exited, _) => Does::Asleep,
        };
        (does, t.vcpu)
    }

    /// Books what a task has done since the last time; called before anything changes
    /// that decides what it does.
    pub(crate) fn book(&mut self, task: TaskId, now: Time) {
        let from = self.tasks[task.index()].booked;
        if from >= now {
            return;
        }
        let (does, vcpu) = self.does(task);
        let t = &mut self.tasks[task.index()];
        t.spent[does as usize] += now.since(from);
        t.booked = now;
        let group = t.group;
        let Some(log) = &mut self.log else {
            return;
        };
        if log.group == group && from < log.until {
            log.tasks.push(TaskSpell {
                task,
                does,
                vcpu,
                from,
                to: now,
            });
        }
    }

    /// A completion has come to a vCPU that cannot handle it yet.
    pub(crate) fn completion_waits(&mut self, task: TaskId, request: u64, vcpu: VcpuId, now: Time) {
        self.book(task, now);
        self.tasks[task.index()].arrived.push((request, vcpu));
    }

    /// A completion is handled.
    pub(crate) fn completion_handled(&mut self, task: TaskId, request: u64, now: Time) {
        self.book(task, now);
        let t = &mut self.tasks[task.index()];
        t.arrived.retain(|(waiting, _)| *waiting != request);
    }

    /// The daemon has moved a task.
    pub(crate) fn log_move(
        &mut self,
        task: TaskId,
        to: VcpuId,
        why: Why,
        (decided, now): (Time, Time),
    ) {
        let group = self.tasks[task.index()].group;
        if let Some(log) = &mut self.log
            && log.group == group
            && now < log.until
        {
            log.moves.push(Moved {
                at: now,
                took: now.since(decided),
                task,
                to,
                why,
            });
        }
    }

    /// Is the time of each task in exactly one part, and are the parts those that were
    /// counted otherwise? Only of tasks of which everything is settled.
    pub(super) fn check_books(&self, now: Time) -> Result<(), String> {
        let settled = |task: &&Task| {
            let cpu = &self.cpus[task.vcpu.index()];
            task.booked == now && task.since == now && (!cpu.on || cpu.from == now)
        };
        for task in self.tasks.iter().filter(settled) {
            let part = |does: Does| task.spent[does as usize];
            let same = [
                (task.spent.iter().copied().sum(), now.since(self.opened)),
                (part(Does::Running), task.on_cpu),
                (part(Does::Queued), task.queued),
                (part(Does::Device) + part(Does::Pending), task.blocked_io),
            ];
            for (n, (booked, counted)) in same.into_iter().enumerate() {
                if booked != counted {
                    return Err(format!(
                        "task {} has booked {booked} of {counted} (sum {n})",
                        task.name
                    ));
                }
            }
        }
        Ok(())
    }
}
