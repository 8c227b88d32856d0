// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load wake`: how long a thread waits for a CPU after it was woken.
//!
//! # Problem
//! What a scheduler costs is not in throughput alone: a server's answer begins when
//! its thread, woken by another one, gets a CPU.
//!
//! # Approach
//! As schbench does: one thread wakes workers, each by a futex of its own, and a
//! worker reads the clock when it runs. A worker that has not answered yet is
//! not woken again, so that delays do not pile up. Workers do nothing else: what is
//! measured is the way to the CPU and not who waits for whom there.
//!
//! # Limits
//! The waker is a thread like any other: when it is late, fewer wake-ups are measured,
//! and none is wrong.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;
use units::Ns;

use super::now;
use super::say;

/// Threads that are woken again and again.
#[derive(Args, Clone, Debug)]
pub struct WakeArgs {
    /// Threads to wake.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// From one round of wake-ups to the next.
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub every: Duration,
    /// End after so long and print how long threads waited.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub length: Duration,
}

/// From the wake-up to the thread's first instruction after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct WakeReport {
    wakeups: u64,
    mean_ns: u64,
    p50_ns: u64,
    p95_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// A wait longer than this is counted as this long.
const LONGEST: Ns = Ns::from_secs(60);

/// Runs the load.
///
/// # Errors
/// A thread cannot be started, or standard output cannot be written.
pub fn run(args: &WakeArgs) -> anyhow::Result<()> {
    say(&measure(args)?)
}

fn measure(args: &WakeArgs) -> anyhow::Result<WakeReport> {
    let stop = Arc::new(AtomicBool::new(false));
    let workers = (0..args.threads)
        .map(|number| {
            // When it was woken, ns; 0: it has answered.
            let woken = Arc::new(AtomicU64::new(0));
            let (at, stop) = (Arc::clone(&woken), Arc::clone(&stop));
            let thread = thread::Builder::new()
                .name(format!("woken-{number}"))
                .spawn(move || work(&at, &stop))
                .context("cannot start a thread to wake")?;
            Ok((woken, thread))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let end = Instant::now() + args.length;
    while Instant::now() < end {
        for (woken, thread) in &workers {
            if woken.load(Ordering::Acquire) == 0 {
                woken.store(now().0, Ordering::Release);
                thread.thread().unpark();
            }
        }
        thread::sleep(args.every);
    }
    stop.store(true, Ordering::Release);
    let mut all = histogram()?;
    for (_, thread) in workers {
        thread.thread().unpark();
        let waits = thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread that was woken panicked"))??;
        all.add(waits)?;
    }
    let at = |quantile| all.value_at_quantile(quantile);
    Ok(WakeReport {
        wakeups: all.len(),
        mean_ns: all.mean().round() as u64,
        p50_ns: at(0.5),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        max_ns: all.max(),
    })
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(LONGEST.0, 3)?)
}

/// Sleeps until it is woken, again and again.
fn work(woken: &AtomicU64, stop: &AtomicBool) -> anyhow::Result<Histogram<u64>> {
    let mut waits = histogram()?;
    loop {
        let at = woken.load(Ordering::Acquire);
        if at > 0 {
            waits.saturating_record(now().0.saturating_sub(at));
            woken.store(0, Ordering::Release);
        } else if stop.load(Ordering::Acquire) {
            return Ok(waits);
        } else {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_woken_and_answers() {
        let args = WakeArgs {
            threads: 3,
            every: Duration::from_millis(1),
            length: Duration::from_millis(100),
        };
        let report = measure(&args).unwrap();
        // A late round is none; the first one is always there.
        assert!((3..=300).contains(&report.wakeups), "{report:?}");
        assert!(report.p50_ns > 0, "{report:?}");
        assert!(report.p50_ns <= report.p95_ns, "{report:?}");
        assert!(report.p95_ns <= report.p99_ns, "{report:?}");
        assert!((1..=report.max_ns).contains(&report.mean_ns), "{report:?}");
    }
}
