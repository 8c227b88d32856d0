// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loads of a phase as child processes.

use std::collections::HashMap;
use std::fs;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use experiment::result::Io;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use rustix::process::Signal;
use units::CpuSet;
use units::Ns;
use units::Time;

use super::interrupt::Interrupt;
use super::network::OnNetwork;
use super::network::on_network;
use super::process::Process;
use crate::load::Ready;
use crate::load::Window;
use crate::load::compute::ComputeReport;
use crate::load::count::Counted;
use crate::load::fio;
use crate::load::fio::DataFile;
use crate::load::fio::Job;
use crate::load::now;
use crate::load::open_line;

/// How long a load may take to start or to answer; nothing is frozen then.
const PATIENCE: Ns = Ns::from_secs(60);

/// Pieces in which a load that changes is counted: a few cycles of the sharing
/// long, so that a piece does not show where in its cycle it fell.
const SERIES: Ns = Ns::from_ms(100);

/// The argument of a load that asks for such pieces, where cycles are so much longer.
fn series(dilation: u32) -> String {
    let piece = SERIES * u64::from(dilation);
    format!("--series-ms={}", piece.0 / 1_000_000)
}

/// The files that disk loads read, made when first needed.
#[derive(Debug)]
pub(super) struct DataFiles {
    dir: PathBuf,
    by_mib: HashMap<u32, DataFile>,
}

impl DataFiles {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            by_mib: HashMap::new(),
        }
    }

    /// A disk instead of files: what the loads read is the device itself.
    pub(super) fn use_device<'a>(
        &mut self,
        device: &Path,
        loads: impl Iterator<Item = &'a Load>,
    ) -> anyhow::Result<()> {
        for load in loads {
            if let LoadKind::Disk { file_mib, .. } = load.kind {
                let data = DataFile::device(device, file_mib)?;
                self.by_mib.insert(file_mib, data);
            }
        }
        Ok(())
    }

    /// Makes the files that the loads need.
    pub(super) fn prepare(&mut self, loads: &[Load], interrupt: &Interrupt) -> anyhow::Result<()> {
        for load in loads {
            if let LoadKind::Disk { file_mib, .. } = load.kind
                && !self.by_mib.contains_key(&file_mib)
            {
                let file = DataFile::create(&self.dir, file_mib, &|| interrupt.is_set());
                if interrupt.is_set() {
                    return Err(super::interrupt::Interrupted.into());
                }
                self.by_mib.insert(file_mib, file?);
            }
        }
        Ok(())
    }
}

/// A running I/O load.
#[derive(Debug)]
pub(super) enum IoLoad {
    /// None at all.
    Idle,
    /// `vlab load pulse`, `fsync`, `echo` or `stream`.
    Own {
        /// The process.
        process: Process,
        /// Its I/O threads, those that are yet to arrive too.
        tids: Vec<u32>,
        /// For bytes per second; 0 if it moves none.
        block_bytes: u64,
        /// Does it change within the window?
        changes: bool,
    },
    /// fio.
    Fio {
        /// The process.
        process: Process,
        /// Its I/O threads.
        tids: Vec<u32>,
        /// How many there will be.
        threads: usize,
        /// Where they write their logs when it ends.
        logs: Vec<PathBuf>,
        /// For bytes per second.
        block_kib: u32,
    },
}

