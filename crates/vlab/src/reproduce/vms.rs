// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `[[vm]]` and `[[device]]` tables of a scenario as a machine: built as those of
//! the experiments are.

use experiment::scenario::Class;
use experiment::scenario::Device;
use experiment::scenario::DeviceKind;
use experiment::scenario::Elevator;
use experiment::scenario::Load;
use experiment::scenario::Pins as PinsOf;
use experiment::scenario::Queues as QueuesOf;
use experiment::scenario::Scenario;
use experiment::scenario::Vm as VmOf;
use sim::device::Elevator as Scheduler;
use sim::device::HddSettings;
use sim::device::NetSettings;
use sim::device::Path;
use sim::device::SsdSettings;
use sim::engine::Queues;
use sim::engine::Sim;
use sim::guest::MigraterSettings;
use sim::hypervisor::NAMES;
use sim::hypervisor::Sharing;
use sim::machine::NORMAL_WEIGHT;
use units::Ns;
use units::VcpuId;

use super::mix::Attached;
use super::mix::Daemon;
use super::mix::Dev;
use super::mix::Driver;
use super::mix::Mix;
use super::mix::Pins;
use super::mix::Task;
use super::mix::Vm;
use super::mix::Work;
use super::mix::assemble;
use super::parameters::Parameters;
use super::platforms;
use super::vm_tasks::Maker;
use crate::run::Unusable;
use crate::sim::host::Chosen;
use crate::sim::host::heeds_caps;
use crate::sim::platform::Platform;

/// A unit of compute tasks.
pub(crate) const UNIT: Ns = super::mix::UNIT;

/// The device of loads that name none.
const OWN_DISK: &str = "";
/// What an arm does in the guests to which it applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct InGuest {
    /// Tasks with requests run before all with a weight.
    pub(crate) fifo: bool,
    /// Their weight otherwise.
    pub(crate) weight: Option<u32>,
    /// The daemon.
    pub(crate) migrater: Option<MigraterSettings>,
    /// The daemon in mode xballoon.
    pub(crate) balloon: Option<MigraterSettings>,
}

/// How tasks are told apart afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    /// The measured load of the VM under test.
    pub(crate) io: u32,
    /// Pinned compute: the vCPU is added.
    pub(crate) compute: u32,
    /// Other loads: their place in [`loads_of`] is added.
    pub(crate) loads: u32,
}

/// One step of a scenario.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) scenario: &'a Scenario,
    /// The load of the phase; none: no load anywhere.
    pub(crate) load: Option<&'a Load>,
    /// Compute beside it, in the VM under test?
    pub(crate) compute: bool,
    /// Only the VM under test, and the driver domain.
    pub(crate) alone: bool,
    pub(crate) arm: InGuest,
    pub(crate) host: &'a Chosen,
    /// When the window opens: threads that come later count from there.
    pub(crate) opens: Ns,
    pub(crate) groups: Groups,
    pub(crate) seed: u64,
    /// The platform as the VMs with so many vCPUs see it.
    pub(crate) platform: &'a dyn Fn(u32) -> anyhow::Result<Platform>,
}

/// VMs of the machine, in order, with their tables.
pub(crate) fn all(scenario: &Scenario, alone: bool) -> Vec<(&VmOf, u32)> {
    let mut vms = Vec::new();
    for (index, vm) in scenario.vms.iter().enumerate() {
        let count = match vm.class {
            Some(class) if class.serves() => 1,
            _ if alone => u32::from(index == 0),
            _ => vm.count,
        };
        vms.extend((0..count).map(|n| (vm, n)));
    }
    vms
}

/// What a VM runs in a phase of this load.
pub(crate) fn loads_of<'a>(vm: &'a VmOf, phase: Option<&'a Load>) -> Vec<&'a Load> {
    match (phase, &vm.loads) {
        (None, _) => Vec::new(),
        (Some(_), Some(own)) => own.iter().collect(),
        (Some(load), None) => vec![load],
    }
}

