// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small machine, VMs on it, and a record of who was picked when.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::Mutex;

use units::CpuId;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

use crate::device::Delay;
use crate::device::Path;
use crate::engine::Sim;
use crate::guest::Class;
use crate::guest::Guest;
use crate::guest::KernelSettings;
use crate::guest::Leave;
use crate::guest::NewTask;
use crate::hypervisor::Host;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::Idle;
use crate::hypervisor::Pick;
use crate::hypervisor::Why;
use crate::ids::DeviceId;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::machine::Costs;
use crate::machine::Machine;
use crate::machine::NORMAL_WEIGHT;
use crate::machine::Smt;
use crate::program::Compute;
use crate::program::Cx;
use crate::program::Dodger;
use crate::program::FakeIo;
use crate::program::Program;
use crate::program::Reader;
use crate::program::ReaderSettings;
use crate::program::Step;
use crate::queue::QueueKind;

/// What a vCPU of a VM has to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Computes for ever.
    Hog,
    /// Reads from a device of 1 ms, 200 us of work for each.
    Reads,
    /// Computes for so long, then waits for its siblings at a barrier.
    Barrier(Ns),
    /// Computes for the first, sleeps for the second, again and again.
    Naps(Ns, Ns),
    /// Computes for so long, then waits for the device of 1 ms, again and again.
    Works(Ns),
    /// Computes, but sleeps for so much around each of these ticks.
    Dodges(Ns, Ns),
    /// Computes and asks for a byte after so much, for which it does not wait.
    Fakes(Ns),
    /// Reads like [`Task::Reads`] for half a second. Then it computes for the first and asks
    /// for a byte each millisecond, sleeps for the second, again and again.
    Pretends(Ns, Ns),
}

/// A reader with so much work for each request.
fn reader(work: Ns) -> Box<dyn Program> {
    Box::new(Reader::new(ReaderSettings {
        device: DeviceId(0),
        depth: 1,
        bytes: 4096,
        start: 0,
        span: 1 << 30,
        sequential: false,
        submit: work / 2,
        process: work / 2,
        process_spread: 0,
        further: None,
        write: false,
        phases: None,
    }))
}

/// A VM: the tasks of each vCPU, weight, shares if it is a control group, cap, whether
/// vCPU n may use pCPU n alone, declared I/O-intensive.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    pub(super) vcpus: Vec<Vec<Task>>,
    pub(super) weight: u32,
    pub(super) shares: Option<u32>,
    pub(super) cap_permille: u32,
    pub(super) pinned: bool,
    pub(super) io: bool,
}

pub(super) fn vm(vcpus: &[&[Task]]) -> Vm {
    Vm {
        vcpus: vcpus.iter().map(|tasks| tasks.to_vec()).collect(),
        weight: NORMAL_WEIGHT,
        shares: None,
        cap_permille: 0,
        pinned: false,
        io: vcpus
            .iter()
            .flat_map(|t| t.iter())
            .any(|t| matches!(t, Task::Reads)),
    }
}

pub(super) const FREE: Costs = Costs::FREE;

/// Group of readers.
const READERS: u32 = 1;

/// Computes and meets its siblings.
#[derive(Debug)]
struct Parallel {
    length: Ns,
    computed: bool,
}

impl Program for Parallel {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        self.computed = !self.computed;
        if self.computed {
            return Step::Compute(self.length);
        }
        cx.done.operations += 1;
        Step::Barrier {
            barrier: 0,
            spin: Ns::from_us(20),
        }
    }
}

/// Computes and sleeps in turn.
#[derive(Debug)]
struct Napping {
    works: Ns,
    sleeps: Ns,
    computed: bool,
}

impl Program for Napping {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        self.computed = !self.computed;
        if self.computed {
            return Step::Compute(self.works);
        }
        cx.done.operations += 1;
        Step::Sleep(self.sleeps)
    }
}

/// Is a reader at first, and then makes I/O events while it computes and sleeps so that it
/// does not look busy.
#[derive(Debug)]
struct Pretending {
    reads: Box<dyn Program>,
    /// Steps of `reads`; each read has four.
    read: u32,
    fakes: FakeIo,
    works: Ns,
    sleeps: Ns,
    ran: Ns,
}

impl Program for Pretending {
    fn next(&mut self, cx: &mut Cx<'_>) -> Step {
        if cx.now < Time::ZERO + Ns::from_ms(500) || !self.read.is_multiple_of(4) {
            self.read += 1;
            return self.reads.next(cx);
        }
        if self.ran >= self.works {
            self.ran = Ns::ZERO;
            return Step::Sleep(self.sleeps);
        }
        let step = self.fakes.next(cx);
        if let Step::Compute(length) = step {
            self.ran += length;
        }
        step
    }
}

