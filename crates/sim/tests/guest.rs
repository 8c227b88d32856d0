// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's kernel by hand: where a woken task goes, what an idle or lighter vCPU takes,
//! what cannot be taken, and whose turn it is. Nothing costs anything here.

mod common;

use sim::device::Delay;
use sim::device::Path;
use sim::engine::Sim;
use sim::guest::Class;
use sim::guest::KernelSettings;
use sim::guest::NewTask;
use sim::guest::Task;
use sim::hypervisor::Hypervisor;
use sim::ids::DeviceId;
use sim::ids::VmId;
use sim::machine::Costs;
use sim::program::Compute;
use sim::program::Cx;
use sim::program::Program;
use sim::program::Request;
use sim::program::Step;
use sim::queue::QueueKind;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

/// Steps, from the first one again after the last.
#[derive(Debug)]
struct Script(Vec<Step>, usize);

impl Program for Script {
    fn next(&mut self, _: &mut Cx<'_>) -> Step {
        let step = self.0[self.1 % self.0.len()];
        self.1 += 1;
        step
    }
}

fn script(vcpu: u32, steps: &[Step]) -> NewTask {
    common::task("script", vcpu, Box::new(Script(steps.to_vec(), 0)))
}

/// Computes for ever, free to go anywhere.
fn hog(vcpu: u32) -> NewTask {
    common::task("hog", vcpu, Box::new(Compute::new(Ns::from_us(500))))
}

fn kernel() -> KernelSettings {
    KernelSettings {
        tick: Ns::ZERO,
        ..KernelSettings::free()
    }
}

/// One VM with a vCPU on each pCPU, and these tasks.
fn sim(
    vcpus: u32,
    kernel: KernelSettings,
    policy: Box<dyn Hypervisor>,
    tasks: Vec<NewTask>,
) -> Sim {
    let mut machine = common::machine(vcpus, 1, false);
    machine.costs = Costs::FREE;
    let mut guests = common::guests(&machine, kernel, 1);
    for task in tasks {
        guests[0].add(task);
    }
    common::simulation(machine, guests, policy, QueueKind::Wheel, 1)
}

/// Every vCPU has its pCPU to itself.
fn alone(vcpus: u32, kernel: KernelSettings, tasks: Vec<NewTask>) -> Sim {
    sim(vcpus, kernel, common::cfs(), tasks)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Ns::from_ms(ms)
}

fn task(sim: &Sim, n: usize) -> &Task {
    &sim.guest(VmId(0)).tasks()[n]
}

/// Sleeps for 2 ms, works for one.
const NAPS: [Step; 2] = [Step::Sleep(Ns::from_ms(2)), Step::Compute(Ns::from_ms(1))];

/// Where it was, if that vCPU is idle; else the next idle one that it may use; where it
/// was, if there is none.
#[test]
fn a_task_wakes_where_it_was_or_on_the_next_idle_vcpu() {
    let cases: [(&[u32], u64, u32); 4] = [
        // (busy vCPUs, mask, where it ends up)
        (&[1, 2], 0b111, 0),
        (&[0], 0b111, 1),
        (&[0], 0b101, 2),
        (&[0, 1, 2], 0b111, 0),
    ];
    for (busy, mask, expected) in cases {
        let mask = (0..3).filter(|n| mask >> n & 1 == 1).map(VcpuId);
        let naps = NewTask {
            mask: mask.collect(),
            ..script(0, &NAPS)
        };
        let mut tasks = vec![naps];
        tasks.extend(busy.iter().map(|vcpu| common::compute(*vcpu)));
        let mut sim = alone(3, kernel(), tasks);
        sim.run_until(ms(50));
        let naps = task(&sim, 0);
        assert_eq!(naps.vcpu, VcpuId(expected), "{busy:?}");
        // It goes there once and finds that idle ever after.
        assert_eq!(naps.moved, u64::from(expected != 0), "{busy:?}");
    }
}

