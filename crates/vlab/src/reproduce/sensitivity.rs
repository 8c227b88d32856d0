// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much each open parameter matters: it alone is halved and doubled, or set to
//! the other values that parameters.toml names where that would mean nothing.
//!
//! Only the experiments that have read a parameter can change with it, so only those
//! are simulated again; which they are is found out, not written down.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use anyhow::Context;
use experiment::reproduction;
use experiment::reproduction::Tally;
use experiment::reproduction::figure;
use experiment::stats::quantile;
use rayon::prelude::*;

use super::Experiment;
use super::effort_of;
use super::outcome::Outcome;
use super::outcome::Published;
use super::outcome::judged;
use super::parameters::Parameters;
use super::simulate;
use crate::run::Unusable;

/// A row has moved if it is so far from what it was.
const MOVED: f64 = 0.01;

/// An experiment as the parameters are, and what it has read of them.
struct Base {
    experiment: &'static Experiment,
    outcome: Outcome,
    read: Vec<String>,
}

/// One more value for one parameter, and the experiments that it concerns.
#[derive(Debug)]
struct Variation {
    name: String,
    value: f64,
    concerned: Vec<usize>,
}

/// Varies the parameters whose names begin with `prefix`; a table in Markdown.
///
/// # Errors
/// There is no such parameter, or a simulation cannot be built.
pub(super) fn table(
    chosen: &[&'static Experiment],
    parameters: &Parameters,
    prefix: &str,
    quick: bool,
    published: &Published,
) -> anyhow::Result<String> {
    let began = Instant::now();
    let base: Vec<Base> = chosen
        .par_iter()
        .map(|experiment| {
            let own = parameters.watched();
            let outcome = simulate(experiment, &own, effort_of(experiment, quick))?;
            Ok(Base {
                experiment,
                outcome,
                read: own.read(),
            })
        })
        .collect::<anyhow::Result<_>>()?;
    let variations = variations(&base, parameters, prefix)?;
    let jobs: Vec<(usize, usize)> = variations
        .iter()
        .enumerate()
        .flat_map(|(n, v)| v.concerned.iter().map(move |e| (n, *e)))
        .collect();
    tracing::info!(
        variations = variations.len(),
        simulations = jobs.len(),
        base = ?began.elapsed(),
        "varied one by one"
    );
    let outcomes: BTreeMap<(usize, usize), Outcome> = jobs
        .into_par_iter()
        .map(|(n, e)| {
            let Variation { name, value, .. } = &variations[n];
            let changed = parameters.with(name, *value);
            let experiment = base[e].experiment;
            let outcome = simulate(experiment, &changed, effort_of(experiment, quick))
                .with_context(|| format!("{name} = {value}"))?;
            tracing::info!(name, value, experiment = experiment.name, took = ?began.elapsed(), "simulated");
            Ok(((n, e), outcome))
        })
        .collect::<anyhow::Result<_>>()?;
    let mut text = String::from(HEAD);
    let all = |outcome: &dyn Fn(usize) -> Outcome| {
        let mut tally = Tally::default();
        for (e, base) in base.iter().enumerate() {
            tally.count(&beside(base.experiment, &outcome(e), published, parameters));
        }
        tally
    };
    let before = all(&|e| base[e].outcome.clone());
    let _ = writeln!(
        text,
        "| as they are | | {} | {} | | | |",
        before.median().map_or("-".to_owned(), percent),
        before.shapes()
    );
    for (n, variation) in variations.iter().enumerate() {
        let changed = |e: usize| outcomes.get(&(n, e)).unwrap_or(&base[e].outcome).clone();
        let after = all(&changed);
        let moved = Moved::between(variation, &base, &changed, parameters, published);
        let _ = writeln!(
            text,
            "| `{}` | {} instead of {} | {} | {} | {} |",
            variation.name,
            variation.value,
            parameters.get(&variation.name)?,
            after.median().map_or("-".to_owned(), percent),
            after.shapes(),
            moved.cells(),
        );
    }
    Ok(text)
}

/// An outcome beside what was published.
fn beside(
    experiment: &Experiment,
    outcome: &Outcome,
    published: &Published,
    parameters: &Parameters,
) -> reproduction::Experiment {
    let effort = effort_of(experiment, true);
    judged(experiment, effort, outcome, &[], published, parameters)
}

const HEAD: &str = "\
| parameter | value | median error of rows that fixed nothing | shape checks | rows that move by more than 1 % | of them in the median | the rows that fixed it |
|---|---|---|---|---|---|---|
";

/// What is to be tried.
fn variations(
    base: &[Base],
    parameters: &Parameters,
    prefix: &str,
) -> anyhow::Result<Vec<Variation>> {
    let mut all = Vec::new();
    let mut known = false;
    for parameter in parameters.iter().filter(|p| p.name.starts_with(prefix)) {
        known = true;
        let concerned: Vec<usize> = (0..base.len())
            .filter(|e| base[*e].read.contains(&parameter.name))
            .collect();
        if concerned.is_empty() {
            continue;
        }
        all.extend(parameter.others().into_iter().map(|value| Variation {
            name: parameter.name.clone(),
            value,
            concerned: concerned.clone(),
        }));
    }
    if !known {
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        return Err(Unusable(format!(
            "--sensitivity {prefix}: no parameter begins with that; there are {}",
            names.join(", ")
        ))
        .into());
    }
    Ok(all)
}

/// How the rows of the concerned experiments move.
#[derive(Default)]
struct Moved {
    rows: usize,
    by: Vec<f64>,
    fixing: Vec<(String, f64, f64)>,
}

impl Moved {
    fn between(
        variation: &Variation,
        base: &[Base],
        changed: &dyn Fn(usize) -> Outcome,
        parameters: &Parameters,
        published: &Published,
    ) -> Self {
        let mut moved = Self::default();
        let fixed_by = parameters.fixed_by(&variation.name);
        for e in &variation.concerned {
            let of = base[*e].experiment;
            let experiment = of.name;
            let judge = |outcome: &Outcome| beside(of, outcome, published, parameters).rows;
            for (old, new) in judge(&base[*e].outcome).iter().zip(judge(&changed(*e))) {
                let change = new.simulated / old.simulated - 1.0;
                moved.rows += 1;
                if change.is_finite() && change.abs() > MOVED {
                    moved.by.push(change.abs());
                }
                if fixed_by.contains(&format!("{experiment}/{}", old.name)) {
                    let name = format!("{experiment}/{}", old.name);
                    moved.fixing.push((name, old.simulated, new.simulated));
                }
            }
        }
        moved
    }

    fn cells(&self) -> String {
        let median = quantile(&self.by, 0.5);
        let fixing: Vec<String> = self
            .fixing
            .iter()
            .map(|(name, old, new)| {
                // Markdown's own sign within a cell.
                let name = name.replace('|', "/");
                format!("{name}: {} → {}", figure(*old), figure(*new))
            })
            .collect();
        format!(
            "{} of {} | {} | {}",
            self.by.len(),
            self.rows,
            median.map_or("-".to_owned(), percent),
            if fixing.is_empty() {
                "none".to_owned()
            } else {
                fixing.join("; ")
            }
        )
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::experiments::EXPERIMENTS;
    use super::super::outcome::published;
    use super::*;

    fn one(name: &str) -> &'static Experiment {
        EXPERIMENTS.iter().find(|e| e.name == name).unwrap()
    }

    /// Of two experiments only the one that reads a parameter is simulated again, and
    /// what it shows then is what `--set` shows.
    #[test]
    fn only_what_reads_a_parameter_moves_with_it() {
        let parameters = Parameters::load(&[]).unwrap();
        let published = published().unwrap();
        let chosen = [one("vsmtio-smt"), one("table3")];
        let text = table(&chosen, &parameters, "smt.computing", true, &published).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let others = parameters.iter().find(|p| p.name == "smt.computing");
        assert_eq!(lines.len(), 1 + others.unwrap().others().len(), "{text}");
        let rows = simulate(chosen[0], &parameters, effort_of(chosen[0], true))
            .unwrap()
            .rows
            .len();
        for line in &lines[1..] {
            assert!(line.starts_with("| `smt.computing` |"), "{line}");
            assert!(line.contains(&format!(" of {rows} |")), "{line}");
        }
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        let moved = Moved {
            rows: 3,
            by: vec![0.3, 0.1],
            fixing: Vec::new(),
        };
        assert_eq!(moved.cells(), "2 of 3 | 20.0 % | none");
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names_that_there_are() {
        let parameters = Parameters::load(&[]).unwrap();
        let error = variations(&[], &parameters, "nothing").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("--sensitivity nothing") && error.contains("kvm.cache_us"));
    }
}
