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
//! A thread may compute for a while after each request: that is work of a known
//! amount and not of a known time, or a frozen CPU would do it for us. Threads
//! may arrive within the window, as clients do.
//!
//! # Limits
//! No data, no block layer, no device that is busy with other requests: the
//! device time is exact, and a queue depth of 8 gives eight times the rate. The
//! kernel ignores timer slack for these timers, so none is set.

use std::hint::black_box;
use std::str::FromStr;
use std::sync::mpsc;

use anyhow::Context;
use clap::Args;
use io_uring::IoUring;
use io_uring::opcode;
use io_uring::types::Timespec;
use units::Ns;
use units::Time;

use super::Control;
use super::compute;
use super::count::Done;
use super::introduce;
use super::now;
use super::run_threads;

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
    /// Microseconds of computation after each request.
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub cpu_us: u32,
    /// More threads, so many milliseconds after the window has opened; again and again.
    #[arg(long = "arrive", value_name = "MS:THREADS")]
    pub arrivals: Vec<Arriving>,
    /// Count also in pieces of the window so many milliseconds long.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    pub series_ms: Option<u32>,
    /// Run for so many seconds and print the result, instead of waiting for a window on standard input.
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

/// Threads that come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// So many milliseconds after the window has opened.
    at_ms: u32,
    threads: u32,
}

impl FromStr for Arriving {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let both = text
            .split_once(':')
            .and_then(|(at, threads)| Some((at.parse().ok()?, threads.parse().ok()?)));
        match both {
            Some((at_ms, threads @ 1..=64)) => Ok(Self { at_ms, threads }),
            _ => Err(format!("`{text}` is not MS:THREADS, for instance 500:4")),
        }
    }
}

/// Runs the load.
///
/// # Errors
/// The kernel has no io_uring, or the protocol is broken.
pub fn run(args: &PulseArgs) -> anyhow::Result<()> {
    let work = Work {
        depth: args.queue_depth,
        device: Ns::from_us(u64::from(args.device_us)),
        steps: steps_of(Ns::from_us(u64::from(args.cpu_us))),
    };
    let at_once = std::iter::repeat_n(None, args.threads as usize);
    let later = args.arrivals.iter().flat_map(|arriving| {
        let at = Ns::from_ms(u64::from(arriving.at_ms));
        std::iter::repeat_n(Some(at), arriving.threads as usize)
    });
    let works = at_once
        .chain(later)
        .map(|arrives| Ok(move |control: &Control, tell: &_| work.run(arrives, control, tell)));
    let bucket = args.series_ms.map(|ms| Ns::from_ms(u64::from(ms)));
    run_threads("pulse", works, args.seconds, bucket)
}

/// How many steps of [`compute::steps`] take so long on this machine now: the
/// fastest of a few tries, since the others were disturbed.
pub(super) fn steps_of(time: Ns) -> u64 {
    const STEPS: u64 = 1 << 16;
    if time == Ns::ZERO {
        return 0;
    }
    let fastest = (0..20)
        .map(|_| {
            let begin = now();
            black_box(compute::steps(STEPS, 1));
            now().since(begin).0
        })
        .min();
    scaled(STEPS, fastest.unwrap_or(1), time)
}

/// Steps for this time, if so many take `took` nanoseconds.
const fn scaled(steps: u64, took: u64, time: Ns) -> u64 {
    let took = if took == 0 { 1 } else { took };
    (steps as u128 * time.0 as u128 / took as u128) as u64
}

/// What each thread does.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Requests in flight.
    depth: u32,
    /// Device time of one.
    device: Ns,
    /// Steps of computation after each.
    steps: u64,
}

impl Work {
    /// Timeouts in flight, each submitted again when it has fired, from the
    /// start or from its arrival on.
    fn run(
        self,
        arrives: Option<Ns>,
        control: &Control,
        tell: &mpsc::Sender<u32>,
    ) -> anyhow::Result<Vec<Done>> {
        let depth = self.depth;
        let mut ring = IoUring::new(depth.max(2).next_power_of_two())
            .context("cannot set up io_uring; is it forbidden by sysctl kernel.io_uring_disabled or a seccomp filter?")?;
        introduce(tell);
        let length = Timespec::new()
            .sec(self.device.0 / 1_000_000_000)
            .nsec((self.device.0 % 1_000_000_000) as u32);
        let mut submitted = vec![Time::ZERO; depth as usize];
        let mut records: Vec<Done> = Vec::with_capacity(RECORDS);
        let mut idle: Vec<u64> = (0..u64::from(depth)).collect();
        let mut x = 1;
        control.has_started();
        if let Some(after) = arrives
            && !control.wait_for_arrival(after)
        {
            return Ok(records);
        }
        while !control.stopped() {
            let begin = now();
            for slot in idle.drain(..) {
                let entry = opcode::Timeout::new(&length).build().user_data(slot);
                // SAFETY: the entry points to `length`, which lives until this
                // function returns; the kernel copies it during submission.
                unsafe { ring.submission().push(&entry) }
                    .context("the submission queue is full")?;
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
            for _ in &idle {
                x = compute::steps(self.steps, x);
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_milliseconds_and_threads() {
        let arriving: Arriving = "500:4".parse().unwrap();
        assert_eq!((arriving.at_ms, arriving.threads), (500, 4));
        for bad in ["", "500", "500:0", "500:65", "x:1", "1:2:3"] {
            assert!(
                bad.parse::<Arriving>().unwrap_err().contains("MS:THREADS"),
                "{bad}"
            );
        }
    }

    #[test]
    fn computation_is_as_long_as_asked() {
        assert_eq!(steps_of(Ns::ZERO), 0);
        assert!(steps_of(Ns::from_ms(1)) > 0);
        assert_eq!(scaled(65_536, 60_000, Ns::from_us(120)), 131_072);
        assert_eq!(
            scaled(65_536, 0, Ns(1)),
            65_536,
            "a clock that stands still"
        );
    }
}