/// A reader's completions arrive on vCPU 2, which computes: it goes back to vCPU 0, which
/// is idle. The other way round it stays on vCPU 2, though vCPU 1 is idle, too, and nearer:
/// no IPI. If both compute it goes to vCPU 1.
#[test]
fn an_idle_vcpu_that_takes_the_interrupt_keeps_who_it_wakes() {
    let request = Request {
        device: DeviceId(0),
        bytes: 4096,
        offset: 0,
        write: false,
    };
    let reads = [
        Step::Submit(request),
        Step::Await,
        Step::Compute(Ns::from_us(10)),
    ];
    for (busy, expected) in [(&[2][..], 0), (&[0], 2), (&[0, 2], 1)] {
        let mut tasks = vec![script(0, &reads)];
        tasks.extend(busy.iter().map(|vcpu| common::compute(*vcpu)));
        let mut sim = alone(3, kernel(), tasks);
        let device = Box::new(Delay::new(Ns::from_us(100), 0));
        sim.add_device(device, Path::Fixed(VcpuId(2)));
        sim.run_until(ms(5));
        assert_eq!(task(&sim, 0).vcpu, VcpuId(expected), "{busy:?}");
        let stays = expected == 2;
        assert_eq!(sim.machine().vcpus[2].ipis_sent == 0, stays, "{busy:?}");
    }
}

/// vCPU 1 has nothing from 1 ms on and takes the one of two hogs that waits on vCPU 0,
/// not the current one. A hog that may not come stays.
#[test]
fn an_idle_vcpu_takes_who_waits_elsewhere() {
    let ends = [Step::Compute(Ns::from_ms(1)), Step::Exit];
    let tasks = vec![hog(0), hog(0), script(1, &ends)];
    let mut sim = alone(2, kernel(), tasks);
    sim.run_until(ms(10));
    let (current, waits) = (task(&sim, 0), task(&sim, 1));
    assert_eq!((current.on_cpu, current.moved), (Ns::from_ms(10), 0));
    assert_eq!((waits.on_cpu, waits.moved), (Ns::from_ms(9), 1));
    assert_eq!((waits.vcpu, waits.queued), (VcpuId(1), Ns::from_ms(1)));

    let tasks = vec![common::compute(0), common::compute(0), script(1, &ends)];
    let mut sim = alone(2, kernel(), tasks);
    sim.run_until(ms(10));
    let both = task(&sim, 0).on_cpu + task(&sim, 1).on_cpu;
    assert_eq!(both, Ns::from_ms(10));
}

/// By weight, and only if the two are closer afterwards: of three hogs and one, one goes;
/// of two and one none. Of one and one that is three times as heavy, beside one, the
/// light one goes as soon as it waits, never the heavy one.
#[test]
fn balancing_evens_out_weights() {
    let kernel = KernelSettings {
        balance_period: Ns::from_ms(5),
        ..kernel()
    };
    let heavy = NewTask {
        class: Class::Fair(3 * 1024),
        ..hog(0)
    };
    let cases = [
        (vec![hog(0), hog(0), hog(0)], 1),
        (vec![hog(0), hog(0)], 0),
        (vec![hog(0), heavy], 1),
    ];
    for (mut tasks, expected) in cases {
        let count = tasks.len();
        tasks.push(common::compute(1));
        let mut sim = alone(2, kernel, tasks);
        sim.run_until(ms(40));
        let gone = (0..count).filter(|n| task(&sim, *n).vcpu == VcpuId(1));
        let gone: Vec<Class> = gone.map(|n| task(&sim, n).class).collect();
        assert_eq!(gone, vec![Class::Fair(1024); expected], "of {count}");
        assert!(sim.guest(VmId(0)).tasks().iter().all(|t| t.moved <= 1));
    }
}

