// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The proof that nothing is lost: in debug builds all the time, elsewhere when asked.

use super::Sim;
use crate::hypervisor::Host;
use crate::hypervisor::Requests;
use crate::machine::Activity;
use crate::machine::State;

/// Events from one check to the next in debug builds. Where there are more vCPUs and
/// tasks than this, as many events as there are of them: what a check costs grows with
/// their number, what it costs for each event does not.
const EVERY: u64 = 256;

impl Sim {
    /// Are all books in balance? Nobody's time is lost (`machine`), no task is in two
    /// places (`guest`), every request is somewhere, and the policy's queues and credits
    /// are in order ([`crate::hypervisor::Hypervisor::check`]).
    ///
    /// # Errors
    /// A text that says what is wrong: a bug of the simulator or of the policy.
    pub fn check(&self) -> Result<(), String> {
        let now = self.now();
        self.machine.check(now)?;
        for guest in &self.guests {
            guest.check(now)?;
        }
        self.check_on()?;
        self.check_requests()?;
        if !self.started {
            return Ok(());
        }
        let mut requests = Requests::default();
        let host = Host {
            now,
            machine: &self.machine,
            part: 0..self.machine.pcpus.len() as u32,
            requests: &mut requests,
        };
        let name = self.hypervisor.name();
        let checked = self.hypervisor.check(&host);
        checked.map_err(|error| format!("{name}: {error}"))
    }

    /// Checks when it is time again.
    pub(super) fn check_in_turn(&mut self) {
        self.unchecked += 1;
        // While one part runs the others are at another time.
        if self.unchecked < EVERY || self.parts.len() > 1 {
            return;
        }
        let tasks: usize = self.guests.iter().map(|guest| guest.tasks().len()).sum();
        if self.unchecked >= (self.machine.vcpus.len() + tasks) as u64 {
            self.check_now();
        }
    }

    /// Stops the simulation where the books are not in balance.
    pub(super) fn check_now(&mut self) {
        self.unchecked = 0;
        if let Err(error) = self.check() {
            panic!("at {} ns: {error}", self.now().as_ns());
        }
    }

    /// A guest runs on a vCPU exactly while that has a pCPU and the switch is over.
    fn check_on(&self) -> Result<(), String> {
        for cpu in self.guests.iter().flat_map(|guest| &guest.cpus) {
            let vcpu = cpu.host;
            let state = self.machine.vcpus[vcpu.index()].state;
            let on = match state {
                State::Running(pcpu) | State::Waiting(pcpu) => {
                    self.machine.pcpus[pcpu.index()].activity != Activity::Switching
                }
                State::Halted | State::Queued => false,
            };
            if cpu.on != on {
                return Err(format!("vCPU {vcpu} is {state:?}, its guest {}", cpu.on));
            }
        }
        Ok(())
    }

    /// Every request that a guest has given away is at a device, with the driver domain,
    /// on its way back, or waits for its vCPU.
    fn check_requests(&self) -> Result<(), String> {
        let given: u64 = self.guests.iter().map(|guest| guest.in_flight).sum();
        let waits: u64 = self.guests.iter().map(|guest| guest.completions()).sum();
        let held = self.devices.iter().map(|d| d.device.in_flight());
        let held: u64 = held.sum();
        let rings = self.driver.as_ref().map_or(0, |driver| driver.held());
        let way = self.completing;
        if given != held + rings + way + waits {
            return Err(format!(
                "of {given} requests {held} are at devices, {rings} in rings, {way} on \
                 their way, and {waits} wait for their vCPU"
            ));
        }
        Ok(())
    }
}
