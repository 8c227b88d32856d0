// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines to measure the simulator on: blocks of 12 pCPUs with 8 VMs of 12 vCPUs,
//! as in 13.1's largest set-up.

use sim::device::Path;
use sim::device::Ssd;
use sim::device::SsdSettings;
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
use sim::ids::Vcpu;
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

const WIDTH: u32 = 12;
const VMS: u32 = 8;
const SLICE: Ns = Ns::from_ms(11);

/// What runs in the VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// A task per vCPU that computes, and four readers of the block's SSD per VM; CFS.
    Mixed,
    /// The same with one SSD for all blocks: a machine that is one part.
    OneDisk,
    /// A task per vCPU that computes; slices in turn. What the peer simulates.
    RoundRobin,
}

impl Load {
    /// By its name on the command line.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "mixed" => Some(Self::Mixed),
            "one-disk" => Some(Self::OneDisk),
            "round-robin" => Some(Self::RoundRobin),
            _ => None,
        }
    }
}

fn task(vcpu: u32, mask: CpuSet, program: Box<dyn Program>) -> NewTask {
    NewTask {
        name: String::new(),
        group: 0,
        class: Class::Fair(NORMAL_WEIGHT),
        mask,
        vcpu: VcpuId(vcpu),
        program,
    }
}

fn reader(n: u32, device: u32) -> Reader {
    Reader::new(ReaderSettings {
        device: DeviceId(device),
        depth: 1,
        bytes: 16 << 10,
        start: u64::from(n) << 30,
        span: 1 << 30,
        sequential: true,
        submit: Ns::from_us(5),
        process: Ns::from_us(10),
        process_spread: 200,
        further: None,
        write: false,
        phases: None,
    })
}

/// So many blocks, ready to run.
pub(crate) fn simulation(load: Load, blocks: u32) -> Sim {
    let costs = Costs::default();
    let mut machine = Machine::new(WIDTH * blocks, false, costs, Smt::default());
    let disks = if load == Load::OneDisk { 1 } else { blocks };
    let mut guests = Vec::new();
    for vm in 0..VMS * blocks {
        let first = vm / VMS * WIDTH;
        let pins: Vec<Vec<CpuId>> = (0..WIDTH).map(|v| vec![CpuId(first + v)]).collect();
        machine.add_vm("vm", NORMAL_WEIGHT, &pins);
        let kernel = KernelSettings::scaled(WIDTH);
        let mut guest = Guest::new(VmId(vm), Vcpu(vm * WIDTH), WIDTH, kernel, 1);
        // Where nothing reads, a unit is longer than a slice: events are switches.
        let unit = match load {
            Load::Mixed | Load::OneDisk => Ns::from_ms(1),
            Load::RoundRobin => Ns::from_secs(1),
        };
        for vcpu in 0..WIDTH {
            let mask = CpuSet::only(VcpuId(vcpu));
            guest.add(task(vcpu, mask, Box::new(Compute::new(unit))));
        }
        if load != Load::RoundRobin {
            let disk = vm / VMS % disks;
            for n in 0..4 {
                let mask = CpuSet::first(WIDTH);
                guest.add(task(n * 3, mask, Box::new(reader(vm * 4 + n, disk))));
            }
        }
        guests.push(guest);
    }
    let policy: Box<dyn Hypervisor> = match load {
        Load::Mixed | Load::OneDisk => Box::new(Cfs::new(CfsSettings::with_slice(SLICE))),
        Load::RoundRobin => Box::new(Fixed::new(FixedSettings {
            slots: VMS,
            slice: SLICE,
            sweep_permille: 0,
            keeps_idle: false,
        })),
    };
    let mut sim = Sim::new(machine, policy, QueueKind::default(), 1);
    if load != Load::RoundRobin {
        sim.spread_starts(SLICE * 4);
    }
    for guest in guests {
        sim.add_guest(guest);
    }
    let disk = SsdSettings {
        latency: Ns::from_us(90),
        spread_permille: 300,
        channels: 64 * blocks / disks,
        rate: 100_000_000_000,
        turn: Ns::ZERO,
    };
    for _ in 0..disks {
        sim.add_device(Box::new(Ssd::new(disk)), Path::Submitter);
    }
    sim
}
