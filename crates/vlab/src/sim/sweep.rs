// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab sweep` and `vlab merge`: a scenario simulated in pieces.
//!
//! The axes of a sweep are those of the scenario's `[sweep]` and its lists: VMs per
//! pCPU, loads, arms (host policies among them) and rounds, each round with a seed of
//! its own. Every combination is a step; a finished step is a file of its own in the directory, put
//! there as a whole or not at all. So a sweep that was ended, by whatever, goes on
//! where it was, and shards of one sweep can run on several machines.

use std::fs;
use std::io::BufWriter;
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
use super::points;
use crate::run::Interrupted;
use crate::run::Unusable;
use crate::run::interrupt::Interrupt;
use crate::run::schedule;
use crate::run::schedule::Step;

/// Of the files in a sweep's directory.
/// 2: several points. 3: the version of vlab. 4: the length of the timelines.
const SWEEP_FORMAT: u32 = 4;
const HEADER: &str = "sweep.json";
/// Another version may simulate the same file otherwise.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    /// So much of each arm's first round is kept in detail, for the timeline of
    /// `vlab report --html` and for `vlab trace`; 0s for none. Shards have to be told the
    /// same.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = crate::run::timeline)]
    pub timeline: Ns,
}

/// Puts the steps of a sweep together to one result.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// Directories of the same sweep; one after the other where shards had their own.
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// The result file; `vlab report` and `vlab compare` read it. With several points a
    /// file for each, FILE with -1, -2 and so on in its name.
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

/// What every header begins with, whatever else its format has.
#[derive(Debug, Deserialize)]
struct Formats {
    sweep_format: u32,
    /// Of the phases in the steps.
    result_format: u32,
    #[serde(default)]
    vlab: String,
}

/// What a directory is about.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    sweep_format: u32,
    /// Of the phases in the steps.
    result_format: u32,
    /// The version that simulates the steps.
    vlab: String,
    /// How much of each arm's first round is kept in detail.
    timeline: Ns,
    /// One for each point of the scenario's `[sweep]`.
    points: Vec<Scenario>,
}

/// All steps, with the place of their point.
fn steps_of(points: &[Scenario]) -> Vec<(usize, Step<'_>)> {
    let all = points.iter().enumerate();
    all.flat_map(|(n, scenario)| {
        let steps = schedule::steps(scenario).into_iter();
        steps.map(move |step| (n, step))
    })
    .collect()
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
        let mut buffer = BufWriter::new(&mut file);
        serde_json::to_writer(&mut buffer, value)?;
        buffer.flush()?;
        drop(buffer);
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

/// A directory's header, if this version can go on with its steps.
fn header(dir: &Path) -> anyhow::Result<Header> {
    let path = dir.join(HEADER);
    let formats: Formats = read(&path)?;
    let dir = dir.display();
    if (formats.sweep_format, formats.result_format) != (SWEEP_FORMAT, FORMAT) {
        return Err(Unusable(format!(
            "{dir} was written by another version of vlab: formats {} and {}, not {SWEEP_FORMAT} and {FORMAT}",
            formats.sweep_format, formats.result_format
        ))
        .into());
    }
    if formats.vlab != VERSION {
        return Err(Unusable(format!(
            "{dir} holds steps of vlab {}, and this is {VERSION}, which may simulate them otherwise; use that version, or simulate all of them again in another directory",
            formats.vlab
        ))
        .into());
    }
    read(&path)
}

/// The directory's header, made if there is none; an error if the directory is
/// another sweep's.
fn claim(dir: &Path, points: &[Scenario], timeline: Ns) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let expected = Header {
        sweep_format: SWEEP_FORMAT,
        result_format: FORMAT,
        vlab: VERSION.to_owned(),
        timeline,
        points: points.to_vec(),
    };
    let path = dir.join(HEADER);
    if !path.exists() {
        return write_whole(&path, &expected);
    }
    let found = header(dir)?;
    if found == expected {
        return Ok(());
    }
    Err(Unusable(format!(
        "{} holds steps of another sweep (\"{}\", or other settings of it); choose another --out",
        dir.display(),
        found.points.first().map_or("", |point| &point.name)
    ))
    .into())
}

