// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab reproduce`: the papers' experiments (13.1 to 13.5), simulated, beside what
//! was published.
//!
//! `parameters.toml` has every open parameter with its range and the rows that first fixed
//! it, `fit` looks for values there, `setup.toml` has what the sources state of set-ups,
//! `published.toml` the figures, `inputs.toml` those of them that went in; one module per paper has the set-ups, `mix` builds
//! machines, `workloads` has what runs in them, also those of a scenario's tables (`vms`, `vm_tasks`, `platforms`), `did`
//! says what they did, `outcome` compares. One set of parameters for all
//! configurations; misses are shown as they are. Configurations for which
//! no figure is known are predicted all the same.

mod did;
mod experiments;
mod fit;
mod isacs;
mod ische;
mod jupiter;
mod jupiter_latency;
mod jupiter_more;
mod mix;
mod outcome;
mod parameters;
pub(crate) mod platforms;
pub mod sensitivity;
pub(crate) mod tuning;
mod vm_tasks;
mod vmigrater;
mod vmigrater_more;
pub(crate) mod vms;
mod vsmtio;
mod vsmtio_more;
mod workloads;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use experiment::reproduction::Experiment as Judged;
use experiment::reproduction::FORMAT;
use experiment::reproduction::KIND;
use experiment::reproduction::Reproduction;
use rayon::prelude::*;
use units::Ns;

use self::experiments::EXPERIMENTS;
use self::experiments::Experiment;
use self::mix::Effort;
use self::mix::Memo;
use self::outcome::Outcome;
use self::outcome::judged;
use self::parameters::Parameters;
pub use self::platforms::known;
#[cfg(test)]
pub(crate) use self::workloads::is_reason;
use crate::run::Unusable;
use crate::run::check_json;

/// Simulates the papers' experiments and compares.
///
/// A `*` marks a published figure that parameters are fitted to (--fit), a `=` one that
/// went into the simulation; those without a mark were kept out of the fit.
#[derive(Args, Clone, Debug, Default)]
pub struct ReproduceArgs {
    /// Only this one, for instance fig9; a prefix will do, and so will a section, for
    /// instance 13.1. Without: all.
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
    /// One short round.
    #[arg(long)]
    pub quick: bool,
    /// Write figures, checks and parameters to this file; `vlab report` reads it. With
    /// --sensitivity what that found, which it does not read.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "parameters"])]
    pub json: Option<PathBuf>,
    /// Simulates each seed by itself as well, to show how far they are apart; takes twice
    /// the time, and does nothing with --quick, which has one.
    #[arg(long)]
    pub spread: bool,
    /// Names of the experiments, nothing else.
    #[arg(long)]
    pub list: bool,
    /// Another value for an open parameter: how much does it matter?
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Shows the parameters, with where their values come from.
    #[arg(long)]
    pub parameters: bool,
    /// Halves and doubles each parameter by itself, or only those whose names begin
    /// with NAME, and says how much that matters; with --quick, quickly.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub sensitivity: Option<String>,
    /// Keep finished runs of --sensitivity or --fit here: the same command goes on with
    /// what is missing, and does only what is new after a change of parameters.toml's `try`.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Looks for values of the open parameters, within their ranges, that bring the
    /// figures nearer to the published ones; gone through at most so often with each step.
    #[arg(long, value_name = "SWEEPS", num_args = 0..=1, default_missing_value = "2",
        conflicts_with_all = ["sensitivity", "json", "spread", "list", "parameters"])]
    pub fit: Option<u32>,
    /// Instead of the usual warm-up and window, one round of these: for tests that
    /// compare set-ups and not with what was published.
    #[arg(skip)]
    pub brief: Option<Brief>,
}

/// A short round.
#[derive(Clone, Copy, Debug)]
pub struct Brief {
    /// What is simulated before anything is counted.
    pub warmup: Ns,
    /// What is counted. A few experiments have windows of their own.
    pub window: Ns,
}

