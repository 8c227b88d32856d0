// SPDX-License-Identifier: Apache-2.0 OR MIT
//! xBalloon in a simulated guest: its decisions are `policy::guest::xballoon`.
//!
//! While a vCPU's balloon is inflated the tasks that compute are held there, and
//! the vCPU halts between the others' requests (XB1, XB3). The others come first
//! when they wake.
//!
//! What it knows is either told, for a system inside the kernel of which nothing
//! but its effect is published, or sensed, as the daemon in mode xballoon does
//! (`sense`).
//!
//! Idealised: a held task still counts as load where its guest places others, and
//! to find out who computes costs nothing.

mod sense;

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
use sense::Census;

/// While tasks are I/O-bound somewhere a balloon that senses looks again after
/// this at the latest, as in the daemon.
const LOOK_AGAIN: Ns = Ns::from_ms(50);

/// What a guest's balloon is like.
#[derive(Clone, Debug)]
pub struct BalloonSettings {
    /// The policy's knobs.
    pub rules: xballoon::Settings,
    /// What it knows.
    pub knowledge: Knowledge,
    /// XB3: an I/O-bound task pauses its VM, all vCPUs of it. False: the vCPU on
    /// which it lives alone (XB1 as the daemon's xBalloon reads it).
    pub whole_vm: bool,
}

/// Where a balloon's knowledge comes from.
#[derive(Clone, Debug)]
pub enum Knowledge {
    /// It is told once and for all.
    Told(Told),
    /// The guest's daemon finds it out: slices, gaps and I/O-bound tasks as for
    /// vMigrater, who computes from the CPU time that each task has used.
    Sensed,
}

/// What a balloon is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// Tasks that compute; all others are I/O-bound.
    pub compute: Vec<TaskId>,
    /// The share of a CPU that one of the others would use if it never waited for
    /// one, in thousandths.
    pub demand_permille: u32,
    /// A slice of the host.
    pub slice: Ns,
    /// The time between two slices.
    pub gap: Ns,
}

/// What a guest's balloons have done in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonCounts {
    /// Times that a balloon was inflated.
    pub inflations: u64,
    /// Time for which one was, summed over the vCPUs.
    pub inflated: Ns,
}

/// A guest's balloons, one per vCPU.
#[derive(Debug)]
pub(crate) struct Balloons {
    settings: BalloonSettings,
    seats: Vec<Seat>,
    /// Who computes, by task.
    computes: Vec<bool>,
    census: Census,
    counts: BalloonCounts,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    since: Time,
    inflated: Option<Time>,
    epoch: u32,
}

impl Guest {
    /// Starts xBalloon. One that senses needs the guest's daemon: see
    /// [`Guest::set_xballoon`].
    pub fn set_balloon(&mut self, settings: BalloonSettings) {
        let mut computes = vec![false; self.tasks.len()];
        if let Knowledge::Told(told) = &settings.knowledge {
            for (n, task) in self.tasks.iter_mut().enumerate() {
                computes[n] = told.compute.contains(&TaskId(n as u32));
                if !computes[n] {
                    task.lever = Some(Lever::Fifo);
                }
            }
        }
        let seat = Seat {
            since: Time::ZERO,
            inflated: None,
            epoch: 0,
        };
        self.balloons = Some(Box::new(Balloons {
            settings,
            seats: vec![seat; self.cpus.len()],
            computes,
            census: Census::default(),
            counts: BalloonCounts::default(),
        }));
    }

    /// What its balloons have done since the window opened, up to `now`.
    #[must_use]
    pub fn balloon_counts(&self, now: Time) -> BalloonCounts {
        let Some(balloons) = &self.balloons else {
            return BalloonCounts::default();
        };
        let mut counts = balloons.counts;
        for since in balloons.seats.iter().filter_map(|seat| seat.inflated) {
            counts.inflated += now.since(since);
        }
        counts
    }

    /// Forgets what was counted: the window opens.
    pub(crate) fn open_balloon_window(&mut self, now: Time) {
        if let Some(balloons) = &mut self.balloons {
            balloons.counts = BalloonCounts::default();
            for since in balloons
                .seats
                .iter_mut()
                .filter_map(|s| s.inflated.as_mut())
            {
                *since = now;
            }
        }
    }

    /// Is a task held on this vCPU?
    pub(crate) fn is_held(&self, cpu: usize, task: TaskId) -> bool {
        self.balloons.as_ref().is_some_and(|balloons| {
            balloons.seats[cpu].inflated.is_some()
                && balloons.computes.get(task.index()) == Some(&true)
        })
    }

    /// The host runs a vCPU again; `slice`: after a gap, not after a sleep.
    pub(crate) fn balloon_entered(&mut self, cpu: usize, slice: bool, world: &mut World<'_>) {
        let now = world.agenda.now();
        let Some(balloons) = &mut self.balloons else {
            return;
        };
        match balloons.settings.knowledge {
            Knowledge::Told(_) if slice => {
                balloons.seats[cpu].since = now;
                self.balloon_look(cpu, world);
            }
            Knowledge::Told(_) => {}
            Knowledge::Sensed => {
                if slice && self.slice_began(cpu) == Some(now) {
                    self.wake_balloon(cpu, world);
                }
            }
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
        let (view, latest) = match self.balloons.as_ref().map(|b| &b.settings.knowledge) {
            None => return,
            Some(Knowledge::Told(_)) => (self.told_view(cpu), None),
            Some(Knowledge::Sensed) => {
                self.charge_balloon_look(cpu);
                self.look_who_computes(now);
                let view = self.sensed_view(cpu);
                (view, view.map(|_| now + LOOK_AGAIN))
            }
        };
        let Some(balloons) = &mut self.balloons else {
            return;
        };
        let balloon = view.map_or(Balloon::Deflated(None), |view| {
            xballoon::decide(now, &view, &balloons.settings.rules)
        });
        let seat = &mut balloons.seats[cpu];
        let changes = seat.inflated.is_some() != balloon.is_inflated();
        if changes {
            if let Some(since) = seat.inflated.take() {
                balloons.counts.inflated += now.since(since);
            } else {
                seat.inflated = Some(now);
                balloons.counts.inflations += 1;
            }
        }
        seat.epoch += 1;
        let epoch = seat.epoch;
        if let Some(at) = balloon.next().into_iter().chain(latest).min() {
            let vcpu = self.cpus[cpu].host;
            world.agenda.at(at, Event::Balloon { vcpu, epoch });
        }
        if changes {
            self.charge_balloon_hold(cpu);
        }
        if let Some(current) = self.cpus[cpu].current
            && self.is_held(cpu, current)
        {
            self.set_state(current, now, TaskState::Queued);
            self.cpus[cpu].current = None;
            self.cpus[cpu].queue.push(current);
        }
    }

    fn told_view(&self, cpu: usize) -> Option<View> {
        let balloons = self.balloons.as_ref()?;
        let Knowledge::Told(told) = &balloons.settings.knowledge else {
            return None;
        };
        let whole_vm = balloons.settings.whole_vm;
        let here = |n: usize| whole_vm || self.tasks[n].vcpu.index() == cpu;
        let io_tasks = (0..self.tasks.len())
            .filter(|n| here(*n) && !balloons.computes[*n])
            .count() as u32;
        Some(View {
            since: balloons.seats[cpu].since,
            slice: Some(told.slice),
            gap: Some(told.gap),
            io_tasks,
            demand: told.demand_permille * io_tasks,
        })
    }
}