/// Builds the simulation.
///
/// # Errors
/// The simulator has no such host policy, platform, or application.
pub(crate) fn build(request: &Request<'_>) -> anyhow::Result<Sim> {
    let scenario = request.scenario;
    let spec = scenario.sim.clone().unwrap_or_default();
    let platform = (request.platform)(scenario.vcpus())?;
    let mut devices: Vec<(&str, Dev)> = scenario
        .devices
        .iter()
        .map(|device| (device.name.as_str(), dev(device)))
        .collect();
    let mut attached: Vec<Attached> = scenario.devices.iter().map(attach).collect();
    devices.push((
        OWN_DISK,
        Dev::Ssd(SsdSettings {
            latency: platform.disk_latency,
            spread_permille: platform.disk_spread,
            channels: platform.disk_channels,
            rate: platform.disk_rate,
            turn: Ns::ZERO,
        }),
    ));
    attached.push(Attached {
        path: Path::Submitter,
        behind_driver: false,
    });
    let names: Vec<&str> = devices.iter().map(|(name, _)| *name).collect();
    let tables = all(scenario, request.alone);
    let mut vms = Vec::new();
    for (n, (table, _)) in tables.iter().enumerate() {
        vms.push(vm(request, table, n, &names)?);
    }
    let place = |class: Class| {
        let place = tables
            .iter()
            .position(|(table, _)| table.class == Some(class));
        place.map(|n| n as u32)
    };
    let driver = place(Class::DriverDomain).map(|vm| Driver {
        vm,
        queues: match tables[vm as usize].0.queues {
            QueuesOf::PerVm => Queues::PerVm,
            QueuesOf::PerStream => Queues::PerStream,
        },
        far_end: place(Class::FarEnd),
    });
    let mix = Mix {
        pcpus: scenario.topology.cpus,
        smt: (spec.threads_per_core == 2).then_some(platform.smt),
        costs: platform.costs,
        devices: devices.into_iter().map(|(_, dev)| dev).collect(),
        driver,
        vms,
        slice: scenario.sharing.slice,
        tuning: platforms::tuning(&Parameters::load(&[])?, &spec.platform)?,
    };
    let host = |sharing: &Sharing| request.host.policy(sharing, &mix.tuning);
    assemble(&mix, &attached, &host, request.seed)
}

fn dev(device: &Device) -> Dev {
    let rate = |mb_per_s: f64| ((mb_per_s * 1e6) as u64).max(1);
    match device.kind {
        DeviceKind::Ssd {
            latency,
            spread_permille,
            parallelism,
            mb_per_s,
            turn,
        } => Dev::Ssd(SsdSettings {
            latency,
            spread_permille,
            channels: parallelism,
            rate: rate(mb_per_s),
            turn,
        }),
        DeviceKind::Hdd {
            seek,
            mb_per_s,
            scheduler,
        } => Dev::Hdd(HddSettings {
            seek,
            rate: rate(mb_per_s),
            elevator: match scheduler {
                Elevator::WorkConserving => Scheduler::WorkConserving,
                Elevator::NonWorkConserving { wait, turn } => Scheduler::Cfq { wait, slice: turn },
            },
        }),
        DeviceKind::Network {
            mb_per_s,
            under_way,
            spread_permille,
            interval,
        } => Dev::Net(NetSettings {
            rate: rate(mb_per_s),
            under_way,
            spread_permille,
            interval,
        }),
    }
}

fn attach(device: &Device) -> Attached {
    let fixed = device.completion_vcpu.map(VcpuId);
    Attached {
        path: fixed.map_or(Path::Submitter, Path::Fixed),
        behind_driver: device.behind_driver,
    }
}