impl IoLoad {
    /// Starts a load and waits until its threads do I/O. Its times have been multiplied by
    /// `dilation`, and so are the pieces in which it is counted.
    pub(super) fn start(
        load: &Load,
        files: &DataFiles,
        scratch: &Path,
        dilation: u32,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        match &load.kind {
            LoadKind::Idle => Ok(Self::Idle),
            LoadKind::Profile { profile } => {
                anyhow::bail!("the application {profile} exists in the simulator only")
            }
            LoadKind::Simulated { .. } => Self::on_network(load, interrupt),
            LoadKind::Pulse {
                queue_depth,
                device,
                threads,
                cpu,
                arrivals,
            } => {
                let mut arguments = vec![
                    "load".to_owned(),
                    "pulse".to_owned(),
                    format!("--queue-depth={queue_depth}"),
                    format!("--device-us={}", device.0 / 1000),
                    format!("--threads={threads}"),
                    format!("--cpu-us={}", cpu.0 / 1000),
                ];
                arguments.extend(arrivals.iter().map(|arrival| {
                    format!("--arrive={}:{}", arrival.at.0 / 1_000_000, arrival.threads)
                }));
                if !arrivals.is_empty() {
                    arguments.push(series(dilation));
                }
                let (process, tids) = start_own("the pulse load", &arguments, interrupt)?;
                Ok(Self::Own {
                    process,
                    tids,
                    block_bytes: 0,
                    changes: !arrivals.is_empty(),
                })
            }
            LoadKind::Fsync {
                block_kib,
                file_mib,
                append,
                threads,
            } => {
                let mut arguments = vec![
                    "load".to_owned(),
                    "fsync".to_owned(),
                    format!("--block-kib={block_kib}"),
                    format!("--file-mib={file_mib}"),
                    format!("--threads={threads}"),
                    format!("--dir={}", files.dir.display()),
                ];
                if *append {
                    arguments.push("--append".to_owned());
                }
                let (process, tids) = start_own("the fsync load", &arguments, interrupt)?;
                Ok(Self::Own {
                    process,
                    tids,
                    block_bytes: u64::from(*block_kib) * 1024,
                    changes: false,
                })
            }
            LoadKind::Disk {
                pattern,
                queue_depth,
                block_kib,
                file_mib,
                threads,
                burst,
            } => {
                let data = files
                    .by_mib
                    .get(file_mib)
                    .context("no test data for this load")?;
                let prefix = scratch.join("fio");
                let logs: Vec<PathBuf> = (1..=*threads)
                    .map(|nth| scratch.join(format!("fio_lat.{nth}.log")))
                    .collect();
                for log in &logs {
                    // A phase that failed may have left one.
                    let _ = fs::remove_file(log);
                }
                let job = Job {
                    pattern: *pattern,
                    queue_depth: *queue_depth,
                    block_kib: *block_kib,
                    threads: *threads,
                    burst: *burst,
                };
                let arguments = fio::arguments(&job, data, &prefix);
                let process = Process::spawn("fio", "fio".as_ref(), &arguments, Signal::INT)
                    .context("is fio installed? On Debian: apt-get install fio")?;
                debug_assert!(data.file().as_raw_fd() >= 0);
                let mut load = Self::Fio {
                    process,
                    tids: Vec::new(),
                    threads: *threads as usize,
                    logs,
                    block_kib: *block_kib,
                };
                load.wait_for_reads(interrupt)?;
                Ok(load)
            }
        }
    }

    fn on_network(load: &Load, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let vcpus = freezer::online_cpus()?.len();
        let (name, bytes, mut arguments) = match on_network(&load.kind, vcpus) {
            Some(OnNetwork::Echo { work, threads }) => {
                let work = format!("--work-us={}", work.0 / 1000);
                ("echo", 0, vec![work, format!("--threads={threads}")])
            }
            Some(OnNetwork::Stream {
                block_bytes,
                threads,
            }) => {
                let block = format!("--block-bytes={block_bytes}");
                (
                    "stream",
                    block_bytes,
                    vec![block, format!("--threads={threads}")],
                )
            }
            None => anyhow::bail!("load {} exists in the simulator only", load.name),
        };
        arguments.splice(0..0, ["load".to_owned(), name.to_owned()]);
        let (process, tids) = start_own(&format!("the {name} load"), &arguments, interrupt)?;
        Ok(Self::Own {
            process,
            tids,
            block_bytes: u64::from(bytes),
            changes: false,
        })
    }

    /// The threads that do the I/O.
    pub(super) fn tids(&self) -> &[u32] {
        match self {
            Self::Idle => &[],
            Self::Own { tids, .. } | Self::Fio { tids, .. } => tids,
        }
    }

    /// The window opens: a load that changes within it counts from here.
    pub(super) fn window_opens(&mut self, from: Time) -> anyhow::Result<()> {
        match self {
            Self::Own {
                process,
                changes: true,
                ..
            } => process.write_line(&open_line(from)),
            Self::Idle | Self::Own { .. } | Self::Fio { .. } => Ok(()),
        }
    }

    /// Waits until fio's threads have read from the disk: those are its I/O
    /// threads (the leader only starts them).
    fn wait_for_reads(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let Self::Fio {
            process,
            tids,
            threads,
            ..
        } = self
        else {
            return Ok(());
        };
        let give_up = now() + PATIENCE;
        while now() < give_up {
            if let Some(status) = process.has_ended()? {
                anyhow::bail!("fio ended at once ({status}){}", process.last_words());
            }
            *tids = readers(process.pid());
            if tids.len() >= *threads {
                return Ok(());
            }
            interrupt.sleep(Ns::from_ms(5))?;
        }
        anyhow::bail!("fio does not begin to read{}", process.last_words())
    }

