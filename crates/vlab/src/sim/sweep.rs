// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab sweep` and `vlab merge`: a scenario simulated in pieces.
//!
//! The axes of a sweep are the lists of the scenario: VMs per pCPU, loads, arms
//! (host policies among them) and rounds, each round with a seed of its own. Every
//! combination is a step; a finished step is a file of its own in the directory, put
//! there as a whole or not at all. So a sweep that was ended, by whatever, goes on
//! where it was, and shards of one sweep can run on several machines.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::Args;
use experiment::result::FORMAT;
use experiment::result::Phase;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use rayon::prelude::*;
use serde::Deserialize;
use serde::Serialize;
use units::Ns;

use super::phase;
use crate::run::Interrupted;
use crate::run::Unusable;
use crate::run::interrupt::Interrupt;
use crate::run::schedule;

/// Of the files in a sweep's directory.
const SWEEP_FORMAT: u32 = 1;
const HEADER: &str = "sweep.json";

/// Simulates a scenario step by step into a directory; can be ended and goes on.
#[derive(Args, Clone, Debug)]
pub struct SweepArgs {
    /// The scenario file.
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Where finished steps are put; steps that are there are not simulated again.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Only the I-th of N parts, from 1/N to N/N: for the array jobs of a cluster.
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    pub shard: Shard,
    /// Simulate each arm so often, instead of what the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

/// Puts the steps of a sweep together to one result.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// Directories of the same sweep; one after the other where shards had their own.
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// The result file; `vlab report` and `vlab compare` read it.
    #[arg(long, value_name = "FILE")]
    pub json: PathBuf,
}

/// A part of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    nth: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((nth, of)) if nth >= 1 && nth <= of => Ok(Self { nth, of }),
            _ => Err(format!(
                "{text}: I/N with 1 <= I <= N is expected, for instance 2/4"
            )),
        }
    }
}

impl Shard {
    const fn has(self, step: usize) -> bool {
        step % self.of == self.nth - 1
    }
}

/// What a directory is about.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    sweep_format: u32,
    /// Of the phases in the steps.
    result_format: u32,
    scenario: Scenario,
}

/// One finished step.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    step: usize,
    events: u64,
    phase: Phase,
}

fn part_path(dir: &Path, step: usize) -> PathBuf {
    dir.join(format!("step-{step:06}.json"))
}

/// Writes a file as a whole or not at all.
fn write_whole(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let write = || -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer(&mut file, value)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> anyhow::Result<T> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no file of a sweep", path.display()))
}

/// The directory's header, made if there is none; an error if the directory is
/// another sweep's.
fn claim(dir: &Path, scenario: &Scenario) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let header = Header {
        sweep_format: SWEEP_FORMAT,
        result_format: FORMAT,
        scenario: scenario.clone(),
    };
    let path = dir.join(HEADER);
    if !path.exists() {
        return write_whole(&path, &header);
    }
    let found: Header = read(&path)?;
    if found == header {
        return Ok(());
    }
    Err(Unusable(format!(
        "{} holds steps of another sweep (\"{}\", or other settings of it); choose another --out",
        dir.display(),
        found.scenario.name
    ))
    .into())
}

/// Simulates what is missing; returns a line about it.
///
/// # Errors
/// A bad scenario, a directory of another sweep, a step that cannot be written, or
/// [`Interrupted`]: finished steps are kept.
pub fn sweep(args: &SweepArgs) -> anyhow::Result<String> {
    let mut scenario = Scenario::load(&args.scenario)?;
    if let Some(rounds) = args.rounds {
        scenario.measure.rounds = rounds;
    }
    claim(&args.out, &scenario)?;
    let interrupt = Interrupt::catch()?;
    let steps = schedule::steps(&scenario);
    let mine: Vec<usize> = (0..steps.len()).filter(|n| args.shard.has(*n)).collect();
    let missing: Vec<usize> = mine
        .iter()
        .copied()
        .filter(|n| !part_path(&args.out, *n).exists())
        .collect();
    let bar = ProgressBar::new(mine.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {eta} left") {
        bar.set_style(style);
    }
    bar.set_position((mine.len() - missing.len()) as u64);
    let events = AtomicU64::new(0);
    // In any order, on all cores: each step has its own seed and its own machine.
    let done = missing.par_iter().try_for_each(|&n| -> anyhow::Result<()> {
        if interrupt.is_set() {
            return Err(Interrupted.into());
        }
        let outcome = phase::simulate(&scenario, &steps[n], Ns::ZERO)?;
        events.fetch_add(outcome.events, Ordering::Relaxed);
        let part = Part {
            step: n,
            events: outcome.events,
            phase: outcome.phase,
        };
        write_whole(&part_path(&args.out, n), &part)?;
        bar.inc(1);
        Ok(())
    });
    bar.finish_and_clear();
    done.with_context(|| {
        let dir = args.out.display();
        format!("finished steps are kept in {dir}; the same command goes on")
    })?;
    Ok(format!(
        "{} of {} steps are there, {} simulated now, {} events\n",
        mine.len(),
        steps.len(),
        missing.len(),
        events.into_inner()
    ))
}

