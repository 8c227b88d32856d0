// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The points of a scenario with a `[sweep]`.

use std::fmt::Write;
use std::path::Path;
use std::path::PathBuf;

use experiment::result::LoadWork;
use experiment::result::Phase;
use experiment::result::RunResult;
use experiment::scenario::ArmKind;
use experiment::scenario::Scenario;
use experiment::stats::quantile;

use super::rate;
use crate::reproduce::known;

/// Reads a scenario's points, with as many rounds as the command line says.
///
/// # Errors
/// As [`Scenario::load_points`].
pub(super) fn load(path: &Path, rounds: Option<u32>) -> anyhow::Result<Vec<Scenario>> {
    let mut scenarios = Scenario::load_points(path, &known()?)?;
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
    let computed = Scenario::computed(path, &known()?.parameters)?;
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
    let mut told: Vec<&str> = Vec::new();
    for warning in results.iter().flat_map(|result| &result.warnings) {
        if !told.contains(&warning.as_str()) {
            told.push(warning);
            let _ = write!(text, "\nnote: {warning}");
        }
    }
    if !told.is_empty() {
        text.push('\n');
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
                    together(result, &load.name, &arm.name, vms)
                );
            }
        }
    }
}

/// What all VMs together got done in an arm, by load: the medians of the rounds.
fn together(result: &RunResult, load: &str, arm: &str, vms: u32) -> String {
    let of = |phase: &&Phase| phase.load == load && phase.vms_per_pcpu == vms && phase.arm == arm;
    let works = || result.phases.iter().filter(of).map(|phase| &phase.work);
    let mut names: Vec<&str> = Vec::new();
    for done in works().flatten().flat_map(|vm| &vm.loads) {
        if !names.contains(&done.load.as_str()) {
            names.push(&done.load);
        }
    }
    let median = |name: &str, of: fn(&LoadWork) -> f64| {
        let sums = works().map(|work| {
            let loads = work.iter().flat_map(|vm| &vm.loads);
            loads.filter(|done| done.load == name).map(of).sum()
        });
        quantile(&sums.collect::<Vec<f64>>(), 0.5).unwrap_or(0.0)
    };
    let shown = |name: &&str| {
        let ops = median(name, |done| done.ops_per_s);
        match median(name, |done| done.bytes_per_s / 1e6) {
            0.0 => format!("{name} {ops:.1}"),
            mb => format!("{name} {ops:.1} ({mb:.2} MB/s)"),
        }
    };
    names.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds: what stands between them, not the one or the other.
    #[test]
    fn figures_of_a_point_are_medians_of_its_rounds() {
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 1 }
            sharing = { slice = "3 ms" }
            measure = { rounds = 2, warmup = "1 ms", window = "50 ms", baselines = "none" }
            device = [{ name = "disk", kind = "ssd" }]
            load = [{ name = "reads", kind = "reader" }]
            vm = [{ name = "web", count = 2 }]
            arm = [{ name = "vanilla" }]
        "#;
        let mut points = Scenario::parse_points(text, "s.toml", &Default::default()).unwrap();
        let (mut result, _) = super::super::simulate(&points.remove(0)).unwrap();
        for (phase, ops) in result.phases.iter_mut().zip([100.0, 300.0]) {
            phase.io.as_mut().unwrap().ops_per_s = ops;
            for done in phase.work.iter_mut().flat_map(|vm| &mut vm.loads) {
                done.ops_per_s = ops;
                done.bytes_per_s = ops * 1e6;
            }
        }
        assert_eq!(rate(&result, "reads", "vanilla", 2), Some(200.0));
        let text = table(&[result], None);
        assert!(text.contains("reads 400.0 (400.00 MB/s)"), "{text}");
    }

    #[test]
    fn each_point_has_a_file_of_its_own() {
        let of = |json: &str, n, count| path(Path::new(json), n, count).display().to_string();
        assert_eq!(of("a/r.json", 0, 1), "a/r.json");
        assert_eq!(of("a/r.json", 0, 12), "a/r-1.json");
        assert_eq!(of("a.b/r", 11, 12), "a.b/r-12");
    }
}
