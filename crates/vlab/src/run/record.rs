// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the I/O threads of a phase do: where their time goes, and a timeline.
//!
//! The sums are made of every phase, so that they have a spread; the timeline, of
//! which one is enough to look at, of each arm's first round. In that round the
//! daemon logs its decisions too.

use std::fs;

use experiment::decompose;
use experiment::decompose::Gaps;
use experiment::result::IoTime;
use experiment::result::MoveMark;
use experiment::result::TaskTrack;
use experiment::result::Timeline;
use experiment::result::VcpuTrack;
use freezer::tasks::RecordError;
use freezer::tasks::TaskRecorder;
use freezer::tasks::What;
use serde::Deserialize;
use serde::Serialize;
use units::CpuSet;
use units::Ns;
use units::Tid;
use units::Time;
use units::VcpuId;

use super::decisions::Decision;
use crate::load::Window;

/// Room for so many events per second and CPU: three times what 30 000 requests
/// per second with three events each need.
const EVENTS_PER_S: u64 = 300_000;
/// On all CPUs together at most: 96 MiB.
const EVENTS_MAX: u64 = 1 << 22;

/// How long before its window a phase is recorded, at the end of its warm-up: what a thread does
/// when the window opens is known from the event before that. Of one without any, that wakes, a
/// pause could not be told from a wait for the disk; so pauses may be a quarter of a window.
pub(super) fn lead(window: Ns, warmup: Ns) -> Ns {
    (window / 4).min(warmup)
}

/// What to record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Anything at all.
    pub(super) on: bool,
    /// Length of the timeline; zero: none.
    pub(super) timeline: Ns,
}

impl Options {
    /// How much of such a phase is kept in detail.
    pub(super) fn detail(&self, is_arm: bool, round: u32) -> Option<Ns> {
        let kept = self.on && is_arm && round == 0 && self.timeline > Ns::ZERO;
        kept.then_some(self.timeline)
    }
}

/// A recorder that is attached.
#[derive(Debug)]
pub(super) struct Recorder {
    bpf: TaskRecorder,
    /// The threads' ids and names.
    tasks: Vec<(u32, String)>,
}

/// A recorder that has been stopped.
#[derive(Debug)]
pub(super) struct Stopped(Recorder);

/// What was seen of a window, before it is joined with the log of the host: on real
/// VMs that is another machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recording {
    threads: Vec<Thread>,
    decisions: Vec<Decision>,
}

/// What one thread did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Thread {
    tid: u32,
    name: String,
    events: Vec<decompose::TaskEvent>,
}

/// What comes out.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) io_time: IoTime,
    pub(crate) timeline: Option<Timeline>,
}

/// Nothing is concluded from a log with holes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the log of what I/O threads do was too small for a window: where their time went in it is unknown"
)]
pub(super) struct LogFull;

impl Recorder {
    /// Attaches one with room for so much time.
    pub(super) fn load(tids: &[u32], length: Ns) -> Result<Self, RecordError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let wanted = length.scaled(EVENTS_PER_S, 1_000_000_000).0;
        let log_per_cpu = wanted.clamp(1 << 12, EVENTS_MAX / cpus.min(EVENTS_MAX));
        let tasks = tids.iter().map(|tid| {
            let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
            (*tid, name.trim_end().to_owned())
        });
        Ok(Self {
            bpf: TaskRecorder::load(tids, u32::try_from(log_per_cpu).unwrap_or(u32::MAX))?,
            tasks: tasks.collect(),
        })
    }

    /// Records from now on.
    pub(super) fn start(&self) {
        self.bpf.start();
    }

    /// Records nothing any more.
    pub(super) fn stop(mut self) -> Stopped {
        self.bpf.stop();
        Stopped(self)
    }
}

impl Stopped {
    /// What has been seen.
    pub(super) fn read(&self, decisions: Vec<Decision>) -> Result<Recording, LogFull> {
        if self.0.bpf.dropped() > 0 {
            return Err(LogFull);
        }
        let mut events = self.0.bpf.events();
        let threads = self.0.tasks.iter().map(|(tid, name)| Thread {
            tid: *tid,
            name: name.clone(),
            events: events
                .remove(&Tid(*tid))
                .unwrap_or_default()
                .into_iter()
                .map(event)
                .collect(),
        });
        Ok(Recording {
            threads: threads.collect(),
            decisions,
        })
    }
}

impl Recording {
    /// Joins it with the log of the host; all on one clock.
    pub(crate) fn join(
        &self,
        gaps: &Gaps,
        window: Window,
        cpus: &CpuSet,
        detail: Option<Ns>,
    ) -> Recorded {
        let threads: Vec<Vec<decompose::TaskEvent>> = self
            .threads
            .iter()
            .map(|thread| thread.events.clone())
            .collect();
        let spells = decompose::spells(&threads, gaps, window.from, window.to);
        let timeline = detail.map(|length| {
            let length = length.min(window.length());
            let clip = |at: Time| at.since(window.from).min(length);
            let gaps_of = |cpu: VcpuId| gaps.0.get(cpu.index()).map_or(&[][..], Vec::as_slice);
            Timeline {
                from: Ns::ZERO,
                length,
                vcpus: cpus
                    .iter()
                    .map(|cpu| VcpuTrack {
                        id: cpu.0,
                        gaps: gaps_of(cpu)
                            .iter()
                            .map(|(from, to)| (clip(*from), clip(*to)))
                            .filter(|(from, to)| from < to)
                            .collect(),
                        halts: Vec::new(),
                    })
                    .collect(),
                tasks: self
                    .threads
                    .iter()
                    .zip(&spells)
                    .filter_map(|(thread, spells)| {
                        Some(TaskTrack {
                            tid: thread.tid,
                            name: thread.name.clone(),
                            spells: decompose::part(spells.as_ref()?, Ns::ZERO, length),
                        })
                    })
                    .collect(),
                moves: self
                    .decisions
                    .iter()
                    .filter(|d| window.contains(d.at) && d.at < window.from + length)
                    .map(|d| MoveMark {
                        at: d.at.since(window.from),
                        cost: d.cost,
                        tid: d.tid,
                        to: d.to,
                        why: d.why.clone(),
                    })
                    .collect(),
            }
        });
        Recorded {
            io_time: decompose::sum(spells.iter().flatten()),
            timeline,
        }
    }
}

fn event(event: freezer::tasks::TaskEvent) -> decompose::TaskEvent {
    decompose::TaskEvent {
        at: event.at,
        cpu: event.cpu.0,
        what: match event.what {
            What::In => decompose::What::In,
            What::Ready => decompose::What::Ready,
            What::Io => decompose::What::Io,
            What::Sleep => decompose::What::Sleep,
            What::Waking => decompose::What::Waking,
            What::Moved => decompose::What::Moved,
        },
    }
}

/// The freezer's log by CPU number, in the order of time.
pub(super) fn gaps_of(log: &[freezer::Event], cpus: &CpuSet) -> Gaps {
    let last = cpus.iter().map(|cpu| cpu.index()).max().unwrap_or(0);
    let mut gaps = vec![Vec::new(); last + 1];
    for event in log {
        if let Some(gaps) = gaps.get_mut(event.cpu.index()) {
            gaps.push((event.out, event.back));
        }
    }
    for gaps in &mut gaps {
        gaps.sort_unstable();
    }
    Gaps(gaps)
}
