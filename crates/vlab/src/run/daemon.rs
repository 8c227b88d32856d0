// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon under test, as a child process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use experiment::result::Daemon as Figures;
use experiment::result::SeenVcpu;
use experiment::scenario::Part;
use rustix::process::Signal;
use serde::Deserialize;
use units::Ns;
use units::Time;

use super::decisions;
use super::decisions::Decision;
use super::interrupt::Interrupt;
use super::process::Process;
use crate::load::now;

/// How long it may take until it answers. In a guest of an emulated host loading
/// its programs alone takes ten seconds.
const PATIENCE: Ns = Ns::from_secs(60);

/// The part of the daemon's report that an experiment uses.
///
/// Not the daemon's own type: an arm may be a daemon of another version, and
/// only these fields have to mean the same there.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    uptime_ns: Ns,
    wakeups: BTreeMap<String, u64>,
    /// Not said by older ones, and not known by every source.
    #[serde(default)]
    stopped_ns: Option<Ns>,
    io_inactivity_ns: Ns,
    io_phase_ns: Ns,
    moves: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
    n_migrate: u64,
    n_min: u64,
    lost_events: u64,
    source: String,
    vcpus: Vec<Vcpu>,
}

/// What it says of one vCPU.
#[derive(Clone, Debug, Deserialize)]
struct Vcpu {
    id: u32,
    gaps: u64,
    stolen_ns: Ns,
}

/// A report, what the daemon had cost by then, and when it was taken.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    report: Report,
    cpu: Ns,
    at: Time,
}

/// What to start.
#[derive(Clone, Debug)]
pub(super) struct Options<'a> {
    /// The program.
    pub(super) program: &'a Path,
    /// Decide, but move nothing.
    pub(super) dry_run: bool,
    /// `--mode`.
    pub(super) mode: Option<&'a str>,
    /// `--profile`.
    pub(super) profile: Option<&'a str>,
    /// `--without`.
    pub(super) without: &'a [Part],
    /// Text of the configuration file.
    pub(super) config: Option<&'a str>,
    /// The map that stands in for the steal page; `None`: KVM's own page.
    pub(super) steal_map_id: Option<u32>,
    /// Where its socket, journal and configuration go.
    pub(super) scratch: &'a Path,
    /// Say each decision, see [`Daemon::decisions`].
    pub(super) decisions: bool,
    /// How many times slower than a real machine this one is.
    pub(super) dilation: u32,
}

/// The running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    process: Process,
    socket: PathBuf,
}

