// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine charges for switching, moving, waking and interrupting, worked by
//! hand to the nanosecond. Each cost is alone, all others are zero.

mod common;

use sim::engine::Sim;
use sim::guest::Guest;
use sim::guest::KernelSettings;
use sim::hypervisor::Host;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Pick;
use sim::hypervisor::Why;
use sim::ids::Vcpu;
use sim::ids::VmId;
use sim::machine::Activity;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::machine::State;
use sim::program::Cx;
use sim::program::Program;
use sim::program::Step;
use sim::queue::QueueKind;
use units::CpuId;
use units::Ns;
use units::Time;

/// Works for the first and sleeps for the second, again and again.
#[derive(Debug)]
struct Naps {
    works: Ns,
    sleeps: Ns,
    worked: bool,
}

impl Program for Naps {
    fn next(&mut self, _: &mut Cx<'_>) -> Step {
        self.worked = !self.worked;
        if self.worked {
            Step::Compute(self.works)
        } else {
            Step::Sleep(self.sleeps)
        }
    }
}

/// VMs of one vCPU, the first `busy` of which compute, on this machine.
fn sim(mut machine: Machine, costs: Costs, busy: usize, policy: Box<dyn Hypervisor>) -> Sim {
    machine.costs = costs;
    let mut guests = guests(&machine);
    for guest in guests.iter_mut().take(busy) {
        guest.add(common::compute(0));
    }
    common::simulation(machine, guests, policy, QueueKind::Wheel, 1)
}

fn guests(machine: &Machine) -> Vec<Guest> {
    common::guests(machine, KernelSettings::free(), 1)
}

/// Two VMs take turns of this length on one pCPU, from VM 0 on.
fn turns(length: Ns) -> Box<dyn Hypervisor> {
    common::fixed(2, length, 0)
}

fn switching(sim: &Sim, pcpu: usize) -> Ns {
    sim.machine().pcpus[pcpu].spent[Activity::Switching as usize]
}

/// Four turns of 10 ms, 7 us each to get there: that much less is done, and each has had
/// its 20 ms all the same.
#[test]
fn a_switch_is_paid_by_who_comes() {
    let costs = Costs {
        vcpu_switch: Ns::from_us(7),
        ..Costs::FREE
    };
    let machine = common::machine(1, 2, false);
    let mut sim = sim(machine, costs, 2, turns(Ns::from_ms(10)));
    sim.run_until(Time::ZERO + Ns::from_ms(40));
    assert_eq!(switching(&sim, 0), Ns::from_us(28));
    for vcpu in &sim.machine().vcpus {
        assert_eq!(vcpu.ran, Ns::from_ms(20));
        assert_eq!(vcpu.work, Ns::from_ms(20) - Ns::from_us(14));
    }
}

/// Back on a pCPU that nobody else has had meanwhile: no switch.
#[test]
fn coming_back_to_an_idle_pcpu_is_no_switch() {
    let costs = Costs {
        vcpu_switch: Ns::from_us(7),
        vcpu_cache: Ns::from_us(100),
        ..Costs::FREE
    };
    let machine = common::machine(1, 2, false);
    let mut sim = sim(machine, costs, 1, turns(Ns::from_ms(10)));
    sim.run_until(Time::ZERO + Ns::from_ms(50));
    assert_eq!(switching(&sim, 0), Ns::from_us(7));
    assert_eq!(sim.machine().pcpus[0].switches, 1);
    assert_eq!(
        sim.machine().vcpus[0].work,
        Ns::from_ms(30) - Ns::from_us(7)
    );
}

/// Where eight pCPUs share a cache, who has two of them has four times as much to fill, and
/// who has all of them what is said; more of them share another one.
#[test]
fn a_part_of_a_shared_cache_is_larger_where_few_share_it() {
    let costs = Costs {
        vcpu_cache: Ns::from_us(10),
        cache_pcpus: 8,
        ..Costs::FREE
    };
    for (pcpus, fills) in [(1, 80), (2, 40), (8, 10), (16, 10)] {
        let machine = common::machine(pcpus, 2, false);
        let mut sim = sim(machine, costs, 2, common::fixed(2, Ns::from_ms(10), 0));
        sim.run_until(Time::ZERO + Ns::from_ms(30));
        // From nowhere at the beginning, and then twice after 10 ms away.
        assert_eq!(switching(&sim, 0), Ns::from_us(2 * fills), "{pcpus}");
    }
}

