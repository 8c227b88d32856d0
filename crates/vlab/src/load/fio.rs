// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fio: reads of a real disk.
//!
//! The measured window is cut out of fio's own log of every request, whose
//! stamps are put on `CLOCK_MONOTONIC`, for the reason given in
//! [`crate::load`]. The stamps have a resolution of 1 ms.

use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::Context;
use experiment::result::Io;
use experiment::scenario::Burst;
use experiment::scenario::Pattern;
use units::Ns;

use super::Window;
use super::count::percentiles;
use super::fsync::unnamed;

/// A file without a name on the disk to be read, filled with real data: an
/// extent that was only allocated would be read as zeros without any I/O. The
/// kernel removes it with the last descriptor, whatever happens to us.
#[derive(Debug)]
pub struct DataFile {
    file: File,
    mib: u32,
}

impl DataFile {
    /// Makes one of `mib` MiB in `dir`, unless `interrupted` says to stop.
    ///
    /// # Errors
    /// The file system has no unnamed files or no room, or the user interrupted.
    pub fn create(dir: &Path, mib: u32, interrupted: &dyn Fn() -> bool) -> anyhow::Result<Self> {
        let mut file = unnamed(dir)?;
        // Not zeros, which a disk that compresses or deduplicates would not store.
        let mut block = vec![0u8; 1 << 20];
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..mib {
            anyhow::ensure!(!interrupted(), "interrupted");
            for word in block.chunks_exact_mut(8) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                word.copy_from_slice(&x.to_ne_bytes());
            }
            file.write_all(&block).with_context(|| {
                format!(
                    "cannot write {mib} MiB of test data in {}; is the disk full?",
                    dir.display()
                )
            })?;
        }
        file.sync_all()
            .context("cannot write the test data to the disk")?;
        Ok(Self { file, mib })
    }

    /// The first `mib` MiB of a disk that nothing else uses.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device(path: &Path, mib: u32) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { file, mib })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file alone.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }
}

/// What fio is to do.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// In which order.
    pub pattern: Pattern,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Bytes of one request, in KiB.
    pub block_kib: u32,
    /// Threads, each with its own queue.
    pub threads: u32,
    /// Bursts and pauses, if any.
    pub burst: Option<Burst>,
}

/// fio's arguments for a job. Threads, not processes: a thread dies with the
/// process that we know.
#[must_use]
pub fn arguments(job: &Job, data: &DataFile, log_prefix: &Path) -> Vec<String> {
    let rw = match job.pattern {
        Pattern::RandomRead | Pattern::Bursty => "randread",
        Pattern::SequentialRead => "read",
    };
    // A single request needs no queue: psync is what a plain read(2) does.
    let engine = if job.queue_depth == 1 {
        "psync"
    } else {
        "io_uring"
    };
    let mut arguments = vec![
        "--name=vlab".to_owned(),
        format!(
            "--filename=/proc/{}/fd/{}",
            std::process::id(),
            data.file.as_raw_fd()
        ),
        "--thread".to_owned(),
        "--direct=1".to_owned(),
        format!("--rw={rw}"),
        format!("--bs={}k", job.block_kib),
        format!("--ioengine={engine}"),
        format!("--iodepth={}", job.queue_depth),
        // Each thread reads a part of its own, or readers in sequence would
        // read the same blocks.
        format!("--size={}m", data.mib / job.threads.max(1)),
        format!("--offset_increment={}m", data.mib / job.threads.max(1)),
        format!("--numjobs={}", job.threads),
        "--time_based".to_owned(),
        // Ended by a signal; this is only for the case that nobody sends one.
        "--runtime=600".to_owned(),
        "--norandommap".to_owned(),
        "--output-format=json".to_owned(),
        format!("--write_lat_log={}", log_prefix.display()),
        "--log_avg_msec=0".to_owned(),
        "--disable_slat=1".to_owned(),
        "--disable_clat=1".to_owned(),
        "--log_alternate_epoch=1".to_owned(),
        format!("--log_alternate_epoch_clock_id={}", libc::CLOCK_MONOTONIC),
    ];
    if let Some(burst) = job.burst {
        arguments.push(format!("--thinktime={}us", burst.off.0 / 1000));
        arguments.push(format!("--thinktime_iotime={}us", burst.on.0 / 1000));
    }
    arguments
}

