// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One phase: start the loads, share the CPUs, warm up, measure, stop.

use std::path::Path;

use anyhow::Context;
use experiment::result::Host;
use experiment::result::Io;
use experiment::result::Liveness;
use experiment::result::Phase;
use experiment::scenario::ArmKind;
use experiment::scenario::Scenario;
use freezer::Freezer;
use freezer::trace::Span;
use freezer::trace::Trace;
use units::CpuSet;
use units::Ns;
use units::Time;

use super::arm::Running;
use super::arm::Setting;
use super::arm::set_priorities;
use super::disk;
use super::disk::DiskUnder;
use super::interrupt::Interrupt;
use super::io_load::ComputeLoad;
use super::io_load::DataFiles;
use super::io_load::IoLoad;
use super::machine::Snapshot;
use super::plan;
use super::record;
use super::record::Recorder;
use super::schedule;
use super::schedule::Step;
use crate::load::Window;
use crate::load::now;

/// Added to the planned length of a phase before the freezer ends it by itself.
const GRACE: Ns = Ns::from_secs(60);

/// First guess of the time that an arm's program needs to get ready.
const FIRST_LEAD: Ns = Ns::from_ms(1500);

/// What all phases of a run share.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) interrupt: &'a Interrupt,
    pub(super) cpus: CpuSet,
    pub(super) files: DataFiles,
    pub(super) disk: Option<DiskUnder>,
    pub(super) scratch: &'a Path,
    pub(super) vmigrater: &'a Path,
    pub(super) started: Time,
    /// How long the first gap waits for an arm's program to get ready.
    pub(super) lead: Option<Ns>,
    /// What is recorded of the I/O threads.
    pub(super) record: record::Options,
    /// What a reader must know.
    pub(super) warnings: Vec<String>,
}

impl Bench<'_> {
    /// Measures one phase. Whatever it started has ended when it returns.
    pub(super) fn measure(&mut self, step: &Step<'_>) -> anyhow::Result<Phase> {
        let mut steps = Stopwatch::start();
        let mut compute = step
            .compute
            .then(|| {
                ComputeLoad::start(
                    &self.cpus,
                    self.scenario.compute.threads_per_cpu,
                    self.interrupt,
                )
            })
            .transpose()?;
        steps.done("start compute");
        let mut io = match step.load {
            Some(load) => IoLoad::start(load, &self.files, self.scratch, 1, self.interrupt)?,
            None => IoLoad::Idle,
        };
        steps.done("start I/O");
        let detail = self.record.detail(step.arm.is_some(), step.round);
        let recorder = self.recorder(io.tids(), step)?;
        steps.done("load recorder");
        // The freezer last, so that an error or Ctrl-C gives the CPUs back before
        // it waits for children to end.
        let (mut running, mut freezer, warm_from) = match step.arm {
            Some(arm) => {
                set_priorities(&arm.kind, io.tids())?;
                self.share(step, &io, detail.is_some())?
            }
            None => {
                if step.fifo {
                    set_priorities(&ArmKind::Fifo, io.tids())?;
                }
                (Running::Nothing, None, now())
            }
        };
        steps.done("start freezer and arm");
        let warmup = plan::warmup(self.scenario, step, 1);
        let lead = record::lead(self.scenario.measure.window, warmup);
        self.interrupt.sleep_until(warm_from + (warmup - lead))?;
        if let Some(recorder) = &recorder {
            recorder.start();
        }
        self.interrupt.sleep_until(warm_from + warmup)?;
        steps.done("warm up");
        running.window_opens()?;
        let machine = Snapshot::take();

        let is_disk = step.load.is_some_and(|load| schedule::on_disk(&load.kind));
        let disk = self.disk.as_ref().filter(|_| is_disk);
        let before = disk.map(DiskUnder::completions).transpose()?;
        let from = now();
        io.window_opens(from)?;
        self.interrupt
            .sleep_until(from + self.scenario.measure.window)?;
        let window = Window { from, to: now() };
        let after = disk.map(DiskUnder::completions).transpose()?;
        if let Some(freezer) = &mut freezer {
            freezer.stop();
        }
        steps.done("window");
        let recorder = recorder.map(Recorder::stop);
        let machine = machine.until_now();

        let daemon = running.window_closed(Some(window.to))?;
        let decisions = running.decisions();
        // All of them first, then whoever takes longest is waited for once.
        running.ask_to_end();
        io.ask_to_end(window)?;
        compute
            .iter_mut()
            .try_for_each(|load| load.ask_to_end(window))?;
        running.end(self.interrupt)?;
        steps.done("end arm");
        let host = freezer.as_ref().map_or_else(
            || always_on(&self.cpus),
            |freezer| host(freezer, window, &self.cpus),
        )?;
        let recorded = recorder.map(|recorder| {
            let log = freezer.as_ref().map_or(Vec::new(), Freezer::log);
            let gaps = record::gaps_of(&log, &self.cpus);
            recorder
                .read(decisions)
                .map(|recording| recording.join(&gaps, window, &self.cpus, detail))
        });
        drop(freezer);
        steps.done("read logs");
        let io = io.finish(window, self.interrupt)?;
        let compute_per_s =
            compute.map_or(Ok(Vec::new()), |load| load.finish(window, self.interrupt))?;
        steps.done("end loads");
        let completions = disk::since(before, after);
        let (io_time, timeline) = match recorded {
            None => (None, None),
            Some(Ok(recorded)) => (Some(recorded.io_time), recorded.timeline),
            Some(Err(full)) => {
                self.warn(full.to_string());
                (None, None)
            }
        };
        let liveness = liveness(io.as_ref(), &compute_per_s, &self.cpus);
        Ok(Phase {
            load: step.load.map_or(String::new(), |load| load.name.clone()),
            arm: step.name.to_owned(),
            vms_per_pcpu: step.vms_per_pcpu,
            round: step.round,
            at: window.from.since(self.started),
            boot: 0,
            work: Vec::new(),
            window: window.length(),
            io,
            compute_per_s,
            host,
            completions,
            daemon,
            liveness,
            machine,
            io_time,
            timeline,
            books: None,
        })
    }

    /// A recorder of the I/O threads, unless there are none, nobody wants one, or
    /// this kernel cannot.
    fn recorder(&mut self, tids: &[u32], step: &Step<'_>) -> anyhow::Result<Option<Recorder>> {
        if tids.is_empty() || !self.record.on {
            return Ok(None);
        }
        // Generously: the log must also hold what is recorded until it is stopped.
        let window = self.scenario.measure.window;
        let lead = record::lead(window, plan::warmup(self.scenario, step, 1));
        let slices = self.scenario.sharing.slice * u64::from(step.vms_per_pcpu);
        let length = lead + window + slices;
        match Recorder::load(tids, length) {
            Ok(recorder) => Ok(Some(recorder)),
            Err(error) => {
                self.warn(format!(
                    "no time of I/O threads and no timeline: {:#}",
                    anyhow::Error::from(error)
                ));
                self.record.on = false;
                Ok(None)
            }
        }
    }

    /// Once is enough.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Starts the freezer and the arm's program, and says from when on the
    /// CPUs are shared and the program is ready.
    ///
    /// The freezer goes first, since the daemon needs the id of its steal page
    /// and must see the timer interrupt after it. But a program that starts
    /// while its CPUs are frozen starts late, so the first gap waits for it.
    fn share(
        &mut self,
        step: &Step<'_>,
        io: &IoLoad,
        decisions: bool,
    ) -> anyhow::Result<(Running, Option<Freezer>, Time)> {
        let Some(arm) = step.arm else {
            return Ok((Running::Nothing, None, now()));
        };
        let has_program = arm.kind.is_daemon() || matches!(arm.kind, ArmKind::Command { .. });
        let lead = if has_program {
            self.lead.unwrap_or(FIRST_LEAD)
        } else {
            Ns::ZERO
        };
        let plan = plan::of(self.scenario, step, &self.cpus, lead)?;
        if arm.host_policy.is_some() {
            self.warn(plan::SIMULATED.to_owned());
        }
        let length =
            lead + plan::warmup(self.scenario, step, 1) + self.scenario.measure.window + GRACE;
        let freezer = Freezer::start(&plan, &freezer::Options::new(length))?;
        let started = freezer.span().from;
        let map = freezer
            .steal_map_id()
            .context("the freezer's steal page has no id")?;
        let setting = Setting {
            vmigrater: self.vmigrater,
            scratch: self.scratch,
            decisions,
            dilation: 1,
        };
        let running = Running::start(arm, io.tids(), Some(map), setting, self.interrupt)?;
        let ready = now();
        if has_program {
            // A third more than last time. Should that be too little once, the
            // program starts under sharing and the warm-up waits for it.
            let needed = ready.since(started).scaled(4, 3) + Ns::from_ms(20);
            self.lead = Some(needed.min(Ns::from_secs(9)));
        }
        Ok((running, Some(freezer), ready.max(started + lead)))
    }
}

