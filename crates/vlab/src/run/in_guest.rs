// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's half of a phase on real VMs: the same loads and the same arms,
//! but the CPUs are shared by a real host.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use experiment::result::Host;
use experiment::result::Machine;
use experiment::result::Phase;
use experiment::scenario::Arm;
use experiment::scenario::ArmKind;
use experiment::scenario::HostPolicy;
use experiment::scenario::Load;
use experiment::scenario::Scenario;
use units::CpuSet;
use units::Ns;

use super::arm::Running;
use super::arm::Setting;
use super::arm::set_priorities;
use super::disk;
use super::disk::DiskUnder;
use super::interrupt::Interrupt;
use super::io_load::ComputeLoad;
use super::io_load::DataFiles;
use super::io_load::IoLoad;
use super::phase::liveness;
use super::plan::warmup;
use super::record;
use super::record::Recorder;
pub(crate) use super::record::Recording;
use super::schedule;
use super::schedule::Step;
use crate::load::Window;
use crate::load::now;

/// Where the daemon is in a guest.
const VMIGRATER: &str = "/bin/vmigrater";

/// What the host must know of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// Guests that have something to do, the one under test first.
    pub(crate) guests: u32,
    /// Does each of them measure what it does? Else all but the first compute.
    pub(crate) each: bool,
    /// What schedules them.
    pub(crate) host: HostPolicy,
    /// Warm-up and window.
    pub(crate) length: Ns,
    /// Is its timeline worth keeping: the first round of an arm, under sharing?
    pub(crate) detail: bool,
}

/// Name of a step for people.
pub(crate) fn describe(scenario: &Scenario, step: usize) -> String {
    schedule::steps(scenario)
        .get(step)
        .map(super::describe)
        .unwrap_or_default()
}

/// What the host must know of step `number`, of a scenario whose times have been multiplied by
/// `dilation`.
pub(crate) fn outline(
    scenario: &Scenario,
    number: usize,
    dilation: u32,
) -> anyhow::Result<Outline> {
    let steps = schedule::steps(scenario);
    let step = steps.get(number).context("there is no such step")?;
    // A baseline is of the first one.
    let each = !scenario.vms.is_empty() && step.arm.is_some();
    Ok(Outline {
        guests: if each {
            scenario.vms.iter().map(|vm| vm.count).sum()
        } else {
            step.vms_per_pcpu
        },
        each,
        host: schedule::host_policy(scenario, step),
        length: warmup(scenario, step, dilation) + scenario.measure.window,
        detail: step.arm.is_some() && step.round == 0 && step.vms_per_pcpu > 1,
    })
}

/// The I/O load of VM `guest` in step `number`.
pub(crate) fn load(scenario: &Scenario, number: usize, guest: u32) -> anyhow::Result<Option<Load>> {
    let steps = schedule::steps(scenario);
    let step = steps.get(number).context("there is no such step")?;
    Ok(Part::of(scenario, step, guest)?.load.cloned())
}

/// What happens while a step is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The I/O load and the arm run, nothing computes yet.
    Armed,
    /// All that it wants runs; nothing is warm yet.
    Started,
    /// The window is about to open.
    Opens,
    /// The window has closed just now.
    Closes,
    /// All that was of interest is known, and all that runs is about to end.
    Ends,
}

/// What one VM does in a step.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    load: Option<&'a Load>,
    arm: Option<&'a Arm>,
    /// Compute threads per vCPU.
    threads: u32,
}

impl<'a> Part<'a> {
    /// That of VM `guest` of the scenario.
    fn of(scenario: &'a Scenario, step: &Step<'a>, guest: u32) -> anyhow::Result<Self> {
        let compute = |threads| if step.compute { threads } else { 0 };
        if scenario.vms.is_empty() {
            return Ok(Self {
                load: step.load,
                arm: step.arm,
                threads: compute(scenario.compute.threads_per_cpu),
            });
        }
        let mut all = scenario.each_vm();
        let (_, vm) = all.nth(guest as usize).context("there is no such VM")?;
        let own = vm.loads.as_ref().map(|loads| loads.first());
        Ok(Self {
            load: step.load.and_then(|load| own.unwrap_or(Some(load))),
            arm: step.arm.filter(|_| vm.arm),
            threads: compute(vm.threads_per_vcpu),
        })
    }
}

