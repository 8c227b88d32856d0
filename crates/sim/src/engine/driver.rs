// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A driver domain: the VM through which the others' requests go (6.1).
//!
//! A request is put into a ring that a task of the driver domain serves; an event
//! wakes that task (a, b). When it runs it hands the request to the device (c).
//! The device's completion takes the same way back: ring, event, task, and then a
//! response event for the guest (d, e). So each request waits twice for a vCPU of
//! the driver domain, which the host schedules like any other.
//!
//! The far end of a network may be a VM of the same host. What a guest sends is then
//! put into a ring of that VM by the driver domain, and a task there works on it before
//! the network has it.

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
    /// Give it to the device, or to the VM at the network's far end.
    Request,
    /// That VM has it: give it to the device.
    Received,
    /// Tell the guest.
    Response,
}

/// Which of the driver domain's tasks serves what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// All that a VM asks for is in one ring: VM n's is the n-th task's, modulo their number.
    #[default]
    PerVm,
    /// Each of its tasks has its own: an interface with several queues, of which a stream
    /// is always in the same one (Linux' netback since 3.16).
    PerStream,
}

impl Queues {
    /// Which of `count` tasks serves a VM's task. Where a VM's streams have queues of their
    /// own, they are as far apart as can be: which one a stream is in is a matter of a hash,
    /// and the kernel that serves them spreads them over its vCPUs.
    fn place(self, vm: usize, task: usize, count: usize) -> usize {
        let flow = match self {
            Self::PerVm => vm,
            Self::PerStream => vm + task * (count / 2).max(1),
        };
        flow % count.max(1)
    }
}

/// The driver domain.
#[derive(Debug)]
pub(super) struct Driver {
    own: Rings,
    queues: Queues,
    /// The VM at the far end of networks.
    far_end: Option<Rings>,
}

/// The rings that the tasks of a VM serve.
#[derive(Debug)]
struct Rings {
    vm: VmId,
    backends: Vec<Backend>,
}

impl Rings {
    fn new(vm: VmId, tasks: &[TaskId]) -> Self {
        let backend = |task: &TaskId| Backend {
            task: *task,
            ring: VecDeque::new(),
        };
        Self {
            vm,
            backends: tasks.iter().map(backend).collect(),
        }
    }

    fn held(&self) -> u64 {
        self.backends.iter().map(|b| b.ring.len() as u64).sum()
    }

    /// The oldest entry of the ring that `task` serves.
    fn take(&mut self, task: TaskId) -> Option<(DeviceId, Io, Stage)> {
        let backend = self.backends.iter_mut().find(|b| b.task == task)?;
        backend.ring.pop_front()
    }
}

#[derive(Debug)]
struct Backend {
    task: TaskId,
    ring: VecDeque<(DeviceId, Io, Stage)>,
}

impl Driver {
    /// Requests and completions in its rings.
    pub(super) fn held(&self) -> u64 {
        self.own.held() + self.far_end.as_ref().map_or(0, Rings::held)
    }
}

impl Sim {
    /// Makes `vm` the driver domain. Its `backends` are tasks that do
    /// [`crate::program::Step::Serve`] once for each message; `queues` says
    /// which of them serves what.
    pub fn set_driver(&mut self, vm: VmId, backends: &[TaskId], queues: Queues) {
        self.machine.vms[vm.index()].driver_domain = true;
        self.driver = Some(Driver {
            own: Rings::new(vm, backends),
            far_end: None,
            queues,
        });
    }

    /// Makes `vm` the far end of the networks behind the driver domain. Its `receivers`
    /// are such tasks, too, one for each queue of its interface; a stream is always in
    /// the same queue.
    pub fn set_far_end(&mut self, vm: VmId, receivers: &[TaskId]) {
        match &mut self.driver {
            Some(driver) => driver.far_end = Some(Rings::new(vm, receivers)),
            None => debug_assert!(false, "a far end without a driver domain"),
        }
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
        let entry = self.driver.as_mut().and_then(|driver| {
            let far_end = driver.far_end.as_mut();
            let mut rings = std::iter::once(&mut driver.own).chain(far_end);
            rings.find(|rings| rings.vm == vm)?.take(task)
        });
        let Some((id, io, stage)) = entry else {
            debug_assert!(false, "task {task} of VM {vm} serves nothing");
            return;
        };
        match stage {
            Stage::Request if self.goes_to_far_end(id, &io) => self.ring(id, io, Stage::Received),
            Stage::Request | Stage::Received => {
                self.with_device(id, |device, cx| device.submit(io, cx));
            }
            Stage::Response => self.respond(id, io),
        }
    }

    /// Is this sent to a VM of the same host?
    fn goes_to_far_end(&self, id: DeviceId, io: &Io) -> bool {
        let has_far_end = (self.driver.as_ref()).is_some_and(|driver| driver.far_end.is_some());
        has_far_end && io.request.write && self.devices[id.index()].device.is_copied()
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
        let with_data = io.request.write == (stage != Stage::Response);
        let copied = with_data && self.devices[id.index()].device.is_copied();
        let bytes = if copied { io.request.bytes } else { 0 };
        let (rings, queues) = match (&mut driver.far_end, stage) {
            (Some(far_end), Stage::Received) => (far_end, Queues::PerStream),
            _ => (&mut driver.own, driver.queues),
        };
        let count = rings.backends.len();
        let place = queues.place(io.vm.index(), io.task.index(), count);
        let Some(backend) = rings.backends.get_mut(place) else {
            debug_assert!(false, "a VM that serves rings without tasks");
            return;
        };
        backend.ring.push_back((id, io, stage));
        let (vm, task) = (rings.vm, backend.task);
        let on: VcpuId = self.guests[vm.index()].tasks()[task.index()].vcpu;
        let vcpu = self.machine.vcpu(vm, on);
        self.agenda
            .at(self.agenda.now(), Event::Message { vcpu, task, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six tasks, as many as the driver domain of 13.2 has vCPUs: three VMs with two streams
    /// each meet nobody, and by VM a VM's streams wait for each other.
    #[test]
    fn streams_of_three_vms_have_tasks_of_their_own() {
        let places = |queues: Queues| -> Vec<usize> {
            let flows = (1..=3).flat_map(|vm| [(vm, 0), (vm, 1)]);
            flows.map(|(vm, task)| queues.place(vm, task, 6)).collect()
        };
        assert_eq!(places(Queues::PerStream), [1, 4, 2, 5, 3, 0]);
        assert_eq!(places(Queues::PerVm), [1, 1, 2, 2, 3, 3]);
    }
}
