// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each VM got done, where the scenario names its VMs.

use experiment::result::LoadWork;
use experiment::result::VmWork;
use experiment::scenario::Load;
use experiment::scenario::Scenario;
use sim::engine::Sim;
use sim::ids::VmId;
use sim::program::Latencies;
use units::Ns;

use super::build;
use crate::reproduce::vms;
use crate::run::schedule::Step;

/// CPU time of all VMs so far, to be taken when the window opens.
pub(super) fn ran(sim: &Sim) -> Vec<Ns> {
    let machine = sim.machine();
    let of = |vcpus: &std::ops::Range<u32>| {
        let vcpus = &machine.vcpus[vcpus.start as usize..vcpus.end as usize];
        vcpus.iter().map(|vcpu| vcpu.ran).sum()
    };
    machine.vms.iter().map(|vm| of(&vm.vcpus)).collect()
}

/// By VM, in the order of the scenario; empty where it does not name them.
pub(super) fn of(
    scenario: &Scenario,
    step: &Step<'_>,
    sim: &Sim,
    before: &[Ns],
    window: Ns,
) -> Vec<VmWork> {
    if scenario.vms.is_empty() {
        return Vec::new();
    }
    let seconds = window.as_secs_f64();
    let tables = vms::all(scenario, step.arm.is_none());
    let after = ran(sim);
    tables
        .iter()
        .enumerate()
        .map(|(n, (table, nth))| {
            let loads = vms::loads_of(table, step.load);
            let places = loads.iter().enumerate();
            VmWork {
                vm: table.name_of(*nth),
                cpus: (after[n] - before[n]).as_secs_f64() / seconds,
                compute: compute(sim, n, table.vcpus) / seconds,
                loads: places
                    .map(|(place, load)| of_load(sim, n, place, load, seconds))
                    .collect(),
            }
        })
        .collect()
}

/// CPU seconds at full speed of a VM's pinned compute.
fn compute(sim: &Sim, vm: usize, vcpus: u32) -> f64 {
    let groups = build::COMPUTE..build::COMPUTE + vcpus;
    let tasks = sim.guest(VmId(vm as u32)).tasks().iter();
    let units: u64 = tasks
        .filter(|task| groups.contains(&task.group))
        .map(|task| task.done.operations)
        .sum();
    units as f64 * vms::UNIT.as_secs_f64()
}

fn of_load(sim: &Sim, vm: usize, place: usize, load: &Load, seconds: f64) -> LoadWork {
    let group = if vm == 0 && place == 0 {
        build::IO
    } else {
        build::LOADS + place as u32
    };
    let id = VmId(vm as u32);
    let mut latencies = Latencies::default();
    let (mut threads, mut operations, mut bytes) = (0, 0, 0);
    for task in sim.guest(id).tasks().iter().filter(|t| t.group == group) {
        threads += 1;
        operations += task.done.operations;
        bytes += task.done.bytes;
        latencies.merge(&task.done.latency);
    }
    let trips = sim.round_trips(id);
    LoadWork {
        load: load.name.clone(),
        threads,
        ops_per_s: operations as f64 / seconds,
        bytes_per_s: bytes as f64 / seconds,
        latency: latencies.mean(),
        trip: trips.mean(),
        trip_max: trips.max(),
    }
}
