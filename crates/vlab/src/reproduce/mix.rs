// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with several different VMs, as the experiments need them.

use policy::guest::xballoon;
use rayon::prelude::*;
use sim::device::Device;
use sim::device::Hdd;
use sim::device::HddSettings;
use sim::device::Net;
use sim::device::NetSettings;
use sim::device::Path;
use sim::device::Ssd;
use sim::device::SsdSettings;
use sim::engine::Sim;
use sim::guest::BalloonSettings;
use sim::guest::Class;
use sim::guest::Guest;
use sim::guest::KernelSettings;
use sim::guest::Knowledge;
use sim::guest::Migrater;
use sim::guest::MigraterSettings;
use sim::guest::NewTask;
use sim::guest::Told;
use sim::ids::TaskId;
use sim::ids::Vcpu;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::program::Backend;
use sim::program::Compute;
use sim::program::Dodger;
use sim::program::Echo;
use sim::program::FakeIo;
use sim::program::Later;
use sim::program::Locked;
use sim::program::Parallel;
use sim::program::Program;
use sim::program::Reader;
use sim::program::ReaderSettings;
use sim::program::Until;
use sim::queue::QueueKind;
use units::CpuId;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::did;
use super::did::Run;
use super::parameters::Parameters;
use super::tuning::Tuning;
use super::tuning::policy_of;

/// What a task does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Computes for ever.
    Compute,
    /// Keeps requests in flight.
    Io(ReaderSettings),
    /// Answers messages: device, work.
    Echo(u32, Ns),
    /// Computes and meets the others of its VM at a barrier.
    Parallel {
        /// Median work of a round.
        length: Ns,
        /// Sigma of its logarithm in thousandths.
        spread: u32,
        /// Spins so long before it blocks.
        spin: Ns,
    },
    /// Serves the ring of a driver domain.
    Backend(Ns),
    /// Takes one lock of its VM again and again.
    Locks {
        /// Median work outside.
        work: Ns,
        /// Sigma of its logarithm in thousandths.
        spread: u32,
        /// Work while it holds it.
        hold: Ns,
        /// Spins so long before it blocks.
        spin: Ns,
    },
    /// Sleeps over the ticks: from tick to tick, before and after each.
    Dodge(Ns, Ns),
    /// Makes I/O events: device, work between two.
    FakeIo(u32, Ns),
}

/// Groups of tasks.
pub(super) const COMPUTE: u32 = 0;
pub(super) const IO: u32 = 1;
pub(super) const ECHO: u32 = 2;
pub(super) const PARALLEL: u32 = 3;
pub(super) const BACKEND: u32 = 4;

/// A unit of compute tasks: short against any slice, long against an event.
pub(super) const UNIT: Ns = Ns::from_ms(1);

/// One task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) work: Work,
    pub(super) vcpu: u32,
    /// Stays on that vCPU.
    pub(super) pinned: bool,
    /// Its weight in the guest, in the units of Linux.
    pub(super) weight: u32,
    /// Begins then.
    pub(super) at: Ns,
    /// Ends with the first request or unit after that.
    pub(super) until: Option<Ns>,
    /// Before all tasks with a weight (`SCHED_FIFO`).
    pub(super) fifo: bool,
    /// Its measured group, if it is not that of its work.
    pub(super) group: Option<u32>,
}

impl Task {
    pub(super) const fn on(vcpu: u32, work: Work) -> Self {
        Self {
            work,
            vcpu,
            pinned: false,
            weight: NORMAL_WEIGHT,
            at: Ns::ZERO,
            until: None,
            fifo: false,
            group: None,
        }
    }

    pub(super) const fn pinned(vcpu: u32, work: Work) -> Self {
        Self {
            pinned: true,
            ..Self::on(vcpu, work)
        }
    }
}

/// The tasks of one session: with `SCHED_AUTOGROUP`, which Ubuntu's kernels have,
/// they share the weight of one task of another session.
pub(super) fn session(p: &Parameters, mut tasks: Vec<Task>) -> anyhow::Result<Vec<Task>> {
    if p.get("guest.autogroup")? != 0.0 {
        let weight = (NORMAL_WEIGHT / tasks.len().max(1) as u32).max(2);
        for task in &mut tasks {
            task.weight = weight;
        }
    }
    Ok(tasks)
}

/// Where the vCPUs of a VM may run.
#[derive(Clone, Debug)]
pub(super) enum Pins {
    Anywhere,
    /// vCPU n on pCPU n.
    OneToOne,
    /// All of them on any of these.
    On(Vec<u32>),
}

/// The guest's own system.
#[derive(Clone, Debug)]
pub(super) enum Daemon {
    None,
    Vmigrater(Box<MigraterSettings>),
    /// xBalloon: the share of a CPU that one I/O task would use, in thousandths;
    /// the host's slice, and the gap after it; does it pause all vCPUs?
    Xballoon(u32, Ns, Ns, bool),
    /// xBalloon as the daemon has it: it finds out.
    Balloon(Box<MigraterSettings>),
}