/// Simulates what is missing; returns a line about it.
///
/// # Errors
/// A bad scenario, a directory of another sweep or version, a step that cannot be written, or
/// [`Interrupted`]: finished steps are kept.
pub fn sweep(args: &SweepArgs) -> anyhow::Result<String> {
    let scenarios = points::load(&args.scenario, args.rounds)?;
    // Before the directory is claimed: a file that is mended is another sweep.
    scenarios
        .par_iter()
        .try_for_each(|scenario| super::check(scenario).map(|_| ()))?;
    claim(&args.out, &scenarios, args.timeline)?;
    let interrupt = Interrupt::catch()?;
    let steps = steps_of(&scenarios);
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
        let (point, step) = &steps[n];
        let outcome = phase::simulate(&scenarios[*point], step, args.timeline)?;
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
/// Directories of different sweeps or of another version, steps that are missing, unreadable files.
pub fn merge(args: &MergeArgs) -> anyhow::Result<String> {
    let mut first: Option<Header> = None;
    for dir in &args.dirs {
        let found = header(dir)?;
        if first.as_ref().is_some_and(|first| *first != found) {
            let dir = dir.display();
            return Err(Unusable(format!("{dir} holds another sweep than the first one")).into());
        }
        first = Some(found);
    }
    let scenarios = first.context("no directory")?.points;
    let steps = steps_of(&scenarios);
    let count = steps.len();
    let mut phases: Vec<Vec<Phase>> = vec![Vec::new(); scenarios.len()];
    let mut missing = Vec::new();
    for (n, (point, _)) in steps.iter().enumerate() {
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
        phases[*point].push(part.phase);
    }
    if let Some(first) = missing.first() {
        return Err(Unusable(format!(
            "{} of {count} steps are missing, the first is {first}; run vlab sweep again",
            missing.len()
        ))
        .into());
    }
    drop(steps);
    let points = scenarios.len();
    for (n, (scenario, phases)) in scenarios.into_iter().zip(phases).enumerate() {
        let result = RunResult {
            format: FORMAT,
            backend: "sim".to_owned(),
            environment: super::environment(),
            phases,
            warnings: super::warnings(&scenario)?,
            lab: None,
            scenario,
        };
        result.save(&points::path(&args.json, n, points))?;
    }
    let first = points::path(&args.json, 0, points);
    let and = match points {
        1 => String::new(),
        _ => format!(" and {} more, one for each point", points - 1),
    };
    Ok(format!("{count} steps in {}{and}\n", first.display()))
}

#[cfg(test)]
mod tests {
    use experiment::scenario::Known;

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
            timeline: Ns::from_ms(20),
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
        let (whole, _) = super::super::simulate_with(&scenario, first.timeline).unwrap();
        assert!(whole.phases.iter().any(|phase| phase.timeline.is_some()));
        assert_eq!(merged.phases, whole.phases);
        // Nor one with other timelines.
        let longer = SweepArgs {
            timeline: Ns::from_ms(30),
            ..first.clone()
        };
        let error = sweep(&longer).unwrap_err().to_string();
        assert!(error.contains("another sweep"), "{error}");
        // Another scenario is not mixed in.
        fs::write(
            dir.path().join("s.toml"),
            text.replace("rounds = 1", "rounds = 2"),
        )
        .unwrap();
        let error = sweep(&first).unwrap_err().to_string();
        assert!(error.contains("another sweep"), "{error}");
    }

    /// A file with a `[sweep]`: a result for each point, in any number of shards, the
    /// same as `vlab sim` gives, and each says which point it is.
    #[test]
    fn points_are_swept_sharded_and_merged_to_a_result_each() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../../../../scenarios/check-freezer.toml");
        let text = text
            .replace("rounds = 8", "rounds = 1")
            .replace("window = \"4 s\"", "window = \"100 ms\"")
            .replace("warmup = \"1 s\"", "warmup = \"10 ms\"");
        let text =
            format!("{text}\n[sweep]\n\"sim.seed\" = [5, 6]\n\"sharing.slice\" = [\"3 ms\"]\n");
        fs::write(dir.path().join("s.toml"), &text).unwrap();
        for shard in ["1/2", "2/2"] {
            sweep(&args(dir.path(), "a", shard)).unwrap();
        }
        let json = dir.path().join("r.json");
        let line = merge(&MergeArgs {
            dirs: vec![dir.path().join("a")],
            json: json.clone(),
        });
        assert!(line.unwrap().contains("r-1.json and 1 more"));
        let scenarios = Scenario::parse_points(&text, "s.toml", &Known::default()).unwrap();
        for (n, scenario) in scenarios.iter().enumerate() {
            let merged = RunResult::load(&points::path(&json, n, 2)).unwrap();
            assert_eq!(
                merged.scenario.point,
                format!("sharing.slice = 3 ms, sim.seed = {}", 5 + n)
            );
            let length = Ns::from_ms(20);
            let (whole, _) = super::super::simulate_with(scenario, length).unwrap();
            assert_eq!(merged, whole);
        }
    }
}
