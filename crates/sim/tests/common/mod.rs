// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small machines to test on.

#![allow(dead_code, reason = "not every test uses all of it")]

use sim::device::Delay;
use sim::device::Path;
use sim::engine::Sim;
use sim::guest::Class;
use sim::guest::Guest;
use sim::guest::KernelSettings;
use sim::guest::NewTask;
use sim::hypervisor::Cfs;
use sim::hypervisor::CfsSettings;
use sim::hypervisor::Fixed;
use sim::hypervisor::FixedSettings;
use sim::hypervisor::Hypervisor;
use sim::ids::DeviceId;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::program::Compute;
use sim::program::Program;
use sim::program::Reader;
use sim::program::ReaderSettings;
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

/// Random reads of a block, one after another: 4 us to ask, about 10 us for the answer.
pub(crate) const READS: ReaderSettings = ReaderSettings {
    device: DeviceId(0),
    depth: 1,
    bytes: 4096,
    start: 0,
    span: 1 << 30,
    sequential: false,
    submit: Ns::from_us(4),
    process: Ns::from_us(10),
    process_spread: 300,
    further: None,
    write: false,
    phases: None,
};

/// A task that reads, on a vCPU, free to go anywhere.
pub(crate) fn reader(vcpu: u32, settings: ReaderSettings) -> NewTask {
    task("reader", vcpu, Box::new(Reader::new(settings)))
}

/// Adds a device that takes about so long for a request, by a spread in thousandths, whose
/// completions follow who submits.
pub(crate) fn add_delay(sim: &mut Sim, latency: Ns, spread: u32) {
    sim.add_device(Box::new(Delay::new(latency, spread)), Path::Submitter);
}

/// CFS as it is.
pub(crate) fn cfs() -> Box<dyn Hypervisor> {
    Box::new(Cfs::new(CfsSettings::default()))
}

/// Slices of one length in turn, of which the pCPUs' ends drift by so many thousandths.
pub(crate) fn fixed(slots: u32, slice: Ns, sweep_permille: u32) -> Box<dyn Hypervisor> {
    Box::new(Fixed::new(FixedSettings {
        slots,
        slice,
        sweep_permille,
        keeps_idle: false,
    }))
}
