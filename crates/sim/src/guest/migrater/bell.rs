// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What wakes a monitor, and how long that takes.

use units::Ns;
use units::VcpuId;

use super::super::Guest;
use super::super::World;
use super::KIND_BELL;
use super::Source;
use super::code;
use crate::event::Event;

impl Guest {
    /// The first tick after a gap wakes the monitor, a `SCHED_FIFO` thread: it looks
    /// before any task of the vCPU goes on.
    pub(super) fn look_first(&mut self, cpu: usize, world: &mut World<'_>) {
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        let costs = migrater.settings.costs;
        let monitor = &mut migrater.monitors[cpu];
        monitor.bell_at = None;
        let first = !std::mem::replace(&mut monitor.paid, costs.first_look > Ns::ZERO);
        self.ring_after(cpu, costs.resume, world);
        if first {
            self.add_foreign(cpu, costs.first_look);
        }
    }

    /// Wakes the monitor of a vCPU.
    pub(super) fn ring(&mut self, cpu: usize, world: &mut World<'_>) {
        if let Some(migrater) = &self.migrater {
            self.ring_after(cpu, migrater.settings.costs.bell, world);
        }
    }

    fn ring_after(&mut self, cpu: usize, delay: Ns, world: &mut World<'_>) {
        let vm = self.vm;
        let now = world.agenda.now();
        let Some(migrater) = &mut self.migrater else {
            return;
        };
        if migrater.settings.source != Source::StealPage {
            return;
        }
        let at = now + delay;
        let monitor = &mut migrater.monitors[cpu];
        if monitor.bell_at.is_some_and(|due| due <= at && due >= now) {
            return;
        }
        monitor.bell_at = Some(at);
        monitor.bell_epoch += 1;
        let epoch = code(KIND_BELL, monitor.bell_epoch);
        let vcpu = VcpuId(cpu as u32);
        world.agenda.at(at, Event::Daemon { vm, vcpu, epoch });
    }
}
