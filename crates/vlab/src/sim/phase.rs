// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One step, simulated: the same phase that a measurement gives.

use std::collections::BTreeMap;

use experiment::result::Daemon;
use experiment::result::Host;
use experiment::result::Io;
use experiment::result::Latency;
use experiment::result::Machine;
use experiment::result::Phase;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;
use sim::engine::Sim;
use sim::guest::Task;
use sim::ids::VmId;
use sim::machine::State;
use sim::program::Latencies;
use sim::random::Random;
use sim::random::Stream;
use units::Ns;
use units::Time;

use super::build;
use super::recorded;
use super::work;
use crate::reproduce::vms;
use crate::run::schedule::Step;

/// What a step gave.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) phase: Phase,
    /// Events that happened, warm-up included.
    pub(super) events: u64,
}

/// Simulates one step. Of an arm's first round so much is kept in detail.
pub(super) fn simulate(
    scenario: &Scenario,
    step: &Step<'_>,
    timeline: Ns,
) -> anyhow::Result<Outcome> {
    let seed = scenario.sim.as_ref().map_or(1, |sim| sim.seed);
    let mut sim = build::simulation(scenario, step, seed_of(seed, step.round))?;
    let from = Time::ZERO + build::opens(scenario, step);
    sim.run_until(from);
    let window = scenario.measure.window;
    sim.open_window();
    let before = work::ran(&sim);
    let detail = timeline.min(window);
    let is_kept = step.arm.is_some() && step.round == 0 && detail > Ns::ZERO;
    if is_kept {
        sim.record(VmId(0), build::IO, from + detail);
    }
    let books = recorded::books(&sim);
    let completed = completions(scenario, step, &sim);
    let mut any_on = 0u64;
    // The share of time in which any vCPU could serve I/O, from samples between the
    // events: one that sleeps has not been taken away.
    let grains = (window.0 / 50_000).max(1);
    for n in 1..=grains {
        sim.run_until_quietly(from + window.scaled(n, grains));
        any_on += u64::from(has_vcpu(&sim));
    }
    sim.run_until(from + window);
    let union_share = any_on as f64 / grains as f64;
    let share = |time: Ns| time.0 as f64 / window.0.max(1) as f64;
    let recording = sim.recorded();
    let mut books = recorded::between(&books, recorded::books(&sim));
    let names = vms::all(scenario, step.arm.is_none()).into_iter();
    for (vm, (table, nth)) in books.vms.iter_mut().zip(names) {
        vm.name = table.name_of(nth);
    }
    let tested = books.vms.first().map_or(&[][..], |vm| &vm.vcpus);
    let on_share = tested.iter().map(|vcpu| share(window - vcpu.ready));
    let on_share: Vec<f64> = on_share.collect();
    let slices = tested.iter().map(|vcpu| vcpu.preempted).sum();
    let io = step
        .load
        .filter(|load| load.kind != LoadKind::Idle)
        .map(|_| io(&sim, window));
    let compute_per_s = if step.compute {
        compute(&sim, scenario.vcpus(), window)
    } else {
        Vec::new()
    };
    let daemon = daemon(&sim, window);
    Ok(Outcome {
        events: sim.events(),
        phase: Phase {
            load: step.load.map_or(String::new(), |load| load.name.clone()),
            arm: step.name.to_owned(),
            vms_per_pcpu: step.vms_per_pcpu,
            round: step.round,
            at: from.since(Time::ZERO),
            boot: 0,
            work: work::of(scenario, step, &sim, &before, window),
            window,
            io,
            compute_per_s,
            host: Host {
                on_share,
                union_share,
                slices,
                ..Host::default()
            },
            completions: completions(scenario, step, &sim)
                .into_iter()
                .zip(completed)
                .map(|(after, before)| after - before)
                .collect(),
            daemon,
            // Nothing in a simulated machine can die, be stolen from or be late.
            liveness: Vec::new(),
            machine: Machine::default(),
            io_time: recorded::io_time(&sim),
            timeline: recording.map(|recording| recorded::timeline(&sim, &recording, from, detail)),
            books: Some(books),
        },
    })
}

