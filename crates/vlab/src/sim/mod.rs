// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab sim`: the same scenario file, simulated; the same result file.
//!
//! `build` makes a simulation of a step of the scenario, `phase` runs it and fills a
//! phase of the result, `recorded` puts what it counted into the words of one, `work`
//! says what each VM got done. `host` says which host policy a step has. `platform` holds the constants, `profile` the
//! applications. `sweep` simulates in pieces, `points` shows what a sweep in the
//! scenario gave, `beside` puts measured figures beside simulated ones.

mod beside;
mod build;
pub(crate) mod host;
mod phase;
pub(crate) mod platform;
mod points;
pub(crate) mod profile;
mod recorded;
pub(crate) mod replay;
pub mod sweep;
mod work;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use experiment::result::Environment;
use experiment::result::FORMAT;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use experiment::stats::quantile;
use rayon::prelude::*;
use units::Ns;

use crate::run::schedule;

const AFTER_HELP: &str = "\
What would each host scheduler make of two VMs that read and two that compute?

  name = \"mine\"
  title = \"Readers beside compute\"
  topology = { cpus = 4 }                  # pCPUs
  sharing = { slice = \"11 ms\" }
  measure = { rounds = 1, warmup = \"1 s\", window = \"2 s\", baselines = \"none\" }
  sim = { platform = \"paper-kvm\" }
  arm = [{ name = \"vanilla\" }, { name = \"vmigrater\" }]
  [[device]]
  name = \"disk\"
  kind = \"ssd\"                             # or hdd, network
  latency = \"90 us\"                        # or \"$ssd.latency_us\", a parameter of the papers
  [[load]]
  name = \"reads\"
  kind = \"reader\"                          # or echo, parallel, locks, compute, adversary
  [[vm]]
  name = \"web\"                             # the VM under test is the first
  count = 2
  vcpus = 4
  loads = [\"reads\"]
  [[vm]]
  name = \"busy\"
  count = 2
  loads = []
  [sweep]
  \"sim.host\" = [\"cfs\", \"credit2\", \"isacs\"]
  \"vm.web.vcpus\" = [2, 4]

scenarios/paper-*.toml are the papers' set-ups; docs/scenarios.md has every key.";

/// Simulates a scenario and prints a report.
///
/// Needs no privileges and touches nothing: simulated time is not real time. The file
/// may also say what only the simulator has: VMs one by one, devices, programs, and a
/// sweep over any of its fields (docs/scenarios.md).
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP, after_help = AFTER_HELP)]
pub struct SimArgs {
    /// The scenario file, for instance scenarios/check-freezer.toml.
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Write everything that was simulated to this file; `vlab report` reads it. With a
    /// sweep a file for each point, FILE with -1, -2 and so on in its name.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Simulate each arm so often, instead of what the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// So much of each arm's first round is kept in the file in detail, for the timeline
    /// of `vlab report --html` and for `vlab trace`; 0s for none.
    #[arg(long, value_name = "DURATION", default_value = "250ms", value_parser = crate::run::timeline)]
    pub timeline: Ns,
    /// Reads the file and builds every machine that it asks for, but simulates nothing;
    /// says what each text with `$` gives.
    #[arg(long, conflicts_with = "json")]
    pub check: bool,
}

/// Simulates it and returns the report's text.
///
/// # Errors
/// A bad scenario, one that asks for what the simulator does not have, or a
/// result that cannot be written.
pub fn run(args: &SimArgs) -> anyhow::Result<String> {
    crate::run::check_json(args.json.as_deref())?;
    let scenarios = points::load(&args.scenario, args.rounds)?;
    if args.check {
        let steps: Vec<usize> = scenarios.iter().map(check).collect::<anyhow::Result<_>>()?;
        let (points, steps) = (steps.len(), steps.iter().sum::<usize>());
        let computed = points::computed(&args.scenario)?;
        return Ok(format!(
            "{points} point(s) with {steps} steps can be simulated\n{computed}"
        ));
    }
    let began = Instant::now();
    // What nobody keeps need not be recorded.
    let timeline = args.json.as_ref().map_or(Ns::ZERO, |_| args.timeline);
    let mut results = Vec::new();
    let mut all = 0;
    for (n, scenario) in scenarios.iter().enumerate() {
        let (result, events) = simulate_with(scenario, timeline)?;
        all += events;
        if let Some(json) = &args.json {
            result.save(&points::path(json, n, scenarios.len()))?;
        }
        results.push(result);
    }
    let mut text = match results.as_slice() {
        [only] => experiment::report::text(only) + &beside::table(only),
        many => points::table(many, args.json.as_deref()),
    };
    if let Some(first) = scenarios.first() {
        text.push_str(&profile::described(first)?);
    }
    let took = began.elapsed();
    tracing::info!(events = all, ?took, "simulated");
    Ok(text)
}

/// Simulates a scenario; also says how many events that took.
///
/// # Errors
/// The scenario asks for what the simulator does not have.
pub fn simulate(scenario: &Scenario) -> anyhow::Result<(RunResult, u64)> {
    simulate_with(scenario, Ns::ZERO)
}

/// The same, with a timeline of so much of each arm's first round.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with(scenario: &Scenario, timeline: Ns) -> anyhow::Result<(RunResult, u64)> {
    let steps = schedule::steps(scenario);
    // In any order, on all cores: each step has its own seed and its own machine.
    let outcomes: Vec<phase::Outcome> = steps
        .par_iter()
        .map(|step| phase::simulate(scenario, step, timeline))
        .collect::<anyhow::Result<_>>()?;
    let events = outcomes.iter().map(|outcome| outcome.events).sum();
    let result = RunResult {
        format: FORMAT,
        backend: "sim".to_owned(),
        scenario: scenario.clone(),
        environment: environment(),
        phases: outcomes.into_iter().map(|outcome| outcome.phase).collect(),
        warnings: warnings(scenario)?,
        lab: None,
    };
    Ok((result, events))
}

/// What a reader of the figures has to know.
fn warnings(scenario: &Scenario) -> anyhow::Result<Vec<String>> {
    let slice = scenario.sharing.slice;
    let mut told: Vec<String> = Vec::new();
    for step in schedule::steps(scenario) {
        let chosen = host::chosen(scenario, &step)?;
        let Some(slices) = chosen.own_slices() else {
            continue;
        };
        let name = chosen.name;
        let text =
            format!("{name} has slices of its own ({slices}): sharing.slice = {slice} is not read");
        if !told.contains(&text) {
            told.push(text);
        }
    }
    Ok(told)
}

/// Builds every step of a scenario and simulates none; says how many there are.
///
/// # Errors
/// As [`simulate`].
pub fn check(scenario: &Scenario) -> anyhow::Result<usize> {
    let steps = schedule::steps(scenario);
    for step in steps.iter().filter(|step| step.round == 0) {
        build::simulation(scenario, step, 1)?;
    }
    Ok(steps.len())
}

/// The median rate of an arm over its rounds.
#[must_use]
pub fn rate(result: &RunResult, load: &str, arm: &str, vms: u32) -> Option<f64> {
    let rates: Vec<f64> = result
        .phases
        .iter()
        .filter(|phase| phase.load == load && phase.arm == arm && phase.vms_per_pcpu == vms)
        .filter_map(|phase| phase.io.as_ref().map(|io| io.ops_per_s))
        .collect();
    quantile(&rates, 0.5)
}

/// Nothing of this machine is in a simulated result: the same file on every one.
fn environment() -> Environment {
    Environment {
        kernel: "simulated".to_owned(),
        preemption: "simulated".to_owned(),
        cpu_model: "simulated".to_owned(),
        tools: std::collections::BTreeMap::from([(
            "vlab".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        )]),
        ..Environment::default()
    }
}
