// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a reproduction is from what was published, in all.

use std::fmt::Write;

use super::Experiment;
use crate::stats::quantile;

/// A simulated figure that is no further than this from the published one counts as
/// near.
pub const NEAR: f64 = 0.1;

/// Errors and checks over several experiments.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    predicted: Vec<f64>,
    calibrated: Vec<f64>,
    inputs: usize,
    passed: usize,
    failed: usize,
    fixing: usize,
    in_order: usize,
    orders: usize,
}

impl Tally {
    /// Counts an experiment.
    pub fn count(&mut self, experiment: &Experiment) {
        for row in &experiment.rows {
            if row.input {
                self.inputs += usize::from(row.published.is_some());
                continue;
            }
            let errors = if row.fixed {
                &mut self.calibrated
            } else {
                &mut self.predicted
            };
            errors.extend(row.error.map(f64::abs));
        }
        for shape in &experiment.shapes {
            self.passed += usize::from(shape.holds);
            self.failed += usize::from(!shape.holds);
            self.fixing += usize::from(shape.fixed);
        }
        self.orders += experiment.orders.len();
        let as_published = experiment.orders.iter().filter(|order| order.holds());
        self.in_order += as_published.count();
    }

    /// Of all rows but inputs.
    #[must_use]
    pub fn all(&self) -> Option<Errors> {
        Errors::of(&[&self.predicted[..], &self.calibrated].concat())
    }

    /// Of the rows that no parameter has seen.
    #[must_use]
    pub fn predicted(&self) -> Option<Errors> {
        Errors::of(&self.predicted)
    }

    /// Of the rows that parameters are fitted to.
    #[must_use]
    pub fn calibrated(&self) -> Option<Errors> {
        Errors::of(&self.calibrated)
    }

    /// How many of the shape checks pass.
    #[must_use]
    pub fn shapes(&self) -> String {
        format!("{} of {}", self.passed, self.passed + self.failed)
    }

    /// Rows that count in neither median: what they show went in.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// In how many configurations, of those with two systems or more of which something
    /// was published, the systems come in the published order.
    #[must_use]
    pub fn orderings(&self) -> String {
        format!("{} of {}", self.in_order, self.orders)
    }

    pub(super) fn summary(&self) -> String {
        let mut text = String::from("\n");
        for (what, errors) in [
            ("published rows", self.all()),
            ("of them fitted to (*)", self.calibrated()),
            ("of them kept out of the fit", self.predicted()),
        ] {
            if let Some(errors) = errors {
                let _ = writeln!(text, "{what}: {}", errors.text());
            }
        }
        if self.inputs > 0 {
            let inputs = self.inputs;
            let _ = writeln!(text, "rows that are inputs (=): {inputs}, not counted");
        }
        let _ = write!(text, "shape checks (13.6): {} pass", self.shapes());
        let fixing = match self.fixing {
            0 => String::new(),
            some => format!("; {some} of them fixed a parameter (*)"),
        };
        let _ = writeln!(text, "{fixing}");
        if self.orders > 0 {
            let _ = writeln!(text, "orderings: {} as published", self.orderings());
        }
        text
    }
}

/// How far some rows are off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Median of the relative errors, without their signs.
    pub median: f64,
    /// Rows within [`NEAR`].
    pub near: usize,
    /// Rows.
    pub count: usize,
}

impl Errors {
    fn of(errors: &[f64]) -> Option<Self> {
        Some(Self {
            median: quantile(errors, 0.5)?,
            near: errors.iter().filter(|error| **error <= NEAR).count(),
            count: errors.len(),
        })
    }

    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "median error {:.1} %, {} of {} rows within {:.0} %",
            self.median * 100.0,
            self.near,
            self.count,
            NEAR * 100.0
        )
    }
}
