// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small machines to test on.

use sim::engine::Sim;
use sim::guest::Class;
use sim::guest::Guest;
use sim::guest::KernelSettings;
use sim::guest::NewTask;
use sim::hypervisor::Hypervisor;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::program::Compute;
use sim::program::Program;
use sim::queue::QueueKind;
use units::CpuId;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

/// A machine with `vms` VMs of one vCPU per pCPU, pinned one to one.
pub(crate) fn machine(pcpus: u32, vms: u32, threads: bool) -> Machine {
    let mut machine = Machine::new(pcpus, threads, Costs::default(), Smt::default());
    for n in 0..vms {
        let pins: Vec<Vec<CpuId>> = (0..pcpus).map(|p| vec![CpuId(p)]).collect();
        machine.add_vm(&format!("vm{n}"), NORMAL_WEIGHT, &pins);
    }
    machine
}

/// Guests without tasks for all VMs of a machine.
pub(crate) fn guests(machine: &Machine, kernel: KernelSettings, seed: u64) -> Vec<Guest> {
    machine
        .vms
        .iter()
        .enumerate()
        .map(|(n, vm)| {
            let first = sim::ids::Vcpu(vm.vcpus.start);
            Guest::new(VmId(n as u32), first, vm.vcpus.len() as u32, kernel, seed)
        })
        .collect()
}

/// A simulation of these guests.
pub(crate) fn simulation(
    machine: Machine,
    guests: Vec<Guest>,
    policy: Box<dyn Hypervisor>,
    queue: QueueKind,
    seed: u64,
) -> Sim {
    let mut sim = Sim::new(machine, policy, queue, seed);
    for guest in guests {
        sim.add_guest(guest);
    }
    sim
}

/// A task on a vCPU, free to go anywhere.
pub(crate) fn task(name: &str, vcpu: u32, program: Box<dyn Program>) -> NewTask {
    NewTask {
        name: name.to_owned(),
        group: 0,
        class: Class::Fair(NORMAL_WEIGHT),
        mask: CpuSet::first(64),
        vcpu: VcpuId(vcpu),
        program,
    }
}

/// A compute task pinned to a vCPU.
pub(crate) fn compute(vcpu: u32) -> NewTask {
    NewTask {
        mask: CpuSet::only(VcpuId(vcpu)),
        ..task("compute", vcpu, Box::new(Compute::new(Ns::from_us(500))))
    }
}
