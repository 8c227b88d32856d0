// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A driver domain: the VM through which the others' requests go (6.1).
//!
//! A request is put into a ring that a task of the driver domain serves; an event
//! wakes that task (a, b). When it runs it hands the request to the device (c).
//! The device's completion takes the same way back: ring, event, task, and then a
//! response event for the guest (d, e). So each request waits twice for a vCPU of
//! the driver domain, which the host schedules like any other.

use std::collections::VecDeque;

use units::VcpuId;

use super::Sim;
use crate::device::Io;
use crate::event::Event;
use crate::ids::DeviceId;
use crate::ids::TaskId;
use crate::ids::VmId;

/// What a backend task is to do with an entry of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Give it to the device.
    Request,
    /// Tell the guest.
    Response,
}

/// The driver domain.
#[derive(Debug)]
pub(super) struct Driver {
    vm: VmId,
    backends: Vec<Backend>,
}

#[derive(Debug)]
struct Backend {
    task: TaskId,
    ring: VecDeque<(DeviceId, Io, Stage)>,
}

impl Driver {
    /// Requests and completions in its rings.
    pub(super) fn held(&self) -> u64 {
        self.backends.iter().map(|b| b.ring.len() as u64).sum()
    }
}

impl Sim {
    /// Makes `vm` the driver domain. Its `backends` are tasks that do
    /// [`crate::program::Step::Serve`] once for each message; VM n is served by the
    /// n-th, modulo their number.
    pub fn set_driver(&mut self, vm: VmId, backends: &[TaskId]) {
        let backend = |task: &TaskId| Backend {
            task: *task,
            ring: VecDeque::new(),
        };
        self.machine.vms[vm.index()].driver_domain = true;
        self.driver = Some(Driver {
            vm,
            backends: backends.iter().map(backend).collect(),
        });
    }

    /// A request of a guest: to the device, or into the ring first.
    pub(super) fn submit(&mut self, io: Io) {
        let id = io.request.device;
        if self.is_behind_driver(id) {
            self.ring(id, io, Stage::Request);
        } else {
            self.assert_declared(&io);
            self.with_device(id, |device, cx| device.submit(io, cx));
        }
    }

    /// A device is done with a request.
    pub(super) fn device_done(&mut self, id: DeviceId, io: Io) {
        if self.is_behind_driver(id) {
            self.ring(id, io, Stage::Response);
        } else {
            self.respond(id, io);
        }
    }

    /// A backend task has worked on the oldest entry of its ring.
    pub(super) fn serve(&mut self, vm: VmId, task: TaskId) {
        let driver = self.driver.as_mut().filter(|driver| driver.vm == vm);
        let backend = driver.and_then(|driver| driver.backends.iter_mut().find(|b| b.task == task));
        let Some((id, io, stage)) = backend.and_then(|backend| backend.ring.pop_front()) else {
            debug_assert!(false, "task {task} of VM {vm} serves nothing");
            return;
        };
        match stage {
            Stage::Request => self.with_device(id, |device, cx| device.submit(io, cx)),
            Stage::Response => self.respond(id, io),
        }
    }

    fn is_behind_driver(&self, id: DeviceId) -> bool {
        self.driver.is_some()
            && self
                .devices
                .get(id.index())
                .is_some_and(|attached| attached.behind_driver)
    }

    fn ring(&mut self, id: DeviceId, io: Io, stage: Stage) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        // Data goes with the request that writes and with the response of one that reads.
        let with_data = io.request.write == (stage == Stage::Request);
        let copied = with_data && self.devices[id.index()].device.is_copied();
        let bytes = if copied { io.request.bytes } else { 0 };
        let count = driver.backends.len().max(1);
        let Some(backend) = driver.backends.get_mut(io.vm.index() % count) else {
            debug_assert!(false, "a driver domain without backends");
            return;
        };
        backend.ring.push_back((id, io, stage));
        let (vm, task) = (driver.vm, backend.task);
        let on: VcpuId = self.guests[vm.index()].tasks()[task.index()].vcpu;
        let vcpu = self.machine.vcpu(vm, on);
        self.agenda
            .at(self.agenda.now(), Event::Message { vcpu, task, bytes });
    }
}
