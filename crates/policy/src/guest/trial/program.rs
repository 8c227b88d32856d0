// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's trial with its clock, and what its tasks have done in each leg.

use std::collections::BTreeMap;

use units::Ns;
use units::Time;

use super::Leg;
use super::Settings;
use super::Trial;

/// A task of a program at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who it is.
    pub tid: u32,
    /// Since when it has been I/O-bound, and known as such.
    pub taken: Time,
    /// Its requests since then.
    pub requests: u64,
}

/// A program: all I/O-bound tasks of one name.
#[derive(Clone, Debug)]
pub struct Program {
    trial: Trial,
    due: Time,
    leg_began: Time,
    /// By task: where it was when the leg began.
    marks: BTreeMap<u32, Seen>,
}

impl Program {
    /// One that nothing is known of: it is held.
    #[must_use]
    pub fn new(settings: &Settings, now: Time) -> Self {
        let trial = Trial::new(settings);
        let due = now + trial.length(None);
        Self {
            trial,
            due,
            leg_began: now,
            marks: BTreeMap::new(),
        }
    }

    /// Its trial.
    #[must_use]
    pub const fn trial(&self) -> &Trial {
        &self.trial
    }

    /// End of the present leg or rest.
    #[must_use]
    pub const fn due(&self) -> Time {
        self.due
    }

    /// Ends the present leg or rest, if it is due and not longer than it was thought to be
    /// when it began: the length of a cycle of slice and gap was not known then, or has
    /// grown. What was done in it; `None`: it goes on.
    pub fn look(&mut self, now: Time, cycle: Option<Ns>, tasks: &[Seen]) -> Option<Leg> {
        if self.due > now {
            return None;
        }
        let due = self.leg_began + self.trial.length(cycle);
        if self.trial.is_at_rest() && due > now {
            self.due = due;
            return None;
        }
        let leg = self.leg(now, tasks);
        self.trial.over(leg);
        self.leg_began = now;
        self.due = now + self.trial.length(cycle);
        self.marks.clear();
        if !self.trial.is_at_rest() {
            self.marks
                .extend(tasks.iter().map(|task| (task.tid, *task)));
        }
        Some(leg)
    }

    /// What its tasks have done in this leg. Phases that began and ended within it
    /// are not seen, nor is the part of one that ended.
    fn leg(&self, now: Time, tasks: &[Seen]) -> Leg {
        let mut leg = Leg::default();
        for task in tasks {
            let mark = self.marks.get(&task.tid);
            let before = mark.filter(|mark| mark.taken == task.taken);
            let since = if before.is_some() {
                self.leg_began
            } else {
                task.taken.max(self.leg_began)
            };
            let requests = before.map_or(0, |mark| mark.requests);
            leg.requests += task.requests.saturating_sub(requests);
            leg.task_time += now.since(since);
        }
        leg
    }
}
