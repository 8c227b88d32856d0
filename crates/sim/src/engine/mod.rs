// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop that connects machine, hypervisor, guests and devices.
//!
//! `parts` finds what never meets; `pcpu` puts vCPUs on pCPUs and takes them off; `vcpu` wakes, idles and
//! interrupts them; `carry` calls guests, policies and devices. These never call each
//! other: a guest leaves effects, a policy leaves requests, and the engine carries
//! them out when the call has returned.

mod carry;
mod check;
mod driver;
mod parts;
mod pcpu;
mod vcpu;

use std::collections::VecDeque;
use std::ops::Range;

use units::CpuId;
use units::Ns;
use units::Time;

use crate::device::Device;
use crate::device::Io;
use crate::device::Path;
use crate::event::Event;
use crate::guest::Effect;
use crate::guest::Guest;
use crate::guest::Irq;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::Requests;
use crate::hypervisor::Wake;
use crate::hypervisor::Why;
use crate::ids::DeviceId;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::machine::Machine;
use crate::machine::State;
use crate::program::Latencies;
use crate::queue::Agenda;
use crate::queue::QueueKind;
use crate::random::Random;
use crate::random::Stream;
use crate::record::Recording;
use crate::record::VcpuLog;
pub use driver::Queues;

/// A device and what belongs to it.
#[derive(Debug)]
struct Attached {
    device: Box<dyn Device>,
    random: Random,
    path: Path,
    /// Requests and completions go through the driver domain.
    behind_driver: bool,
}

/// A simulation.
#[derive(Debug)]
pub struct Sim {
    agenda: Agenda,
    machine: Machine,
    hypervisor: Box<dyn Hypervisor>,
    requests: Requests,
    guests: Vec<Guest>,
    devices: Vec<Attached>,
    driver: Option<driver::Driver>,
    effects: Vec<Effect>,
    later: VecDeque<Effect>,
    completed: Vec<Io>,
    seed: u64,
    started: bool,
    start_spread: Ns,
    /// pCPUs by what never meets, and where things happen now.
    parts: Vec<Range<u32>>,
    part: usize,
    kept_whole: bool,
    /// This pCPU is about to pick: a kick for it now would be once too often.
    choosing: Option<CpuId>,
    /// Completions on their way from a device to a vCPU, at this instant.
    completing: u64,
    /// Events since the books were last checked.
    unchecked: u64,
}

impl Sim {
    /// A machine under a policy, without guests.
    #[must_use]
    pub fn new(
        machine: Machine,
        hypervisor: Box<dyn Hypervisor>,
        queue: QueueKind,
        seed: u64,
    ) -> Self {
        let whole = 0..machine.pcpus.len() as u32;
        Self {
            agenda: Agenda::new(queue),
            machine,
            hypervisor,
            requests: Requests::default(),
            guests: Vec::new(),
            devices: Vec::new(),
            driver: None,
            effects: Vec::new(),
            later: VecDeque::new(),
            completed: Vec::new(),
            seed,
            started: false,
            start_spread: Ns::ZERO,
            parts: std::iter::once(whole).collect(),
            part: 0,
            kept_whole: false,
            choosing: None,
            completing: 0,
            unchecked: 0,
        }
    }

    /// Adds the guest of the next VM of the machine.
    pub fn add_guest(&mut self, guest: Guest) {
        debug_assert_eq!(guest.vm.index(), self.guests.len());
        self.guests.push(guest);
    }

    /// Adds a device; its completions take this path in every VM.
    pub fn add_device(&mut self, device: Box<dyn Device>, path: Path) -> DeviceId {
        let id = DeviceId(self.devices.len() as u32);
        self.devices.push(Attached {
            device,
            random: Random::child(self.seed, Stream::Device, 0, id.0),
            path,
            behind_driver: false,
        });
        id
    }

    /// As [`Sim::add_device`], for a device of the driver domain
    /// ([`Sim::set_driver`]).
    pub fn add_device_behind_driver(&mut self, device: Box<dyn Device>, path: Path) -> DeviceId {
        let id = self.add_device(device, path);
        self.devices[id.index()].behind_driver = true;
        id
    }

    /// Round trips of all clients of a VM since the window opened.
    #[must_use]
    pub fn round_trips(&self, vm: VmId) -> Latencies {
        let mut all = Latencies::default();
        for attached in &self.devices {
            all.merge(&attached.device.round_trips(vm));
        }
        all
    }