/// One VM.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    pub(super) vcpus: u32,
    /// Of each of its vCPUs, in the units of Linux.
    pub(super) weight: u32,
    /// Of its control group, if it is one.
    pub(super) shares: Option<u32>,
    pub(super) pins: Pins,
    pub(super) io: bool,
    pub(super) kernel: KernelSettings,
    pub(super) tasks: Vec<Task>,
    pub(super) daemon: Daemon,
    /// The vCPU on which completions of its disks arrive, if it is always the same.
    pub(super) completion: Option<VcpuId>,
}

impl Vm {
    pub(super) fn new(vcpus: u32, tasks: Vec<Task>) -> Self {
        let io = |task: &Task| matches!(task.work, Work::Io(_) | Work::Echo(..));
        Self {
            vcpus,
            weight: NORMAL_WEIGHT,
            shares: None,
            pins: Pins::Anywhere,
            io: tasks.iter().any(io),
            kernel: KernelSettings::scaled(vcpus),
            tasks,
            daemon: Daemon::None,
            completion: None,
        }
    }

    /// As a control group of libvirt: all of it weighs as one vCPU alone.
    pub(super) fn grouped(mut self) -> Self {
        self.shares = Some(NORMAL_WEIGHT);
        self
    }
}

/// A device.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dev {
    Ssd(SsdSettings),
    Hdd(HddSettings),
    Net(NetSettings),
}

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pub(super) pcpus: u32,
    pub(super) smt: Option<Smt>,
    pub(super) costs: Costs,
    pub(super) devices: Vec<Dev>,
    /// The number of the driver domain's VM; devices are behind it.
    pub(super) driver: Option<u32>,
    pub(super) vms: Vec<Vm>,
    pub(super) slice: Ns,
    pub(super) tuning: Tuning,
}

/// How long, how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effort {
    pub(super) warmup: Ns,
    pub(super) window: Ns,
    pub(super) seeds: u64,
    /// The first of them.
    pub(super) first: u64,
}