/// Writes the merged result and returns a line about it.
///
/// # Errors
/// Directories of different sweeps, steps that are missing, unreadable files.
pub fn merge(args: &MergeArgs) -> anyhow::Result<String> {
    let mut header: Option<Header> = None;
    for dir in &args.dirs {
        let found: Header = read(&dir.join(HEADER))?;
        if (found.sweep_format, found.result_format) != (SWEEP_FORMAT, FORMAT) {
            return Err(Unusable(format!(
                "{} was written by another version of vlab: formats {} and {}, not {SWEEP_FORMAT} and {FORMAT}",
                dir.display(),
                found.sweep_format,
                found.result_format
            ))
            .into());
        }
        if header.as_ref().is_some_and(|header| *header != found) {
            let dir = dir.display();
            return Err(Unusable(format!("{dir} holds another sweep than the first one")).into());
        }
        header = Some(found);
    }
    let scenario = header.context("no directory")?.scenario;
    let count = schedule::steps(&scenario).len();
    let mut phases = Vec::new();
    let mut missing = Vec::new();
    for n in 0..count {
        let path = args
            .dirs
            .iter()
            .map(|dir| part_path(dir, n))
            .find(|p| p.exists());
        let Some(path) = path else {
            missing.push(n);
            continue;
        };
        let part: Part = read(&path)?;
        if part.step != n {
            let path = path.display();
            return Err(Unusable(format!("{path} holds step {}, not {n}", part.step)).into());
        }
        phases.push(part.phase);
    }
    if let Some(first) = missing.first() {
        return Err(Unusable(format!(
            "{} of {count} steps are missing, the first is {first}; run vlab sweep again",
            missing.len()
        ))
        .into());
    }
    let result = RunResult {
        format: FORMAT,
        backend: "sim".to_owned(),
        environment: super::environment(),
        phases,
        warnings: Vec::new(),
        lab: None,
        scenario,
    };
    result.save(&args.json)?;
    Ok(format!("{count} steps in {}\n", args.json.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_a_partition() {
        for of in 1..6 {
            for step in 0..40 {
                let owners = (1..=of).filter(|nth| Shard { nth: *nth, of }.has(step));
                assert_eq!(owners.count(), 1);
            }
        }
        for bad in ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"] {
            let error = Shard::from_str(bad).unwrap_err();
            assert!(error.contains("1 <= I <= N"), "{error}");
        }
    }

    fn args(dir: &Path, out: &str, shard: &str) -> SweepArgs {
        SweepArgs {
            scenario: dir.join("s.toml"),
            out: dir.join(out),
            shard: shard.parse().unwrap(),
            rounds: None,
        }
    }

    /// Two shards in two directories, one of them simulated twice: the same result
    /// as in one go, and nothing is simulated again.
    #[test]
    fn shards_resume_and_merge_to_the_result_of_one_go() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../../../../scenarios/check-freezer.toml");
        let text = text
            .replace("rounds = 8", "rounds = 1")
            .replace("window = \"4 s\"", "window = \"200 ms\"")
            .replace("warmup = \"1 s\"", "warmup = \"100 ms\"");
        fs::write(dir.path().join("s.toml"), &text).unwrap();
        let first = args(dir.path(), "a", "1/2");
        let line = sweep(&first).unwrap();
        let again = sweep(&first).unwrap();
        assert!(again.contains(" 0 simulated now"), "{line}{again}");
        let merge_args = MergeArgs {
            dirs: vec![dir.path().join("a"), dir.path().join("b")],
            json: dir.path().join("r.json"),
        };
        sweep(&args(dir.path(), "b", "2/2")).unwrap();
        // One step is lost, and simulated again.
        fs::remove_file(part_path(&dir.path().join("b"), 1)).unwrap();
        let error = merge(&merge_args).unwrap_err().to_string();
        assert!(
            error.contains("1 of") && error.contains("missing"),
            "{error}"
        );
        let line = sweep(&args(dir.path(), "b", "2/2")).unwrap();
        assert!(line.contains(" 1 simulated now"), "{line}");
        merge(&merge_args).unwrap();
        let merged = RunResult::load(&merge_args.json).unwrap();
        let scenario = Scenario::parse(&text, "s.toml").unwrap();
        let (whole, _) = super::super::simulate(&scenario).unwrap();
        assert_eq!(merged.phases, whole.phases);
        // Another scenario is not mixed in.
        fs::write(
            dir.path().join("s.toml"),
            text.replace("rounds = 1", "rounds = 2"),
        )
        .unwrap();
        let error = sweep(&first).unwrap_err().to_string();
        assert!(error.contains("another sweep"), "{error}");
    }
}
