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
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    input: Vec<Input>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    /// As `experiment/row`.
    rows: Vec<String>,
    /// How they went in: for who reads the file.
    #[serde(rename = "why")]
    _why: String,
}

pub(super) fn published() -> anyhow::Result<Published> {
    let inputs: Inputs = toml::from_str(include_str!("inputs.toml")).context("inputs.toml")?;
    Ok(Published {
        figures: toml::from_str(include_str!("published.toml")).context("published.toml")?,
        inputs: inputs.input.into_iter().flat_map(|one| one.rows).collect(),
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
            figures.and_then(|figures| figures.get(name)).copied(),
            parameters.used(&full(name)),
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