/// Caches: 100 us after a millisecond or more away. Turns of 10 ms cost it all, of 0.4 ms
/// 40 us. Who has never been anywhere comes warm at time zero only.
#[test]
fn caches_cool_in_proportion_to_the_time_away() {
    let costs = Costs {
        vcpu_cache: Ns::from_us(100),
        cache_after: Ns::from_ms(1),
        ..Costs::FREE
    };
    for (turn_us, cold_us) in [(10_000, 100), (1000, 100), (400, 40), (10, 1)] {
        let (turn, cold) = (Ns::from_us(turn_us), Ns::from_us(cold_us));
        let machine = common::machine(1, 2, false);
        let mut sim = sim(machine, costs, 2, turns(turn));
        sim.run_until(Time::ZERO + turn * 4);
        assert_eq!(switching(&sim, 0), cold * 3, "turns of {turn}");
    }
}

/// One vCPU that has two pCPUs in turn, 1 ms each, told by an IPI.
#[derive(Debug)]
struct Hops {
    queued: Option<Vcpu>,
    next: CpuId,
}

impl Hypervisor for Hops {
    fn name(&self) -> &'static str {
        "hops"
    }
    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        self.queued = Some(vcpu);
        if why == Why::Start {
            host.kick(self.next);
        } else {
            self.next = CpuId(1 - self.next.0);
            host.kick_remote(self.next);
        }
    }
    fn pick(&mut self, _: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let vcpu = self.queued.take_if(|_| pcpu == self.next)?;
        let slice = Some(Ns::from_ms(1));
        Some(Pick { vcpu, slice })
    }
    fn charge(&mut self, _: &mut Host<'_>, _: Vcpu, _: CpuId, _: Ns, _: Ns) {}
    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        let queued = host.vcpus().find(|&v| host.vcpu(v).state == State::Queued);
        if queued == self.queued {
            Ok(())
        } else {
            Err(format!("{queued:?} is ready"))
        }
    }
}

/// Four turns with three IPIs of 3 us between them, in which the vCPU is ready. The first
/// turn begins with a switch (5 us), the second with a switch and a migration (20 us), the
/// others with a migration: nobody else has been there. So it is over after
/// 4 x 1000 + 3 x 3 us.
#[test]
fn a_migration_and_the_ipi_that_asks_for_it() {
    let costs = Costs {
        vcpu_switch: Ns::from_us(5),
        vcpu_migration: Ns::from_us(20),
        ipi: Ns::from_us(3),
        ..Costs::FREE
    };
    let mut machine = Machine::new(2, false, costs, Smt::default());
    machine.add_vm("vm0", NORMAL_WEIGHT, &[Vec::new()]);
    let hops = Hops {
        queued: None,
        next: CpuId(0),
    };
    let mut sim = sim(machine, costs, 1, Box::new(hops));
    sim.run_until(Time::ZERO + Ns::from_us(4009));
    let vcpu = &sim.machine().vcpus[0];
    assert_eq!(vcpu.ready, Ns::from_us(9));
    assert_eq!(vcpu.ran, Ns::from_us(4000));
    assert_eq!(vcpu.migrations, 3);
    assert_eq!(switching(&sim, 0), Ns::from_us(5 + 20));
    assert_eq!(switching(&sim, 1), Ns::from_us(25 + 20));
    assert_eq!(vcpu.work, Ns::from_us(4000 - 70));
}

/// vCPU 0 before vCPU 1, always.
#[derive(Debug, Default)]
struct Strict {
    queued: Vec<Vcpu>,
}

impl Hypervisor for Strict {
    fn name(&self) -> &'static str {
        "strict"
    }
    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        self.queued.push(vcpu);
        self.queued.sort_unstable();
        match (host.on(CpuId(0)), why) {
            (_, Why::SliceEnd | Why::Preempted) => {}
            (None, _) => host.kick(CpuId(0)),
            (Some(running), _) if running > vcpu => host.kick_remote(CpuId(0)),
            (Some(_), _) => {}
        }
    }
    fn pick(&mut self, _: &mut Host<'_>, _: CpuId) -> Option<Pick> {
        if self.queued.is_empty() {
            return None;
        }
        let vcpu = self.queued.remove(0);
        Some(Pick { vcpu, slice: None })
    }
    fn charge(&mut self, _: &mut Host<'_>, _: Vcpu, _: CpuId, _: Ns, _: Ns) {}
    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        let ready = host
            .vcpus()
            .filter(|&v| host.vcpu(v).state == State::Queued);
        if ready.eq(self.queued.iter().copied()) {
            Ok(())
        } else {
            Err(format!("{:?} are queued", self.queued))
        }
    }
}

/// vCPU 0 works for 1 ms and sleeps for 1 ms, beside a hog or alone.
fn napping(costs: Costs, beside: bool, until: Ns) -> Sim {
    let mut machine = common::machine(1, 2, false);
    machine.costs = costs;
    let mut guests = guests(&machine);
    let naps = Naps {
        works: Ns::from_ms(1),
        sleeps: Ns::from_ms(1),
        worked: false,
    };
    guests[0].add(common::task("naps", 0, Box::new(naps)));
    if beside {
        guests[1].add(common::compute(0));
    }
    let strict = Box::new(Strict::default());
    let mut sim = common::simulation(machine, guests, strict, QueueKind::Wheel, 1);
    sim.run_until(Time::ZERO + until);
    sim
}

