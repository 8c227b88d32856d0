// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much each open parameter matters: it alone is halved and doubled, or set to
//! the other values that parameters.toml names where that would mean nothing.
//!
//! Only the experiments that have read a parameter can change with it, and of them only
//! the runs whose machine or policy is another then; which they are is found out, not
//! written down. Other seeds say what chance does.

mod document;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context;
use experiment::reproduction;
use experiment::reproduction::Row;
use experiment::stats::quantile;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use rayon::prelude::*;
use units::Ns;

pub use self::document::Fixing;
pub use self::document::Sensitivity;
pub use self::document::Total;
pub use self::document::Turned;
pub use self::document::Variation;
pub use self::document::Varied;
use super::Experiment;
use super::effort_of;
use super::fit::fitted;
use super::fit::loss;
use super::mix::Effort;
use super::mix::Memo;
use super::outcome::Outcome;
use super::outcome::Published;
use super::outcome::judged;
use super::parameters::Parameter;
use super::parameters::Parameters;
use super::simulate;
use crate::run::Unusable;

/// A row has not moved if it is no further from what it was.
const MOVED: f64 = 0.01;

/// A row holds a parameter if it loses so much more with another value.
const HELD: f64 = 0.02;

/// So many rows that hold a parameter are named.
const NAMED: usize = 2;

/// How often all is simulated with other seeds.
const SEEDS: u64 = 2;

/// With `--quick`: every experiment is simulated many times, so half of its window has to do.
const WINDOW: Ns = Ns::from_ms(600);
const WARMUP: Ns = Ns::from_ms(300);
/// Of 13.4 and 13.5: loops of 100 ms that change a tenth at a time.
const LOOPS: Ns = Ns::from_secs(1);

fn effort(experiment: &Experiment, quick: bool) -> Effort<'static> {
    let mut effort = effort_of(experiment, quick);
    if quick {
        effort.window = WINDOW;
        effort.warmup = if effort.warmup < LOOPS { WARMUP } else { LOOPS };
    }
    effort
}

/// What is to be varied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) chosen: &'a [&'static Experiment],
    /// Names of parameters begin so.
    pub(super) prefix: &'a str,
    pub(super) quick: bool,
}

/// The experiments beside what was published.
type All = Vec<reproduction::Experiment>;

/// What comes out otherwise, by experiment.
type Changed<'a> = BTreeMap<usize, &'a reproduction::Experiment>;

/// All experiments as the parameters are.
struct Base {
    all: All,
    /// What each has asked for.
    read: Vec<Vec<String>>,
    /// With other seeds.
    seeds: Vec<All>,
}

/// One simulation of an experiment with another value of a parameter.
struct Job {
    name: String,
    value: f64,
    experiment: usize,
}

struct Lab<'a> {
    wanted: &'a Wanted<'a>,
    parameters: &'a Parameters,
    published: &'a Published,
    memo: &'a Memo,
}

/// Varies the parameters one by one.
///
/// # Errors
/// There is no such parameter, or a simulation cannot be built.
pub(super) fn vary(
    wanted: &Wanted<'_>,
    parameters: &Parameters,
    published: &Published,
    memo: &Memo,
) -> anyhow::Result<Sensitivity> {
    let began = Instant::now();
    let names = matching(parameters, wanted.prefix)?;
    let lab = Lab {
        wanted,
        parameters,
        published,
        memo,
    };
    let base = lab.base()?;
    let jobs = jobs(&names, &base.read);
    tracing::info!(jobs = jobs.len(), base = ?began.elapsed(), "to be varied");
    let bar = ProgressBar::new(jobs.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} experiments, {eta} left")
    {
        bar.set_style(style);
    }
    let done = jobs.into_par_iter().map(|job| {
        let changed = parameters.with(&job.name, job.value);
        let told = || format!("{} = {}", job.name, job.value);
        let judged = lab.judged(job.experiment, &changed, 0).with_context(told)?;
        bar.inc(1);
        Ok((job, judged))
    });
    let done: Vec<(Job, reproduction::Experiment)> = done.collect::<anyhow::Result<_>>()?;
    bar.finish_and_clear();
    tracing::info!(runs = memo.made(), took = ?began.elapsed(), "varied");
    let by_chance = by_chance(&base);
    let varied = names.iter().map(|parameter| {
        let read_by = base.all.iter().zip(&base.read);
        let read_by = read_by.filter(|(_, read)| read.contains(&parameter.name));
        let changes = parameter.others().into_iter().map(|value| {
            let of = done.iter().filter(|(job, _)| {
                job.name == parameter.name && job.value.total_cmp(&value).is_eq()
            });
            let changed: Changed = of.map(|(job, judged)| (job.experiment, judged)).collect();
            (value, changed)
        });
        let changes: Vec<(f64, Changed<'_>)> =
            changes.filter(|(_, changed)| !changed.is_empty()).collect();
        let held_by = held_by(&base, &changes);
        let variations = changes
            .iter()
            .map(|(value, changed)| variation(*value, &held_by, &base, changed, &by_chance));
        Varied {
            name: parameter.name.clone(),
            value: parameter.value,
            read_by: read_by.map(|(e, _)| e.name.clone()).collect(),
            variations: variations.collect(),
            held_by,
        }
    });
    Ok(Sensitivity {
        kind: document::KIND.to_owned(),
        format: document::FORMAT,
        vlab: env!("CARGO_PKG_VERSION").to_owned(),
        quick: wanted.quick,
        base: Total::of(&base.all),
        seeds: base.seeds.iter().map(|all| Total::of(all)).collect(),
        by_chance: by_chance.clone(),
        parameters: varied.collect(),
    })
}

/// The parameters whose names begin so.
fn matching<'a>(parameters: &'a Parameters, prefix: &str) -> anyhow::Result<Vec<&'a Parameter>> {
    let all = parameters.iter();
    let found: Vec<&Parameter> = all.filter(|p| p.name.starts_with(prefix)).collect();
    if found.is_empty() {
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        return Err(Unusable(format!(
            "--sensitivity {prefix}: no parameter begins with that; there are {}",
            names.join(", ")
        ))
        .into());
    }
    Ok(found)
}