/// Simulates and returns the comparison as text.
///
/// # Errors
/// There is no such experiment or parameter, the embedded files are broken, or the
/// file cannot be written.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<String> {
    if args.list {
        let line = |e: &Experiment| format!("{:<22} {}\n", e.name, e.title);
        return Ok(EXPERIMENTS.iter().map(line).collect());
    }
    if args.keep.is_some() && args.sensitivity.is_none() && args.fit.is_none() {
        let text = "--keep DIR keeps the runs of --fit and of --sensitivity; neither is there";
        return Err(Unusable(text.to_owned()).into());
    }
    let parameters = Parameters::load(&args.set)?;
    if args.parameters {
        return Ok(described(&parameters));
    }
    if let Some(prefix) = &args.sensitivity {
        let published = outcome::published()?;
        let chosen = chosen(args.experiment.as_deref().unwrap_or(""))?;
        check_json(args.json.as_deref())?;
        let memo = Memo::of(args.keep.as_deref())?;
        let wanted = sensitivity::Wanted {
            chosen: &chosen,
            prefix,
            quick: args.quick,
        };
        let found = sensitivity::vary(&wanted, &parameters, &published, &memo)?;
        if let Some(json) = &args.json {
            found.save(json)?;
        }
        return Ok(found.text());
    }
    if let Some(sweeps) = args.fit {
        let wanted = fit::Wanted {
            chosen: &chosen(args.experiment.as_deref().unwrap_or(""))?,
            quick: args.quick,
            sweeps,
        };
        let memo = Memo::of(args.keep.as_deref())?;
        return fit::fit(&wanted, &parameters, &outcome::published()?, &memo);
    }
    check_json(args.json.as_deref())?;
    let reproduction = reproduce(args)?;
    if let Some(json) = &args.json {
        reproduction.save(json)?;
    }
    Ok(reproduction.text())
}

/// Simulates the chosen experiments.
///
/// # Errors
/// There is no such experiment or parameter, or the embedded files are broken.
pub fn reproduce(args: &ReproduceArgs) -> anyhow::Result<Reproduction> {
    let parameters = Parameters::load(&args.set)?;
    let published = outcome::published()?;
    let one = |experiment: &&Experiment| -> anyhow::Result<Judged> {
        let mut effort = effort_of(experiment, args.quick || args.brief.is_some());
        if let Some(Brief { warmup, window }) = args.brief {
            effort.warmup = warmup;
            effort.window = window;
        }
        let outcome = simulate(experiment, &parameters, effort)?;
        let by_seed = if args.spread && effort.seeds > 1 {
            each_seed(experiment, &parameters, effort)?
        } else {
            Vec::new()
        };
        Ok(judged(
            experiment,
            effort,
            &outcome,
            &by_seed,
            &published,
            &parameters,
        ))
    };
    let chosen = chosen(args.experiment.as_deref().unwrap_or(""))?;
    Ok(Reproduction {
        kind: KIND.to_owned(),
        format: FORMAT,
        vlab: env!("CARGO_PKG_VERSION").to_owned(),
        quick: args.quick,
        parameters: parameters.iter().map(parameters::Parameter::kept).collect(),
        experiments: chosen.par_iter().map(one).collect::<anyhow::Result<_>>()?,
    })
}

/// The same experiment with each of its seeds by itself.
fn each_seed(
    experiment: &Experiment,
    parameters: &Parameters,
    effort: Effort<'_>,
) -> anyhow::Result<Vec<Outcome>> {
    let seeds = effort.first..effort.first + effort.seeds;
    let alone = |first| Effort {
        seeds: 1,
        first,
        ..effort
    };
    seeds
        .into_par_iter()
        .map(|seed| simulate(experiment, parameters, alone(seed)))
        .collect()
}

/// The experiment of this name, or all whose names begin so.
fn chosen(wanted: &str) -> anyhow::Result<Vec<&'static Experiment>> {
    let exact = EXPERIMENTS.iter().any(|e| e.name == wanted);
    let section = format!("({wanted})");
    let chosen: Vec<&Experiment> = EXPERIMENTS
        .iter()
        .filter(|e| match exact {
            true => e.name == wanted,
            false => e.name.starts_with(wanted) || e.title.ends_with(&section),
        })
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
        return Err(Unusable(format!(
            "there is no experiment or section \"{wanted}\"; there are 13.1 to 13.5 and {}",
            names.join(", ")
        ))
        .into());
    }
    Ok(chosen)
}