    /// Has it end, without waiting: other things end meanwhile.
    pub(super) fn ask_to_end(&mut self, window: Window) -> anyhow::Result<()> {
        match self {
            Self::Idle => Ok(()),
            Self::Own { process, .. } => process.ask_to_end_by(&window.to_line()),
            Self::Fio { process, .. } => {
                process.ask_to_end();
                Ok(())
            }
        }
    }

    /// Ends it: what it did in the window. `None` for [`IoLoad::Idle`].
    pub(super) fn finish(
        mut self,
        window: Window,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Io>> {
        self.ask_to_end(window)?;
        match self {
            Self::Idle => Ok(None),
            Self::Own {
                mut process,
                block_bytes,
                ..
            } => {
                let counted: Counted = answer_of(&mut process, interrupt)?;
                Ok(Some(Io {
                    ops_per_s: counted.ops_per_s,
                    bytes_per_s: counted.ops_per_s * block_bytes as f64,
                    latency: counted.latency,
                    series: counted.series,
                }))
            }
            Self::Fio {
                mut process,
                logs,
                block_kib,
                ..
            } => {
                let output = process.read_to_end(interrupt, now() + PATIENCE)?;
                fio::check_output(&output)
                    .with_context(|| format!("fio failed{}", process.last_words()))?;
                let files: Vec<BufReader<fs::File>> = logs
                    .iter()
                    .map(|log| fs::File::open(log).map(BufReader::new))
                    .collect::<Result<_, _>>()
                    .context("fio wrote no log")?;
                let io = fio::read_logs(files, window, block_kib)?;
                for log in &logs {
                    fs::remove_file(log).context("cannot remove fio's log")?;
                }
                Ok(Some(io))
            }
        }
    }
}

/// Threads of a process, except its leader, that have read from a disk.
fn readers(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tids = tasks
        .into_iter()
        .flatten()
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    tids.filter(|tid| *tid != pid && has_read(pid, *tid))
        .collect()
}

fn has_read(pid: u32, tid: u32) -> bool {
    let io = fs::read_to_string(format!("/proc/{pid}/task/{tid}/io")).unwrap_or_default();
    let bytes = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    bytes
        .and_then(|bytes| bytes.parse::<u64>().ok())
        .is_some_and(|bytes| bytes > 0)
}

/// The running compute threads.
#[derive(Debug)]
pub(super) struct ComputeLoad {
    process: Process,
}

impl ComputeLoad {
    /// Starts them and waits until all run.
    pub(super) fn start(
        cpus: &CpuSet,
        threads_per_cpu: u32,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let arguments = [
            "load".to_owned(),
            "compute".to_owned(),
            format!("--cpus={cpus}"),
            format!("--threads-per-cpu={threads_per_cpu}"),
        ];
        let (process, _) = start_own("the compute load", &arguments, interrupt)?;
        Ok(Self { process })
    }

    /// Has them end, without waiting.
    pub(super) fn ask_to_end(&mut self, window: Window) -> anyhow::Result<()> {
        self.process.ask_to_end_by(&window.to_line())
    }

    /// Ends them: units per second in the window, per CPU.
    pub(super) fn finish(
        mut self,
        window: Window,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<f64>> {
        self.ask_to_end(window)?;
        let report: ComputeReport = answer_of(&mut self.process, interrupt)?;
        Ok(report.units_per_s)
    }
}

/// Starts one of our own loads.
fn start_own(
    name: &str,
    arguments: &[String],
    interrupt: &Interrupt,
) -> anyhow::Result<(Process, Vec<u32>)> {
    let program = std::env::current_exe().context("cannot find our own program")?;
    let mut process = Process::spawn(name, program.as_os_str(), arguments, Signal::KILL)?;
    let line = process.read_line(interrupt, now() + PATIENCE)?;
    let ready: Ready =
        serde_json::from_str(&line).with_context(|| format!("{name} says `{line}`"))?;
    Ok((process, ready.tids))
}

/// What one of our own loads says about the window that it was given.
fn answer_of<R: serde::de::DeserializeOwned>(
    process: &mut Process,
    interrupt: &Interrupt,
) -> anyhow::Result<R> {
    let line = process.read_line(interrupt, now() + PATIENCE)?;
    serde_json::from_str(&line).with_context(|| format!("a load says `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_many_cycles_long_on_a_slower_machine() {
        assert_eq!(series(1), "--series-ms=100");
        assert_eq!(series(20), "--series-ms=2000");
    }
}
