// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::event::Event;
use crate::ids::DeviceId;
use crate::ids::TaskId;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::program::Request;
use crate::queue::Agenda;
use crate::queue::QueueKind;
use crate::random::Random;
use crate::random::Stream;

/// A disk and VMs whose every completion is followed by another request.
struct Bench {
    disk: Hdd,
    agenda: Agenda,
    random: Random,
    /// VMs that go on.
    going: Vec<u32>,
    served: BTreeMap<u32, u32>,
}

impl Bench {
    fn new() -> Self {
        Self {
            disk: Hdd::new(HddSettings {
                seek: Ns::from_ms(8),
                rate: 100_000_000,
                elevator: Elevator::Cfq {
                    wait: Ns::from_ms(8),
                    slice: Ns::from_ms(20),
                },
            }),
            agenda: Agenda::new(QueueKind::Wheel),
            random: Random::child(1, Stream::Device, 0, 0),
            going: Vec::new(),
            served: BTreeMap::new(),
        }
    }

    fn submit(&mut self, vm: u32, completed: &mut Vec<Io>) {
        let io = Io {
            vm: VmId(vm),
            vcpu: Vcpu(vm),
            task: TaskId(0),
            number: 0,
            request: Request {
                device: DeviceId(0),
                write: false,
                bytes: 4096,
                // Nobody reads on where the last one ended.
                offset: 1 << 40,
            },
        };
        let mut cx = DeviceCx {
            id: DeviceId(0),
            agenda: &mut self.agenda,
            random: &mut self.random,
            completed,
        };
        self.disk.submit(io, &mut cx);
    }

    /// A VM begins, with so many requests at a time.
    fn begin(&mut self, vm: u32, depth: u32) {
        self.going.push(vm);
        for _ in 0..depth {
            self.submit(vm, &mut Vec::new());
        }
    }

    fn ends(&mut self, vm: u32) {
        self.going.retain(|other| *other != vm);
    }

    /// Requests that each VM has done in this time.
    fn run(&mut self, time: Ns) -> BTreeMap<u32, u32> {
        self.served.clear();
        let end = self.agenda.now() + time;
        while let Some(event) = self.agenda.next(end) {
            let Event::Device { token, .. } = event else {
                continue;
            };
            let mut completed = Vec::new();
            let mut cx = DeviceCx {
                id: DeviceId(0),
                agenda: &mut self.agenda,
                random: &mut self.random,
                completed: &mut completed,
            };
            self.disk.event(token, &mut cx);
            for io in completed {
                *self.served.entry(io.vm.0).or_default() += 1;
                if self.going.contains(&io.vm.0) {
                    self.submit(io.vm.0, &mut Vec::new());
                }
            }
        }
        self.served.clone()
    }
}

/// What a task that is long gone has had is no measure for one that comes now.
#[test]
fn one_that_comes_new_shares_with_those_that_are_there() {
    for alone in [false, true] {
        let mut bench = Bench::new();
        bench.begin(1, 1);
        bench.run(Ns::from_ms(10));
        bench.ends(1);
        bench.begin(2, 2);
        bench.run(Ns::from_secs(5));
        if alone {
            // It comes while nobody is there, and the other one comes back.
            bench.ends(2);
            bench.run(Ns::from_ms(100));
            bench.begin(3, 2);
            bench.run(Ns::from_ms(100));
            bench.begin(2, 2);
        } else {
            bench.begin(3, 2);
        }
        let served = bench.run(Ns::from_secs(1));
        let (old, new) = (served.get(&2), served.get(&3));
        let (old, new) = (*old.unwrap_or(&0), *new.unwrap_or(&0));
        assert!(old > 40 && new > 40, "{old} and {new}, alone: {alone}");
    }
}

/// A seek of 5 ms, a block of 4096 bytes in 1 ms, and requests by hand.
struct ByHand {
    disk: Hdd,
    agenda: Agenda,
    random: Random,
    numbers: u64,
    /// (VM, ms) of each completion.
    done: Vec<(u32, u64)>,
}

const BLOCK: u64 = 4096;

impl ByHand {
    fn new(elevator: Elevator) -> Self {
        Self {
            disk: Hdd::new(HddSettings {
                seek: Ns::from_ms(5),
                rate: BLOCK * 1000,
                elevator,
            }),
            agenda: Agenda::new(QueueKind::Wheel),
            random: Random::child(1, Stream::Device, 0, 0),
            numbers: 0,
            done: Vec::new(),
        }
    }

    /// CFQ with the wait of C15.
    fn cfq(slice: Ns) -> Self {
        Self::new(Elevator::Cfq {
            wait: Ns::from_ms(8),
            slice,
        })
    }

