// SPDX-License-Identifier: Apache-2.0 OR MIT
//! xBalloon in a simulated guest: its decisions are `policy::guest::xballoon`.
//!
//! While a vCPU's balloon is inflated the tasks that compute are held there, and
//! the vCPU halts between the others' requests (XB1, XB3). The others come first
//! when they wake.
//!
//! Idealised: it is told who computes, what the others would use and how long
//! slices and gaps are.

use policy::guest::wakeup::Lever;
use policy::guest::xballoon;
use policy::guest::xballoon::Balloon;
use policy::guest::xballoon::View;
use units::Ns;
use units::Time;

use super::Guest;
use super::TaskState;
use super::World;
use crate::event::Event;
use crate::ids::TaskId;

/// What a guest's balloon is told.
#[derive(Clone, Debug)]
pub struct BalloonSettings {
    /// The policy's knobs.
    pub rules: xballoon::Settings,
    /// Tasks that compute; all others are I/O-bound.
    pub compute: Vec<TaskId>,
    /// The share of a CPU that one of the others would use if it never waited for
    /// one, in thousandths.
    pub demand_permille: u32,
    /// A slice of the host.
    pub slice: Ns,
    /// The time between two slices.
    pub gap: Ns,
    /// XB3: an I/O-bound task pauses its VM, all vCPUs of it. False: the vCPU on
    /// which it lives alone (XB1 as the daemon's xBalloon reads it).
    pub whole_vm: bool,
}

/// A guest's balloons, one per vCPU.
#[derive(Debug)]
pub(crate) struct Balloons {
    settings: BalloonSettings,
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    since: Time,
    inflated: bool,
    epoch: u32,
}

impl Guest {
    /// Starts xBalloon.
    pub fn set_balloon(&mut self, settings: BalloonSettings) {
        for (n, task) in self.tasks.iter_mut().enumerate() {
            if !settings.compute.contains(&TaskId(n as u32)) {
                task.lever = Some(Lever::Fifo);
            }
        }
        let seat = Seat {
            since: Time::ZERO,
            inflated: false,
            epoch: 0,
        };
        self.balloons = Some(Balloons {
            settings,
            seats: vec![seat; self.cpus.len()],
        });
    }

    /// Is a task held on this vCPU?
    pub(crate) fn is_held(&self, cpu: usize, task: TaskId) -> bool {
        self.balloons.as_ref().is_some_and(|balloons| {
            balloons.seats[cpu].inflated && balloons.settings.compute.contains(&task)
        })
    }

    /// The host runs a vCPU again; `slice`: after a gap, not after a sleep.
    pub(crate) fn balloon_entered(&mut self, cpu: usize, slice: bool, world: &mut World<'_>) {
        if slice && let Some(balloons) = &mut self.balloons {
            balloons.seats[cpu].since = world.agenda.now();
            self.balloon_look(cpu, world);
        }
    }

    /// A balloon's timer is due.
    pub(crate) fn balloon_timer(&mut self, cpu: usize, epoch: u32, world: &mut World<'_>) {
        let current = self
            .balloons
            .as_ref()
            .is_some_and(|balloons| balloons.seats[cpu].epoch == epoch);
        if current {
            self.balloon_look(cpu, world);
        }
    }

    fn balloon_look(&mut self, cpu: usize, world: &mut World<'_>) {
        let now = world.agenda.now();
        let Some(balloons) = &mut self.balloons else {
            return;
        };
        let settings = &balloons.settings;
        let here = |n: usize| settings.whole_vm || self.tasks[n].vcpu.index() == cpu;
        let io_tasks = (0..self.tasks.len())
            .filter(|n| here(*n) && !settings.compute.contains(&TaskId(*n as u32)))
            .count() as u32;
        let view = View {
            since: balloons.seats[cpu].since,
            slice: Some(settings.slice),
            gap: Some(settings.gap),
            io_tasks,
            demand: settings.demand_permille * io_tasks,
        };
        let balloon = xballoon::decide(now, &view, &settings.rules);
        let seat = &mut balloons.seats[cpu];
        seat.inflated = matches!(balloon, Balloon::Inflated(_));
        seat.epoch += 1;
        let epoch = seat.epoch;
        if let Some(at) = balloon.next() {
            let vcpu = self.cpus[cpu].host;
            world.agenda.at(at, Event::Balloon { vcpu, epoch });
        }
        if let Some(current) = self.cpus[cpu].current
            && self.is_held(cpu, current)
        {
            self.set_state(current, now, TaskState::Queued);
            self.cpus[cpu].current = None;
            self.cpus[cpu].queue.push(current);
        }
    }
}
