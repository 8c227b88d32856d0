// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of a machine with several VMs: figures, and how they go over time.

use rayon::prelude::*;
use sim::engine::Sim;
use units::Ns;
use units::Time;

use super::Effort;
use super::Mix;
use super::build::build;
use crate::reproduce::did;
use crate::reproduce::did::Run;

/// Runs under a policy; figures are means over the seeds.
pub(in crate::reproduce) fn run(mix: &Mix, policy: &str, effort: Effort) -> anyhow::Result<Run> {
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
}

/// I/O bytes per second of all VMs in each `step` of the window.
pub(in crate::reproduce) fn series(
    mix: &Mix,
    policy: &str,
    effort: Effort,
    step: Ns,
) -> anyhow::Result<Vec<f64>> {
    let mut sim = build(mix, policy, effort.first)?;
    sim.run_until(Time::ZERO + effort.warmup);
    sim.open_window();
    let mut last = 0;
    let mut rates = Vec::new();
    for n in 1..=effort.window.as_ns() / step.as_ns() {
        sim.run_until(Time::ZERO + effort.warmup + step * n);
        let bytes = did::io_bytes(&sim);
        rates.push((bytes - last) as f64 / step.as_secs_f64());
        last = bytes;
    }
    Ok(rates)
}

/// In each `step` of the window: I/O bytes per second of all VMs, and what the
/// policy's counter of this name has grown by.
pub(in crate::reproduce) fn watched(
    mix: &Mix,
    policy: &str,
    counter: &str,
    effort: Effort,
    step: Ns,
) -> anyhow::Result<Vec<(f64, u64)>> {
    let mut sim = build(mix, policy, effort.first)?;
    sim.run_until(Time::ZERO + effort.warmup);
    sim.open_window();
    let now = |sim: &Sim| {
        let counters = sim.hypervisor().counters();
        let count = counters.iter().find(|(name, _)| *name == counter);
        (did::io_bytes(sim), count.map_or(0, |(_, count)| *count))
    };
    let mut last = now(&sim);
    let mut steps = Vec::new();
    for n in 1..=effort.window.as_ns() / step.as_ns() {
        sim.run_until(Time::ZERO + effort.warmup + step * n);
        let next = now(&sim);
        let bytes = (next.0 - last.0) as f64;
        steps.push((bytes / step.as_secs_f64(), next.1 - last.1));
        last = next;
    }
    Ok(steps)
}
