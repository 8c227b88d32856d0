// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab reproduce`: the papers' experiments, simulated, beside what was
//! published.
//!
//! One scenario, one set of constants; misses are shown as they are. Shape checks
//! are outcomes that a paper states without a number (13.6).

use std::fmt::Write;

use anyhow::Context;
use clap::Args;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use serde::Deserialize;
use units::Ns;

use super::rate;
use super::simulate;
use crate::run::Unusable;

/// The daemon as published.
const ARM: &str = "published";
const VANILLA: &str = "vanilla";

/// Simulates the papers' experiments and compares.
#[derive(Args, Clone, Debug)]
pub struct ReproduceArgs {
    /// Only this one: fig8, fig9 or table3.
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
    /// One short round.
    #[arg(long)]
    pub quick: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ratio: Vec<Published>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    experiment: String,
    loads: Vec<String>,
    vms: u32,
    value: f64,
    source: String,
}

/// Simulates and returns the comparison as text.
///
/// # Errors
/// There is no such experiment, or the embedded files are broken.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<String> {
    let file: File = toml::from_str(include_str!("published.toml")).context("published.toml")?;
    let mut published = file.ratio;
    if let Some(wanted) = &args.experiment {
        let mut names: Vec<String> = published.iter().map(|row| row.experiment.clone()).collect();
        names.dedup();
        published.retain(|row| row.experiment == *wanted);
        if published.is_empty() {
            return Err(Unusable(format!(
                "there is no experiment \"{wanted}\"; there are {}",
                names.join(", ")
            ))
            .into());
        }
    }
    let text = include_str!("../../../../scenarios/paper-vmigrater.toml");
    let mut scenario = Scenario::parse(text, "scenarios/paper-vmigrater.toml")?;
    scenario
        .arms
        .retain(|arm| arm.name == ARM || arm.name == VANILLA);
    scenario
        .loads
        .retain(|load| published.iter().any(|row| row.loads.contains(&load.name)));
    if args.quick {
        scenario.measure.rounds = 1;
        scenario.measure.window = Ns::from_ms(500);
    }
    let (result, events) = simulate(&scenario)?;
    let mut text = compare(&result, &published);
    text.push_str(&shapes(&result));
    let _ = writeln!(text, "\n{events} events");
    Ok(text)
}

/// The arm's throughput against vanilla.
fn ratio(result: &RunResult, load: &str, vms: u32) -> Option<f64> {
    let vanilla = rate(result, load, VANILLA, vms)?;
    let ours = rate(result, load, ARM, vms)?;
    (vanilla > 0.0).then(|| ours / vanilla)
}

fn mean_ratio(result: &RunResult, loads: &[String], vms: u32) -> Option<f64> {
    let ratios: Option<Vec<f64>> = loads.iter().map(|load| ratio(result, load, vms)).collect();
    let ratios = ratios?;
    Some(ratios.iter().sum::<f64>() / ratios.len() as f64)
}

fn compare(result: &RunResult, published: &[Published]) -> String {
    let mut text = String::from("experiment  VMs  published  simulated    error  loads; source\n");
    let mut errors = Vec::new();
    for row in published {
        let simulated = mean_ratio(result, &row.loads, row.vms);
        let error = simulated.map(|simulated| simulated / row.value - 1.0);
        errors.extend(error.map(f64::abs));
        let shown = |value: Option<f64>, percent: bool| match value {
            None => "-".to_owned(),
            Some(value) if percent => format!("{:+.1} %", value * 100.0),
            Some(value) => format!("{value:.2}"),
        };
        let loads = if row.loads.len() == 1 {
            row.loads[0].clone()
        } else {
            format!("mean of {}", row.loads.len())
        };
        let _ = writeln!(
            text,
            "{:<11} {:>3} {:>10.2} {:>10} {:>8}  {loads}; {}",
            row.experiment,
            row.vms,
            row.value,
            shown(simulated, false),
            shown(error, true),
            row.source
        );
    }
    errors.sort_by(f64::total_cmp);
    if let Some(median) = errors.get(errors.len() / 2) {
        let _ = writeln!(text, "median error {:.1} %", median * 100.0);
    }
    text
}

/// Outcomes stated without a number.
fn shapes(result: &RunResult) -> String {
    let loads: Vec<String> = result
        .scenario
        .loads
        .iter()
        .map(|load| load.name.clone())
        .collect();
    let at = |vms| mean_ratio(result, &loads, vms);
    let mut text = String::from("\nshape checks (13.6)\n");
    let mut check = |name: &str, holds: Option<bool>| {
        let word = match holds {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "not simulated",
        };
        let _ = writeln!(text, "  {word:<14} {name}");
    };
    check(
        "the gain grows with the number of VMs",
        at(2)
            .zip(at(4))
            .zip(at(8))
            .map(|((two, four), eight)| two < four && four < eight),
    );
    let lowest = |vms| {
        let own = ratio(result, "mediatomb", vms)?;
        let others: Vec<f64> = loads
            .iter()
            .filter(|load| *load != "mediatomb")
            .filter_map(|load| ratio(result, load, vms))
            .collect();
        Some(others.iter().all(|other| own < *other))
    };
    check("MediaTomb gains least, 2 VMs", lowest(2));
    check("MediaTomb gains least, 8 VMs", lowest(8));
    text
}
