// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run did: figures per VM and of the machine.

use serde::Deserialize;
use serde::Serialize;
use sim::engine::Sim;
use sim::guest::Task;
use sim::ids::VmId;
use sim::machine::Activity;
use sim::machine::Pcpu;
use sim::program::Latencies;
use units::Ns;

use super::mix::BACKEND;
use super::mix::COMPUTE;
use super::mix::ECHO;
use super::mix::IO;
use super::mix::PARALLEL;
use super::mix::UNIT;

/// Where ISACS's pings are dense (Fig 8 of 13.2).
const DENSE: Ns = Ns::from_ms(6);

/// What one VM did, per second of the window where nothing else is said.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Did {
    pub(super) bytes: f64,
    pub(super) requests: f64,
    /// Mean latency of a request, ms.
    pub(super) latency_ms: f64,
    /// Clients' round trips, ms.
    pub(super) trip_ms: f64,
    /// The longest; over several rounds the mean of each one's.
    pub(super) trip_max_ms: f64,
    /// How far the middle nine tenths of them are apart, ms.
    pub(super) trip_range_ms: f64,
    /// Share of them within [`DENSE`].
    pub(super) trip_dense: f64,
    /// Work of compute tasks, CPUs at full speed.
    pub(super) compute: f64,
    /// Rounds of the parallel program.
    pub(super) rounds: f64,
    /// CPU time, retention and polling included, in CPUs.
    pub(super) cpu: f64,
    /// vCPUs that were ready without a pCPU, and that waited without one.
    pub(super) ready: f64,
    pub(super) halted: f64,
    /// vCPUs that waited on their pCPU.
    pub(super) retained: f64,
    /// Time in which its I/O tasks were inactive, and in which moves of their own held them
    /// up: of all of them together, in parts of the window (seconds per second).
    pub(super) inactive: f64,
    pub(super) held_up: f64,
    /// Moves of the daemon, and the smallest possible number.
    pub(super) moves: f64,
    pub(super) moves_min: f64,
}

/// What all did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) vms: Vec<Did>,
    /// Context switches on all pCPUs per second, to and from idle included.
    pub(super) switches: f64,
    /// Share of the pCPUs' time that was not idle, and that was polling.
    pub(super) busy: f64,
    pub(super) polling: f64,
    /// Of hyperthreads with odd numbers: share retaining, and share that each VM has.
    pub(super) odd_retaining: f64,
    pub(super) odd_for_vm: Vec<f64>,
}

impl Run {
    /// The sum over VMs of something.
    pub(super) fn sum(&self, of: impl Fn(&Did) -> f64) -> f64 {
        self.vms.iter().map(of).sum()
    }

    /// The sum over some VMs.
    pub(super) fn sum_of(&self, vms: std::ops::Range<usize>, of: impl Fn(&Did) -> f64) -> f64 {
        self.vms[vms].iter().map(of).sum()
    }
}

/// Counters when the window opens.
#[derive(Clone, Debug)]
pub(super) struct Books {
    /// By VM: ran, ready, halted, waited on its pCPU.
    vms: Vec<[Ns; 4]>,
    switches: u64,
    spent: Vec<[Ns; 5]>,
    for_vm: Vec<Vec<Ns>>,
}

pub(super) fn books(sim: &Sim) -> Books {
    let machine = sim.machine();
    let of = |vcpus: &std::ops::Range<u32>| {
        let mut sums = [Ns::ZERO; 4];
        for v in &machine.vcpus[vcpus.start as usize..vcpus.end as usize] {
            for (sum, more) in sums
                .iter_mut()
                .zip([v.ran, v.ready, v.halted, v.waited_on_pcpu])
            {
                *sum += more;
            }
        }
        sums
    };
    let for_vm = |pcpu: &Pcpu| {
        let vms = 0..machine.vms.len() as u32;
        vms.map(|vm| pcpu.for_vm(VmId(vm))).collect()
    };
    Books {
        vms: machine.vms.iter().map(|vm| of(&vm.vcpus)).collect(),
        switches: machine.pcpus.iter().map(|p| p.turns).sum(),
        spent: machine.pcpus.iter().map(|p| p.spent).collect(),
        for_vm: machine.pcpus.iter().map(for_vm).collect(),
    }
}

/// Bytes of all I/O tasks since the window opened.
pub(super) fn io_bytes(sim: &Sim) -> u64 {
    let tasks = sim.guests().iter().flat_map(|guest| guest.tasks());
    tasks.filter(|t| t.group == IO).map(|t| t.done.bytes).sum()
}

pub(super) fn run(sim: &Sim, before: &Books, window: Ns) -> Run {
    let after = books(sim);
    let seconds = window.as_secs_f64();
    let odd = || after.for_vm.iter().zip(&before.for_vm).skip(1).step_by(2);
    let odd_for_vm = (0..after.vms.len())
        .map(|vm| {
            let had: Ns = odd().map(|(a, b)| a[vm] - b[vm]).sum();
            had.as_secs_f64() / seconds / f64::max(odd().count() as f64, 1.0)
        })
        .collect();
    let vms = (0..after.vms.len())
        .map(|vm| {
            let mut part = [0.0; 4];
            for (n, part) in part.iter_mut().enumerate() {
                *part = (after.vms[vm][n] - before.vms[vm][n]).as_secs_f64() / seconds;
            }
            did(sim, VmId(vm as u32), window, part)
        })
        .collect();
    let spent = |activity: Activity, odd: bool| {
        let all = after.spent.iter().zip(&before.spent).enumerate();
        let of = all.filter(|(n, _)| !odd || n % 2 == 1);
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, (a, b)) in of {
            sum += (a[activity as usize] - b[activity as usize]).as_secs_f64();
            count += 1.0;
        }
        sum / seconds / f64::max(count, 1.0)
    };
    Run {
        vms,
        switches: (after.switches - before.switches) as f64 / seconds,
        busy: 1.0 - spent(Activity::Idle, false),
        polling: spent(Activity::Polling, false),
        odd_retaining: spent(Activity::Retaining, true),
        odd_for_vm,
    }
}

