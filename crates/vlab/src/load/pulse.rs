// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab load pulse`: I/O on a device with one completion queue per CPU.
//!
//! # Problem
//! Where a disk has one queue, every completion interrupt arrives on one CPU,
//! wherever the request came from. Most disks of VMs with more than a few vCPUs
//! have a queue per vCPU instead, and the completion arrives where the request
//! was submitted. A machine with a one-queue disk cannot show that case.
//!
//! # Approach
//! A request is an io_uring timeout: the kernel arms a high-resolution timer on
//! the submitting CPU, and its interrupt completes the request there, as the
//! queue's interrupt would. While the thread waits for it, the kernel counts it
//! as waiting for I/O (`task_struct::in_iowait`, set by `io_cqring_wait` while
//! requests are in flight), so that whatever looks for I/O-bound tasks finds it
//! as it finds a reader of a disk.
//!
//! # Limits
//! No data, no block layer, no device that is busy with other requests: the
//! device time is exact, and a queue depth of 8 gives eight times the rate. The
//! kernel ignores timer slack for these timers, so none is set.

use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use io_uring::IoUring;
use io_uring::opcode;
use io_uring::types::Timespec;
use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Time;

use super::Control;
use super::Worker;
use super::now;
use super::say;
use super::serve;

/// Requests for which memory is set aside; pages that stay unused cost nothing.
const RECORDS: usize = 1 << 20;

/// Requests of a fixed device time, completed on the CPU that submitted them.
#[derive(Args, Clone, Debug)]
pub struct PulseArgs {
    /// Requests in flight per thread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub queue_depth: u32,
    /// Device time of one request, in microseconds.
    #[arg(long, default_value_t = 100, value_name = "US", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub device_us: u32,
    /// Threads, each with its own queue.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Run for so many seconds and print the result, instead of waiting for a window on standard input.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Requests done in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PulseReport {
    /// Requests completed per second, all threads together.
    pub ops_per_s: f64,
    /// From just before the submission until the thread saw the completion.
    pub latency: experiment::result::Latency,
}

/// One completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// When the thread saw it.
    pub(crate) at: Time,
    /// Since its submission.
    pub(crate) latency: Ns,
}

/// Runs the load.
///
/// # Errors
/// The kernel has no io_uring, or the protocol is broken.
pub fn run(args: &PulseArgs) -> anyhow::Result<()> {
    let control = Arc::new(Control::default());
    let (tell, tids) = mpsc::channel();
    let mut workers: Vec<Worker<Vec<Done>>> = Vec::new();
    for nth in 0..args.threads {
        let (control, tell) = (Arc::clone(&control), tell.clone());
        let (depth, device) = (args.queue_depth, Ns::from_us(u64::from(args.device_us)));
        let worker = std::thread::Builder::new()
            .name(format!("pulse-{nth}"))
            .spawn(move || work(depth, device, &control, &tell))
            .context("cannot start an I/O thread")?;
        workers.push(worker);
    }
    drop(tell);
    let Some((window, records)) = serve(&control, &tids, workers, args.seconds)? else {
        return Ok(());
    };
    let within: Vec<Done> = records
        .into_iter()
        .flatten()
        .filter(|done| window.contains(done.at))
        .collect();
    say(&PulseReport {
        ops_per_s: within.len() as f64 / window.length().as_secs_f64(),
        latency: percentiles(within.iter().map(|done| done.latency))?,
    })
}

/// Latency percentiles of some requests; all zero without any.
pub(crate) fn percentiles(
    latencies: impl Iterator<Item = Ns>,
) -> anyhow::Result<experiment::result::Latency> {
    // 1 ns to 100 s with three digits: about 200 KiB.
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).context("histogram bounds")?;
    for latency in latencies {
        histogram.saturating_record(latency.0);
    }
    let at = |quantile| Ns(histogram.value_at_quantile(quantile));
    Ok(experiment::result::Latency {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: Ns(histogram.max()),
    })
}

/// One thread: `depth` timeouts in flight, each submitted again when it fires.
fn work(
    depth: u32,
    device: Ns,
    control: &Control,
    tell: &mpsc::Sender<u32>,
) -> anyhow::Result<Vec<Done>> {
    let mut ring = IoUring::new(depth.max(2).next_power_of_two())
        .context("cannot set up io_uring; is it forbidden by sysctl kernel.io_uring_disabled or a seccomp filter?")?;
    // The receiver is gone only if the process is about to end.
    let _ = tell.send(
        rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
    );
    let length = Timespec::new()
        .sec(device.0 / 1_000_000_000)
        .nsec((device.0 % 1_000_000_000) as u32);
    let mut submitted = vec![Time::ZERO; depth as usize];
    let mut records: Vec<Done> = Vec::with_capacity(RECORDS);
    let mut idle: Vec<u64> = (0..u64::from(depth)).collect();
    control.has_started();
    while !control.stopped() {
        let begin = now();
        for slot in idle.drain(..) {
            let entry = opcode::Timeout::new(&length).build().user_data(slot);
            // SAFETY: the entry points to `length`, which lives until this
            // function returns; the kernel copies it during submission.
            unsafe { ring.submission().push(&entry) }.context("the submission queue is full")?;
            submitted[slot as usize] = begin;
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("io_uring_enter failed"),
        }
        let at = now();
        for completion in ring.completion() {
            // A timeout that fires has this result; any other is a refusal.
            let fired = completion.result() == -libc::ETIME;
            anyhow::ensure!(
                fired,
                "the kernel refused a timeout request: {}",
                completion.result()
            );
            let slot = completion.user_data();
            records.push(Done {
                at,
                latency: at.since(submitted[slot as usize]),
            });
            idle.push(slot);
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_latencies() {
        let latency = percentiles((1..=1000).map(Ns::from_us)).unwrap();
        let close = |got: Ns, us: u64| got.abs_diff(Ns::from_us(us)).0 < us * 2;
        assert!(close(latency.p50, 500), "{latency:?}");
        assert!(close(latency.p99, 990), "{latency:?}");
        assert!(close(latency.max, 1000), "{latency:?}");
        assert_eq!(
            percentiles(std::iter::empty()).unwrap(),
            experiment::result::Latency::default()
        );
    }
}
