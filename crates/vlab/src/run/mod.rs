// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab run`: measures a scenario on this machine under the freezer.
//!
//! # Layout
//! [`schedule`] which phase after which; [`phase`] one phase; [`arm`] what an
//! arm does to it; [`daemon`] the daemon as a child; [`io_load`] the loads as
//! children; [`process`] children that cannot survive us; [`interrupt`] Ctrl-C;
//! [`disk`] where requests complete; [`environment`] where all this happens.

mod arm;
mod daemon;
mod disk;
mod environment;
mod interrupt;
mod io_load;
mod phase;
mod process;
mod progress;
mod schedule;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::ValueEnum;
use experiment::result::FORMAT;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use units::CpuSet;
use units::Ns;

use self::disk::DiskUnder;
use self::interrupt::Interrupt;
use self::io_load::DataFiles;
use self::phase::Bench;
use self::progress::Progress;
use crate::load::now;

pub use self::interrupt::Interrupted;

/// How often a phase that failed is measured again before the run gives up.
const RETRIES: u32 = 1;

/// `--quick`: rounds and window at most.
const QUICK_ROUNDS: u32 = 1;
const QUICK_WINDOW: Ns = Ns::from_ms(500);

/// What runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// This machine: its CPUs are stopped for the other VMs' slices.
    Freezer,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Freezer => "freezer",
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
    /// Measure each arm so often, instead of what the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// One short round: shows that everything works, proves nothing.
    #[arg(long)]
    pub quick: bool,
    /// Only these arms, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Only these loads, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub loads: Vec<String>,
    /// Only these numbers of VMs per pCPU, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub vms: Vec<u32>,
    /// The daemon's program [default: vmigrater beside vlab].
    #[arg(long, value_name = "PATH")]
    pub vmigrater: Option<PathBuf>,
    /// A directory on the disk to be read; the data is removed afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

/// Runs it and returns the report's text.
///
/// # Errors
/// [`experiment::scenario::ScenarioError`] for a bad scenario,
/// [`freezer::Unsupported`] if this machine cannot be frozen, [`Interrupted`]
/// after a signal, and whatever made a phase fail twice.
pub fn run(args: &RunArgs) -> anyhow::Result<String> {
    let scenario = narrowed(Scenario::load(&args.scenario)?, args)?;
    let cpus = cpus(&scenario)?;
    freezer::probe()?;
    for &vms in &scenario.sharing.vms_per_pcpu {
        phase::plan(&scenario, vms, &cpus, Ns::ZERO)?;
    }
    let vmigrater = vmigrater(args, &scenario)?;
    if let Some(json) = &args.json {
        // Now, not after four minutes of measuring.
        let dir = json.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        anyhow::ensure!(dir.is_dir(), "{}: there is no directory {} for the result", json.display(), dir.display());
    }

    let interrupt = Interrupt::catch().context("cannot catch signals")?;
    let scratch = tempfile::Builder::new().prefix("vlab-").tempdir().context("cannot make a temporary directory")?;
    let needs_disk = schedule::needs_disk(&scenario);
    let disk = needs_disk.then(|| DiskUnder::find(&args.dir)).flatten();
    let mut warnings = Vec::new();
    if needs_disk && disk.is_none() {
        warnings.push(format!(
            "{} is on no single disk: where its requests complete is unknown, the bound takes the best case",
            args.dir.display()
        ));
    }
    let environment = environment::describe(
        disk.as_ref().map(|under| under.disk.clone()),
        schedule::needs_daemon(&scenario).then_some(vmigrater.as_path()),
        needs_disk,
    );
    let mut bench = Bench {
        scenario: &scenario,
        interrupt: &interrupt,
        cpus,
        files: DataFiles::new(&args.dir),
        disk,
        scratch: scratch.path(),
        vmigrater: &vmigrater,
        started: now(),
        lead: None,
    };
    let steps = schedule::steps(&scenario);
    let progress = Progress::new(steps.len() as u64);
    progress.say("writing test data");
    bench.files.prepare(&scenario.loads, &interrupt)?;
    let mut phases = Vec::new();
    for step in &steps {
        let what = describe(step);
        progress.say(&what);
        let mut tries = 0;
        let phase = loop {
            match bench.measure(step) {
                Ok(phase) => break phase,
                Err(error) if tries < RETRIES && !interrupt.is_set() => {
                    tries += 1;
                    warnings.push(format!("{what}: measured again after a failure: {error:#}"));
                }
                Err(error) if interrupt.is_set() => return Err(error.context(Interrupted)),
                Err(error) => return Err(error.context(what)),
            }
        };
        phases.push(phase);
        progress.step();
    }
    progress.finish();
    let result = RunResult {
        format: FORMAT,
        backend: args.backend.name().to_owned(),
        scenario: scenario.clone(),
        environment,
        phases,
        warnings,
    };
    if let Some(json) = &args.json {
        result.save(json)?;
    }
    Ok(experiment::report::text(&result))
}

