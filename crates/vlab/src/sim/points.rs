// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The points of a scenario with a `[sweep]`.

use std::fmt::Write;
use std::path::Path;
use std::path::PathBuf;

use experiment::result::RunResult;
use experiment::scenario::ArmKind;
use experiment::scenario::Scenario;

use super::rate;
use crate::reproduce::scenario_parameters;

/// Reads a scenario's points, with as many rounds as the command line says.
///
/// # Errors
/// As [`Scenario::load_points`].
pub(super) fn load(path: &Path, rounds: Option<u32>) -> anyhow::Result<Vec<Scenario>> {
    let mut scenarios = Scenario::load_points(path, &scenario_parameters()?)?;
    if let Some(rounds) = rounds {
        for scenario in &mut scenarios {
            scenario.measure.rounds = rounds;
        }
    }
    Ok(scenarios)
}

/// The file of the n-th of `count` points, from 0: `r.json`, or `r-1.json` and so on.
pub(super) fn path(json: &Path, n: usize, count: usize) -> PathBuf {
    if count == 1 {
        return json.to_owned();
    }
    let stem = json.file_stem().unwrap_or_default().to_string_lossy();
    let name = match json.extension() {
        Some(extension) => format!("{stem}-{}.{}", n + 1, extension.to_string_lossy()),
        None => format!("{stem}-{}", n + 1),
    };
    json.with_file_name(name)
}

/// One line for each text of a scenario with `$`, and what it gives.
///
/// # Errors
/// As [`Scenario::computed`].
pub(super) fn computed(path: &Path) -> anyhow::Result<String> {
    let computed = Scenario::computed(path, &scenario_parameters()?)?;
    let line = |(text, toml): (&String, &String)| format!("{text} is {toml}\n");
    Ok(computed.iter().map(line).collect())
}

/// One line for each point, load, number of VMs and arm.
pub(super) fn table(results: &[RunResult], json: Option<&Path>) -> String {
    let mut text = String::new();
    let Some(first) = results.first() else {
        return text;
    };
    let name = &first.scenario.name;
    let _ = writeln!(text, "{name}: {} points\n", results.len());
    let _ = writeln!(
        text,
        "{:<20} {:>4} {:<16} {:>12} {:>10}  all VMs, per s",
        "load", "N", "arm", "requests/s", "to vanilla"
    );
    for (n, result) in results.iter().enumerate() {
        let _ = writeln!(text, "\n{}: {}", n + 1, result.scenario.point);
        rows(&mut text, result);
    }
    text.push_str("\nmedians of the rounds; N: vCPUs for each pCPU, or VMs\n");
    if let Some(json) = json {
        let path = path(json, 0, results.len());
        let _ = writeln!(
            text,
            "the report of a point: vlab report {}",
            path.display()
        );
    }
    text
}

fn rows(text: &mut String, result: &RunResult) {
    let scenario = &result.scenario;
    let vanilla = scenario.arms.iter().find(|a| a.kind == ArmKind::Vanilla);
    for load in &scenario.loads {
        for &vms in &scenario.sharing.vms_per_pcpu {
            for arm in &scenario.arms {
                let of = |arm: &str| rate(result, &load.name, arm, vms);
                let Some(own) = of(&arm.name) else {
                    continue;
                };
                let against = vanilla.filter(|other| other.name != arm.name);
                let ratio = against
                    .and_then(|vanilla| of(&vanilla.name))
                    .filter(|rate| *rate > 0.0)
                    .map_or("-".to_owned(), |rate| format!("{:.3}", own / rate));
                let _ = writeln!(
                    text,
                    "{:<20} {vms:>4} {:<16} {own:>12.1} {ratio:>10}  {}",
                    load.name,
                    arm.name,
                    together(result, &load.name, &arm.name)
                );
            }
        }
    }
}

/// What all VMs together got done in an arm's first round, by load.
fn together(result: &RunResult, load: &str, arm: &str) -> String {
    let mut phases = result.phases.iter();
    let phase = phases.find(|phase| phase.load == load && phase.arm == arm);
    let mut sums: Vec<(&str, f64, f64)> = Vec::new();
    let all = phase.iter().flat_map(|phase| &phase.work);
    for load in all.flat_map(|vm| &vm.loads) {
        let known = sums.iter().position(|(name, ..)| *name == load.load);
        let place = known.unwrap_or_else(|| {
            sums.push((&load.load, 0.0, 0.0));
            sums.len() - 1
        });
        sums[place].1 += load.ops_per_s;
        sums[place].2 += load.bytes_per_s / 1e6;
    }
    let shown = |(name, ops, mb): &(&str, f64, f64)| match *mb {
        0.0 => format!("{name} {ops:.1}"),
        mb => format!("{name} {ops:.1} ({mb:.2} MB/s)"),
    };
    sums.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_has_a_file_of_its_own() {
        let of = |json: &str, n, count| path(Path::new(json), n, count).display().to_string();
        assert_eq!(of("a/r.json", 0, 1), "a/r.json");
        assert_eq!(of("a/r.json", 0, 12), "a/r-1.json");
        assert_eq!(of("a.b/r", 11, 12), "a.b/r-12");
    }
}