    /// Lets vCPUs come up at instants drawn from the first `spread` of the run,
    /// instead of all at once. Where everything begins together and costs the
    /// same, the slices of all pCPUs stay in step for ever: every VM is
    /// coscheduled by accident, and no vCPU of it runs while the others do not.
    /// Real machines drift apart. Call it before the first run.
    pub const fn spread_starts(&mut self, spread: Ns) {
        self.start_spread = spread;
    }

    /// The present instant.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.agenda.now()
    }

    /// Events that have happened.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.agenda.happened()
    }

    /// The machine with its books, as of the last [`Sim::run_until`].
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A guest, as of the last [`Sim::run_until`].
    #[must_use]
    pub fn guest(&self, vm: VmId) -> &Guest {
        &self.guests[vm.index()]
    }

    /// All guests.
    #[must_use]
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// The policy.
    #[must_use]
    pub fn hypervisor(&self) -> &dyn Hypervisor {
        &*self.hypervisor
    }

    /// Lets everything happen up to and at `end`, and settles the books.
    pub fn run_until(&mut self, end: Time) {
        if !self.started {
            self.started = true;
            self.start();
        }
        self.run_until_quietly(end);
        let now = self.now();
        self.machine.settle(now);
        for guest in &mut self.guests {
            guest.close_window(now);
        }
        self.tell_all_work();
        if cfg!(debug_assertions) {
            self.check_now();
        }
    }

    /// As [`Sim::run_until`], without settling the books: for a look in between.
    pub fn run_until_quietly(&mut self, end: Time) {
        for part in 0..self.parts.len() {
            self.turn_to(part);
            while let Some(event) = self.agenda.next(end) {
                self.happen(event);
                if cfg!(debug_assertions) {
                    self.check_in_turn();
                }
            }
        }
    }

    /// Does any vCPU of this VM run now?
    #[must_use]
    pub fn any_on(&self, vm: VmId) -> bool {
        let range = self.machine.vms[vm.index()].vcpus.clone();
        self.machine.vcpus[range.start as usize..range.end as usize]
            .iter()
            .any(|vcpu| matches!(vcpu.state, State::Running(_) | State::Waiting(_)))
    }

    /// Forgets what tasks have counted so far: the measured window opens.
    pub fn open_window(&mut self) {
        let now = self.now();
        for guest in &mut self.guests {
            guest.open_window(now);
        }
        self.tell_all_work();
        for attached in &mut self.devices {
            attached.device.open_window();
        }
    }

    /// Keeps, from now until `until`, what the vCPUs of a VM and its tasks of a group
    /// do. The books have to be settled: call it where a window is opened.
    pub fn record(&mut self, vm: VmId, group: u32, until: Time) {
        let count = self.machine.vms[vm.index()].vcpus.len();
        self.machine.log = Some(VcpuLog {
            vm,
            until,
            vcpus: vec![Vec::new(); count],
        });
        self.guests[vm.index()].record(group, until);
    }

    /// What was kept up to the last [`Sim::run_until`]; nothing is any more.
    pub fn recorded(&mut self) -> Option<Recording> {
        let log = self.machine.log.take()?;
        let tasks = self.guests[log.vm.index()].log.take()?;
        Some(Recording {
            vcpus: log.vcpus,
            tasks: tasks.tasks,
            moves: tasks.moves,
        })
    }

    fn start(&mut self) {
        self.with_policy(|policy, host| policy.start(host));
        self.divide();
        for part in 0..self.parts.len() {
            self.turn_to(part);
            if let Some(period) = self.hypervisor.tick_period() {
                self.agenda.at(self.now() + period, Event::HostTick);
            }
            if let Some(period) = self.hypervisor.slow_period() {
                self.agenda.at(self.now() + period, Event::HostSlow);
            }
        }
        for n in 0..self.machine.vcpus.len() {
            let vcpu = Vcpu(n as u32);
            let (vm, id) = (self.machine.vcpus[n].vm, self.machine.vcpus[n].id);
            self.turn_to(self.part_of(vm));
            if self
                .guests
                .get(vm.index())
                .is_some_and(|guest| guest.has_work(id))
            {
                let mut random = Random::child(self.seed, Stream::Setup, vm.0, id.0);
                let late = Ns(random.below(self.start_spread.as_ns()));
                if late == Ns::ZERO {
                    self.wake(vcpu, Why::Start);
                } else {
                    self.agenda.at(self.now() + late, Event::Start { vcpu });
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Work { vcpu, epoch } => {
                self.in_guest(vcpu, |guest, id, world| guest.work(id, epoch, world))
            }
            Event::Timer { vcpu, task, epoch } => {
                self.interrupt(vcpu, Irq::Timer { task, epoch }, Wake::Timer);
            }
            Event::Complete {
                vcpu,
                task,
                request,
            } => {
                self.completing -= 1;
                self.io_event(vcpu);
                self.interrupt(vcpu, Irq::Complete { task, request }, Wake::Io);
            }
            Event::Message { vcpu, task, bytes } => {
                // To a guest it is an event of the driver domain like a completion.
                let vm = self.machine.vcpus[vcpu.index()].vm;
                if !self.machine.vms[vm.index()].driver_domain {
                    self.io_event(vcpu);
                }
                self.interrupt(vcpu, Irq::Message { task, bytes }, Wake::Io);
            }
            Event::Balloon { vcpu, epoch } => {
                self.interrupt(vcpu, Irq::Balloon { epoch }, Wake::Timer);
            }
            Event::Device { device, token } => {
                self.with_device(device, |device, cx| device.event(token, cx))
            }
            Event::Daemon { vm, vcpu, epoch } => {
                let vcpu = self.machine.vcpu(vm, vcpu);
                self.interrupt(vcpu, Irq::Daemon { epoch }, Wake::Timer);
            }
            Event::Client { .. } => {}
            Event::Start { vcpu } => {
                // An interrupt may have been first.
                if self.state(vcpu) == State::Halted {
                    self.wake(vcpu, Why::Start);
                }
            }
            Event::Enter { pcpu, vcpu, epoch } => self.entered(pcpu, vcpu, epoch),
            Event::WaitEnd { vcpu, epoch } => self.wait_end(vcpu, epoch),
            Event::SliceEnd { pcpu, epoch } => {
                if self.machine.pcpus[pcpu.index()].epoch == epoch {
                    self.resched(pcpu, Why::SliceEnd);
                }
            }
            Event::Resched { pcpu } => {
                let now = self.now();
                let kicks = &mut self.machine.pcpus[pcpu.index()].kicks;
                kicks.retain(|at| *at > now);
                self.resched(pcpu, Why::Preempted);
            }
            Event::HostTick => {
                self.charge_all();
                self.with_policy(|policy, host| policy.tick(host));
                if let Some(period) = self.hypervisor.tick_period() {
                    self.agenda.at(self.now() + period, Event::HostTick);
                }
            }
            Event::HostSlow => {
                self.charge_all();
                self.with_policy(|policy, host| policy.slow(host));
                if let Some(period) = self.hypervisor.slow_period() {
                    self.agenda.at(self.now() + period, Event::HostSlow);
                }
            }
            Event::HostTimer { token } => {
                self.with_policy(|policy, host| policy.timer(host, token))
            }
        }
    }

    fn tell_all_work(&mut self) {
        for guest in 0..self.guests.len() {
            for cpu in 0..self.guests[guest].cpus.len() {
                self.tell_work(self.guests[guest].cpus[cpu].host);
            }
        }
    }

    /// Work per running time is the IPC that a policy may look at (M11).
    fn tell_work(&mut self, vcpu: Vcpu) {
        let facts = &mut self.machine.vcpus[vcpu.index()];
        let cpu = &self.guests[facts.vm.index()].cpus[facts.id.index()];
        facts.work = cpu.work;
        facts.cycles = cpu.cycles;
    }

    fn state(&self, vcpu: Vcpu) -> State {
        self.machine.vcpus[vcpu.index()].state
    }

    /// Charges a vCPU for the time since it was charged last.
    fn charge(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        let now = self.now();
        let state = self.state(vcpu);
        self.machine.set_state(now, vcpu, state);
        let ran = std::mem::take(&mut self.machine.vcpus[vcpu.index()].owed);
        if ran > Ns::ZERO {
            let waited = if matches!(state, State::Waiting(_)) {
                ran
            } else {
                Ns::ZERO
            };
            self.with_policy(|policy, host| policy.charge(host, vcpu, pcpu, ran, waited));
        }
    }

    fn charge_all(&mut self) {
        for n in self.parts[self.part].clone() {
            if let Some(vcpu) = self.machine.pcpus[n as usize].vcpu {
                self.tell_work(vcpu);
                self.charge(vcpu, CpuId(n));
            }
        }
    }
}