/// Runs under a policy; figures are means over the seeds.
pub(super) fn run(mix: &Mix, policy: &str, effort: Effort) -> anyhow::Result<Run> {
    let runs: Vec<Run> = (effort.first..effort.first + effort.seeds)
        .into_par_iter()
        .map(|seed| {
            let mut sim = build(mix, policy, seed)?;
            sim.run_until(Time::ZERO + effort.warmup);
            sim.open_window();
            let before = did::books(&sim);
            sim.run_until(Time::ZERO + effort.warmup + effort.window);
            Ok(did::run(&sim, &before, effort.window))
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(did::mean(&runs))
}

/// I/O bytes per second of all VMs in each `step` of the window.
pub(super) fn series(
    mix: &Mix,
    policy: &str,
    effort: Effort,
    step: Ns,
) -> anyhow::Result<Vec<f64>> {
    let mut sim = build(mix, policy, effort.first)?;
    sim.run_until(Time::ZERO + effort.warmup);
    sim.open_window();
    let mut last = 0;
    let mut rates = Vec::new();
    for n in 1..=effort.window.as_ns() / step.as_ns() {
        sim.run_until(Time::ZERO + effort.warmup + step * n);
        let bytes = did::io_bytes(&sim);
        rates.push((bytes - last) as f64 / step.as_secs_f64());
        last = bytes;
    }
    Ok(rates)
}

/// In each `step` of the window: I/O bytes per second of all VMs, and what the
/// policy's counter of this name has grown by.
pub(super) fn watched(
    mix: &Mix,
    policy: &str,
    counter: &str,
    effort: Effort,
    step: Ns,
) -> anyhow::Result<Vec<(f64, u64)>> {
    let mut sim = build(mix, policy, effort.first)?;
    sim.run_until(Time::ZERO + effort.warmup);
    sim.open_window();
    let now = |sim: &Sim| {
        let counters = sim.hypervisor().counters();
        let count = counters.iter().find(|(name, _)| *name == counter);
        (did::io_bytes(sim), count.map_or(0, |(_, count)| *count))
    };
    let mut last = now(&sim);
    let mut steps = Vec::new();
    for n in 1..=effort.window.as_ns() / step.as_ns() {
        sim.run_until(Time::ZERO + effort.warmup + step * n);
        let next = now(&sim);
        let bytes = (next.0 - last.0) as f64;
        steps.push((bytes / step.as_secs_f64(), next.1 - last.1));
        last = next;
    }
    Ok(steps)
}

/// How a device is attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attached {
    pub(super) path: Path,
    pub(super) behind_driver: bool,
}

fn build(mix: &Mix, policy: &str, seed: u64) -> anyhow::Result<Sim> {
    let attached = Attached {
        path: Path::Submitter,
        behind_driver: mix.driver.is_some(),
    };
    assemble(mix, &vec![attached; mix.devices.len()], policy, seed)
}

/// A machine whose devices are attached in different ways.
pub(super) fn assemble(
    mix: &Mix,
    attached: &[Attached],
    policy: &str,
    seed: u64,
) -> anyhow::Result<Sim> {
    let policy = policy_of(mix, policy)?;
    let smt = mix.smt.unwrap_or_default();
    let mut machine = Machine::new(mix.pcpus, mix.smt.is_some(), mix.costs, smt);
    let mut guests = Vec::new();
    for (n, vm) in mix.vms.iter().enumerate() {
        let pins: Vec<Vec<CpuId>> = (0..vm.vcpus)
            .map(|vcpu| match &vm.pins {
                Pins::Anywhere => Vec::new(),
                Pins::OneToOne => vec![CpuId(vcpu % mix.pcpus)],
                Pins::On(pcpus) => pcpus.iter().copied().map(CpuId).collect(),
            })
            .collect();
        let id = machine.add_vm(&format!("vm{n}"), vm.weight, &pins);
        machine.vms[n].io_intensive = vm.io;
        machine.vms[n].shares = vm.shares;
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
    if let Some(driver) = mix.driver {
        let backends: Vec<TaskId> = (0..mix.vms[driver as usize].tasks.len() as u32)
            .map(TaskId)
            .collect();
        sim.set_driver(VmId(driver), &backends);
    }
    Ok(sim)
}

fn guest(vm: &Vm, id: VmId, first: Vcpu, seed: u64) -> Guest {
    let mut guest = Guest::new(id, first, vm.vcpus, vm.kernel, seed);
    let parallel = |task: &&Task| matches!(task.work, Work::Parallel { .. });
    guest.add_barrier(vm.tasks.iter().filter(parallel).count() as u32);
    guest.add_lock();
    let mut compute = Vec::new();
    for task in &vm.tasks {
        let (group, program) = program(task);
        let added = guest.add(NewTask {
            name: format!("{group}"),
            group: task.group.unwrap_or(group),
            class: if task.fifo {
                Class::Fifo
            } else {
                Class::Fair(task.weight)
            },
            mask: if task.pinned {
                CpuSet::only(VcpuId(task.vcpu))
            } else {
                CpuSet::first(vm.vcpus)
            },
            vcpu: VcpuId(task.vcpu % vm.vcpus.max(1)),
            program,
        });
        if group == COMPUTE || group == PARALLEL {
            compute.push(added);
        }
    }
    match &vm.daemon {
        Daemon::None => {}
        Daemon::Vmigrater(settings) => {
            guest.set_migrater(Migrater::new((**settings).clone(), vm.vcpus, vm.completion));
        }
        Daemon::Balloon(settings) => {
            guest.set_xballoon(xballoon::Settings::default(), (**settings).clone());
        }
        Daemon::Xballoon(demand_permille, slice, gap, whole_vm) => {
            guest.set_balloon(BalloonSettings {
                rules: xballoon::Settings::default(),
                knowledge: Knowledge::Told(Told {
                    compute,
                    demand_permille: *demand_permille,
                    slice: *slice,
                    gap: *gap,
                }),
                whole_vm: *whole_vm,
            })
        }
    }
    guest
}

fn program(task: &Task) -> (u32, Box<dyn Program>) {
    let (group, program): (u32, Box<dyn Program>) = match task.work {
        Work::Compute => (COMPUTE, Box::new(Compute::new(UNIT))),
        Work::Io(settings) => (IO, Box::new(Reader::new(settings))),
        Work::Echo(device, work) => {
            let echo = Echo::new(sim::ids::DeviceId(device), 64, work);
            (ECHO, Box::new(echo))
        }
        Work::Parallel {
            length,
            spread,
            spin,
        } => (
            PARALLEL,
            Box::new(Parallel {
                barrier: 0,
                length,
                spread,
                spin,
                computed: false,
            }),
        ),
        Work::Backend(work) => (BACKEND, Box::new(Backend::new(work))),
        Work::Locks {
            work,
            spread,
            hold,
            spin,
        } => (PARALLEL, Box::new(Locked::new(0, work, spread, hold, spin))),
        Work::Dodge(tick, early) => (COMPUTE, Box::new(Dodger::new(tick, early))),
        Work::FakeIo(device, every) => (
            COMPUTE,
            Box::new(FakeIo::new(sim::ids::DeviceId(device), every)),
        ),
    };
    let program = match task.until {
        None => program,
        Some(end) => Box::new(Until::new(end, program)),
    };
    if task.at == Ns::ZERO {
        (group, program)
    } else {
        (group, Box::new(Later::new(task.at, program)))
    }
}