/// What fio's request logs, one of each thread, say about a window.
///
/// # Errors
/// A log cannot be read or is not one.
pub fn read_logs(
    logs: impl IntoIterator<Item = impl BufRead>,
    window: Window,
    block_kib: u32,
) -> anyhow::Result<Io> {
    let from_ms = window.from.0.div_ceil(1_000_000);
    let to_ms = window.to.0 / 1_000_000;
    anyhow::ensure!(
        from_ms < to_ms,
        "the window is shorter than fio's clock can tell"
    );
    let mut latencies: Vec<Ns> = Vec::new();
    for line in logs.into_iter().flat_map(BufRead::lines) {
        let line = line.context("cannot read fio's log")?;
        // time (ms), latency (ns), direction, block size, offset
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
        let (Some(Ok(at_ms)), Some(Ok(latency_ns))) = (fields.next(), fields.next()) else {
            anyhow::bail!("`{line}` is not a line of fio's latency log");
        };
        if (from_ms..to_ms).contains(&at_ms) {
            latencies.push(Ns(latency_ns));
        }
    }
    let ops_per_s = latencies.len() as f64 * 1000.0 / (to_ms - from_ms) as f64;
    Ok(Io {
        ops_per_s,
        bytes_per_s: ops_per_s * f64::from(block_kib) * 1024.0,
        latency: percentiles(latencies.into_iter())?,
        series: None,
    })
}

/// fio's own verdict on its run: the error code of its job.
///
/// # Errors
/// The text is not fio's JSON, or the job failed.
pub fn check_output(output: &str) -> anyhow::Result<()> {
    #[derive(serde::Deserialize)]
    struct Output {
        jobs: Vec<JobOutput>,
    }
    #[derive(serde::Deserialize)]
    struct JobOutput {
        error: i32,
    }
    // Notes of fio ("terminating on signal 2") may come before the document.
    let json = output.find('{').map_or("", |at| &output[at..]);
    let output: Output = serde_json::from_str(json).context("fio's output is not JSON")?;
    for job in &output.jobs {
        let error = io::Error::from_raw_os_error(job.error);
        anyhow::ensure!(job.error == 0, "fio's job failed: {error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use units::Time;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_window_of_the_log_is_counted_in_whole_milliseconds() {
        let log = "99, 1000, 0, 4096, 0\n100, 2000, 0, 4096, 0\n150, 3000, 0, 4096, 0\n200, 9000, 0, 4096, 0\n";
        let window = Window {
            from: Time(99 * MS + 1),
            to: Time(200 * MS),
        };
        let other = "150, 5000, 0, 4096, 0\n";
        let io = read_logs([log.as_bytes()], window, 4).unwrap();
        let both = read_logs([log.as_bytes(), other.as_bytes()], window, 4).unwrap();
        assert!((both.ops_per_s - 30.0).abs() < 1e-9, "{both:?}");
        assert!((io.ops_per_s - 20.0).abs() < 1e-9, "{io:?}");
        assert!((io.bytes_per_s - 20.0 * 4096.0).abs() < 1e-6);
        assert!(
            io.latency.max.0 >= 3000 && io.latency.max.0 < 3010,
            "{io:?}"
        );
    }

    #[test]
    fn what_is_not_a_log_is_named() {
        let window = Window {
            from: Time(0),
            to: Time(MS * 10),
        };
        let error = read_logs(["fio: broken\n".as_bytes()], window, 4).unwrap_err();
        assert!(error.to_string().contains("fio: broken"), "{error}");
    }

    #[test]
    fn a_failed_job_is_an_error() {
        check_output("fio: terminating on signal 2\n{\"jobs\": [{\"error\": 0}]}").unwrap();
        let error = check_output("{\"jobs\": [{\"error\": 28}]}").unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert!(check_output("").is_err());
    }
}
