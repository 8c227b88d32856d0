// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment gave, beside what was published.

use std::collections::BTreeMap;

use anyhow::Context;
use experiment::reproduction;
use experiment::reproduction::Row;
use experiment::reproduction::Shape;

use super::experiments::Experiment;
use super::mix::Effort;
use super::parameters::Parameters;

/// Published figures: experiment, row, value.
pub(super) type Published = BTreeMap<String, BTreeMap<String, f64>>;

pub(super) fn published() -> anyhow::Result<Published> {
    toml::from_str(include_str!("published.toml")).context("published.toml")
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
    effort: Effort,
    outcome: &Outcome,
    by_seed: &[Outcome],
    published: &Published,
    parameters: &Parameters,
) -> reproduction::Experiment {
    let figures = published.get(experiment.name);
    let row = |(name, simulated): &(String, f64)| Row {
        by_seed: by_seed
            .iter()
            .filter_map(|one| one.value(name))
            .filter(|value| value.is_finite())
            .collect(),
        ..Row::new(
            name,
            *simulated,
            figures.and_then(|figures| figures.get(name)).copied(),
            parameters.used(&format!("{}/{name}", experiment.name)),
        )
    };
    let missing = |name: &&String| outcome.value(name).is_none();
    reproduction::Experiment {
        name: experiment.name.to_owned(),
        title: experiment.title.to_owned(),
        warmup: effort.warmup,
        window: effort.window,
        seeds: effort.seeds,
        rows: outcome.rows.iter().map(row).collect(),
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
            })
            .collect(),
    }
}
