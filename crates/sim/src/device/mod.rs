// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices: they take requests and complete them later.
//!
//! A device knows nothing of vCPUs; on which vCPU a completion arrives is the
//! business of the VM's queues ([`Path`]).

mod delay;
mod hdd;
mod net;
mod served;
mod ssd;

use std::fmt::Debug;

use units::Ns;
use units::Time;
use units::VcpuId;

pub use delay::Delay;
pub use hdd::Elevator;
pub use hdd::Hdd;
pub use hdd::HddSettings;
pub use net::Net;
pub use net::NetSettings;
pub use served::Served;
pub use served::ServedSettings;
pub use ssd::Ssd;
pub use ssd::SsdSettings;

use crate::event::Event;
use crate::ids::DeviceId;
use crate::ids::TaskId;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::program::Latencies;
use crate::program::Request;
use crate::queue::Agenda;
use crate::random::Random;

/// Which vCPU of a VM handles a device's completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The one that submitted: one queue per vCPU.
    Submitter,
    /// Always this one: a single queue.
    Fixed(VcpuId),
}

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Whose.
    pub vm: VmId,
    /// The vCPU that submitted it.
    pub vcpu: Vcpu,
    /// Who waits for it.
    pub task: TaskId,
    /// Its number in its VM.
    pub number: u64,
    /// What is asked.
    pub request: Request,
}

/// What a device may use during a call.
#[derive(Debug)]
pub struct DeviceCx<'a> {
    pub(crate) id: DeviceId,
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) random: &'a mut Random,
    pub(crate) completed: &'a mut Vec<Io>,
}

impl DeviceCx<'_> {
    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Time {
        self.agenda.now()
    }

    /// The device's generator.
    pub fn random(&mut self) -> &mut Random {
        self.random
    }

    /// Calls [`Device::event`] with this token after `delay`.
    pub fn after(&mut self, delay: Ns, token: u64) {
        let event = Event::Device {
            device: self.id,
            token,
        };
        self.agenda.at(self.agenda.now() + delay, event);
    }

    /// A request is done.
    pub fn complete(&mut self, io: Io) {
        self.completed.push(io);
    }
}

/// A device.
pub trait Device: Send + Debug {
    /// Does a driver domain copy what goes through this? Netback does, block
    /// back-ends map the guest's pages.
    fn is_copied(&self) -> bool {
        false
    }

    /// Takes a request.
    fn submit(&mut self, io: Io, cx: &mut DeviceCx<'_>);

    /// Something that the device waited for ([`DeviceCx::after`]).
    fn event(&mut self, token: u64, cx: &mut DeviceCx<'_>);

    /// Requests that it holds.
    fn in_flight(&self) -> u64;

    /// The measured window opens.
    fn open_window(&mut self) {}

    /// Round trips of the clients of a VM, where there are clients.
    fn round_trips(&self, vm: VmId) -> Latencies {
        let _ = vm;
        Latencies::default()
    }
}