impl Daemon {
    /// Starts it and waits until it answers.
    pub(super) fn start(options: &Options<'_>, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let dir = options.scratch.join("daemon");
        // Afresh for each phase: a journal of the one before would be restored.
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context("cannot clear the daemon's directory");
            }
            _ => fs::create_dir(&dir).context("cannot make the daemon's directory")?,
        }
        let socket = dir.join("socket");
        let mut arguments = vec![
            "run".to_owned(),
            format!("--socket={}", socket.display()),
            format!("--journal={}", dir.join("journal").display()),
        ];
        if options.decisions {
            arguments.push("--log-level=trace".to_owned());
        }
        if let Some(id) = options.steal_map_id {
            arguments.push(format!("--steal-map-id={id}"));
        }
        // Not where there is none: an arm may be a daemon that does not know the flag.
        if options.dilation > 1 {
            arguments.push(format!("--dilation={}", options.dilation));
        }
        if options.dry_run {
            arguments.push("--dry-run".to_owned());
        }
        if let Some(mode) = options.mode {
            arguments.push(format!("--mode={mode}"));
        }
        if !options.without.is_empty() {
            let names: Vec<&str> = options.without.iter().map(|part| part.name()).collect();
            arguments.push(format!("--without={}", names.join(",")));
        }
        if let Some(profile) = options.profile {
            arguments.push(format!("--profile={profile}"));
        }
        if let Some(config) = options.config {
            let path = dir.join("config.toml");
            fs::write(&path, config).context("cannot write the daemon's configuration")?;
            arguments.push(format!("--config={}", path.display()));
        }
        let process = Process::spawn(
            "vmigrater",
            options.program.as_os_str(),
            &arguments,
            Signal::TERM,
        )?;
        let mut daemon = Self { process, socket };
        let give_up = now() + PATIENCE;
        loop {
            if let Some(status) = daemon.process.has_ended()? {
                anyhow::bail!(
                    "vmigrater ended at once ({status}){}",
                    daemon.process.last_words()
                );
            }
            match daemon.report() {
                Ok(_) => return Ok(daemon),
                Err(error) if now() >= give_up => {
                    let words = daemon.process.last_words();
                    return Err(error).with_context(|| format!("vmigrater does not answer{words}"));
                }
                Err(_) => interrupt.sleep(Ns::from_ms(10))?,
            }
        }
    }

    /// Its report and its cost, now.
    pub(super) fn read(&mut self) -> anyhow::Result<Reading> {
        let report = match self.report() {
            Ok(report) => report,
            Err(error) => {
                let words = self.process.last_words();
                return Err(error).with_context(|| format!("vmigrater gave no report{words}"));
            }
        };
        Ok(Reading {
            report,
            cpu: cpu_time(self.process.pid()),
            at: now(),
        })
    }

    fn report(&self) -> anyhow::Result<Report> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE.to_std()))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        serde_json::from_str(&text).context("the daemon's report is not of the expected shape")
    }

    /// The moves that it has logged so far; none without
    /// [`Options::decisions`].
    pub(super) fn decisions(&self) -> Vec<Decision> {
        decisions::parse(&self.process.messages())
    }

    /// Has it end, without waiting.
    pub(super) fn ask_to_end(&mut self) {
        self.process.ask_to_end();
    }

    /// Ends it and checks that it ended well.
    pub(super) fn end(self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let status = self.process.end(interrupt)?;
        anyhow::ensure!(
            status.success(),
            "vmigrater ended with {status} after SIGTERM"
        );
        Ok(())
    }
}

impl Reading {
    /// What happened between two readings. The later one is taken some time after the window
    /// has closed; `thawed` is when it closed, where the host has shared nothing since.
    pub(super) fn until(&self, later: &Self, thawed: Option<Time>) -> Figures {
        let (from, to) = (&self.report, &later.report);
        let sum = |map: &BTreeMap<String, u64>| map.values().sum::<u64>();
        let by_reason = |from: &BTreeMap<String, u64>, to: &BTreeMap<String, u64>| {
            to.iter()
                .map(|(reason, n)| {
                    (
                        reason.clone(),
                        n.saturating_sub(from.get(reason).copied().unwrap_or(0)),
                    )
                })
                .filter(|(_, n)| *n > 0)
                .collect()
        };
        // Where nothing is frozen any more, nothing is added to most of these counters, and
        // that time must not thin out the rates. A real host goes on: there they grow until
        // the reading, and an emulated guest comes to it a second late.
        let idle = thawed.map_or(Ns::ZERO, |thawed| later.at.since(thawed));
        Figures {
            interval: to.uptime_ns - from.uptime_ns - idle,
            io_inactivity: to.io_inactivity_ns - from.io_inactivity_ns,
            io_phase: to.io_phase_ns - from.io_phase_ns,
            cpu: later.cpu - self.cpu,
            stopped: (to.stopped_ns.zip(from.stopped_ns)).map(|(to, from)| to - from),
            wakeups: sum(&to.wakeups).saturating_sub(sum(&from.wakeups)),
            moves: by_reason(&from.moves, &to.moves),
            failed: by_reason(&from.failed, &to.failed),
            n_migrate: to.n_migrate.saturating_sub(from.n_migrate),
            n_min: to.n_min.saturating_sub(from.n_min),
            lost_events: to.lost_events.saturating_sub(from.lost_events),
            source: Some(to.source.clone()),
            vcpus: seen(&from.vcpus, &to.vcpus),
        }
    }
}