/// A guest that can measure.
#[derive(Debug)]
pub(crate) struct InGuest {
    scenario: Scenario,
    cpus: CpuSet,
    files: DataFiles,
    disk: Option<DiskUnder>,
    interrupt: Interrupt,
    scratch: tempfile::TempDir,
    vmigrater: PathBuf,
    /// All times of the scenario have been multiplied by this.
    dilation: u32,
    /// Compute of a guest that is not under test.
    beside: Option<ComputeLoad>,
}

impl InGuest {
    /// Prepares a guest; `disk` is what disk loads read, `dir` where others write, and
    /// `dilation` what the scenario's times have been multiplied by.
    pub(crate) fn new(
        scenario: Scenario,
        disk: Option<&Path>,
        dir: &Path,
        dilation: u32,
    ) -> anyhow::Result<Self> {
        let mut files = DataFiles::new(dir);
        if let Some(disk) = disk {
            files.use_device(disk, scenario.all_loads())?;
        }
        Ok(Self {
            cpus: freezer::online_cpus()?,
            files,
            disk: disk.and_then(DiskUnder::raw),
            interrupt: Interrupt::catch().context("cannot catch signals")?,
            scratch: tempfile::tempdir().context("cannot make a temporary directory")?,
            vmigrater: VMIGRATER.into(),
            dilation,
            beside: None,
            scenario,
        })
    }

    /// Computes on every vCPU, or stops that.
    pub(crate) fn compute(&mut self, on: bool) -> anyhow::Result<()> {
        if on && self.beside.is_none() {
            let threads = self.scenario.compute.threads_per_cpu.max(1);
            self.beside = Some(ComputeLoad::start(&self.cpus, threads, &self.interrupt)?);
        } else if !on {
            self.beside = None;
        }
        Ok(())
    }

    /// Measures what VM `guest` of the scenario does in a step; `at` is called at each
    /// moment. The host's part of the result is empty. With `room` what the I/O
    /// threads do is recorded, at full speed for as long as that.
    pub(crate) fn measure(
        &mut self,
        number: usize,
        guest: u32,
        room: Option<Ns>,
        at: &mut dyn FnMut(Moment) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Phase, Window, Option<Recording>)> {
        let scenario = self.scenario.clone();
        let steps = schedule::steps(&scenario);
        let step = steps.get(number).context("there is no such step")?;
        let part = Part::of(&scenario, step, guest)?;
        let mut io = match part.load {
            Some(load) => IoLoad::start(
                load,
                &self.files,
                self.scratch.path(),
                self.dilation,
                &self.interrupt,
            )?,
            None => IoLoad::Idle,
        };
        match part.arm {
            Some(arm) => set_priorities(&arm.kind, io.tids())?,
            None if step.fifo => set_priorities(&ArmKind::Fifo, io.tids())?,
            None => {}
        }
        let is_daemon = part.arm.is_some_and(|arm| arm.kind.is_daemon());
        let before = placed(io.tids().iter().copied(), is_daemon);
        let recorder = room
            .filter(|_| !io.tids().is_empty())
            .and_then(|room| or_none(Recorder::load(io.tids(), room)));
        let mut running = self.start(part.arm, &io, recorder.is_some())?;
        at(Moment::Armed)?;
        // After the arm, and gone before it: who attaches to or leaves the kernel changes code
        // under all vCPUs, and each change waits until every one of them has run. Where vCPUs
        // share a pCPU and compute, as under iSche, that is a slice of the others each time.
        let compute = (part.threads > 0)
            .then(|| ComputeLoad::start(&self.cpus, part.threads, &self.interrupt))
            .transpose()?;
        at(Moment::Started)?;
        let warmup = warmup(&scenario, step, self.dilation);
        let lead = record::lead(scenario.measure.window, warmup);
        self.interrupt.sleep(warmup - lead)?;
        if let Some(recorder) = &recorder {
            recorder.start();
        }
        self.interrupt.sleep(lead)?;
        running.window_opens()?;
        at(Moment::Opens)?;
        let is_disk = part.load.is_some_and(|load| schedule::on_disk(&load.kind));
        let disk = self.disk.as_ref().filter(|_| is_disk);
        let completed = disk.map(DiskUnder::completions).transpose()?;
        let from = now();
        io.window_opens(from)?;
        self.interrupt.sleep_until(from + scenario.measure.window)?;
        let window = Window { from, to: now() };
        let after = disk.map(DiskUnder::completions).transpose()?;
        let completions = disk::since(completed, after);
        let recorder = recorder.map(Recorder::stop);
        at(Moment::Closes)?;
        // This host goes on sharing.
        let daemon = running.window_closed(None)?;
        let decisions = running.decisions();
        let recording = recorder.and_then(|recorder| or_none(recorder.read(decisions)));
        at(Moment::Ends)?;
        let compute_per_s =
            compute.map_or(Ok(Vec::new()), |load| load.finish(window, &self.interrupt))?;
        running.end(&self.interrupt)?;
        let placed_after = placed(before.iter().map(|one| one.tid), is_daemon);
        anyhow::ensure!(
            placed_after == before,
            "the arm has ended and left I/O threads with other CPUs or priorities: {before:?} before, {placed_after:?} after"
        );
        let io = io.finish(window, &self.interrupt)?;
        let liveness = liveness(io.as_ref(), &compute_per_s, &self.cpus);
        let phase = Phase {
            load: step.load.map_or(String::new(), |load| load.name.clone()),
            arm: step.name.to_owned(),
            vms_per_pcpu: step.vms_per_pcpu,
            round: step.round,
            // Who counts them fills it in.
            at: Ns::ZERO,
            boot: 0,
            work: Vec::new(),
            window: window.length(),
            io,
            compute_per_s,
            host: Host::default(),
            completions,
            daemon,
            // That the guest is dead it cannot tell: its host looks after that.
            liveness,
            machine: Machine::default(),
            io_time: None,
            timeline: None,
            books: None,
        };
        Ok((phase, window, recording))
    }