/// The n-th VM of the machine.
fn vm(request: &Request<'_>, table: &VmOf, n: usize, devices: &[&str]) -> anyhow::Result<Vm> {
    let platform = (request.platform)(table.vcpus)?;
    let mut kernel = platform.kernel;
    let mut tasks = Vec::new();
    if let Some(backend) = table.backend {
        let copies = table.copies_mb_per_s.map(|rate| (rate * 1e6) as u64);
        tasks.extend((0..table.vcpus).map(|v| {
            Task::on(
                v,
                Work::Backend {
                    work: backend,
                    copies,
                },
            )
        }));
    }
    let beside = request.compute || n > 0;
    let busy = if beside { table.threads_per_vcpu } else { 0 };
    tasks.extend((0..table.vcpus * busy).map(|thread| {
        let vcpu = thread % table.vcpus;
        Task {
            group: Some(request.groups.compute + vcpu),
            ..Task::pinned(vcpu, Work::Compute)
        }
    }));
    let mut completion = None;
    let loads = loads_of(table, request.load);
    for (index, load) in loads.iter().enumerate() {
        let made = Maker {
            request,
            table,
            n,
            platform: &platform,
            device: device_of(load, devices),
        };
        let group = if n == 0 && index == 0 {
            request.groups.io
        } else {
            request.groups.loads + index as u32
        };
        for task in made.tasks(load, &mut kernel)? {
            tasks.push(Task {
                group: Some(group),
                ..task
            });
        }
        let device = request.scenario.devices.get(made.device as usize);
        completion = completion.or(device.and_then(|device| device.completion_vcpu));
    }
    if platforms::autogroup(&spec_platform(request.scenario))? {
        share_weight(&mut tasks);
    }
    if let Some(migration) = table.migration {
        kernel.migration_delay = migration;
    }
    let mut vm = Vm::new(table.vcpus, tasks);
    vm.weight = table.weight;
    vm.cap_permille = cap(request, table)?;
    vm.pins = match &table.pins {
        PinsOf::Anywhere => Pins::Anywhere,
        PinsOf::OneToOne | PinsOf::RoundRobin => Pins::RoundRobin,
        PinsOf::On(pcpus) => Pins::On(pcpus.clone()),
    };
    vm.io = table.class == Some(Class::Io);
    vm.kernel = kernel;
    vm.completion = completion.map(VcpuId);
    if table.arm {
        apply(&mut vm, &request.arm);
    }
    Ok(if table.group { vm.grouped() } else { vm })
}

/// The cap of a VM, which its host's policy has to heed.
fn cap(request: &Request<'_>, table: &VmOf) -> anyhow::Result<u32> {
    let Some(cap) = table.cap else {
        return Ok(0);
    };
    if !heeds_caps(&request.host.name) {
        let heed: Vec<&str> = NAMES
            .iter()
            .copied()
            .filter(|name| heeds_caps(name))
            .collect();
        return Err(Unusable(format!(
            "VM {}: cap = {cap}, and host policy \"{}\" is simulated without caps; leave it out or use one of {}",
            table.name,
            request.host.name,
            heed.join(", ")
        ))
        .into());
    }
    Ok(cap * 10)
}

fn spec_platform(scenario: &Scenario) -> String {
    scenario.sim.clone().unwrap_or_default().platform
}

/// Compute of one session weighs as one task, whatever the number of its threads.
fn share_weight(tasks: &mut [Task]) {
    let compute = |task: &&mut Task| matches!(task.work, Work::Compute) && !task.weighed;
    let count = tasks.iter_mut().filter(compute).count().max(1) as u32;
    for task in tasks.iter_mut().filter(compute) {
        task.weight = (NORMAL_WEIGHT / count).max(2);
    }
}

fn apply(vm: &mut Vm, arm: &InGuest) {
    for task in &mut vm.tasks {
        if matches!(task.work, Work::Io(_) | Work::Echo(..)) {
            task.fifo = arm.fifo;
            task.weight = arm.weight.unwrap_or(task.weight);
        }
    }
    vm.daemon = match (&arm.migrater, &arm.balloon) {
        (Some(settings), _) => Daemon::Vmigrater(Box::new(settings.clone())),
        (_, Some(settings)) => Daemon::Balloon(Box::new(settings.clone())),
        _ => Daemon::None,
    };
}

/// The number of a load's device; a pulse has a disk of its own.
fn device_of(load: &Load, devices: &[&str]) -> u32 {
    let name = load.device.as_deref().unwrap_or(OWN_DISK);
    let place = devices.iter().position(|device| *device == name);
    place.unwrap_or(devices.len() - 1) as u32
}