fn did(sim: &Sim, vm: VmId, window: Ns, part: [f64; 4]) -> Did {
    let seconds = window.as_secs_f64();
    let guest = sim.guest(vm);
    let of = |group: u32| guest.tasks().iter().filter(move |t| t.group == group);
    let sum = |group: u32, what: fn(&Task) -> u64| of(group).map(what).sum::<u64>() as f64;
    let mut latencies = Latencies::default();
    for task in of(IO).chain(of(ECHO)) {
        latencies.merge(&task.done.latency);
    }
    let trips = sim.round_trips(vm);
    let inactive: Ns = of(IO).map(|t| t.inactive).sum();
    let held_up: Ns = of(IO).map(|t| t.held_up).sum();
    let counts = guest.migrater().map(|migrater| migrater.counts());
    Did {
        bytes: sum(IO, |t| t.done.bytes) / seconds,
        requests: (sum(IO, |t| t.done.operations)
            + sum(ECHO, |t| t.done.operations)
            + sum(BACKEND, |t| t.done.operations))
            / seconds,
        latency_ms: latencies.mean().as_ms_f64(),
        trip_ms: trips.mean().as_ms_f64(),
        trip_max_ms: trips.max().as_ms_f64(),
        trip_range_ms: trips.percentile(950).as_ms_f64() - trips.percentile(50).as_ms_f64(),
        trip_dense: within(&trips, DENSE),
        compute: sum(COMPUTE, |t| t.done.operations) * UNIT.as_secs_f64() / seconds,
        rounds: sum(PARALLEL, |t| t.done.operations)
            / f64::max(of(PARALLEL).count() as f64, 1.0)
            / seconds,
        cpu: part[0],
        ready: part[1],
        halted: part[2],
        retained: part[3],
        inactive: inactive.as_secs_f64() / seconds,
        held_up: held_up.as_secs_f64() / seconds,
        moves: counts.map_or(0.0, |c| c.n_migrate() as f64 / seconds),
        moves_min: counts.map_or(0.0, |c| c.n_min as f64 / seconds),
    }
}

/// The share of these that are no longer than `limit`, to a thousandth.
fn within(latencies: &Latencies, limit: Ns) -> f64 {
    // Grows with the percentile: the first one that is longer is looked for.
    let (mut low, mut high) = (0, 1001);
    while low + 1 < high {
        let middle = u64::midpoint(low, high);
        if latencies.percentile(middle) <= limit {
            low = middle;
        } else {
            high = middle;
        }
    }
    low as f64 / 1000.0
}

/// Means, also of maxima: the longest of a round does not depend on how many there are.
pub(super) fn mean(runs: &[Run]) -> Run {
    let part = 1.0 / f64::max(runs.len() as f64, 1.0);
    let over = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() * part;
    let vms = runs.first().map_or(0, |run| run.vms.len());
    let vm = |n: usize| {
        let of = |of: fn(&Did) -> f64| runs.iter().map(|run| of(&run.vms[n])).sum::<f64>() * part;
        Did {
            bytes: of(|d| d.bytes),
            requests: of(|d| d.requests),
            latency_ms: of(|d| d.latency_ms),
            trip_ms: of(|d| d.trip_ms),
            trip_max_ms: of(|d| d.trip_max_ms),
            trip_range_ms: of(|d| d.trip_range_ms),
            trip_dense: of(|d| d.trip_dense),
            compute: of(|d| d.compute),
            rounds: of(|d| d.rounds),
            cpu: of(|d| d.cpu),
            ready: of(|d| d.ready),
            halted: of(|d| d.halted),
            retained: of(|d| d.retained),
            inactive: of(|d| d.inactive),
            held_up: of(|d| d.held_up),
            moves: of(|d| d.moves),
            moves_min: of(|d| d.moves_min),
        }
    };
    Run {
        vms: (0..vms).map(vm).collect(),
        switches: over(|r| r.switches),
        busy: over(|r| r.busy),
        polling: over(|r| r.polling),
        odd_retaining: over(|r| r.odd_retaining),
        odd_for_vm: (0..vms)
            .map(|n| runs.iter().map(|r| r.odd_for_vm[n]).sum::<f64>() * part)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 of 40 by hand; all, and none.
    #[test]
    fn the_share_of_short_latencies_is_counted() {
        let mut latencies = Latencies::default();
        for n in 0..40 {
            latencies.record(Ns::from_ms(if n < 30 { 2 } else { 20 }));
        }
        for (ms, share) in [(6, 0.75), (1, 0.0), (30, 1.0)] {
            let found = within(&latencies, Ns::from_ms(ms));
            assert!((found - share).abs() < 0.002, "{ms} ms: {found}");
        }
    }
}
