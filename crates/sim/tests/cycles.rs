// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cycle accounts (M18): measured while the sibling hyperthread retains a context, and of
//! no consequence to a run in which no task has a profile.

mod common;

use sim::engine::Sim;
use sim::guest::KernelSettings;
use sim::guest::Profile;
use sim::hypervisor::Vsmtio;
use sim::hypervisor::VsmtioSettings;
use sim::ids::VmId;
use sim::machine::Activity;
use sim::machine::Costs;
use sim::machine::Machine;
use sim::machine::NORMAL_WEIGHT;
use sim::machine::Smt;
use sim::program::Compute;
use sim::program::ReaderSettings;
use sim::queue::QueueKind;
use units::CpuId;
use units::Ns;
use units::Permille;
use units::Time;

/// As much work before as after.
const HALVES: ReaderSettings = ReaderSettings {
    submit: Ns::from_us(50),
    process: Ns::from_us(50),
    process_spread: 0,
    ..common::READS
};

fn profile(base: u16, miss: u16) -> Profile {
    Profile {
        base: Permille::new(base),
        miss: Permille::new(miss),
    }
}

/// One core of two hyperthreads: a VM that reads on the second one, heavy enough to be the
/// I/O-bound half (M14), and VMs that compute on either, with these profiles.
fn sim(profiles: &[Profile], settings: VsmtioSettings, latency: Ns) -> Sim {
    let mut machine = Machine::new(2, true, Costs::default(), Smt::default());
    let half = NORMAL_WEIGHT * profiles.len() as u32;
    machine.add_vm("reads", half, &[vec![CpuId(1)]]);
    for _ in profiles {
        machine.add_vm("computes", NORMAL_WEIGHT, &[Vec::new()]);
    }
    let kernel = KernelSettings {
        balance_period: Ns::ZERO,
        ..KernelSettings::default()
    };
    let mut guests = common::guests(&machine, kernel, 1);
    guests[0].add(common::reader(0, HALVES));
    for (guest, profile) in guests[1..].iter_mut().zip(profiles) {
        let compute = Box::new(Compute::new(Ns::from_us(500)));
        let task = guest.add(common::task("compute", 0, compute));
        guest.set_profile(task, *profile);
    }
    let policy = Box::new(Vsmtio::new("vsmtio", settings));
    let mut sim = common::simulation(machine, guests, policy, QueueKind::Wheel, 1);
    common::add_delay(&mut sim, latency, 0);
    sim
}

/// Alone on its hyperthread, of which nothing is lost, it has as many cycles in its account
/// as the sibling has retained, in the parts of its profile.
#[test]
fn cycles_are_counted_while_the_sibling_retains() {
    let settings = VsmtioSettings::default();
    let mut sim = sim(&[profile(700, 200)], settings, Ns::from_us(100));
    sim.run_until(Time::ZERO + Ns::from_secs(1));
    let machine = sim.machine();
    let (reads, computes) = (&machine.vcpus[0], &machine.vcpus[1]);
    assert_eq!(computes.last_pcpu.map(|p| p.0), Some(0));
    let retained = machine.pcpus[1].spent[Activity::Retaining as usize];
    assert!(retained > Ns::from_ms(300), "{retained}");
    let cycles = computes.cycles;
    // A switch of a few microseconds at the start is nobody's work.
    let off = retained.as_ns() - cycles.total;
    assert!(off < 20_000, "{retained} and {cycles:?}");
    // Each stretch is rounded down by less than a nanosecond.
    for (part, permille) in [(cycles.base, 700), (cycles.miss, 200)] {
        let exact = cycles.total * permille / 1000;
        assert!(exact.abs_diff(part) < 100_000, "{cycles:?}");
    }
    assert_eq!(reads.cycles.total, 0, "no profile, no account");
}

/// Who computes on the reader's hyperthread while the reader sleeps: ms of each VM.
fn borrowed(profiles: &[Profile], symbiosis: bool) -> Vec<u64> {
    // Beyond any retention: the reader blocks, and its hyperthread is lent.
    let settings = VsmtioSettings {
        adjuster: None,
        symbiosis,
        ..VsmtioSettings::default()
    };
    let mut sim = sim(profiles, settings, Ns::from_ms(20));
    sim.run_until(Time::ZERO + Ns::from_secs(5));
    let had = |vm| sim.machine().pcpus[1].for_vm(VmId(vm));
    let vms = 1..sim.machine().vms.len() as u32;
    vms.map(|vm| had(vm).as_ns() / 1_000_000).collect()
}

/// One issues all the time, one waits for memory, a third does both. Without symbiosis
/// each is lent as often as the others; with it the one that waits for memory goes beside
/// the others and has more of the reader's hyperthread. Without profiles the switch does
/// nothing, to the nanosecond.
#[test]
fn who_goes_well_beside_the_others_is_lent_more() {
    let profiles = [profile(1000, 0), profile(900, 100), profile(100, 900)];
    let (by_symbiosis, by_fairness) = (borrowed(&profiles, true), borrowed(&profiles, false));
    let share = |had: &[u64]| had[2] * 1000 / had.iter().sum::<u64>();
    let (with, without) = (share(&by_symbiosis), share(&by_fairness));
    assert!(with > without + 50, "{by_symbiosis:?} and {by_fairness:?}");
    let unknown = [Profile::default(); 3];
    assert_eq!(borrowed(&unknown, true), borrowed(&unknown, false));
}