/// A switch costs 5 us, an IPI 3, a wake-up 30. Beside a hog: at 0 a switch, work until
/// 1005 us, the hog after a switch; the timer at 2005, the IPI at 2008, switch and wake-up
/// until 2043, work until 3043; and once more 2038 us later: until 5081.
#[test]
fn a_wake_up_beside_another_costs_ipi_switch_and_wake() {
    let costs = Costs {
        vcpu_switch: Ns::from_us(5),
        vcpu_wake: Ns::from_us(30),
        ipi: Ns::from_us(3),
        ..Costs::FREE
    };
    let sim = napping(costs, true, Ns::from_us(5081));
    let [naps, hog] = &sim.machine().vcpus[..] else {
        panic!("two vCPUs");
    };
    assert_eq!(naps.work, Ns::from_us(3000));
    assert_eq!(naps.ran, Ns::from_us(3000 + 5 + 35 + 35));
    assert_eq!(naps.ready, Ns::from_us(3 + 3));
    assert_eq!(naps.halted, Ns::from_us(2000));
    assert_eq!(hog.ran, Ns::from_us(1003 * 2));
    assert_eq!(hog.work, Ns::from_us(998 * 2));
    assert_eq!(switching(&sim, 0), Ns::from_us(5 + 35 + 35 + 5 + 5));
}

/// Woken at 1 ms, it has turns until 10 ms and from 20 to 30: it pays for the wake-up
/// once, not whenever it comes back.
#[test]
fn a_wake_up_is_paid_once() {
    let costs = Costs {
        vcpu_wake: Ns::from_us(30),
        ..Costs::FREE
    };
    let mut machine = common::machine(1, 2, false);
    machine.costs = costs;
    let mut guests = guests(&machine);
    let naps = Naps {
        works: Ns::from_ms(60),
        sleeps: Ns::from_ms(1),
        worked: true,
    };
    guests[0].add(common::task("naps", 0, Box::new(naps)));
    guests[1].add(common::compute(0));
    let policy = turns(Ns::from_ms(10));
    let mut sim = common::simulation(machine, guests, policy, QueueKind::Wheel, 1);
    sim.run_until(Time::ZERO + Ns::from_ms(40));
    assert_eq!(switching(&sim, 0), Ns::from_us(30));
    let naps = &sim.machine().vcpus[0];
    assert_eq!(naps.ran, Ns::from_ms(19));
    assert_eq!(naps.work, Ns::from_ms(19) - Ns::from_us(30));
}

/// Alone: no IPI, no switch but the first one; out of its halt it takes 30 us.
#[test]
fn a_wake_up_alone_costs_the_wake() {
    let costs = Costs {
        vcpu_switch: Ns::from_us(5),
        vcpu_wake: Ns::from_us(30),
        ipi: Ns::from_us(3),
        ..Costs::FREE
    };
    let sim = napping(costs, false, Ns::from_us(3035));
    let naps = &sim.machine().vcpus[0];
    assert_eq!(naps.work, Ns::from_us(2000));
    assert_eq!(naps.ran, Ns::from_us(1005 + 1030));
    assert_eq!(naps.ready, Ns::ZERO);
    assert_eq!(sim.machine().pcpus[0].switches, 1);
    assert_eq!(sim.guest(VmId(0)).tasks()[0].on_cpu, Ns::from_us(2000));
}

/// What others leave in the caches is paid for by who is woken, by how long they had the
/// pCPU: at 1 ms it sleeps for 1 ms, beside a hog that is 100 us of the next work.
#[test]
fn a_wake_up_costs_a_part_of_what_others_have_run() {
    let costs = |after: Ns| Costs {
        vcpu_wake_cold: 100,
        wake_cold_after: after,
        ..Costs::FREE
    };
    let sim = napping(costs(Ns::from_ms(10)), true, Ns::from_us(5200));
    let [naps, hog] = &sim.machine().vcpus[..] else {
        panic!("two vCPUs");
    };
    assert_eq!(naps.work, Ns::from_us(3000));
    assert_eq!(naps.ran, Ns::from_us(3200));
    assert_eq!(hog.ran, Ns::from_us(2000));
    assert_eq!(switching(&sim, 0), Ns::from_us(200));
    // No more than half a millisecond of theirs counts.
    let sim = napping(costs(Ns::from_us(500)), true, Ns::from_us(5100));
    assert_eq!(switching(&sim, 0), Ns::from_us(100));
    // Nobody else has had it.
    let sim = napping(costs(Ns::from_ms(10)), false, Ns::from_us(5000));
    assert_eq!(sim.machine().vcpus[0].work, Ns::from_us(3000));
    assert_eq!(switching(&sim, 0), Ns::ZERO);
}