type Record = Arc<Mutex<Vec<(Time, CpuId, Vcpu, Option<Ns>)>>>;

/// Writes down every pick.
#[derive(Debug)]
struct Recorded {
    inner: Box<dyn Hypervisor>,
    record: Record,
}

impl Hypervisor for Recorded {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn start(&mut self, host: &mut Host<'_>) {
        self.inner.start(host);
    }
    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        self.inner.enqueue(host, vcpu, why);
    }
    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let pick = self.inner.pick(host, pcpu)?;
        let entry = (host.now(), pcpu, pick.vcpu, pick.slice);
        self.record.lock().unwrap().push(entry);
        Some(pick)
    }
    fn charge(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, waited: Ns) {
        self.inner.charge(host, vcpu, pcpu, ran, waited);
    }
    fn idle(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) -> Idle {
        self.inner.idle(host, vcpu, pcpu)
    }
    fn waited(&mut self, host: &mut Host<'_>, vcpu: Vcpu, waited: Ns, event: bool) {
        self.inner.waited(host, vcpu, waited, event);
    }
    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        self.inner.halt(host, vcpu, pcpu);
    }
    fn io_event(&mut self, host: &mut Host<'_>, vcpu: Vcpu) {
        self.inner.io_event(host, vcpu);
    }
    fn ipi(&mut self, host: &mut Host<'_>, from: Vcpu, to: Vcpu) {
        self.inner.ipi(host, from, to);
    }
    fn tick_period(&self) -> Option<Ns> {
        self.inner.tick_period()
    }
    fn tick(&mut self, host: &mut Host<'_>) {
        self.inner.tick(host);
    }
    fn slow_period(&self) -> Option<Ns> {
        self.inner.slow_period()
    }
    fn slow(&mut self, host: &mut Host<'_>) {
        self.inner.slow(host);
    }
    fn timer(&mut self, host: &mut Host<'_>, token: u64) {
        self.inner.timer(host, token);
    }
    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.inner.check(host)
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}

/// What a run came to.
pub(super) struct Outcome {
    pub(super) sim: Sim,
    record: Vec<(Time, CpuId, Vcpu, Option<Ns>)>,
}

/// Runs the VMs on `pcpus` pCPUs for so long. vCPUs are not pinned.
pub(super) fn run(
    policy: Box<dyn Hypervisor>,
    pcpus: u32,
    smt: bool,
    costs: Costs,
    vms: &[Vm],
    length: Ns,
) -> Outcome {
    let bed = Bed {
        pcpus,
        smt,
        costs,
        spread: Ns::ZERO,
        queue: QueueKind::default(),
    };
    bed.run(policy, vms, length)
}

/// The machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bed {
    pub(super) pcpus: u32,
    pub(super) smt: bool,
    pub(super) costs: Costs,
    /// vCPUs come up within this.
    pub(super) spread: Ns,
    pub(super) queue: QueueKind,
}

impl Bed {
    /// As [`run`].
    pub(super) fn run(&self, policy: Box<dyn Hypervisor>, vms: &[Vm], length: Ns) -> Outcome {
        simulate(self, policy, vms, length)
    }
}

fn simulate(bed: &Bed, policy: Box<dyn Hypervisor>, vms: &[Vm], length: Ns) -> Outcome {
    let (pcpus, smt, costs) = (bed.pcpus, bed.smt, bed.costs);
    let mut machine = Machine::new(pcpus, smt, costs, Smt::default());
    let kernel = KernelSettings::free();
    let mut guests = Vec::new();
    for (n, vm) in vms.iter().enumerate() {
        let pin = |n: usize| vm.pinned.then_some(CpuId(n as u32)).into_iter().collect();
        let pins: Vec<Vec<CpuId>> = (0..vm.vcpus.len()).map(pin).collect();
        let id = machine.add_vm(&format!("vm{n}"), vm.weight, &pins);
        machine.vms[n].io_intensive = vm.io;
        machine.vms[n].shares = vm.shares;
        machine.vms[n].cap_permille = vm.cap_permille;
        let first = Vcpu(machine.vms[n].vcpus.start);
        let mut guest = Guest::new(id, first, vm.vcpus.len() as u32, kernel, 1);
        let tasks = || vm.vcpus.iter().flatten();
        let parties = tasks().filter(|t| matches!(t, Task::Barrier(_))).count();
        guest.add_barrier(parties as u32, Leave::AtOnce);
        for (vcpu, tasks) in vm.vcpus.iter().enumerate() {
            for task in tasks {
                guest.add(new_task(*task, VcpuId(vcpu as u32)));
            }
        }
        guests.push(guest);
    }
    let record = Record::default();
    let recorded = Recorded {
        inner: policy,
        record: Arc::clone(&record),
    };
    let mut sim = Sim::new(machine, Box::new(recorded), bed.queue, 1);
    sim.spread_starts(bed.spread);
    for guest in guests {
        sim.add_guest(guest);
    }
    sim.add_device(Box::new(Delay::new(Ns::from_ms(1), 0)), Path::Submitter);
    sim.run_until(Time::ZERO + length);
    sim.check().unwrap();
    let record = record.lock().unwrap().clone();
    Outcome { sim, record }
}

