// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab run`: measures a scenario on this machine under the freezer.
//!
//! # Layout
//! `narrow` what the command line makes of a scenario; `schedule` which phase
//! after which; `phase` one phase; `arm` what an arm does to it; `daemon` the
//! daemon as a child; `decisions` what that logs; `io_load` the loads as children;
//! `record` what their threads do; `process` children that cannot survive us;
//! `interrupt` Ctrl-C; `keep` what has been measured so far; `progress` how far it is; `disk` where requests complete;
//! `environment` where all this happens; `machine` what else went on there.

mod arm;
mod daemon;
mod decisions;
mod disk;
pub(crate) mod environment;
pub(crate) mod in_guest;
pub(crate) mod interrupt;
mod io_load;
pub(crate) mod keep;
mod machine;
mod narrow;
pub(crate) mod network;
mod phase;
mod plan;
mod process;
mod progress;
mod record;
pub(crate) mod schedule;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::ValueEnum;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use units::Ns;

use self::disk::DiskUnder;
use self::interrupt::Interrupt;
use self::io_load::DataFiles;
use self::keep::Growing;
use self::keep::Kept;
use self::phase::Bench;
use self::progress::Progress;
use crate::load::now;
use crate::part::Part;
use crate::scratch::Scratch;

pub use self::interrupt::Interrupted;

/// The command line or the scenario asks for something that does not exist
/// here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub(crate) String);

impl Unusable {
    /// `what` says what is wrong and what would be right.
    pub(crate) fn new(what: String) -> Self {
        Self(what)
    }
}

/// How often a phase that failed is measured again before the run gives up.
const RETRIES: u32 = 1;

/// What to do next, for somebody who has just seen what it does here.
const IN_YOUR_VM: &str = "
In a VM of your own, as root:
  vmigrater doctor          is there anything to gain on this machine?
  vmigrater run --dry-run   decides and counts, moves nothing
  vmigrater run             keeps I/O-bound tasks on running vCPUs; Ctrl-C puts everything back
  vmigrater status          what it does now
";

/// What runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// This machine: its CPUs are stopped for the other VMs' slices.
    Freezer,
    /// Real virtual machines: on this machine if it can be their host, else
    /// inside an emulated one.
    Kvm,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Freezer => "freezer",
            Self::Kvm => "kvm",
        }
    }
}

/// Measures a scenario and prints a report.
///
/// The machine's CPUs are stopped for milliseconds at a time while it runs:
/// everything else on it slows down too. Nothing stays behind at the end, after
/// Ctrl-C, or after a crash.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The scenario file, for instance scenarios/demo.toml.
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// What runs it.
    #[arg(long, value_enum, default_value_t = Backend::Freezer)]
    pub backend: Backend,
    /// Write everything that was measured to this file; `vlab report` reads it.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Go on with what --json FILE has: a run that was ended before all was measured, or
    /// one of fewer --rounds.
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// Measure each arm so often, instead of what the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// One short round: shows that everything works, proves nothing.
    #[arg(long)]
    pub quick: bool,
    /// Which point of the scenario's `[sweep]`, from 1: real VMs measure one at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub point: Option<u32>,
    /// What of the scenario.
    #[command(flatten)]
    pub part: Part,
    /// The daemon's program [default: vmigrater beside vlab].
    #[arg(long, value_name = "PATH")]
    pub vmigrater: Option<PathBuf>,
    /// A directory on the disk to be read; the data is removed afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// So much of each arm's first round is kept in detail, for the timeline of
    /// `vlab report --html` and for `vlab trace`: such as 250ms; 0s keeps none.
    #[arg(long, value_name = "DURATION", default_value = "250ms", value_parser = timeline)]
    pub timeline: Ns,
    /// Do not record what the I/O threads do: no timeline, no decomposition of
    /// their time. Each context switch is some 50 ns faster then.
    #[arg(long, conflicts_with = "timeline")]
    pub no_record: bool,
    /// Options of one backend.
    #[command(flatten)]
    pub kvm: crate::kvm::KvmArgs,
}

/// The longest timeline: a result file stays readable, and so does the picture.
const LONGEST_TIMELINE: Ns = Ns::from_secs(5);

/// A length of it, as it is typed.
pub(crate) fn timeline(text: &str) -> Result<Ns, String> {
    humantime::parse_duration(text)
        .ok()
        .map(Ns::from)
        .filter(|length| *length <= LONGEST_TIMELINE)
        .ok_or_else(|| format!("expected a duration from 0s to {LONGEST_TIMELINE}, such as 250ms"))
}

