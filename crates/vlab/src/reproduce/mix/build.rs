// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine with several VMs as a simulation: its hypervisor, its devices and how they
//! are attached. `guest` fills the VMs.

use sim::device::Device;
use sim::device::Hdd;
use sim::device::Net;
use sim::device::Path;
use sim::device::Ssd;
use sim::engine::Sim;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Sharing;
use sim::hypervisor::Values;
use sim::ids::TaskId;
use sim::ids::Vcpu;
use sim::ids::VmId;
use sim::machine::Machine;
use sim::queue::QueueKind;
use units::CpuId;

use super::Dev;
use super::Mix;
use super::Pins;
use super::guest::guest;
use crate::reproduce::tuning::policy_of;

/// How a device is attached.
#[derive(Clone, Copy, Debug)]
pub(in crate::reproduce) struct Attached {
    pub(in crate::reproduce) path: Path,
    pub(in crate::reproduce) behind_driver: bool,
}

pub(super) fn build(mix: &Mix, policy: &str, seed: u64) -> anyhow::Result<Sim> {
    let attached = Attached {
        path: Path::Submitter,
        behind_driver: mix.driver.is_some(),
    };
    let attached = vec![attached; mix.devices.len()];
    let host = |sharing: &Sharing| policy_of(policy, sharing, &mix.tuning, &Values::new());
    assemble(mix, &attached, &host, seed)
}

/// How the machine is shared, for its policy.
pub(super) const fn sharing(mix: &Mix) -> Sharing {
    Sharing {
        vms_per_pcpu: mix.vms.len() as u32,
        slice: mix.slice,
        sweep_permille: 0,
    }
}

/// The host policy of a machine that is shared so.
pub(in crate::reproduce) type Host<'a> =
    dyn Fn(&Sharing) -> anyhow::Result<Box<dyn Hypervisor>> + 'a;

/// A machine whose devices are attached in different ways, under any policy.
pub(in crate::reproduce) fn assemble(
    mix: &Mix,
    attached: &[Attached],
    host: &Host<'_>,
    seed: u64,
) -> anyhow::Result<Sim> {
    let policy = host(&sharing(mix))?;
    let smt = mix.smt.unwrap_or_default();
    let mut machine = Machine::new(mix.pcpus, mix.smt.is_some(), mix.costs, smt);
    let mut guests = Vec::new();
    for (n, vm) in mix.vms.iter().enumerate() {
        let pins: Vec<Vec<CpuId>> = (0..vm.vcpus)
            .map(|vcpu| match &vm.pins {
                Pins::Anywhere => Vec::new(),
                Pins::RoundRobin => vec![CpuId(vcpu % mix.pcpus)],
                Pins::On(pcpus) => pcpus.iter().copied().map(CpuId).collect(),
            })
            .collect();
        let id = machine.add_vm(&format!("vm{n}"), vm.weight, &pins);
        machine.vms[n].io_intensive = vm.io;
        machine.vms[n].shares = vm.shares;
        machine.vms[n].cap_permille = vm.cap_permille;
        let first = Vcpu(machine.vms[n].vcpus.start);
        guests.push(guest(vm, id, first, seed));
    }
    let mut sim = Sim::new(machine, policy, QueueKind::default(), seed);
    // Long enough that no two pCPUs are in step, short against any warm-up.
    sim.spread_starts(mix.slice * 4);
    for guest in guests {
        sim.add_guest(guest);
    }
    for (device, attached) in mix.devices.iter().zip(attached) {
        let device: Box<dyn Device> = match *device {
            Dev::Ssd(settings) => Box::new(Ssd::new(settings)),
            Dev::Hdd(settings) => Box::new(Hdd::new(settings)),
            Dev::Net(settings) => Box::new(Net::new(settings)),
        };
        if attached.behind_driver {
            sim.add_device_behind_driver(device, attached.path);
        } else {
            sim.add_device(device, attached.path);
        }
    }
    let tasks = |vm: u32| -> Vec<TaskId> {
        let count = mix.vms[vm as usize].tasks.len() as u32;
        (0..count).map(TaskId).collect()
    };
    if let Some(driver) = mix.driver {
        sim.set_driver(VmId(driver.vm), &tasks(driver.vm), driver.queues);
        if let Some(far_end) = driver.far_end {
            sim.set_far_end(VmId(far_end), &tasks(far_end));
        }
    }
    Ok(sim)
}
