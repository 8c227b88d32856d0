// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of a machine with several VMs: figures, and how they go over time.

use rayon::prelude::*;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sim::engine::Sim;
use units::Ns;
use units::Time;

use super::Dev;
use super::Effort;
use super::Mix;
use super::Task;
use super::Work;
use super::build::build;
use super::build::sharing;
use crate::reproduce::did;
use crate::reproduce::did::Run;
use crate::reproduce::tuning::Tuning;
use crate::reproduce::tuning::tuned;

/// Runs under a policy; figures are means over the seeds.
pub(in crate::reproduce) fn run(
    mix: &Mix,
    policy: &str,
    effort: Effort<'_>,
) -> anyhow::Result<Run> {
    once("run", mix, policy, effort, Ns::ZERO, || {
        let runs: Vec<Run> = (effort.first..effort.first + effort.seeds)
            .into_par_iter()
            .map(|seed| {
                let mut sim = build(mix, policy, seed)?;
                sim.run_until(Time::ZERO + effort.warmup);
                sim.open_window();
                let before = did::books(&sim);
                sim.run_until(Time::ZERO + effort.warmup + effort.window);
                Ok(did::run(&sim, &before, effort.window))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(did::mean(&runs))
    })
}

/// Makes a run, or says what the same one gave before if that is remembered. All of what
/// it follows from is in what is printed of it.
fn once<T: Serialize + DeserializeOwned>(
    kind: &str,
    mix: &Mix,
    policy: &str,
    effort: Effort<'_>,
    step: Ns,
    make: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(memo) = effort.memo else {
        return make();
    };
    // The policy with what is open in it stands for the tuning, most of which is other
    // policies', and a device counts only if somebody uses it.
    let policy = tuned(policy, &sharing(mix), &mix.tuning)?;
    let mut bare = mix.clone();
    bare.tuning = Tuning::default();
    let devices = std::mem::take(&mut bare.devices);
    let tasks = || bare.vms.iter().flat_map(|vm| &vm.tasks);
    let used = devices.iter().enumerate().map(|(n, device)| {
        let asks = |task: &Task| match task.work {
            Work::Io(reader) => reader.device.0 as usize == n,
            Work::Echo(device, _) | Work::FakeIo(device, _) => device as usize == n,
            _ => false,
        };
        tasks().any(asks).then_some(device)
    });
    let used: Vec<Option<&Dev>> = used.collect();
    let Effort {
        warmup,
        window,
        seeds,
        first,
        memo: _,
    } = effort;
    let all = format!(
        "{kind} {bare:?} {used:?} {policy:?} {warmup:?} {window:?} {seeds} {first} {step:?}"
    );
    memo.of_run(&all, make)
}

/// What happens in one step of a window; a mean over the seeds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::reproduce) struct Step {
    /// I/O bytes per second of all VMs.
    pub(in crate::reproduce) rate: f64,
    /// What the policy's counter has grown by; 0 if none is named.
    pub(in crate::reproduce) counted: f64,
}

/// How a run goes: each `step` of the window, with a counter of the policy, if one is named.
pub(in crate::reproduce) fn series(
    mix: &Mix,
    policy: &str,
    counter: Option<&str>,
    effort: Effort<'_>,
    step: Ns,
) -> anyhow::Result<Vec<Step>> {
    let of_seed = |seed| -> anyhow::Result<Vec<Step>> {
        let mut sim = build(mix, policy, seed)?;
        sim.run_until(Time::ZERO + effort.warmup);
        sim.open_window();
        let now = |sim: &Sim| {
            let counters = sim.hypervisor().counters();
            let count = counters.iter().find(|(name, _)| Some(*name) == counter);
            (did::io_bytes(sim), count.map_or(0, |(_, count)| *count))
        };
        let mut last = now(&sim);
        let mut steps = Vec::new();
        for n in 1..=effort.window.as_ns() / step.as_ns() {
            sim.run_until_quietly(Time::ZERO + effort.warmup + step * n);
            let next = now(&sim);
            steps.push(Step {
                rate: (next.0 - last.0) as f64 / step.as_secs_f64(),
                counted: (next.1 - last.1) as f64,
            });
            last = next;
        }
        Ok(steps)
    };
    let kind = format!("series {counter:?}");
    once(&kind, mix, policy, effort, step, || {
        let runs: Vec<Vec<Step>> = (effort.first..effort.first + effort.seeds)
            .into_par_iter()
            .map(of_seed)
            .collect::<anyhow::Result<_>>()?;
        let steps = runs.first().map_or(0, Vec::len);
        let mean = |of: &dyn Fn(&[Step]) -> f64| {
            runs.iter().map(|run| of(run)).sum::<f64>() / runs.len() as f64
        };
        let means = (0..steps).map(|n| Step {
            rate: mean(&|run| run[n].rate),
            counted: mean(&|run| run[n].counted),
        });
        Ok(means.collect())
    })
}
