// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment gave, beside what was published.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;

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

/// Errors and checks over several experiments.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    predicted: Vec<f64>,
    calibrated: Vec<f64>,
    passed: usize,
    failed: usize,
}

impl Tally {
    /// An experiment's outcome as text, counted.
    pub(super) fn table(
        &mut self,
        experiment: &str,
        title: &str,
        outcome: &Outcome,
        published: &Published,
        parameters: &Parameters,
    ) -> String {
        let none = BTreeMap::new();
        let figures = published.get(experiment).unwrap_or(&none);
        let mut text = format!("\n{experiment}: {title}\n");
        let _ = writeln!(
            text,
            "{:<44} {:>10} {:>10} {:>9}",
            "", "published", "simulated", "error"
        );
        for (name, simulated) in &outcome.rows {
            let value = figures.get(name);
            let error = value.filter(|v| **v != 0.0).map(|v| simulated / v - 1.0);
            let used = parameters.used(&format!("{experiment}/{name}"));
            if let Some(error) = error {
                let errors = if used {
                    &mut self.calibrated
                } else {
                    &mut self.predicted
                };
                errors.push(error.abs());
            }
            let shown = value.map_or("-".to_owned(), |v| figure(*v));
            let error = error.map_or(String::new(), |e| format!("{:+.1} %", e * 100.0));
            let mark = if used { " *" } else { "" };
            let _ = writeln!(
                text,
                "{name:<44} {shown:>10} {:>10} {error:>9}{mark}",
                figure(*simulated)
            );
        }
        for name in figures.keys() {
            if !outcome.rows.iter().any(|(row, _)| row == name) {
                let _ = writeln!(text, "{name:<44} not simulated");
            }
        }
        for (claim, holds) in &outcome.shapes {
            let word = if *holds { "pass" } else { "FAIL" };
            self.passed += usize::from(*holds);
            self.failed += usize::from(!*holds);
            let _ = writeln!(text, "  {word}  {claim}");
        }
        text
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
        let checks = self.passed + self.failed;
        let _ = writeln!(
            text,
            "shape checks (13.6): {} of {checks} pass",
            self.passed
        );
        text
    }
}

fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
