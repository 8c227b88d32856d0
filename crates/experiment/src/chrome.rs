// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was recorded, as a trace in Chrome's JSON format ("Trace Event Format",
//! version of 2016-10), which ui.perfetto.dev and chrome://tracing open.
//!
//! | in the trace | is |
//! |---|---|
//! | process | one arm under one load at one number of VMs |
//! | thread `vCPU N` | slices `on` and `off`, from the host's log; `halted` where that is known |
//! | thread `NAME TID` | what an I/O thread does; `vcpu` is an argument of each slice |
//! | instant | a decision to move that thread, with its reason |
//! | counter `I/O wake-ups`, series `per s` | waits for I/O that ended, in bins of 2 ms |
//! | counter `vCPUs`, series `on` | how many were |
//!
//! Every recorded part begins at 0, so that arms stand above each other.

use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use units::Ns;

use crate::result::RunResult;
use crate::result::TaskState;
use crate::result::TaskTrack;
use crate::result::Timeline;
use crate::result::VcpuTrack;

#[cfg(test)]
mod tests;

/// The first process. A track whose number is its process's is taken for the main
/// thread and shown first, out of order.
const FIRST_PID: u32 = 1_000;

/// Width of the bins of the I/O counter.
const BIN: Ns = Ns::from_ms(2);

/// A whole trace; serialise it with `serde_json`.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// In any order, as the format allows.
    #[serde(rename = "traceEvents")]
    pub events: Vec<Event>,
    /// Only how a viewer shows times.
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    /// What it is a trace of.
    #[serde(rename = "otherData")]
    about: Value,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// What it says.
    pub name: String,
    /// `X` a slice, `i` an instant, `C` a counter, `M` a name of a track.
    pub ph: &'static str,
    /// Microseconds.
    pub ts: f64,
    /// Length of a slice, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    /// Which arm.
    pub pid: u32,
    /// Which track of it.
    pub tid: u32,
    /// Of an instant: it belongs to its thread.
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    pub scope: Option<&'static str>,
    /// Details.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

fn us(at: Ns) -> f64 {
    at.0 as f64 / 1000.0
}

/// The trace of everything that was recorded; `None` if nothing was.
#[must_use]
pub fn trace(result: &RunResult) -> Option<Trace> {
    let recorded = result
        .phases
        .iter()
        .filter_map(|phase| Some((phase, phase.timeline.as_ref()?)));
    let events: Vec<Event> = (FIRST_PID..)
        .zip(recorded)
        .flat_map(|(pid, (phase, timeline))| {
            let sharing = result.scenario.sharing_of(phase.vms_per_pcpu);
            let title = format!("{}, {sharing}, {}", phase.load, phase.arm);
            Tracks { pid, timeline }.all(&title)
        })
        .collect();
    (!events.is_empty()).then(|| Trace {
        events,
        unit: "ms",
        about: json!({
            "scenario": result.scenario.name,
            "title": result.scenario.title,
            "date": result.environment.date,
            "kernel": result.environment.kernel,
        }),
    })
}

/// The tracks of one phase.
#[derive(Clone, Copy, Debug)]
struct Tracks<'a> {
    pid: u32,
    timeline: &'a Timeline,
}