/// Runs it and returns the report's text.
///
/// # Errors
/// [`experiment::scenario::ScenarioError`] for a bad scenario, [`Unusable`] for
/// one that does not fit this machine or the command line,
/// [`freezer::Unsupported`] if this machine cannot be frozen, [`Interrupted`]
/// after a signal, and whatever made a phase fail twice.
pub fn run(args: &RunArgs) -> anyhow::Result<String> {
    let scenario = narrow::scenario(narrow::load(args)?, args)?;
    if args.backend == Backend::Kvm {
        return on_kvm(scenario, args);
    }
    let cpus = narrow::cpus(&scenario)?;
    freezer::probe()?;
    for step in schedule::steps(&scenario) {
        if step.round == 0 && step.arm.is_some() {
            plan::of(&scenario, &step, &cpus, Ns::ZERO)
                .map_err(|error| Unusable(format!("{error:#}")))?;
        }
    }
    let vmigrater = narrow::vmigrater(args, &scenario)?;
    check_json(args.json.as_deref())?;

    let interrupt = Interrupt::catch().context("cannot catch signals")?;
    let scratch = Scratch::new().context("cannot make a temporary directory")?;
    let needs_disk = schedule::needs_disk(&scenario);
    let disk = needs_disk.then(|| DiskUnder::find(&args.dir)).flatten();
    let mut warnings = Vec::new();
    if needs_disk && disk.is_none() {
        warnings.push(format!(
            "{} is on no single disk: where its requests complete is unknown, the bound takes the best case",
            args.dir.display()
        ));
    }
    let daemon = schedule::needs_daemon(&scenario).then_some(vmigrater.as_path());
    let environment = environment::describe(
        disk.as_ref().map(|under| under.disk.clone()),
        daemon.as_slice(),
        schedule::needs_fio(&scenario),
    );
    let growing = Growing::new(args.backend.name(), scenario.clone(), args.json.as_deref());
    let mut kept = Kept::new(growing, environment, warnings);
    if args.resume {
        kept.resume()?;
    }
    let mut bench = Bench {
        scenario: &scenario,
        interrupt: &interrupt,
        cpus,
        files: DataFiles::new(&args.dir),
        disk,
        scratch: scratch.path(),
        vmigrater: &vmigrater,
        started: now() - kept.lasted(),
        lead: None,
        record: record::Options {
            on: !args.no_record,
            timeline: args.timeline,
        },
        warnings: Vec::new(),
    };
    let measured = measure_all(&mut bench, &mut kept);
    kept.warnings.append(&mut bench.warnings);
    if let Err(error) = measured {
        return Err(kept.give_up(error));
    }
    let result = kept.result(None);
    if let Some(json) = &args.json {
        result.save(json)?;
    }
    let mut text = experiment::report::text(&result);
    if schedule::needs_daemon(&scenario) {
        text.push_str(IN_YOUR_VM);
    }
    Ok(text)
}

/// Phases until there are all.
///
/// # Errors
/// [`Interrupted`], or what made a phase fail twice.
fn measure_all(bench: &mut Bench<'_>, kept: &mut Kept) -> anyhow::Result<()> {
    let (scenario, interrupt) = (bench.scenario, bench.interrupt);
    let steps = schedule::steps(scenario);
    let progress = Progress::new(steps.len() as u64, kept.done() as u64);
    progress.say("writing test data");
    bench.files.prepare(&scenario.loads, interrupt)?;
    for step in &steps[kept.done()..] {
        let what = describe(step);
        progress.say(&what);
        let mut tries = 0;
        let phase = loop {
            match bench.measure(step) {
                Ok(phase) => break phase,
                Err(_) if interrupt.is_set() => return Err(Interrupted.into()),
                Err(error) if tries < RETRIES => {
                    tries += 1;
                    kept.warnings
                        .push(format!("{what}: measured again after a failure: {error:#}"));
                }
                Err(error) => return Err(error.context(what)),
            }
        };
        for dead in phase.liveness.iter().filter(|one| !one.alive) {
            kept.warnings
                .push(format!("{what}: no progress: {}", dead.who));
        }
        kept.push(phase);
        progress.step();
    }
    progress.finish();
    Ok(())
}

/// Is there a directory for the result? Asked before anything that takes minutes.
pub(crate) fn check_json(json: Option<&Path>) -> anyhow::Result<()> {
    let Some(json) = json else {
        return Ok(());
    };
    let dir = json
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !dir.is_dir() {
        let (json, dir) = (json.display(), dir.display());
        return Err(Unusable(format!(
            "{json}: there is no directory {dir} for the result"
        ))
        .into());
    }
    Ok(())
}

/// The same on real VMs.
fn on_kvm(scenario: Scenario, args: &RunArgs) -> anyhow::Result<String> {
    let vmigrater = narrow::vmigrater(args, &scenario)?;
    check_json(args.json.as_deref())?;
    let timeline = if args.no_record {
        Ns::ZERO
    } else {
        args.timeline
    };
    let json = args.json.as_deref();
    let result = crate::kvm::run(scenario, &args.kvm, vmigrater, timeline, json, args.resume)?;
    if let Some(json) = &args.json {
        result.save(json)?;
    }
    Ok(report(&result))
}

/// The report of a result, as `vlab run` and `vlab report` print it.
#[must_use]
pub fn report(result: &RunResult) -> String {
    let mut text = experiment::report::text(result);
    if let Some(lab) = &result.lab {
        text.push_str(&experiment::lab::text(lab));
    }
    text
}

/// This machine, for a run of these programs in which it reads no disk of its own.
pub(crate) fn environment(programs: &[&Path]) -> experiment::result::Environment {
    environment::describe(None, programs, false)
}

fn describe(step: &schedule::Step<'_>) -> String {
    let load = step.load.map_or("no I/O", |load| &load.name);
    match step.arm {
        Some(_) => format!(
            "{load}, {} VMs per pCPU, {}, round {}",
            step.vms_per_pcpu,
            step.name,
            step.round + 1
        ),
        None => format!("{load}, no sharing, {}", step.name),
    }
}
