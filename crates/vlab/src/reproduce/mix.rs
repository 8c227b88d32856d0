// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with several different VMs, as the experiments need them: here what they
//! are, `build` makes simulations of them, `guest` what is in the VMs, `runs` runs them,
//! `memo` remembers runs.

mod build;
mod guest;
mod memo;
mod runs;

use sim::device::HddSettings;
use sim::device::NetSettings;
use sim::device::SsdSettings;
use sim::engine::Queues;
use sim::guest::BalloonSettings;
use sim::guest::KernelSettings;
use sim::guest::Leave;
use sim::guest::MigraterSettings;
use sim::machine::Costs;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::program::Alone;
use sim::program::ReaderSettings;
use units::Ns;
use units::VcpuId;

pub(super) use self::build::Attached;
pub(super) use self::build::assemble;
pub(super) use self::memo::Memo;
pub(super) use self::runs::run;
pub(super) use self::runs::series;
use super::parameters::Parameters;
use super::tuning::Tuning;

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
        /// That of how much a thread has in all rounds.
        skew: u32,
        /// Spins so long before it blocks.
        spin: Ns,
        /// What the first thread does alone while the others wait.
        alone: Option<Alone>,
        /// How they leave the barrier.
        leave: Leave,
    },
    /// Serves the ring of a driver domain.
    Backend {
        /// For each entry.
        work: Ns,
        /// Bytes of a network per second; `None`: copies at once.
        copies: Option<u64>,
    },
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
/// What is not to be counted with the others of its kind.
pub(super) const UNCOUNTED: u32 = 5;

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
    /// That is its weight whoever else is of its session.
    pub(super) weighed: bool,
    /// Begins then.
    pub(super) at: Ns,
    /// CPU time from then on before it does what it is for.
    pub(super) start_up: Ns,
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
            weighed: false,
            at: Ns::ZERO,
            start_up: Ns::ZERO,
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

    /// With a weight of its own, if it has one.
    pub(super) const fn weighing(self, weight: Option<u32>) -> Self {
        match weight {
            Some(weight) => Self {
                weight,
                weighed: true,
                ..self
            },
            None => self,
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
    /// vCPU n on pCPU n modulo their number.
    RoundRobin,
    /// All of them on any of these.
    On(Vec<u32>),
}

/// The guest's own system.
#[derive(Clone, Debug)]
pub(super) enum Daemon {
    None,
    Vmigrater(Box<MigraterSettings>),
    /// xBalloon, told what it acts on; who computes is known when the guest is built.
    Xballoon(Box<BalloonSettings>),
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
    /// In thousandths of a pCPU, for all its vCPUs; 0: no limit.
    pub(super) cap_permille: u32,
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
            cap_permille: 0,
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

/// A driver domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver {
    /// The number of its VM.
    pub(super) vm: u32,
    /// Which of its tasks serves what.
    pub(super) queues: Queues,
    /// The number of the VM at the far end of the networks behind it, if that is one of
    /// these.
    pub(super) far_end: Option<u32>,
}

impl Driver {
    /// With a ring for each VM, and networks that lead out of the host.
    pub(super) fn of(vm: u32) -> Self {
        Self {
            vm,
            queues: Queues::default(),
            far_end: None,
        }
    }
}

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pub(super) pcpus: u32,
    pub(super) smt: Option<Smt>,
    pub(super) costs: Costs,
    pub(super) devices: Vec<Dev>,
    /// The driver domain, if devices are behind one.
    pub(super) driver: Option<Driver>,
    pub(super) vms: Vec<Vm>,
    pub(super) slice: Ns,
    pub(super) tuning: Tuning,
}

/// How long, how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort<'a> {
    pub(super) warmup: Ns,
    pub(super) window: Ns,
    pub(super) seeds: u64,
    /// The first of them.
    pub(super) first: u64,
    /// Where runs are looked for that have been made, if not all are to be made.
    pub(super) memo: Option<&'a Memo>,
}
