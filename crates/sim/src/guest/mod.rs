// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest: its kernel's scheduler, its tasks, and the daemon.
//!
//! # Model
//! Each vCPU has a run queue of its own. While the host runs the vCPU, its
//! current task goes on; when the host takes it away everything on it stops: the
//! current task stays current and cannot be moved, timers and completions that
//! are its own wait for it, and queued tasks are where they are until another
//! vCPU or the daemon takes them.
//!
//! # Layout
//! `settings` what a kernel is like; `task`, `cpu` the state; `run` a vCPU's flow
//! from step to step; `fair`, `eevdf` who runs next; `wake` where a woken task goes, and
//! balancing; `interrupt` what arrives from outside; `sync` barriers and locks;
//! `book` where the time of tasks goes; `migrater` the daemon; `balloon` xBalloon.

mod balloon;
mod book;
mod cpu;
mod eevdf;
mod fair;
mod interrupt;
mod migrater;
mod run;
mod settings;
mod sync;
mod task;
mod wake;

use smallvec::SmallVec;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

pub use balloon::BalloonCounts;
pub use balloon::BalloonSettings;
pub use balloon::Knowledge;
pub use balloon::Told;
pub use migrater::DaemonCosts;
pub use migrater::DaemonCounts;
pub use migrater::Estimator;
pub use migrater::Migrater;
pub use migrater::MigraterSettings;
pub use migrater::Source;
pub use settings::KernelSettings;
pub use sync::Leave;
pub use task::Class;
pub use task::Mask;
pub use task::Profile;
pub use task::Task;
pub use task::TaskState;

use crate::ids::DeviceId;
use crate::ids::TaskId;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::program::Program;
use crate::program::Request;
use crate::queue::Agenda;
use crate::random::Random;
use crate::random::Stream;
use crate::record::TaskLog;
pub(crate) use cpu::Cpu;
pub(crate) use cpu::Irq;
use sync::Syncs;
use task::Awaits;
use task::Doing;
use task::Message;

/// What a guest wants from the world; the engine carries it out when the guest
/// has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// This vCPU has nothing to run.
    Idle(Vcpu),
    /// One vCPU interrupts another.
    Ipi { from: Vcpu, to: Vcpu },
    /// A request for a device.
    Submit {
        vcpu: Vcpu,
        vm: VmId,
        task: TaskId,
        number: u64,
        request: Request,
    },
    /// A task of a driver domain hands on the oldest entry of its ring.
    Serve { vm: VmId, task: TaskId },
}

/// What a guest may use while it runs.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) effects: &'a mut Vec<Effect>,
}

/// A task as it is made.
#[derive(Debug)]
pub struct NewTask {
    /// Its name in reports.
    pub name: String,
    /// Which measured group it belongs to.
    pub group: u32,
    /// How it is scheduled.
    pub class: Class,
    /// Where it may run.
    pub mask: CpuSet,
    /// Where it starts.
    pub vcpu: VcpuId,
    /// What it does.
    pub program: Box<dyn Program>,
}

/// One guest.
#[derive(Debug)]
pub struct Guest {
    pub(crate) vm: VmId,
    pub(crate) kernel: KernelSettings,
    pub(crate) cpus: Vec<Cpu>,
    /// Runnable tasks of each vCPU, the current one included: apart from the rest,
    /// since a task that wakes looks at those of all vCPUs.
    pub(crate) loads: Vec<u16>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) syncs: Syncs,
    pub(crate) next_request: u64,
    /// Requests given to devices that have not come back.
    pub(crate) in_flight: u64,
    pub(crate) migrater: Option<Box<Migrater>>,
    pub(crate) balloons: Option<Box<balloon::Balloons>>,
    /// When the window was opened.
    opened: Time,
    pub(crate) log: Option<Box<TaskLog>>,
    seed: u64,
}

impl Guest {
    /// A guest without tasks; `first` is the host's name of its vCPU 0.
    #[must_use]
    pub fn new(vm: VmId, first: Vcpu, vcpus: u32, kernel: KernelSettings, seed: u64) -> Self {
        Self {
            vm,
            kernel,
            cpus: (0..vcpus).map(|n| Cpu::new(Vcpu(first.0 + n))).collect(),
            loads: vec![0; vcpus as usize],
            tasks: Vec::new(),
            syncs: Syncs::default(),
            next_request: 0,
            in_flight: 0,
            migrater: None,
            balloons: None,
            opened: Time::ZERO,
            log: None,
            seed,
        }
    }

