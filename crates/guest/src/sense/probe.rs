// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this machine offers, measured.

use std::fs;
use std::io;
use std::time::Duration;
use std::time::Instant;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use rustix::time::ClockId;
use serde::Serialize;
use units::CpuSet;
use units::Ns;
use units::Time;

use super::Sense;
use super::SenseError;
use super::Source;
use super::locate;
use crate::settings::Settings;

/// One slice source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceFacts {
    /// Its name.
    pub name: &'static str,
    /// Typical error of an instant, measured now; `None` if the source cannot
    /// be used.
    pub accuracy_ns: Option<Ns>,
    /// Why it cannot be used.
    pub missing: Option<String>,
}

/// What this machine offers.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The kernel describes its own types.
    pub btf: bool,
    /// BPF can look at each timer interrupt.
    pub tick: bool,
    /// Possible vCPUs.
    pub vcpus: usize,
    /// The sources, best first.
    pub sources: Vec<SourceFacts>,
}

/// Looks at this machine; changes nothing and takes some ten milliseconds.
#[must_use]
pub fn probe(settings: &Settings) -> Probe {
    let btf = Btf::from_vmlinux().ok();
    let vcpus = possible_vcpus().unwrap_or(0);
    let mut sources = Vec::new();
    let steal = match settings.steal_map_id {
        Some(id) => (Source::StealMap, locate::map_pages(id, vcpus).map(drop)),
        None => (Source::StealPage, locate::kvm_pages(vcpus).map(drop)),
    };
    sources.push(SourceFacts {
        name: steal.0.name(),
        accuracy_ns: steal.1.is_ok().then(|| snapshot_time(settings)).flatten(),
        missing: steal.1.err().map(|error| error.to_string()),
    });
    sources.push(SourceFacts {
        name: Source::Heartbeat.name(),
        accuracy_ns: Some(settings.heartbeat.period + timer_lateness(settings.heartbeat.period)),
        missing: None,
    });
    Probe {
        tick: btf.is_some_and(|btf| {
            btf.type_by_name::<Typedef<'_>>("btf_trace_local_timer_exit")
                .is_some()
        }),
        btf: Btf::from_vmlinux().is_ok(),
        vcpus,
        sources,
    }
}

/// The typical error of an instant from the given source, measured now.
pub(crate) fn accuracy(sense: &Sense, settings: &Settings) -> Ns {
    match sense.source() {
        Source::Heartbeat => settings.heartbeat.period + timer_lateness(settings.heartbeat.period),
        Source::StealPage | Source::StealMap => median_snapshot(sense).unwrap_or(Ns::ZERO),
    }
}

/// A steal page is exact; what is left is the time that a look at it takes.
fn snapshot_time(settings: &Settings) -> Option<Ns> {
    median_snapshot(&Sense::load(settings).ok()?)
}

fn median_snapshot(sense: &Sense) -> Option<Ns> {
    let mut lengths: Vec<Duration> = (0..65)
        .filter_map(|_| {
            let start = Instant::now();
            sense.snapshot().ok()?;
            Some(start.elapsed())
        })
        .collect();
    lengths.sort_unstable();
    lengths
        .get(lengths.len() / 2)
        .map(|length| (*length).into())
}

/// How late a timer of this length usually is: the median of some.
fn timer_lateness(period: Ns) -> Ns {
    let mut late: Vec<Ns> = (0..33)
        .map(|_| {
            let due = now() + period;
            let sleep = rustix::time::Timespec {
                tv_sec: (due.as_ns() / 1_000_000_000) as i64,
                tv_nsec: (due.as_ns() % 1_000_000_000) as i64,
            };
            // An early return by a signal shows as zero lateness; the median
            // does not care.
            let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &sleep);
            now().since(due)
        })
        .collect();
    late.sort_unstable();
    late[late.len() / 2]
}

/// `CLOCK_MONOTONIC` (V13).
pub(crate) fn now() -> Time {
    let t = rustix::time::clock_gettime(ClockId::Monotonic);
    Time(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// One more than the highest possible CPU number.
pub(super) fn possible_vcpus() -> Result<usize, SenseError> {
    let read = || -> io::Result<usize> {
        let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let set: CpuSet = text
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(set.iter().last().map_or(0, |vcpu| vcpu.index() + 1))
    };
    read().map_err(|source| SenseError::System {
        call: "reading /sys/devices/system/cpu/possible",
        source,
    })
}