fn new_task(task: Task, vcpu: VcpuId) -> NewTask {
    let program: Box<dyn Program> = match task {
        Task::Hog => Box::new(Compute::new(Ns::from_ms(1))),
        Task::Reads => reader(Ns::from_us(200)),
        Task::Works(length) => reader(length),
        Task::Dodges(tick, early) => Box::new(Dodger::new(tick, early)),
        Task::Fakes(every) => Box::new(FakeIo::new(DeviceId(0), every)),
        Task::Pretends(works, sleeps) => Box::new(Pretending {
            reads: reader(Ns::from_us(200)),
            read: 0,
            fakes: FakeIo::new(DeviceId(0), Ns::from_ms(1)),
            works,
            sleeps,
            ran: Ns::ZERO,
        }),
        Task::Barrier(length) => Box::new(Parallel {
            length,
            computed: false,
        }),
        Task::Naps(works, sleeps) => Box::new(Napping {
            works,
            sleeps,
            computed: false,
        }),
    };
    NewTask {
        name: format!("{task:?}"),
        group: if matches!(task, Task::Reads) {
            READERS
        } else {
            0
        },
        class: Class::Fair(NORMAL_WEIGHT),
        mask: CpuSet::only(vcpu),
        vcpu,
        program,
    }
}

impl Outcome {
    /// CPU time of each VM.
    pub(super) fn ran(&self) -> Vec<Ns> {
        let machine = self.sim.machine();
        let of = |vm: &crate::machine::VmFacts| {
            machine.vcpus[vm.vcpus.start as usize..vm.vcpus.end as usize]
                .iter()
                .map(|v| v.ran)
                .sum()
        };
        machine.vms.iter().map(of).collect()
    }

    /// Operations of the tasks of one VM.
    pub(super) fn operations(&self, vm: u32) -> u64 {
        let tasks = self.sim.guest(VmId(vm)).tasks();
        tasks.iter().map(|t| t.done.operations).sum()
    }

    /// Requests of the readers of one VM.
    pub(super) fn requests(&self, vm: u32) -> u64 {
        let tasks = self.sim.guest(VmId(vm)).tasks().iter();
        tasks
            .filter(|t| t.group == READERS)
            .map(|t| t.done.operations)
            .sum()
    }

    /// `(ms, vCPU)` of each pick on a pCPU where the vCPU changes.
    pub(super) fn order(&self, pcpu: u32) -> Vec<(u64, u32)> {
        let order = self.order_us(pcpu).into_iter();
        order.map(|(us, vcpu)| (us / 1000, vcpu)).collect()
    }

    /// The same in us.
    pub(super) fn order_us(&self, pcpu: u32) -> Vec<(u64, u32)> {
        let mut last = None;
        let mut order = Vec::new();
        // What is picked at the very end is not part of it.
        let before_end = |entry: &&(Time, CpuId, Vcpu, Option<Ns>)| entry.0 < self.sim.now();
        for &(at, on, vcpu, _) in self.record.iter().filter(before_end) {
            if on == CpuId(pcpu) && last.replace(vcpu) != Some(vcpu) {
                order.push((at.as_ns() / 1000, vcpu.0));
            }
        }
        order
    }

    /// The first picks as text, for golden traces.
    pub(super) fn trace(&self, picks: usize) -> String {
        let mut text = String::from("      us pCPU vCPU slice\n");
        for (at, pcpu, vcpu, slice) in self.record.iter().take(picks) {
            let slice = slice.map_or("-".to_owned(), |s| s.to_string());
            let _ = writeln!(text, "{:>8} {pcpu:>4} {vcpu:>4} {slice}", at.as_ns() / 1000);
        }
        let _ = writeln!(text, "picks in all: {}", self.record.len());
        for (vm, ran) in self.ran().into_iter().enumerate() {
            let operations = self.operations(vm as u32);
            let _ = writeln!(text, "vm{vm}: ran {ran}, {operations} operations");
        }
        for (name, count) in self.sim.hypervisor().counters() {
            let _ = writeln!(text, "{name}: {count}");
        }
        text
    }
}
