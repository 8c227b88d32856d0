// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment gave, beside what was published.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;

use super::experiments::Experiment;
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
}

/// A row beside what was published.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) name: String,
    pub(super) simulated: f64,
    published: Option<f64>,
    /// Relative; none where nothing, or zero, was published.
    error: Option<f64>,
    /// It fixed a parameter.
    used: bool,
}

/// The rows of an outcome beside what was published.
pub(super) fn judged(
    experiment: &str,
    outcome: &Outcome,
    published: &Published,
    parameters: &Parameters,
) -> Vec<Judged> {
    let figures = published.get(experiment);
    let judge = |(name, simulated): &(String, f64)| {
        let published = figures.and_then(|figures| figures.get(name)).copied();
        Judged {
            name: name.clone(),
            simulated: *simulated,
            published,
            error: published
                .filter(|value| *value != 0.0)
                .map(|value| simulated / value - 1.0),
            used: parameters.used(&format!("{experiment}/{name}")),
        }
    };
    outcome.rows.iter().map(judge).collect()
}

/// Errors and checks over several experiments.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    predicted: Vec<f64>,
    calibrated: Vec<f64>,
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Counts an experiment's outcome; returns its rows.
    pub(super) fn count(
        &mut self,
        experiment: &str,
        outcome: &Outcome,
        published: &Published,
        parameters: &Parameters,
    ) -> Vec<Judged> {
        let rows = judged(experiment, outcome, published, parameters);
        for row in &rows {
            let errors = if row.used {
                &mut self.calibrated
            } else {
                &mut self.predicted
            };
            errors.extend(row.error.map(f64::abs));
        }
        for (_, holds) in &outcome.shapes {
            self.passed += usize::from(*holds);
            self.failed += usize::from(!*holds);
        }
        rows
    }

    /// An experiment's outcome as text, counted.
    pub(super) fn table(
        &mut self,
        experiment: &Experiment,
        outcome: &Outcome,
        published: &Published,
        parameters: &Parameters,
    ) -> String {
        let mut text = format!("\n{}: {}\n", experiment.name, experiment.title);
        let _ = writeln!(
            text,
            "{:<44} {:>10} {:>10} {:>9}",
            "", "published", "simulated", "error"
        );
        for row in self.count(experiment.name, outcome, published, parameters) {
            let shown = row.published.map_or("-".to_owned(), figure);
            let error = row.error;
            let error = error.map_or(String::new(), |e| format!("{:+.1} %", e * 100.0));
            let mark = if row.used { " *" } else { "" };
            let _ = writeln!(
                text,
                "{:<44} {shown:>10} {:>10} {error:>9}{mark}",
                row.name,
                figure(row.simulated)
            );
        }
        for name in published.get(experiment.name).into_iter().flatten() {
            if !outcome.rows.iter().any(|(row, _)| row == name.0) {
                let _ = writeln!(text, "{:<44} not simulated", name.0);
            }
        }
        for (claim, holds) in &outcome.shapes {
            let word = if *holds { "pass" } else { "FAIL" };
            let _ = writeln!(text, "  {word}  {claim}");
        }
        text
    }

    /// Median error of the rows that fixed nothing.
    pub(super) fn median(&self) -> Option<f64> {
        let mut errors = self.predicted.clone();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied()
    }

    /// How many of the shape checks pass.
    pub(super) fn shapes(&self) -> String {
        format!("{} of {}", self.passed, self.passed + self.failed)
    }

    /// Medians and counts.
    pub(super) fn summary(mut self) -> String {
        let mut text = String::from("\n");
        let mut line = |what: &str, errors: &mut Vec<f64>| {
            errors.sort_by(f64::total_cmp);
            if let Some(median) = errors.get(errors.len() / 2) {
                let within = errors.iter().filter(|e| **e <= 0.1).count();
                let _ = writeln!(
                    text,
                    "{what}: median error {:.1} %, {within} of {} rows within 10 %",
                    median * 100.0,
                    errors.len()
                );
            }
        };
        line("rows that fixed no parameter", &mut self.predicted);
        line("rows that fixed a parameter (*)", &mut self.calibrated);
        let shapes = format!("{} of {}", self.passed, self.passed + self.failed);
        let _ = writeln!(text, "shape checks (13.6): {shapes} pass");
        text
    }
}

/// A figure with as many digits as are worth reading.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