impl Tracks<'_> {
    fn all(self, title: &str) -> Vec<Event> {
        let mut events = vec![
            self.meta("process_name", 0, json!({ "name": title })),
            self.meta("process_sort_index", 0, json!({ "sort_index": self.pid })),
        ];
        for (index, track) in (1..).zip(&self.timeline.vcpus) {
            self.name(&mut events, index, &format!("vCPU {}", track.id));
            let mut at = Ns::ZERO;
            let end = (self.timeline.length, self.timeline.length, "off");
            for (from, to, word) in absences(track).into_iter().chain([end]) {
                self.slice(&mut events, index, "on", (at, from), Value::Null);
                self.slice(&mut events, index, word, (from, to), Value::Null);
                at = to;
            }
        }
        let first = 1 + u32::try_from(self.timeline.vcpus.len()).unwrap_or(0);
        for (index, task) in (first..).zip(&self.timeline.tasks) {
            self.name(&mut events, index, &format!("{} {}", task.name, task.tid));
            for (at, spell) in task.spells.starts() {
                let args = json!({ "vcpu": spell.cpu });
                let span = (at, at + spell.length);
                self.slice(&mut events, index, spell.state.label(), span, args);
            }
            for mark in self
                .timeline
                .moves
                .iter()
                .filter(|mark| mark.tid == task.tid)
            {
                events.push(Event {
                    scope: Some("t"),
                    args: json!({ "to": mark.to, "took_us": us(mark.cost) }),
                    ..self.event(
                        "i",
                        format!("{} to vCPU {}", mark.why, mark.to),
                        mark.at,
                        index,
                    )
                });
            }
        }
        events.extend(self.io_rate());
        events.extend(self.vcpus_on());
        events
    }

    fn event(self, ph: &'static str, name: String, at: Ns, tid: u32) -> Event {
        Event {
            name,
            ph,
            ts: us(at),
            dur: None,
            pid: self.pid,
            tid,
            scope: None,
            args: Value::Null,
        }
    }

    fn meta(self, name: &str, tid: u32, args: Value) -> Event {
        Event {
            args,
            ..self.event("M", name.to_owned(), Ns::ZERO, tid)
        }
    }

    fn name(self, events: &mut Vec<Event>, tid: u32, name: &str) {
        events.push(self.meta("thread_name", tid, json!({ "name": name })));
        events.push(self.meta("thread_sort_index", tid, json!({ "sort_index": tid })));
    }

    fn slice(
        self,
        events: &mut Vec<Event>,
        tid: u32,
        name: &str,
        (from, to): (Ns, Ns),
        args: Value,
    ) {
        if from < to {
            events.push(Event {
                dur: Some(us(to - from)),
                args,
                ..self.event("X", name.to_owned(), from, tid)
            });
        }
    }

    /// Waits for I/O that ended, per second, in bins.
    fn io_rate(self) -> Vec<Event> {
        let bins = self.timeline.length.0.div_ceil(BIN.0);
        let mut ended = vec![0u64; usize::try_from(bins).unwrap_or(0)];
        for at in self.timeline.tasks.iter().flat_map(waits_ended) {
            if let Some(bin) = ended.get_mut((at.0 / BIN.0) as usize) {
                *bin += 1;
            }
        }
        (0..)
            .zip(ended)
            .map(|(bin, count)| Event {
                args: json!({ "per s": count as f64 / BIN.as_secs_f64() }),
                ..self.event("C", "I/O wake-ups".to_owned(), BIN * bin, 0)
            })
            .collect()
    }

    fn vcpus_on(self) -> Vec<Event> {
        let vcpus = &self.timeline.vcpus;
        let mut changes: Vec<Ns> = vcpus
            .iter()
            .flat_map(|track| {
                absences(track)
                    .into_iter()
                    .flat_map(|(from, to, _)| [from, to])
            })
            .chain([Ns::ZERO])
            .collect();
        changes.sort_unstable();
        changes.dedup();
        let off = |at: Ns| {
            let is_off = |track: &&crate::result::VcpuTrack| {
                let absences = track.gaps.iter().chain(&track.halts);
                absences
                    .into_iter()
                    .any(|(from, to)| *from <= at && at < *to)
            };
            vcpus.iter().filter(is_off).count()
        };
        changes
            .into_iter()
            .map(|at| Event {
                args: json!({ "on": vcpus.len() - off(at) }),
                ..self.event("C", "vCPUs".to_owned(), at, 0)
            })
            .collect()
    }
}

/// When a vCPU was not on, and why, in order.
fn absences(track: &VcpuTrack) -> Vec<(Ns, Ns, &'static str)> {
    let with = |list: &[(Ns, Ns)], word| {
        let list = list.iter().map(move |(from, to)| (*from, *to, word));
        list.collect::<Vec<_>>()
    };
    let mut all = with(&track.gaps, "off");
    all.extend(with(&track.halts, "halted"));
    all.sort_unstable();
    all
}

/// When a thread's waits for I/O end.
fn waits_ended(task: &TaskTrack) -> Vec<Ns> {
    let waits = |state| matches!(state, TaskState::Device | TaskState::Pending);
    let spells: Vec<_> = task.spells.starts().collect();
    spells
        .windows(2)
        .filter_map(|pair| {
            let [(_, before), (at, after)] = pair else {
                return None;
            };
            (waits(before.state) && !waits(after.state)).then_some(*at)
        })
        .collect()
}