    fn act(&mut self, what: impl FnOnce(&mut Hdd, &mut DeviceCx<'_>)) {
        let mut completed = Vec::new();
        let mut cx = DeviceCx {
            id: DeviceId(0),
            agenda: &mut self.agenda,
            random: &mut self.random,
            completed: &mut completed,
        };
        what(&mut self.disk, &mut cx);
        let now = self.agenda.now().as_ns() / 1_000_000;
        self.done.extend(completed.iter().map(|io| (io.vm.0, now)));
    }

    fn until(&mut self, ms: u64) {
        let end = Time::ZERO + Ns::from_ms(ms);
        while let Some(event) = self.agenda.next(end) {
            if let Event::Device { token, .. } = event {
                self.act(|disk, cx| disk.event(token, cx));
            }
        }
    }

    /// At this millisecond a VM asks for a block.
    fn at(&mut self, ms: u64, vm: u32, block: u64) {
        self.until(ms);
        self.numbers += 1;
        let io = Io {
            vm: VmId(vm),
            vcpu: Vcpu(vm),
            task: TaskId(0),
            number: self.numbers,
            request: Request {
                device: DeviceId(0),
                write: false,
                bytes: BLOCK as u32,
                offset: block * BLOCK,
            },
        };
        self.act(|disk, cx| disk.submit(io, cx));
    }

    /// (VM, ms) of each completion up to this millisecond.
    fn order(&mut self, ms: u64) -> Vec<(u32, u64)> {
        self.until(ms);
        self.done.clone()
    }
}

/// C13, C15, C16: VM 1's request is served by 6 ms (5 of seek), and its vCPU goes away.
/// The disk waits for 8 ms with VM 2's request in its queue, then seeks to that: at
/// 14 + 6 ms.
#[test]
fn cfq_wastes_its_wait_on_a_task_that_is_away() {
    let mut disk = ByHand::cfq(Ns::from_ms(100));
    disk.at(0, 1, 100);
    disk.at(1, 2, 500);
    assert_eq!(disk.order(19), [(1, 6)]);
    assert_eq!(disk.order(60), [(1, 6), (2, 20)]);
    assert_eq!(disk.disk.wasted, Ns::from_ms(8));
    assert_eq!(disk.disk.in_flight(), 0);
}

/// C13: the next request of the same task comes during the wait, right behind its last
/// one, and goes before the older one of another task, without a seek: 10 + 1 ms. The
/// wait that follows it is a new one: until 19 ms, whatever is left of the first.
#[test]
fn cfq_prefers_the_same_task_to_older_requests_of_others() {
    let mut disk = ByHand::cfq(Ns::from_ms(100));
    disk.at(0, 1, 100);
    disk.at(1, 2, 500);
    disk.at(10, 1, 101);
    assert_eq!(disk.order(60), [(1, 6), (1, 11), (2, 25)]);
    assert_eq!(disk.disk.wasted, Ns::from_ms(8));
}

/// C17: with a vCPU slice below the wait the disk still waits for VM 1, which is away,
/// while VM 2 runs and asks: what it asks for at 7 and 9 ms is served from 14 ms on, the
/// second one at once, since it is local.
#[test]
fn cfq_does_not_serve_who_runs_while_it_waits_for_who_does_not() {
    let mut disk = ByHand::cfq(Ns::from_ms(100));
    disk.at(0, 1, 100);
    disk.at(7, 2, 500);
    disk.at(9, 2, 501);
    assert_eq!(disk.order(60), [(1, 6), (2, 20), (2, 21)]);
}

/// C14: VM 1 always has the next block in the queue. After its 10 ms it is VM 2's turn,
/// though that one is far away: VM 1 at 6 to 10 ms, VM 2 after a seek at 16 to 20, and
/// back with another seek.
#[test]
fn cfq_ends_a_turn_even_if_the_next_request_is_there() {
    let mut disk = ByHand::cfq(Ns::from_ms(10));
    for block in 100..120 {
        disk.at(0, 1, block);
    }
    for block in 500..520 {
        disk.at(0, 2, block);
    }
    let order = disk.order(27);
    let vm = |vm: u32| -> Vec<u64> { order.iter().filter(|o| o.0 == vm).map(|o| o.1).collect() };
    assert_eq!(vm(1), [6, 7, 8, 9, 10, 26, 27]);
    assert_eq!(vm(2), [16, 17, 18, 19, 20]);
}

/// C12: the oldest request first, whoever it is from, and no wait: three seeks, as VM 2
/// comes between VM 1's blocks. An idle disk serves at once.
#[test]
fn a_work_conserving_elevator_never_waits() {
    let mut disk = ByHand::new(Elevator::WorkConserving);
    disk.at(0, 1, 100);
    disk.at(1, 2, 500);
    disk.at(2, 1, 101);
    assert_eq!(disk.order(29), [(1, 6), (2, 12), (1, 18)]);
    disk.at(30, 1, 102);
    assert_eq!(disk.order(60).last(), Some(&(1, 31)));
    assert_eq!(disk.disk.wasted, Ns::ZERO);
}