/// Slots of 10 ms: vCPU 0 is away from 10 to 20 ms, vCPU 1 from 20 to 30, and idle from
/// 12 ms on. Two hogs on vCPU 0: A until 6 ms, then B, which is current when the vCPU
/// goes. At 12 ms vCPU 1 takes A; B stops for 10 ms. Alone there, A stops.
#[test]
fn who_is_current_on_a_vcpu_that_is_away_stays_there() {
    let fixed = || common::fixed(2, Ns::from_ms(10), 0);
    let kernel = KernelSettings {
        latency: Ns::from_ms(12),
        ..kernel()
    };
    let ends = [Step::Compute(Ns::from_ms(12)), Step::Exit];

    let tasks = vec![hog(0), hog(0), script(1, &ends)];
    let mut two = sim(2, kernel, fixed(), tasks);
    two.run_until(ms(20));
    let (a, b) = (task(&two, 0), task(&two, 1));
    assert_eq!((a.vcpu, a.on_cpu), (VcpuId(1), Ns::from_ms(6 + 8)));
    assert_eq!(a.inactive, Ns::from_ms(2), "queued on a vCPU that is away");
    assert_eq!((b.vcpu, b.on_cpu), (VcpuId(0), Ns::from_ms(4)));
    assert_eq!((b.moved, b.inactive), (0, Ns::from_ms(10)));

    let tasks = vec![hog(0), script(1, &ends)];
    let mut one = sim(2, kernel, fixed(), tasks);
    one.run_until(ms(20));
    let a = task(&one, 0);
    assert_eq!((a.vcpu, a.on_cpu, a.moved), (VcpuId(0), Ns::from_ms(10), 0));
    assert_eq!(a.inactive, Ns::from_ms(10));
}

/// Two hogs share a latency of 24 ms: 12 each; with a tick of 5 ms the first turn ends at
/// 15. Weights 1 and 2: 8 and 16.
#[test]
fn turns_are_parts_of_the_latency_and_end_at_ticks() {
    // Nothing happens but the ends of turns.
    let long = || script(0, &[Step::Compute(Ns::from_secs(1))]);
    let heavy = NewTask {
        class: Class::Fair(2 * 1024),
        ..long()
    };
    let cases = [
        (Ns::ZERO, long(), [(12, 12, 0), (24, 12, 12)]),
        (Ns::from_ms(5), long(), [(15, 15, 0), (30, 15, 15)]),
        (Ns::ZERO, heavy, [(8, 8, 0), (24, 8, 16)]),
    ];
    for (tick, other, looks) in cases {
        let kernel = KernelSettings { tick, ..kernel() };
        let mut sim = alone(1, kernel, vec![long(), other]);
        for (at, first, second) in looks {
            sim.run_until(ms(at));
            let had = [0, 1].map(|n| task(&sim, n).on_cpu);
            assert_eq!(had, [first, second].map(Ns::from_ms), "at {at} ms, {tick}");
        }
    }
}

/// Who slept for 10 ms is 10 ms behind the hog, more than the 4 ms of the wake-up
/// granularity, and runs at once. After 3 ms it waits for the end of the hog's turn at
/// 12 ms.
#[test]
fn who_wakes_preempts_if_it_is_far_enough_behind() {
    for (sleeps, begins) in [(10, 10), (3, 12)] {
        let naps = [
            Step::Sleep(Ns::from_ms(sleeps)),
            Step::Compute(Ns::from_ms(1)),
            Step::Exit,
        ];
        let mut sim = alone(1, kernel(), vec![script(0, &naps), hog(0)]);
        sim.run_until(ms(begins));
        assert_eq!(task(&sim, 0).on_cpu, Ns::ZERO, "after {sleeps} ms");
        sim.run_until(ms(begins + 1));
        assert_eq!(task(&sim, 0).on_cpu, Ns::from_ms(1), "after {sleeps} ms");
        assert_eq!(task(&sim, 1).on_cpu, Ns::from_ms(begins));
    }
}

/// A FIFO task preempts whatever runs and is not preempted: all others wait.
#[test]
fn fifo_goes_before_all_fair_tasks() {
    let naps = [
        Step::Sleep(Ns::from_ms(1)),
        Step::Compute(Ns::from_ms(30)),
        Step::Exit,
    ];
    let fifo = NewTask {
        class: Class::Fifo,
        mask: CpuSet::only(VcpuId(0)),
        ..script(0, &naps)
    };
    let mut sim = alone(1, kernel(), vec![fifo, hog(0)]);
    sim.run_until(ms(31));
    assert_eq!(task(&sim, 0).on_cpu, Ns::from_ms(30));
    assert_eq!(task(&sim, 1).on_cpu, Ns::from_ms(1));
}
