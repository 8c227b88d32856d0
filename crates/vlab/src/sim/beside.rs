// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measured figures beside simulated ones.

use std::fmt::Write;

use experiment::result::RunResult;

use super::rate;

/// One measured figure and what the simulator says.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) measured: f64,
    pub(super) spread: Option<(f64, f64)>,
    pub(super) simulated: Option<f64>,
    pub(super) source: String,
}

impl Row {
    /// Simulated against measured; 0 is a perfect hit.
    pub(super) fn error(&self) -> Option<f64> {
        self.simulated.map(|rate| rate / self.measured - 1.0)
    }
}

/// All measured figures of a scenario.
pub(super) fn rows(result: &RunResult) -> Vec<Row> {
    result
        .scenario
        .measured
        .iter()
        .map(|measured| Row {
            name: format!(
                "{}, {} VMs, {}",
                measured.load, measured.vms_per_pcpu, measured.arm
            ),
            measured: measured.ops_per_s,
            spread: measured.low.zip(measured.high),
            simulated: rate(result, &measured.load, &measured.arm, measured.vms_per_pcpu),
            source: measured.source.clone(),
        })
        .collect()
}

/// As text; empty if nothing was measured.
pub(super) fn table(result: &RunResult) -> String {
    let rows = rows(result);
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    let _ = writeln!(text, "\nMeasured and simulated, requests per second\n");
    for row in &rows {
        let spread = row.spread.map_or(String::new(), |(low, high)| {
            format!(" [{low:.0}..{high:.0}]")
        });
        let simulated = row
            .simulated
            .map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        let error = row
            .error()
            .map_or("-".to_owned(), |error| format!("{:+.1} %", error * 100.0));
        let _ = writeln!(
            text,
            "{:<40} {:>7.0}{spread:<16} {simulated:>7} {error:>8}  {}",
            row.name, row.measured, row.source
        );
    }
    text
}
