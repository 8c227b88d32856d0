// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load compute`: busy threads that count what they get done.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use serde::Serialize;
use units::CpuSet;
use units::Time;
use units::VcpuId;

use super::Control;
use super::Window;
use super::Worker;
use super::introduce;
use super::now;
use super::say;
use super::serve;

/// Steps of one work unit: some 60 us, so that a clock reading per unit costs
/// nothing and the unit that a window's edge cuts matters little.
const STEPS_PER_UNIT: u64 = 1 << 16;

/// Units expected per second; only sizes the first allocation.
const UNITS_PER_S: usize = 20_000;

/// Busy threads pinned to CPUs, at normal priority.
#[derive(Args, Clone, Debug)]
pub struct ComputeArgs {
    /// The CPUs, for instance 0-3,7.
    #[arg(long, value_name = "LIST")]
    pub cpus: CpuSet,
    /// Threads on each of them.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads_per_cpu: u32,
    /// Run for so many seconds and print the result, instead of waiting for a window on standard input.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Work done in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputeReport {
    /// Units per second, one entry per CPU in ascending order.
    pub units_per_s: Vec<f64>,
}

/// Runs the load.
///
/// # Errors
/// A thread cannot be started or pinned, or the protocol is broken.
pub fn run(args: &ComputeArgs) -> anyhow::Result<()> {
    let control = Arc::new(Control::default());
    let (tell, tids) = mpsc::channel();
    let mut workers: Vec<Worker<(VcpuId, Vec<Time>)>> = Vec::new();
    for cpu in args.cpus.iter() {
        for nth in 0..args.threads_per_cpu {
            let (control, tell) = (Arc::clone(&control), tell.clone());
            let worker = std::thread::Builder::new()
                .name(format!("compute-{cpu}-{nth}"))
                .spawn(move || Ok((cpu, work(cpu, &control, &tell)?)))
                .context("cannot start a compute thread")?;
            workers.push(worker);
        }
    }
    drop(tell);
    let Some((window, records)) = serve(&control, &tids, workers, args.seconds)? else {
        return Ok(());
    };
    let units_per_s = args
        .cpus
        .iter()
        .map(|cpu| {
            let mine = records.iter().filter(|(on, _)| *on == cpu);
            mine.map(|(_, ends)| units_within(ends, window))
                .sum::<f64>()
                / window.length().as_secs_f64()
        })
        .collect();
    say(&ComputeReport { units_per_s })
}

/// The same of threads that are SCHED_EXT and no vCPUs: what a host scheduler of vCPUs has to
/// bear, since that takes no privilege.
///
/// # Errors
/// The same, and a kernel without sched_ext.
pub fn run_ext(args: &ComputeArgs) -> anyhow::Result<()> {
    // include/uapi/linux/sched.h; not in the C library's headers.
    const SCHED_EXT: i32 = 7;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` outlives the call, which only reads it. 0: this thread, whose children
    // inherit it.
    let done = unsafe { libc::sched_setscheduler(0, SCHED_EXT, &raw const param) };
    if done != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot make a thread SCHED_EXT");
    }
    run(args)
}

/// One thread: the instants at which its units ended.
fn work(cpu: VcpuId, control: &Control, tell: &mpsc::Sender<u32>) -> anyhow::Result<Vec<Time>> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu.index());
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot pin a compute thread to CPU {cpu}; is it online?"))?;
    introduce(tell);
    let mut ends = Vec::with_capacity(UNITS_PER_S * 4);
    let mut x = 1u64;
    control.has_started();
    while !control.stopped() {
        x = steps(STEPS_PER_UNIT, x);
        ends.push(now());
    }
    Ok(ends)
}

/// So many dependent steps from `x` on, which no compiler can leave out.
pub(crate) fn steps(n: u64, mut x: u64) -> u64 {
    for _ in 0..n {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    x
}

/// Units done in the window; those that its edges cut count in part.
fn units_within(ends: &[Time], window: Window) -> f64 {
    ends.windows(2)
        .filter_map(|pair| {
            let [begin, end] = pair else { return None };
            let from = (*begin).max(window.from);
            let to = (*end).min(window.to);
            let length = end.since(*begin).0;
            (length > 0).then(|| to.since(from).0 as f64 / length as f64)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_at_the_edges_count_in_part() {
        let ends: Vec<Time> = [0, 10, 20, 30, 40].map(Time).into();
        let count = |from, to| {
            units_within(
                &ends,
                Window {
                    from: Time(from),
                    to: Time(to),
                },
            )
        };
        assert!((count(10, 30) - 2.0).abs() < 1e-12);
        assert!((count(15, 30) - 1.5).abs() < 1e-12);
        assert!((count(12, 18) - 0.6).abs() < 1e-12);
        assert!((count(100, 200)).abs() < 1e-12);
        assert!(
            (units_within(
                &[],
                Window {
                    from: Time(0),
                    to: Time(1)
                }
            ))
            .abs()
                < 1e-12
        );
    }
}
