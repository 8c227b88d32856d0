// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Task Detector: time blocked on I/O and on the CPU, window by window.

use policy::guest::iobound;
use policy::guest::iobound::Class;
use units::Ns;
use units::Permille;
use units::Time;

use super::super::Guest;
use super::super::TaskState;
use super::super::World;
use crate::ids::TaskId;

/// Latencies that are remembered.
const LATENCIES: usize = 16;

/// One task's present window and class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    start: Time,
    io: Ns,
    on_cpu: Ns,
    /// The task's counters when they were looked at last.
    seen: (Ns, Ns, Ns),
    pub(crate) class: Class,
    pub(crate) load: Permille,
    pub(crate) cpu_share: Permille,
    latencies: [Ns; LATENCIES],
    next: usize,
}

impl Window {
    /// Usual latency: only two of the last sixteen were longer.
    pub(crate) fn io_latency(&self) -> Ns {
        let mut sorted = self.latencies;
        sorted.sort_unstable();
        sorted[LATENCIES - 3]
    }

    pub(crate) fn completed(&mut self, latency: Ns) {
        self.latencies[self.next] = latency;
        self.next = (self.next + 1) % LATENCIES;
    }
}

impl Guest {
    /// A request of a task has completed.
    pub(crate) fn detect_completion(&mut self, task: TaskId, latency: Ns) {
        if let Some(migrater) = &mut self.migrater {
            migrater.seat(task).window.completed(latency);
        }
    }

    /// A task has just been switched: its window may be complete. The task's books
    /// are settled.
    pub(crate) fn detect(&mut self, cpu: usize, task: TaskId, world: &mut World<'_>) {
        let now = world.agenda.now();
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let t = &self.tasks[task.index()];
        if t.blocked_io == Ns::ZERO && t.io_on_cpu == Ns::ZERO {
            return;
        }
        let settings = migrater.settings.iobound.clone();
        let window = &mut migrater.seat(task).window;
        // Counters are cleared when the measured window opens.
        let since = |now: Ns, then: Ns| if now >= then { now - then } else { now };
        let io = since(t.blocked_io, window.seen.0);
        let cpu_time = since(t.on_cpu, window.seen.1);
        let busy = since(t.io_on_cpu, window.seen.2);
        window.seen = (t.blocked_io, t.on_cpu, t.io_on_cpu);
        window.io += io + busy;
        window.on_cpu += cpu_time - busy;
        if !settings.window_complete(window.start, now, window.io + window.on_cpu) {
            return;
        }
        let load = iobound::load(window.io, window.on_cpu);
        let before = window.class.is_io_bound();
        window.class = settings.next(window.class, load);
        window.load = load;
        window.cpu_share = Permille::of(window.on_cpu, window.on_cpu + window.io);
        window.start = now;
        window.io = Ns::ZERO;
        window.on_cpu = Ns::ZERO;
        let after = window.class.is_io_bound();
        if after && !before {
            self.take_hold(task);
            self.ring(cpu, world);
            self.balloon_news(cpu, world);
        } else if before && !after {
            self.let_loose(task);
        }
    }

    /// Tasks that have slept for long, and not on I/O, are no longer I/O-bound.
    pub(super) fn end_dozing(&mut self, now: Time) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let settings = &migrater.settings.iobound;
        let dozing: Vec<TaskId> = (0..migrater.seats.len())
            .filter(|n| {
                let t = &self.tasks[*n];
                migrater.seats[*n].held
                    && (t.state == TaskState::Exited
                        || t.state == TaskState::Blocked && settings.phase_over(now.since(t.since)))
            })
            .map(|n| TaskId(n as u32))
            .collect();
        for task in dozing {
            if let Some(migrater) = &mut self.migrater {
                migrater.seat(task).window.class = Class::default();
            }
            self.let_loose(task);
        }
    }

    fn take_hold(&mut self, task: TaskId) {
        if let Some(migrater) = &mut self.migrater {
            let settings = migrater.settings.clone();
            let seat = migrater.seat(task);
            seat.held = true;
            seat.decider = super::decider(&settings);
        }
    }

    /// Undoes what was done to a task.
    fn let_loose(&mut self, task: TaskId) {
        if let Some(migrater) = &mut self.migrater {
            let seat = migrater.seat(task);
            seat.held = false;
            seat.lever = policy::guest::wakeup::Lever::Off;
            let t = &mut self.tasks[task.index()];
            t.mask = t.owned_mask;
            t.lever = None;
        }
    }
}
