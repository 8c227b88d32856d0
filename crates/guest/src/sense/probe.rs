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
use crate::engine::steal_stat;
use crate::settings::Settings;

/// One slice source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceFacts {
    /// Its name.
    pub name: &'static str,
    /// Typical error, measured now; `None` if the source cannot be used.
    pub accuracy_ns: Option<Ns>,
    /// What that is the error of, and what it consists of.
    pub error_of: &'static str,
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

/// Looks at this machine, at each source; changes nothing and takes a third of a second,
/// of which it sleeps a quarter.
#[must_use]
pub fn probe(settings: &Settings) -> Probe {
    let btf = Btf::from_vmlinux().ok();
    let vcpus = possible_vcpus().unwrap_or(0);
    let mut sources = Vec::new();
    let steal = match settings.steal_map_id {
        Some(id) => (Source::StealMap, locate::map_pages(id, vcpus).map(drop)),
        None => (Source::StealPage, locate::kvm_pages(vcpus).map(drop)),
    };
    let look = steal.1.and_then(|()| snapshot_time(settings));
    sources.push(SourceFacts {
        name: steal.0.name(),
        accuracy_ns: look.as_ref().ok().copied(),
        error_of: "an instant that user space asks for; gaps are the hypervisor's own count",
        missing: look.err().map(|error| error.to_string()),
    });
    sources.push(SourceFacts {
        name: Source::Heartbeat.name(),
        accuracy_ns: Some(settings.heartbeat.period + timer_lateness(settings.heartbeat.period)),
        error_of: "an instant; the period and how late its timer is",
        missing: None,
    });
    let account = steal_stat::total(settings);
    sources.push(SourceFacts {
        name: "proc-stat",
        accuracy_ns: account
            .as_ref()
            .ok()
            .map(|_| steal_stat::accuracy(settings)),
        error_of: "the VM's stolen time; wakes the daemon, knows no slices",
        missing: account.err(),
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
fn snapshot_time(settings: &Settings) -> Result<Ns, SenseError> {
    median_snapshot(&Sense::load(settings)?)
}

fn median_snapshot(sense: &Sense) -> Result<Ns, SenseError> {
    let look = || {
        let start = Instant::now();
        sense.snapshot().map(|_| start.elapsed())
    };
    let mut lengths = (0..65)
        .map(|_| look())
        .collect::<Result<Vec<Duration>, _>>()?;
    lengths.sort_unstable();
    Ok(lengths[lengths.len() / 2].into())
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