    /// Adds a task that is runnable from the start.
    pub fn add(&mut self, new: NewTask) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        self.tasks.push(Task {
            name: new.name,
            group: new.group,
            class: new.class,
            owned_mask: new.mask.into(),
            mask: new.mask.into(),
            vcpu: new.vcpu,
            state: TaskState::Queued,
            since: Time::ZERO,
            done: crate::program::Done::default(),
            on_cpu: Ns::ZERO,
            io_on_cpu: Ns::ZERO,
            lever: None,
            blocked_io: Ns::ZERO,
            queued: Ns::ZERO,
            inactive: Ns::ZERO,
            held_up: Ns::ZERO,
            away_seen: Ns::ZERO,
            spent: [Ns::ZERO; 7],
            booked: Time::ZERO,
            arrived: SmallVec::new(),
            switches: 0,
            moved: 0,
            profile: Profile::default(),
            program: new.program,
            random: Random::child(self.seed, Stream::Program, self.vm.0, id.0),
            doing: Doing::Ready,
            vruntime: if self.kernel.eevdf.is_some() {
                eevdf::ORIGIN
            } else {
                0
            },
            deadline: eevdf::ORIGIN,
            lag: 0,
            in_transit: false,
            left_at: Time(0),
            slice_ran: Ns::ZERO,
            ran_on: new.vcpu,
            in_flight: SmallVec::new(),
            completed: SmallVec::new(),
            mailbox: std::collections::VecDeque::new(),
            received: 0,
            told: Time::ZERO,
            sleep_epoch: 0,
            awaits: Awaits::Nothing,
        });
        self.cpus[new.vcpu.index()].queue.push(id);
        self.loads[new.vcpu.index()] += 1;
        self.place_new(id);
        id
    }

    /// Says what a task's cycles go into (M18).
    pub fn set_profile(&mut self, task: TaskId, profile: Profile) {
        self.tasks[task.index()].profile = profile;
    }

    /// Adds a barrier for so many tasks; its number is the count of barriers
    /// before it.
    pub fn add_barrier(&mut self, parties: u32, leave: Leave) -> u32 {
        self.syncs.add_barrier(parties, leave)
    }

    /// Adds a lock; its number is the count of locks before it.
    pub fn add_lock(&mut self) -> u32 {
        self.syncs.add_lock()
    }

    /// What its tasks lose when they run on another vCPU than before (the C_avg of
    /// equation 2), instead of the kernel's setting.
    pub const fn set_migration_cost(&mut self, cost: Ns) {
        self.kernel.migration_delay = cost;
    }

    /// Its tasks, by [`TaskId`].
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Devices to which requests of its tasks go; one comes once for each task.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.tasks.iter().filter_map(|task| task.program.device())
    }

    /// Has this vCPU something to run?
    pub(crate) fn has_work(&self, vcpu: VcpuId) -> bool {
        self.loads[vcpu.index()] > 0
    }

    /// Forgets what was counted so far, at `now`: the window opens.
    pub(crate) fn open_window(&mut self, now: Time) {
        for cpu in 0..self.cpus.len() {
            self.account(cpu, now);
            self.cpus[cpu].work = Ns::ZERO;
            self.cpus[cpu].cycles = Default::default();
        }
        if let Some(migrater) = &mut self.migrater {
            migrater.counts = DaemonCounts::default();
        }
        self.open_balloon_window(now);
        self.opened = now;
        for task in 0..self.tasks.len() {
            self.settle(TaskId(task as u32), now);
            let task = &mut self.tasks[task];
            task.done = crate::program::Done::default();
            task.on_cpu = Ns::ZERO;
            task.io_on_cpu = Ns::ZERO;
            task.blocked_io = Ns::ZERO;
            task.queued = Ns::ZERO;
            task.inactive = Ns::ZERO;
            task.held_up = Ns::ZERO;
            task.spent = [Ns::ZERO; 7];
            task.switches = 0;
            task.moved = 0;
        }
    }

    /// Accounts everything up to `now`; nothing else changes.
    pub(crate) fn close_window(&mut self, now: Time) {
        for cpu in 0..self.cpus.len() {
            self.account(cpu, now);
        }
        for task in 0..self.tasks.len() {
            self.settle(TaskId(task as u32), now);
        }
    }

    /// Completions that have come to a vCPU and wait until it runs.
    pub(crate) fn completions(&self) -> u64 {
        let pending = self.cpus.iter().flat_map(|cpu| &cpu.pending);
        let completions = pending.filter(|irq| matches!(irq, Irq::Complete { .. }));
        completions.count() as u64
    }

    /// Is everything where it should be?
    ///
    /// # Errors
    /// A text that says what is wrong: a bug of the simulator.
    pub fn check(&self, now: Time) -> Result<(), String> {
        self.check_books(now)?;
        let mut places = vec![0u32; self.tasks.len()];
        for (n, cpu) in self.cpus.iter().enumerate() {
            let load = cpu.queue.len() + usize::from(cpu.current.is_some());
            if load != usize::from(self.loads[n]) {
                return Err(format!("vCPU {n} has {load} tasks, not {}", self.loads[n]));
            }
            for task in cpu.queue.iter().chain(&cpu.current) {
                places[task.index()] += 1;
                let t = &self.tasks[task.index()];
                if t.vcpu.index() != n || !t.runnable() {
                    return Err(format!(
                        "task {} is on vCPU {n} and says {:?} {}",
                        t.name, t.state, t.vcpu
                    ));
                }
            }
        }
        let mut waiting = 0;
        for (task, places) in self.tasks.iter().zip(places) {
            if places != u32::from(task.runnable()) {
                return Err(format!(
                    "task {} is {:?} in {places} places",
                    task.name, task.state
                ));
            }
            if task.state == TaskState::BlockedIo && task.in_flight.is_empty() {
                return Err(format!(
                    "task {} waits for a request that does not exist",
                    task.name
                ));
            }
            waiting += task.in_flight.len() as u64;
        }
        if waiting != self.in_flight {
            return Err(format!(
                "{waiting} requests are waited for, {} are in flight",
                self.in_flight
            ));
        }
        Ok(())
    }
}
