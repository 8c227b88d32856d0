// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do no harm: a program is let go for a leg and held again, as `policy::guest::trial`
//! asks. A program is a task's group here, a thread's name in the daemon.
//!
//! The daemon's control thread wakes when a leg is due; here whichever monitor looks first
//! after that sees to it, which is a slice or two later.

use std::collections::BTreeMap;

use policy::guest::trial::Program;
use policy::guest::trial::Seen;
use policy::guest::trial::Side;
use units::Time;

use super::super::Guest;
use super::Migrater;
use crate::ids::TaskId;

impl Migrater {
    /// Is the program of this group let go at present?
    pub(super) fn is_free(&self, group: u32) -> bool {
        let program = self.programs.get(&group);
        program.is_some_and(|program| program.trial().side() == Side::Free)
    }

    /// I/O-bound tasks by program, held or not.
    fn ours(&self, guest: &Guest) -> BTreeMap<u32, Vec<Seen>> {
        let mut ours = BTreeMap::<u32, Vec<Seen>>::new();
        for (n, (seat, task)) in self.seats.iter().zip(&guest.tasks).enumerate() {
            if seat.window.class.is_io_bound() {
                ours.entry(task.group).or_default().push(Seen {
                    tid: n as u32,
                    taken: seat.taken,
                    requests: seat.requests,
                });
            }
        }
        ours
    }
}

impl Guest {
    /// Ends the legs that are due.
    pub(super) fn look_at_trials(&mut self, now: Time) {
        let Some(mut migrater) = self.migrater.take() else {
            return;
        };
        let mut turned = Vec::new();
        if migrater.settings.trial.enabled {
            for (group, tasks) in migrater.ours(self) {
                let settings = &migrater.settings.trial;
                let program = migrater
                    .programs
                    .entry(group)
                    .or_insert_with(|| Program::new(settings, now));
                if program.due() > now {
                    continue;
                }
                let lines = migrater.monitors.iter().map(|monitor| &monitor.timeline);
                let cycles =
                    lines.filter_map(|line| Some(line.slice()?.value + line.gap_estimate()?.value));
                let before = program.trial().side();
                if program.look(now, cycles.max(), &tasks).is_some()
                    && program.trial().side() != before
                {
                    let tasks = tasks.iter().map(|task| TaskId(task.tid));
                    turned.push((program.trial().side(), tasks.collect::<Vec<_>>()));
                }
            }
        }
        self.migrater = Some(migrater);
        for (side, tasks) in turned {
            for task in tasks {
                match side {
                    Side::Free => self.let_loose(task),
                    Side::Held => self.take_hold(task, now),
                }
            }
        }
    }
}