/// The seed of a round: the scenario's in the first, in the others a child of it. The
/// next numbers would be those of other points of a sweep over `sim.seed`.
pub(super) fn seed_of(seed: u64, round: u32) -> u64 {
    if round == 0 {
        return seed;
    }
    Random::child(seed, Stream::Setup, u32::MAX, round).below(u64::MAX)
}

/// Is any vCPU of the VM under test on, or would be if it had something to do?
fn has_vcpu(sim: &Sim) -> bool {
    let machine = sim.machine();
    let range = machine.vms[0].vcpus.clone();
    let mut vcpus = machine.vcpus[range.start as usize..range.end as usize].iter();
    vcpus.any(|vcpu| vcpu.state != State::Queued)
}

fn tasks(sim: &Sim) -> impl Iterator<Item = &Task> {
    sim.guest(VmId(0)).tasks().iter()
}

fn io(sim: &Sim, window: Ns) -> Io {
    let mut all = Latencies::default();
    let (mut operations, mut bytes) = (0u64, 0u64);
    for task in tasks(sim).filter(|task| task.group == build::IO) {
        operations += task.done.operations;
        bytes += task.done.bytes;
        all.merge(&task.done.latency);
    }
    let seconds = window.as_secs_f64();
    Io {
        ops_per_s: operations as f64 / seconds,
        bytes_per_s: bytes as f64 / seconds,
        latency: Latency {
            p50: all.percentile(500),
            p99: all.percentile(990),
            p999: all.percentile(999),
            max: all.max(),
        },
        series: None,
    }
}

/// Work units per second and vCPU.
fn compute(sim: &Sim, cpus: u32, window: Ns) -> Vec<f64> {
    (0..cpus)
        .map(|vcpu| {
            tasks(sim)
                .filter(|task| task.group == build::COMPUTE + vcpu)
                .map(|task| task.done.operations as f64)
                .sum::<f64>()
                / window.as_secs_f64()
        })
        .collect()
}

/// Completions per vCPU so far, for the report to see the path: all on one, or none.
fn completions(scenario: &Scenario, step: &Step<'_>, sim: &Sim) -> Vec<u64> {
    let is_on_one = |load: &Load| {
        let mut devices = scenario.devices.iter();
        let own = devices.find(|device| load.device.as_ref() == Some(&device.name));
        own.is_some_and(|device| device.completion_vcpu.is_some())
    };
    let shows = |load: &Load| matches!(load.kind, LoadKind::Disk { .. }) || is_on_one(load);
    if !step.load.is_some_and(shows) {
        return Vec::new();
    }
    let range = sim.machine().vms[0].vcpus.clone();
    let cpus = scenario.vcpus() as usize;
    sim.machine().vcpus[range.start as usize..range.end as usize]
        .iter()
        .map(|vcpu| vcpu.io_events)
        .take(cpus)
        .collect()
}

fn daemon(sim: &Sim, window: Ns) -> Option<Daemon> {
    let counts = sim.guest(VmId(0)).migrater()?.counts();
    let moves = BTreeMap::from([
        ("completion".to_owned(), counts.completion),
        ("pull".to_owned(), counts.pull),
        ("push".to_owned(), counts.push),
        ("soon-active".to_owned(), counts.soon_active),
        ("spread".to_owned(), counts.spread),
    ]);
    let inactive = tasks(sim)
        .filter(|task| task.group == build::IO)
        .map(|task| task.inactive)
        .sum();
    Some(Daemon {
        interval: window,
        io_inactivity: inactive,
        io_phase: window,
        cpu: counts.cpu,
        stopped: None,
        wakeups: counts.wakeups,
        moves,
        failed: BTreeMap::from([("current-on-descheduled".to_owned(), counts.failed)]),
        n_migrate: counts.n_migrate(),
        n_min: counts.n_min,
        lost_events: 0,
        // What a simulated daemon is told is the truth.
        source: None,
        vcpus: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Points that differ in their seed by one share no round.
    #[test]
    fn rounds_of_neighbouring_seeds_have_seeds_of_their_own() {
        let of = |seed| (0..20).map(move |round| seed_of(seed, round));
        let seeds: BTreeSet<u64> = (0..20).flat_map(of).collect();
        assert_eq!(seeds.len(), 400);
        assert_eq!(seed_of(5, 0), 5);
    }
}