    fn start(&self, arm: Option<&Arm>, io: &IoLoad, decisions: bool) -> anyhow::Result<Running> {
        let Some(arm) = arm else {
            return Ok(Running::Nothing);
        };
        let setting = Setting {
            vmigrater: &self.vmigrater,
            scratch: self.scratch.path(),
            decisions,
            dilation: self.dilation,
        };
        // The steal page is the real one: nothing stands in for it.
        Running::start(arm, io.tids(), None, setting, &self.interrupt)
    }
}

/// A phase without a record is a phase all the same, as under the freezer. Why there is
/// none goes to the guest's console.
fn or_none<T, E: std::error::Error + Send + Sync + 'static>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::warn!("no time of I/O threads and no timeline: {error:#}");
            None
        }
    }
}

/// What a daemon may change of a thread, and has to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    tid: u32,
    /// Where it may run.
    cpus: Vec<usize>,
    /// `SCHED_*`; -1 is unknown.
    policy: i32,
    nice: i32,
}

/// How threads are placed; without those that have gone. Priorities count `if_ranked`:
/// a command may be there to set them.
fn placed(tids: impl IntoIterator<Item = u32>, if_ranked: bool) -> Vec<Placed> {
    tids.into_iter()
        .filter_map(|tid| {
            let pid = rustix::process::Pid::from_raw(tid.cast_signed())?;
            let set = rustix::thread::sched_getaffinity(Some(pid)).ok()?;
            let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
            let rank = || {
                // SAFETY: the call takes a number and returns one.
                let policy = unsafe { libc::sched_getscheduler(tid.cast_signed()) };
                let nice = rustix::process::getpriority_process(Some(pid)).unwrap_or(0);
                (policy, nice)
            };
            let (policy, nice) = if if_ranked { rank() } else { (-1, 0) };
            Some(Placed {
                tid,
                cpus: cpus.collect(),
                policy,
                nice,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_keeps_another_priority_is_not_as_before() {
        std::thread::spawn(|| {
            let me = rustix::thread::gettid();
            let tid = me.as_raw_nonzero().get().cast_unsigned();
            let look = |if_ranked| placed([tid], if_ranked);
            let (before, cpus) = (look(true), look(false));
            assert_eq!(before.len(), 1);
            assert_eq!(look(true), before);
            let nice = rustix::process::getpriority_process(Some(me)).unwrap();
            // 19 is the last one, where a run under nice begins.
            let another = if nice == 19 { 18 } else { nice + 1 };
            rustix::process::setpriority_process(Some(me), another).unwrap();
            assert_ne!(look(true), before);
            assert_eq!(look(false), cpus);
        })
        .join()
        .unwrap();
    }
}