/// Says at level debug (`RUST_LOG=vlab=debug`) what a phase costs beside its window.
#[derive(Debug)]
struct Stopwatch(Time);

impl Stopwatch {
    fn start() -> Self {
        Self(now())
    }

    fn done(&mut self, step: &str) {
        let now = now();
        tracing::debug!(step, took = %now.since(self.0));
        self.0 = now;
    }
}

/// Did the loads make progress?
pub(super) fn liveness(io: Option<&Io>, compute_per_s: &[f64], cpus: &CpuSet) -> Vec<Liveness> {
    let one = |who: String, per_s: f64| Liveness {
        who,
        alive: per_s > 0.0,
        per_s,
    };
    let io = io.map(|io| one("I/O load".to_owned(), io.ops_per_s));
    let compute = cpus.iter().zip(compute_per_s);
    let compute = compute.map(|(cpu, per_s)| one(format!("compute on CPU {cpu}"), *per_s));
    io.into_iter().chain(compute).collect()
}

/// What the freezer did in the window.
fn host(freezer: &Freezer, window: Window, cpus: &CpuSet) -> anyhow::Result<Host> {
    let counters = freezer.counters();
    let dropped: u64 = counters.iter().map(|counters| counters.dropped).sum();
    anyhow::ensure!(
        dropped == 0,
        "the freezer's log lost {dropped} gaps; use a shorter window"
    );
    let trace = Trace::new(
        freezer.log(),
        Span {
            from: window.from,
            to: window.to,
        },
    );
    let share = |time: Ns| time.0 as f64 / window.length().0.max(1) as f64;
    Ok(Host {
        on_share: cpus.iter().map(|cpu| share(trace.on_time(cpu))).collect(),
        union_share: share(trace.any_on_time(cpus)),
        slices: cpus.iter().map(|cpu| trace.gaps(cpu).len() as u64).sum(),
        late_max: counters
            .iter()
            .map(|c| c.late_max)
            .max()
            .unwrap_or_default(),
        overrun_max: counters
            .iter()
            .map(|c| c.overrun_max)
            .max()
            .unwrap_or_default(),
    })
}

/// Nothing was frozen.
fn always_on(cpus: &CpuSet) -> anyhow::Result<Host> {
    Ok(Host {
        on_share: cpus.iter().map(|_| 1.0).collect(),
        union_share: 1.0,
        ..Host::default()
    })
}