/// What is to be tried: every other value, in the experiments that have read it.
fn jobs(parameters: &[&Parameter], read: &[Vec<String>]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for parameter in parameters {
        for value in parameter.others() {
            let concerned = (0..read.len()).filter(|e| read[*e].contains(&parameter.name));
            jobs.extend(concerned.map(|experiment| Job {
                name: parameter.name.clone(),
                value,
                experiment,
            }));
        }
    }
    jobs
}

impl Lab<'_> {
    /// An experiment with these parameters, beside what was published; `later` tells
    /// other seeds.
    fn judged(
        &self,
        experiment: usize,
        parameters: &Parameters,
        later: u64,
    ) -> anyhow::Result<reproduction::Experiment> {
        let experiment = self.wanted.chosen[experiment];
        let usual = effort(experiment, self.wanted.quick);
        let effort = Effort {
            first: usual.first + later * usual.seeds,
            memo: Some(self.memo),
            ..usual
        };
        let outcome: Outcome = simulate(experiment, parameters, effort)?;
        let published = self.published;
        Ok(judged(
            experiment,
            effort,
            &outcome,
            &[],
            published,
            parameters,
        ))
    }

    fn base(&self) -> anyhow::Result<Base> {
        let count = self.wanted.chosen.len();
        let one = |n: usize| {
            let own = self.parameters.watched();
            let later = (n / count) as u64;
            Ok((self.judged(n % count, &own, later)?, own.read()))
        };
        let rounds = 0..count * (1 + SEEDS as usize);
        let mut all: Vec<(reproduction::Experiment, Vec<String>)> = rounds
            .into_par_iter()
            .map(one)
            .collect::<anyhow::Result<_>>()?;
        let others = all.split_off(count);
        let seeds = others.chunks(count);
        let seeds = seeds.map(|all| all.iter().map(|(judged, _)| judged.clone()).collect());
        let seeds = seeds.collect();
        let (all, read) = all.into_iter().unzip();
        Ok(Base { all, read, seeds })
    }
}