/// What is counted of each round, if not `--quick`.
const WHOLE: Ns = Ns::from_secs(4);

/// How long, how often.
fn effort_of(experiment: &Experiment, quick: bool) -> Effort<'static> {
    let mut effort = if quick {
        Effort {
            warmup: Ns::from_ms(600),
            window: Ns::from_ms(1200),
            seeds: 1,
            first: 1,
            memo: None,
        }
    } else {
        Effort {
            warmup: Ns::from_secs(1),
            window: WHOLE,
            seeds: 3,
            first: 1,
            memo: None,
        }
    };
    let name = experiment.name;
    if name.starts_with("jupiter") || name.starts_with("vsmtio") {
        // Loops of 100 ms that change a tenth at a time.
        let loops = if name.starts_with("jupiter") { 10 } else { 4 };
        effort.warmup = Ns::from_secs(loops);
    }
    effort
}

fn simulate(
    experiment: &Experiment,
    parameters: &Parameters,
    effort: Effort<'_>,
) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let outcome = (experiment.simulate)(parameters, effort);
    tracing::info!(name = experiment.name, took = ?began.elapsed(), "simulated");
    outcome
}

fn described(parameters: &Parameters) -> String {
    let line = |p: &parameters::Parameter| {
        let (name, value) = (&p.name, p.value);
        format!("{name:<28} {value:>9}  {}; {}\n", p.origin(), p.why)
    };
    let stated =
        |c: &parameters::Constant| format!("{:<28} {:>9}  stated; {}\n", c.name, c.value, c.source);
    let open: String = parameters.iter().map(line).collect();
    let stated: String = parameters.stated().map(stated).collect();
    open + "\n" + &stated
}

#[cfg(test)]
mod tests {
    use super::parameters::Constant;
    use super::*;

    /// What was published, and what fixed a parameter, is of an experiment that exists.
    #[test]
    fn every_figure_belongs_to_an_experiment() {
        let published = outcome::published().unwrap();
        let there = |name: &str| EXPERIMENTS.iter().any(|e| e.name == name);
        for name in published.figures.keys() {
            assert!(there(name), "{name}");
        }
        for parameter in Parameters::load(&[]).unwrap().iter() {
            assert!(!parameter.why.is_empty(), "{}", parameter.name);
            for row in &parameter.fixed_by {
                assert!(there(row.split_once('/').unwrap().0), "{row}");
            }
        }
    }

    /// What went in was published, and it cannot have fixed a parameter as well.
    #[test]
    fn inputs_are_published_rows_that_fixed_nothing() {
        let published = outcome::published().unwrap();
        let parameters = Parameters::load(&[]).unwrap();
        for row in &published.inputs {
            let (experiment, name) = row.split_once('/').unwrap();
            assert!(published.figures[experiment].contains_key(name), "{row}");
            assert!(!parameters.used(row), "{row}");
        }
    }

    /// A number has one home: it is open or stated, not both.
    #[test]
    fn what_a_source_states_is_not_open() {
        let parameters = Parameters::load(&[]).unwrap();
        let open: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        for constant in parameters.stated() {
            let Constant { name, source, .. } = constant;
            assert!(!open.contains(&name.as_str()), "{name}");
            assert!(source.starts_with(|c: char| c.is_alphanumeric()), "{name}");
        }
    }

    #[test]
    fn runs_are_not_kept_where_none_are_made_again() {
        let args = ReproduceArgs {
            keep: Some(PathBuf::from("nowhere")),
            ..ReproduceArgs::default()
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(error.contains("--fit and of --sensitivity"), "{error}");
    }

    #[test]
    fn bad_overrides_say_what_is_right() {
        let error = |text: &str| {
            Parameters::load(&[text.to_owned()])
                .unwrap_err()
                .to_string()
        };
        assert!(error("nothing=1").contains("there is no parameter"));
        assert!(error("kvm.switch_us=fast").contains("name=number"));
        assert!(error("kvm.switch_us").contains("name=number"));
        let stated = error("kvm.slice_ms=10");
        assert!(
            stated.contains("not open") && stated.contains("11 (13.1)"),
            "{stated}"
        );
    }
}
