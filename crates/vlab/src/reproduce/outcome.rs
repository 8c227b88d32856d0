// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment gave, beside what was published.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use anyhow::Context;
use experiment::reproduction;
use experiment::reproduction::Row;
use experiment::reproduction::Shape;
use experiment::reproduction::orders;
use serde::Deserialize;

use super::experiments::Experiment;
use super::mix::Effort;
use super::parameters::Parameters;

/// What was published.
#[derive(Debug)]
pub(super) struct Published {
    /// Figures: experiment, row, value.
    pub(super) figures: BTreeMap<String, BTreeMap<String, f64>>,
    /// Rows that went into the simulation, or follow from what did.
    pub(super) inputs: BTreeSet<String>,
    /// Rows that `--fit` does not see: what they say about the simulator is worth more.
    /// A rule and no list, so that nobody can choose them; and those that were found later.
    pub(super) kept_out: BTreeSet<String>,
}

/// Of so many rows that may be fitted to, in the order of their names, one is kept out.
const KEPT_OUT: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    input: Vec<Listed>,
    noted: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// As `experiment/row`.
    rows: Vec<String>,
    /// Why they are in the list: for who reads the file.
    #[serde(rename = "why")]
    _why: String,
}

pub(super) fn published() -> anyhow::Result<Published> {
    let lists: Lists = toml::from_str(include_str!("inputs.toml")).context("inputs.toml")?;
    let rows = |list: Vec<Listed>| list.into_iter().flat_map(|one| one.rows).collect();
    let inputs: BTreeSet<String> = rows(lists.input);
    let noted: BTreeSet<String> = rows(lists.noted);
    let figures: BTreeMap<String, BTreeMap<String, f64>> =
        toml::from_str(include_str!("published.toml")).context("published.toml")?;
    let all = figures.iter().flat_map(|(experiment, rows)| {
        let names = rows.keys();
        names.map(move |name| format!("{experiment}/{name}"))
    });
    let may = all.filter(|row| !inputs.contains(row) && !noted.contains(row));
    let by_rule = may.skip(KEPT_OUT - 1).step_by(KEPT_OUT);
    let kept_out = by_rule.chain(noted.clone()).collect();
    Ok(Published {
        figures,
        inputs,
        kept_out,
    })
}

/// What an experiment gave: rows by name, and statements that hold or do not.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) rows: Vec<(String, f64)>,
    pub(super) shapes: Vec<(String, bool)>,
}

impl Outcome {
    pub(super) fn row(&mut self, name: impl Into<String>, value: f64) {
        self.rows.push((name.into(), value));
    }

    pub(super) fn shape(&mut self, claim: &str, holds: bool) {
        self.shapes.push((claim.to_owned(), holds));
    }

    fn value(&self, name: &str) -> Option<f64> {
        let mut rows = self.rows.iter();
        Some(rows.find(|(row, _)| row == name)?.1)
    }
}

/// An outcome beside what was published, as it is kept and shown. `by_seed` has the
/// outcome of each seed by itself, or nothing.
pub(super) fn judged(
    experiment: &Experiment,
    effort: Effort<'_>,
    outcome: &Outcome,
    by_seed: &[Outcome],
    published: &Published,
    parameters: &Parameters,
) -> reproduction::Experiment {
    let figures = published.figures.get(experiment.name);
    let full = |name: &str| format!("{}/{name}", experiment.name);
    let known = |name: &String| figures.and_then(|figures| figures.get(name)).copied();
    let row = |(name, simulated): &(String, f64)| Row {
        by_seed: by_seed
            .iter()
            .filter_map(|one| one.value(name))
            .filter(|value| value.is_finite())
            .collect(),
        input: published.inputs.contains(&full(name)),
        ..Row::new(
            name,
            *simulated,
            known(name),
            known(name).is_some()
                && (parameters.used(&full(name)) || !published.kept_out.contains(&full(name))),
        )
    };
    let rows: Vec<Row> = outcome.rows.iter().map(row).collect();
    let missing = |name: &&String| outcome.value(name).is_none();
    reproduction::Experiment {
        name: experiment.name.to_owned(),
        title: experiment.title.to_owned(),
        warmup: effort.warmup,
        window: effort.window,
        seeds: effort.seeds,
        orders: orders(&rows),
        rows,
        not_simulated: figures
            .into_iter()
            .flat_map(BTreeMap::keys)
            .filter(missing)
            .cloned()
            .collect(),
        shapes: outcome
            .shapes
            .iter()
            .map(|(claim, holds)| Shape {
                claim: claim.clone(),
                holds: *holds,
                fixed: parameters.used(&full(claim)),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fourth of the rows that may be fitted to, from all papers.
    #[test]
    fn a_quarter_of_the_rows_is_kept_out_of_the_fit() {
        let published = published().unwrap();
        let all = published.figures.values().map(BTreeMap::len).sum::<usize>();
        let lists: Lists = toml::from_str(include_str!("inputs.toml")).unwrap();
        let noted: usize = lists.noted.iter().map(|one| one.rows.len()).sum();
        let may = all - published.inputs.len() - noted;
        assert_eq!(published.kept_out.len(), may / KEPT_OUT + noted);
        assert!(published.kept_out.is_disjoint(&published.inputs));
        for paper in ["fig", "table", "isacs", "ische", "vsmtio", "jupiter"] {
            let of = |row: &&String| row.starts_with(paper);
            assert!(published.kept_out.iter().any(|row| of(&row)), "{paper}");
        }
    }
}