/// The rows that hold a parameter where it is: those fitted to that lose most with other
/// values, most first.
fn held_by(base: &Base, changes: &[(f64, Changed<'_>)]) -> Vec<String> {
    let mut most: BTreeMap<String, f64> = BTreeMap::new();
    for (n, after) in changes.iter().flat_map(|(_, changed)| changed) {
        let before = &base.all[*n];
        for old in before.rows.iter().filter(|row| fitted(row)) {
            let new = after.rows.iter().find(|row| row.name == old.name);
            let more = new.map_or(1.0, loss) - loss(old);
            let most = most
                .entry(format!("{}/{}", before.name, old.name))
                .or_default();
            *most = most.max(more);
        }
    }
    let mut most: Vec<(String, f64)> = most.into_iter().filter(|(_, m)| *m > HELD).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    most.into_iter().take(NAMED).map(|(row, _)| row).collect()
}

/// How far a figure is from what it was, relative.
fn change(old: f64, new: f64) -> f64 {
    (new / old - 1.0).abs()
}

/// The checks that differ from seed to seed.
fn by_chance(base: &Base) -> Vec<String> {
    let mut turning = Vec::new();
    for (n, experiment) in base.all.iter().enumerate() {
        let seeds = || base.seeds.iter().map(move |all| &all[n].shapes);
        for shape in &experiment.shapes {
            let same =
                |of: &reproduction::Shape| of.claim != shape.claim || of.holds == shape.holds;
            if !seeds().flatten().all(same) {
                turning.push(format!("{}: {}", experiment.name, shape.claim));
            }
        }
    }
    turning
}

fn variation(
    value: f64,
    held_by: &[String],
    base: &Base,
    changed: &Changed<'_>,
    by_chance: &[String],
) -> Variation {
    let all = base.all.iter().enumerate();
    let all = all.map(|(n, before)| (*changed.get(&n).unwrap_or(&before)).clone());
    let all: All = all.collect();
    let mut found = Variation {
        value,
        total: Total::of(&all),
        rows: 0,
        moved: 0,
        by: None,
        turned: Vec::new(),
        fixing: Vec::new(),
    };
    let mut by = Vec::new();
    for (n, after) in changed {
        let before = &base.all[*n];
        for old in &before.rows {
            // What depends on how many there are may have other rows then.
            let named = |row: &&Row| row.name == old.name;
            let Some(new) = after.rows.iter().find(named) else {
                continue;
            };
            found.rows += 1;
            let seeds = base.seeds.iter().filter_map(|all| {
                let row = all[*n].rows.iter().find(named)?;
                Some(change(old.simulated, row.simulated))
            });
            let chance = seeds.fold(MOVED, f64::max);
            let moved = change(old.simulated, new.simulated);
            if moved.is_finite() && moved > chance {
                by.push(moved);
            }
            let row = format!("{}/{}", before.name, old.name);
            if held_by.contains(&row) {
                let finite = |value: f64| Some(value).filter(|value| value.is_finite());
                found.fixing.push(Fixing {
                    row,
                    published: old.published,
                    before: finite(old.simulated),
                    after: finite(new.simulated),
                });
            }
        }
        for (old, new) in before.shapes.iter().zip(&after.shapes) {
            let check = format!("{}: {}", before.name, old.claim);
            if old.holds != new.holds && !by_chance.contains(&check) {
                found.turned.push(Turned {
                    check,
                    holds: new.holds,
                });
            }
        }
    }
    found.moved = by.len();
    found.by = quantile(&by, 0.5);
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::experiments::EXPERIMENTS;
    use super::super::outcome::published;
    use super::*;

    fn one(name: &str) -> &'static Experiment {
        EXPERIMENTS.iter().find(|e| e.name == name).unwrap()
    }

    fn of(chosen: &[&'static Experiment], prefix: &str, memo: &Memo) -> Sensitivity {
        let parameters = Parameters::load(&[]).unwrap();
        let wanted = Wanted {
            chosen,
            prefix,
            quick: true,
        };
        vary(&wanted, &parameters, &published().unwrap(), memo).unwrap()
    }

    /// Of two experiments only the one that reads a parameter is simulated again, and
    /// its rows are those that `--set` gives.
    #[test]
    fn only_what_reads_a_parameter_moves_with_it() {
        let chosen = [one("vsmtio-smt"), one("ische")];
        let memo = Memo::default();
        let found = of(&chosen, "smt.computing", &memo);
        let [computing] = &found.parameters[..] else {
            panic!("{found:?}");
        };
        assert_eq!(computing.read_by, ["vsmtio-smt"]);
        let values: Vec<f64> = computing.variations.iter().map(|v| v.value).collect();
        assert_eq!(values, [0.4, 0.5, 0.6]);
        for variation in &computing.variations {
            assert_eq!((variation.rows, variation.moved), (4, 1), "{variation:?}");
        }
        let set = Parameters::load(&["smt.computing=0.4".to_owned()]).unwrap();
        let rows = simulate(chosen[0], &set, effort(chosen[0], true))
            .unwrap()
            .rows;
        let computes = rows.iter().find(|(name, _)| name == "sibling computes, %");
        let before = Parameters::load(&[]).unwrap();
        let before = simulate(chosen[0], &before, effort(chosen[0], true)).unwrap();
        let of = before
            .rows
            .iter()
            .find(|(name, _)| name == "sibling computes, %");
        let by = change(of.unwrap().1, computes.unwrap().1);
        assert!(
            (by - computing.variations[0].by.unwrap()).abs() < 1e-9,
            "{by}"
        );
    }

    /// A parameter of one program leaves the runs of the others as they are, and what is
    /// remembered gives the same document.
    #[test]
    fn runs_that_a_parameter_leaves_as_they_are_are_made_once() {
        let chosen = [one("jupiter-heterogeneous")];
        let memo = Memo::default();
        let base = of(&chosen, "jupiter.volrend_spread", &memo);
        let made = memo.made();
        let first = of(&chosen, "jupiter.pbzip2_hold_us", &memo);
        // Alone and under four systems, at two values.
        assert_eq!(memo.made() - made, 10, "{made}");
        assert_eq!(of(&chosen, "jupiter.pbzip2_hold_us", &memo), first);
        assert_eq!(memo.made() - made, 10);
        assert_eq!(base.base, first.base);
    }

    /// Moved by more than 1 % and by more than the seeds move it; a check that the seeds
    /// turn is nobody's.
    #[test]
    fn chance_moves_no_row_and_turns_no_check() {
        let row = |name: &str, value: f64| Row::new(name, value, Some(2.0), false);
        let shape = |claim: &str, holds| reproduction::Shape {
            claim: claim.to_owned(),
            holds,
            fixed: false,
        };
        let experiment = |rows: [f64; 3], holds: [bool; 2]| reproduction::Experiment {
            name: "figx".to_owned(),
            title: String::new(),
            warmup: Ns::ZERO,
            window: Ns::ZERO,
            seeds: 1,
            rows: vec![row("a", rows[0]), row("b", rows[1]), row("c", rows[2])],
            not_simulated: Vec::new(),
            shapes: vec![shape("x", holds[0]), shape("y", holds[1])],
            orders: Vec::new(),
        };
        let base = Base {
            all: vec![experiment([1.0, 1.0, 1.0], [true, true])],
            read: Vec::new(),
            seeds: vec![vec![experiment([1.0, 1.2, 1.0], [false, true])]],
        };
        let chance = by_chance(&base);
        assert_eq!(chance, ["figx: x"]);
        let after = experiment([1.3, 1.1, 1.005], [false, false]);
        let changed = BTreeMap::from([(0, &after)]);
        let held_by = ["figx/c".to_owned()];
        let found = variation(4.0, &held_by, &base, &changed, &chance);
        assert_eq!((found.rows, found.moved), (3, 1));
        assert!((found.by.unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(found.turned.len(), 1);
        assert_eq!(
            (&*found.turned[0].check, found.turned[0].holds),
            ("figx: y", false)
        );
        assert_eq!(found.fixing[0].after, Some(1.005));
    }

    /// The row that loses most when the value is another one is named first, and one that
    /// is kept out or gains by it is not.
    #[test]
    fn a_parameter_is_held_by_the_rows_that_lose_with_another_value() {
        let row = |name: &str, value, fitted| Row::new(name, value, Some(1.0), fitted);
        let experiment = |values: [f64; 4]| reproduction::Experiment {
            name: "figx".to_owned(),
            title: String::new(),
            warmup: Ns::ZERO,
            window: Ns::ZERO,
            seeds: 1,
            rows: vec![
                row("a", values[0], true),
                row("b", values[1], true),
                row("c", values[2], true),
                row("out", values[3], false),
            ],
            not_simulated: Vec::new(),
            shapes: Vec::new(),
            orders: Vec::new(),
        };
        let base = Base {
            all: vec![experiment([1.0, 1.0, 2.0, 1.0])],
            read: Vec::new(),
            seeds: Vec::new(),
        };
        let (less, more) = (
            experiment([1.1, 1.0, 1.0, 9.0]),
            experiment([1.0, 1.5, 1.0, 9.0]),
        );
        let changes = [
            (0.5, BTreeMap::from([(0, &less)])),
            (2.0, BTreeMap::from([(0, &more)])),
        ];
        assert_eq!(held_by(&base, &changes), ["figx/b", "figx/a"]);
    }

    /// docs/results has every parameter, as it is now, and docs/reproduction.md a line for
    /// each: `vlab reproduce --quick --sensitivity --json docs/results/sensitivity.json`
    /// after a change of parameters.toml, its output in sensitivity.txt beside that.
    #[test]
    fn what_is_kept_is_of_the_parameters_as_they_are() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let kept = Sensitivity::load(&docs.join("results/sensitivity.json")).unwrap();
        let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
        assert_eq!(kept.text(), read("results/sensitivity.txt"));
        let doc = read("reproduction.md");
        let parameters = Parameters::load(&[]).unwrap();
        assert_eq!(kept.parameters.len(), parameters.iter().count());
        for (parameter, varied) in parameters.iter().zip(&kept.parameters) {
            let name = &parameter.name;
            assert_eq!(name, &varied.name);
            assert!((parameter.value - varied.value).abs() < 1e-9, "{name}");
            let values: Vec<f64> = varied.variations.iter().map(|v| v.value).collect();
            let others = match varied.read_by.is_empty() {
                true => Vec::new(),
                false => parameter.others(),
            };
            assert_eq!(values, others, "{name}");
            assert!(doc.contains(&varied.line()), "no line for {name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names_that_there_are() {
        let parameters = Parameters::load(&[]).unwrap();
        let error = matching(&parameters, "nothing").unwrap_err().to_string();
        assert!(error.contains("--sensitivity nothing") && error.contains("kvm.cache_us"));
    }
}