fn describe(step: &schedule::Step<'_>) -> String {
    let load = step.load.map_or("no I/O", |load| &load.name);
    match step.arm {
        Some(_) => format!("{load}, {} VMs per pCPU, {}, round {}", step.vms_per_pcpu, step.name, step.round + 1),
        None => format!("{load}, no sharing, {}", step.name),
    }
}

/// The scenario with the command line's wishes.
fn narrowed(mut scenario: Scenario, args: &RunArgs) -> anyhow::Result<Scenario> {
    let known = |what: &str, wanted: &[String], have: Vec<&str>| -> anyhow::Result<()> {
        for name in wanted {
            anyhow::ensure!(have.contains(&name.as_str()), "the scenario has no {what} `{name}`; it has {}", have.join(", "));
        }
        Ok(())
    };
    known("arm", &args.arms, scenario.arms.iter().map(|arm| arm.name.as_str()).collect())?;
    known("load", &args.loads, scenario.loads.iter().map(|load| load.name.as_str()).collect())?;
    if !args.arms.is_empty() {
        scenario.arms.retain(|arm| args.arms.contains(&arm.name));
    }
    if !args.loads.is_empty() {
        scenario.loads.retain(|load| args.loads.contains(&load.name));
    }
    if !args.vms.is_empty() {
        let have = &scenario.sharing.vms_per_pcpu;
        for n in &args.vms {
            anyhow::ensure!(have.contains(n), "the scenario has no phase with {n} VMs per pCPU; it has {have:?}");
        }
        scenario.sharing.vms_per_pcpu.retain(|n| args.vms.contains(n));
    }
    if let Some(rounds) = args.rounds {
        // Arms that the scenario measures less often keep their share.
        let before = scenario.measure.rounds;
        for arm in &mut scenario.arms {
            arm.rounds = arm.rounds.map(|n| (n * rounds).div_ceil(before).max(1));
        }
        scenario.measure.rounds = rounds;
    }
    if args.quick {
        scenario.measure.rounds = scenario.measure.rounds.min(QUICK_ROUNDS);
        scenario.measure.window = scenario.measure.window.min(QUICK_WINDOW);
    }
    Ok(scenario)
}

/// The CPUs of the VM under test: the first of this machine's.
fn cpus(scenario: &Scenario) -> anyhow::Result<CpuSet> {
    let online = freezer::online_cpus()?;
    let wanted = scenario.topology.cpus;
    anyhow::ensure!(
        wanted == online.len(),
        "the scenario asks for {wanted} CPUs, this machine has {online} online; the freezer measures whole machines: \
         set topology.cpus = {} or use another backend",
        online.len()
    );
    Ok(online)
}

/// The daemon's program.
fn vmigrater(args: &RunArgs, scenario: &Scenario) -> anyhow::Result<PathBuf> {
    let program = match &args.vmigrater {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("cannot find our own program")?.with_file_name("vmigrater"),
    };
    anyhow::ensure!(
        program.is_file() || !schedule::needs_daemon(scenario),
        "there is no daemon at {}; build it with `cargo build --release -p vmigrater`, give --vmigrater PATH, or leave its arms out with --arms",
        program.display()
    );
    Ok(program)
}
