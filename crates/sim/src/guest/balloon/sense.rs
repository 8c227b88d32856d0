// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a balloon finds out what it has to know, as the daemon does in mode xballoon.
//!
//! | what | from |
//! |---|---|
//! | slices, gaps | the vCPU's timeline, as for vMigrater: steal page or heartbeat |
//! | I/O-bound tasks, what they would use | the Task Detector's last window |
//! | who computes | the CPU time that each task has used, five times a second |
//!
//! A balloon looks when its vCPU begins a slice, when a task has become I/O-bound,
//! and when what it decided last is over; after a slice's start as late as a monitor.

use policy::guest::trial;
use policy::guest::wakeup;
use policy::guest::xballoon;
use policy::guest::xballoon::View;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::super::Guest;
use super::super::Migrater;
use super::super::MigraterSettings;
use super::super::World;
use super::BalloonSettings;
use super::Knowledge;
use crate::event::Event;

/// How often it is looked who computes, as in the daemon.
const CENSUS: Ns = Ns::from_ms(200);

/// CPU time used so far, as it was when it was looked last.
#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    at: Option<Time>,
    used: Vec<Ns>,
}

impl Guest {
    /// Starts the daemon in mode xballoon: it moves nothing (XB5), raises the
    /// priority of I/O-bound tasks by what the kernel offers (XB1), and holds what
    /// computes beside them.
    pub fn set_xballoon(&mut self, rules: xballoon::Settings, daemon: MigraterSettings) {
        let mode = if self.kernel.eevdf.is_some() {
            wakeup::Mode::EevdfSlice
        } else {
            wakeup::Mode::Fifo
        };
        let daemon = MigraterSettings {
            placement: daemon.placement.nothing(),
            wakeup: wakeup::Settings {
                mode,
                ..daemon.wakeup
            },
            // The daemon asks nobody in this mode.
            trial: trial::Settings::published(),
            ..daemon
        };
        let vcpus = self.cpus.len() as u32;
        self.set_migrater(Migrater::new(daemon, vcpus, None));
        self.set_balloon(BalloonSettings {
            rules,
            knowledge: Knowledge::Sensed,
            whole_vm: false,
        });
    }

    /// When the present slice of a vCPU began, as the daemon knows it.
    pub(super) fn slice_began(&self, cpu: usize) -> Option<Time> {
        let monitor = self.migrater.as_ref()?.monitors.get(cpu)?;
        Some(monitor.timeline.running_since())
    }

    /// A balloon looks as soon as its thread has been woken.
    pub(super) fn wake_balloon(&mut self, cpu: usize, world: &mut World<'_>) {
        let (Some(balloons), Some(migrater)) = (&mut self.balloons, &self.migrater) else {
            return;
        };
        let at = world.agenda.now() + migrater.settings.costs.bell;
        let seat = &mut balloons.seats[cpu];
        seat.epoch += 1;
        let (vcpu, epoch) = (self.cpus[cpu].host, seat.epoch);
        world.agenda.at(at, Event::Balloon { vcpu, epoch });
    }

    /// A task has become I/O-bound, or the heartbeat has seen a slice begin: a
    /// balloon that senses looks.
    pub(crate) fn balloon_news(&mut self, cpu: usize, world: &mut World<'_>) {
        let senses = |b: &super::Balloons| matches!(b.settings.knowledge, Knowledge::Sensed);
        let Some(balloons) = self.balloons.as_ref().filter(|b| senses(b)) else {
            return;
        };
        if balloons.settings.whole_vm {
            for cpu in 0..self.cpus.len() {
                self.wake_balloon(cpu, world);
            }
        } else {
            self.wake_balloon(cpu, world);
        }
    }

    /// The CPU time of a look.
    pub(super) fn charge_balloon_look(&mut self, cpu: usize) {
        if let Some(migrater) = &mut self.migrater {
            let think = migrater.settings.costs.think;
            migrater.counts.wakeups += 1;
            migrater.counts.cpu += think;
            self.add_foreign(cpu, think);
        }
    }

    /// The CPU time of holding tasks, or of letting them go.
    pub(super) fn charge_balloon_hold(&mut self, cpu: usize) {
        if let Some(migrater) = &mut self.migrater {
            let hold = migrater.settings.costs.hold;
            migrater.counts.cpu += hold;
            self.add_foreign(cpu, hold);
        }
    }

    /// I/O-bound tasks for which the balloon of a vCPU is responsible, and what
    /// they would use together, in thousandths of a CPU.
    fn io_demand(&self, cpu: usize) -> (u32, u32) {
        let (Some(balloons), Some(migrater)) = (&self.balloons, &self.migrater) else {
            return (0, 0);
        };
        let all = balloons.settings.whole_vm;
        let mine = migrater
            .seats
            .iter()
            .zip(&self.tasks)
            .filter(|(seat, task)| seat.held && (all || task.vcpu.index() == cpu));
        mine.fold((0, 0), |(tasks, sum), (seat, _)| {
            (tasks + 1, sum + u32::from(seat.window.cpu_share.get()))
        })
    }

    /// What the policy is told of a vCPU; `None` while nothing is I/O-bound in the
    /// whole guest.
    pub(super) fn sensed_view(&self, cpu: usize) -> Option<View> {
        let migrater = self.migrater.as_ref()?;
        if !migrater.seats.iter().any(|seat| seat.held) {
            return None;
        }
        let timeline = &migrater.monitors[cpu].timeline;
        let (io_tasks, demand) = self.io_demand(cpu);
        Some(View {
            since: timeline.running_since(),
            slice: timeline.slice().map(|slice| slice.value),
            gap: timeline.gap_estimate().map(|gap| gap.value),
            io_tasks,
            demand,
        })
    }

    /// Who has used a large share of its vCPU since this was asked last, and is not
    /// I/O-bound, computes; but only where something I/O-bound lives.
    pub(super) fn look_who_computes(&mut self, now: Time) {
        let Some(census) = self.balloons.as_ref().map(|b| b.census.at) else {
            return;
        };
        if census.is_some_and(|at| now.since(at) < CENSUS) {
            return;
        }
        for cpu in 0..self.cpus.len() {
            self.account(cpu, now);
        }
        let serves: Vec<bool> = (0..self.cpus.len())
            .map(|cpu| self.io_demand(cpu).0 > 0)
            .collect();
        let (Some(balloons), Some(migrater)) = (&mut self.balloons, &self.migrater) else {
            return;
        };
        let known = balloons.census.at.replace(now).is_some();
        balloons.census.used.resize(self.tasks.len(), Ns::ZERO);
        balloons.computes.resize(self.tasks.len(), false);
        let mut given = vec![Ns::ZERO; self.cpus.len()];
        let mut used = Vec::with_capacity(self.tasks.len());
        for (task, before) in self.tasks.iter().zip(&mut balloons.census.used) {
            let then = std::mem::replace(before, task.on_cpu);
            // Counters are cleared when the measured window opens.
            let since = if task.on_cpu >= then {
                task.on_cpu - then
            } else {
                task.on_cpu
            };
            given[task.vcpu.index()] += since;
            used.push(since);
        }
        for (n, task) in self.tasks.iter().enumerate() {
            let VcpuId(cpu) = task.vcpu;
            let given = given[cpu as usize];
            let io_bound = migrater.seats.get(n).is_some_and(|seat| seat.held);
            let rules = &balloons.settings.rules;
            let held = balloons.computes[n];
            balloons.computes[n] = known
                && serves[cpu as usize]
                && !io_bound
                && xballoon::is_compute(used[n], given, held, rules);
        }
    }
}
