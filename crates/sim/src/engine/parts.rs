// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts of a machine that never meet: sockets with VMs and disks of their own.
//!
//! What happens in one part changes nothing in another, so that each part can be run to
//! the end of a window before the next one begins. The result is the same to the last
//! byte (a test compares), and an event costs what it costs on a machine of the size of
//! the part: with thousands of vCPUs in turn by time, each event finds its vCPU, task and
//! pCPU gone from the caches (docs/performance.md).
//!
//! A machine is one part where anything may meet: a vCPU without pins, a policy that
//! looks at all pCPUs ([`crate::hypervisor::Hypervisor::is_local`]), a driver domain.

use std::ops::Range;

use super::Sim;
use crate::device::Io;
use crate::guest::Guest;
use crate::ids::VmId;
use crate::machine::Machine;

/// The first and the last pCPU of something.
type Extent = (u32, u32);

/// The parts of this machine as ranges of pCPUs, in order; they cover all of them.
pub(super) fn of(machine: &Machine, guests: &[Guest], devices: usize) -> Vec<Range<u32>> {
    let count = machine.pcpus.len() as u32;
    let whole = || std::iter::once(0..count).collect();
    let mut extents: Vec<Extent> = Vec::new();
    for (n, pcpu) in (0..count).zip(&machine.pcpus) {
        let other = pcpu.sibling.map_or(n, |sibling| sibling.0);
        extents.push((n.min(other), n.max(other)));
    }
    let mut users: Vec<Option<Extent>> = vec![None; devices];
    for (vm, facts) in machine.vms.iter().enumerate() {
        let vcpus = &machine.vcpus[facts.vcpus.start as usize..facts.vcpus.end as usize];
        if vcpus.iter().any(|vcpu| vcpu.allowed.is_empty()) {
            return whole();
        }
        let pins = vcpus.iter().flat_map(|vcpu| &vcpu.allowed).map(|pin| pin.0);
        let Some(extent) = pins.map(|pin| (pin, pin)).reduce(join) else {
            continue;
        };
        extents.push(extent);
        for device in guests.get(vm).into_iter().flat_map(Guest::devices) {
            if let Some(users) = users.get_mut(device.index()) {
                *users = Some(users.map_or(extent, |users| join(users, extent)));
            }
        }
    }
    extents.extend(users.into_iter().flatten());
    extents.sort_unstable();
    let mut parts: Vec<Range<u32>> = Vec::new();
    for (first, last) in extents {
        match parts.last_mut() {
            Some(part) if first < part.end => part.end = part.end.max(last + 1),
            _ => parts.push(first..last + 1),
        }
    }
    if parts.is_empty() { whole() } else { parts }
}

fn join(a: Extent, b: Extent) -> Extent {
    (a.0.min(b.0), a.1.max(b.1))
}

impl Sim {
    /// Runs the machine as one part, whatever it consists of. Call it before the first
    /// run. To compare with.
    pub const fn keep_whole(&mut self) {
        self.kept_whole = true;
    }

    /// How many parts of the machine never meet; one before the first run.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Finds the parts. The policy has started.
    pub(super) fn divide(&mut self) {
        if self.kept_whole || self.driver.is_some() || !self.hypervisor.is_local() {
            return;
        }
        self.parts = of(&self.machine, &self.guests, self.devices.len());
        self.agenda.divide(self.parts.len());
    }

    /// What is asked for from now on happens in this part.
    pub(super) fn turn_to(&mut self, part: usize) {
        self.agenda.turn_to(part);
        self.part = part;
    }

    /// The part in which a VM is.
    pub(super) fn part_of(&self, vm: VmId) -> usize {
        let vcpus = self.machine.vms[vm.index()].vcpus.clone();
        let mut pins = self.machine.vcpus[vcpus.start as usize..vcpus.end as usize]
            .iter()
            .flat_map(|vcpu| &vcpu.allowed);
        // Without pins there is one part.
        pins.next().map_or(0, |pin| {
            self.parts.partition_point(|part| part.end <= pin.0)
        })
    }

    /// A program that asks another device than it said might be answered in another part.
    pub(super) fn assert_declared(&self, io: &Io) {
        if self.parts.len() > 1 {
            let program = &self.guests[io.vm.index()].tasks()[io.task.index()].program;
            assert!(
                program.device() == Some(io.request.device),
                "a program asks device {} and says that it asks {:?}: {program:?}",
                io.request.device,
                program.device()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use units::CpuId;
    use units::VcpuId;

    use super::*;
    use crate::guest::Class;
    use crate::guest::KernelSettings;
    use crate::guest::NewTask;
    use crate::ids::DeviceId;
    use crate::ids::Vcpu;
    use crate::machine::Costs;
    use crate::machine::NORMAL_WEIGHT;
    use crate::machine::Smt;
    use crate::program::FakeIo;

    /// VMs of one vCPU with these pins, each with a task that asks this device.
    fn parts(pcpus: u32, threads: bool, vms: &[(&[u32], Option<u32>)]) -> Vec<Range<u32>> {
        let mut machine = Machine::new(pcpus, threads, Costs::FREE, Smt::default());
        let mut guests = Vec::new();
        for (n, (pins, device)) in vms.iter().enumerate() {
            let pins: Vec<CpuId> = pins.iter().copied().map(CpuId).collect();
            let vm = machine.add_vm("vm", NORMAL_WEIGHT, &[pins]);
            let kernel = KernelSettings::scaled(1);
            let mut guest = Guest::new(vm, Vcpu(n as u32), 1, kernel, 1);
            if let Some(device) = device {
                let every = units::Ns::from_ms(1);
                guest.add(NewTask {
                    name: String::new(),
                    group: 0,
                    class: Class::Fair(NORMAL_WEIGHT),
                    mask: units::CpuSet::first(1),
                    vcpu: VcpuId(0),
                    program: Box::new(FakeIo::new(DeviceId(*device), every)),
                });
            }
            guests.push(guest);
        }
        of(&machine, &guests, 2)
    }

    #[test]
    fn what_shares_a_pcpu_a_core_or_a_disk_is_one_part() {
        let alone = parts(4, false, &[(&[0], None), (&[2, 3], None)]);
        assert_eq!(alone, [0..1, 1..2, 2..4]);
        let cores = parts(4, true, &[(&[0], None), (&[2], None)]);
        assert_eq!(cores, [0..2, 2..4]);
        let disks = parts(
            3,
            false,
            &[(&[0], Some(0)), (&[1], Some(0)), (&[2], Some(1))],
        );
        assert_eq!(disks, [0..2, 2..3]);
        // Parts are ranges: what lies between two that meet is with them.
        let around = parts(3, false, &[(&[0, 2], None), (&[1], None)]);
        assert_eq!(around, std::iter::once(0..3).collect::<Vec<_>>());
        let free = parts(3, false, &[(&[], None), (&[1], None)]);
        assert_eq!(free, std::iter::once(0..3).collect::<Vec<_>>());
    }
}