/// What was seen of each vCPU between two reports. One that was offline at the first is
/// left out: nobody knows since when it counts.
fn seen(from: &[Vcpu], to: &[Vcpu]) -> Vec<SeenVcpu> {
    to.iter()
        .filter_map(|to| {
            let from = from.iter().find(|from| from.id == to.id)?;
            Some(SeenVcpu {
                id: to.id,
                gaps: to.gaps.saturating_sub(from.gaps),
                stolen: to.stolen_ns - from.stolen_ns,
            })
        })
        .collect()
}

/// CPU time charged to a process and its children so far. The process clock,
/// not `/proc/<pid>/stat`: that one counts in ticks of 10 ms.
fn cpu_time(pid: u32) -> Ns {
    let mut total = Ns::ZERO;
    let mut todo = vec![pid];
    while let Some(pid) = todo.pop() {
        total += process_clock(pid).unwrap_or_default();
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            todo.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
        }
    }
    total
}

fn process_clock(pid: u32) -> Option<Ns> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write to the locals they are given, nothing else.
    let failed = unsafe {
        libc::clock_getcpuclockid(i32::try_from(pid).ok()?, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    let ns = u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    (!failed).then_some(Ns(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_this_process_runs_and_that_of_nobody_does_not() {
        let before = process_clock(std::process::id()).unwrap();
        let mut x = 0u64;
        while process_clock(std::process::id()).unwrap() - before < Ns::from_ms(1) {
            x = std::hint::black_box(x + 1);
        }
        assert_eq!(process_clock(u32::MAX), None);
    }

    #[test]
    fn figures_are_differences_and_leave_out_the_time_after_a_thaw() {
        let report = |uptime_ms, pushes| Report {
            uptime_ns: Ns::from_ms(uptime_ms),
            wakeups: BTreeMap::from([("timer".to_owned(), pushes * 10)]),
            stopped_ns: Some(Ns::from_us(pushes)),
            io_inactivity_ns: Ns::from_ms(pushes),
            io_phase_ns: Ns::ZERO,
            moves: BTreeMap::from([("push".to_owned(), pushes), ("pull".to_owned(), 7)]),
            failed: BTreeMap::new(),
            n_migrate: pushes,
            n_min: 2,
            lost_events: 0,
            source: "steal-map".to_owned(),
            // The last has come online meanwhile.
            vcpus: (0..if pushes > 10 { 3 } else { 2 })
                .map(|id| Vcpu {
                    id,
                    gaps: pushes + u64::from(id),
                    stolen_ns: Ns::from_ms(pushes * 11),
                })
                .collect(),
        };
        let first = Reading {
            report: report(1000, 5),
            cpu: Ns::from_ms(3),
            at: Time(0),
        };
        let last = Reading {
            report: report(2100, 25),
            cpu: Ns::from_ms(9),
            at: Time(1_100_000_000),
        };
        let goes_on = first.until(&last, None);
        assert_eq!(goes_on.interval, Ns::from_ms(1100));
        let figures = first.until(&last, Some(Time(1_000_000_000)));
        assert_eq!(figures.interval, Ns::from_secs(1));
        assert_eq!(figures.moves, BTreeMap::from([("push".to_owned(), 20)]));
        assert_eq!(
            (figures.cpu, figures.wakeups, figures.n_min),
            (Ns::from_ms(6), 200, 0)
        );
        assert_eq!(figures.source.as_deref(), Some("steal-map"));
        assert_eq!(figures.stopped, Some(Ns::from_us(20)));
        let vcpu = |id| SeenVcpu {
            id,
            gaps: 20,
            stolen: Ns::from_ms(220),
        };
        assert_eq!(figures.vcpus, [vcpu(0), vcpu(1)]);
    }
}
