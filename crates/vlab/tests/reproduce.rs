// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab reproduce --quick`: every experiment runs, twice the same, and the statements
//! about shapes that held still do.

use std::fmt::Write;
use std::sync::LazyLock;

use experiment::reproduction::Reproduction;
use vlab::reproduce::ReproduceArgs;
use vlab::reproduce::reproduce;

fn quick(experiment: Option<&str>) -> Reproduction {
    let args = ReproduceArgs {
        experiment: experiment.map(str::to_owned),
        quick: true,
        ..ReproduceArgs::default()
    };
    reproduce(&args).expect("the embedded files are whole")
}

/// All of it, once for all tests.
static ALL: LazyLock<Reproduction> = LazyLock::new(|| quick(None));

/// A change of the simulator that turns one is shown with its name, and so is a published
/// figure that is not simulated any more. Look at it, then
/// `INSTA_UPDATE=always cargo test -p vlab --test reproduce`.
#[test]
fn the_same_statements_hold_as_before() {
    let mut text = String::new();
    for experiment in &ALL.experiments {
        for shape in &experiment.shapes {
            let word = if shape.holds { "holds" } else { "FAILS" };
            writeln!(text, "{word}  {}: {}", experiment.name, shape.claim).unwrap();
        }
        // A figure that was published and has no row would be a miss that nobody sees.
        for row in &experiment.not_simulated {
            writeln!(text, "MISSING  {}: {row}", experiment.name).unwrap();
        }
    }
    insta::assert_snapshot!("statements", text);
}

/// Which configurations are simulated, and what each figure is: `*` parameters are fitted
/// to, `=` went in, `?` is a prediction with nothing published beside it.
#[test]
fn the_same_configurations_are_simulated_as_before() {
    let mut text = String::new();
    for experiment in &ALL.experiments {
        for row in &experiment.rows {
            let mark = match row.published {
                None => "?",
                Some(_) if row.input => "=",
                Some(_) if row.fixed => "*",
                Some(_) => " ",
            };
            writeln!(text, "{mark} {}/{}", experiment.name, row.name).unwrap();
        }
        let mut names: Vec<&str> = experiment.rows.iter().map(|row| &*row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), experiment.rows.len(), "{}", experiment.name);
    }
    insta::assert_snapshot!("rows", text);
}

/// What fixed a parameter is a row with a published figure, or a statement.
#[test]
fn parameters_name_rows_that_exist() {
    for parameter in &ALL.parameters {
        for row in &parameter.fixed_by {
            let (name, row) = row.split_once('/').unwrap();
            let experiment = ALL.experiments.iter().find(|e| e.name == name).unwrap();
            let published =
                |r: &experiment::reproduction::Row| r.name == row && r.published.is_some();
            let stated = experiment.shapes.iter().any(|shape| shape.claim == row);
            let known = experiment.rows.iter().any(published) || stated;
            assert!(known, "{}: {name}/{row}", parameter.name);
        }
    }
}

/// What went in comes out, whatever is simulated: no evidence of anything.
#[test]
fn inputs_come_out_as_they_went_in() {
    let rows = ALL
        .experiments
        .iter()
        .flat_map(|e| e.rows.iter().map(move |r| (e, r)));
    let inputs: Vec<_> = rows.filter(|(_, row)| row.input).collect();
    assert_eq!(inputs.len(), 19);
    for (experiment, row) in inputs {
        // A move's cost is given, what comes of it is not: see inputs.toml.
        let moves = ["hbase/", "postmark/", "nginx/"];
        let follows =
            moves.iter().any(|app| row.name.starts_with(app)) && !row.name.ends_with("/N_min");
        let error = row.error.unwrap().abs();
        assert!(
            follows || error < 0.01,
            "{}/{}: {error}",
            experiment.name,
            row.name
        );
    }
}

#[test]
fn every_experiment_gives_figures_that_are_numbers() {
    for experiment in &ALL.experiments {
        let name = &experiment.name;
        assert!(!experiment.rows.is_empty(), "{name}");
        for row in &experiment.rows {
            assert!(row.simulated.is_finite(), "{name}: {}", row.name);
        }
    }
    let published = ALL.experiments.iter().flat_map(|e| &e.rows);
    let published = published.filter(|row| row.published.is_some()).count();
    assert!(published > 200, "{published} published figures");
}

/// Alone or among all others, on whatever thread: the same to the last byte.
#[test]
fn an_experiment_gives_the_same_bytes_every_time() {
    for prefix in ["table3", "isacs-latency", "vsmtio-smt", "jupiter-adversary"] {
        let mut alone = quick(Some(prefix));
        let of_all = ALL.experiments.iter();
        alone.experiments = of_all.filter(|e| e.name == prefix).cloned().collect();
        assert_eq!(alone.experiments.len(), 1, "{prefix}");
        let (first, second) = (alone.to_json().unwrap(), quick(Some(prefix)).to_json());
        assert_eq!(first, second.unwrap(), "{prefix}");
    }
}

/// With `--spread` each seed has its figure too, and their mean is near the row.
#[test]
fn each_seed_has_its_figure() {
    let args = ReproduceArgs {
        experiment: Some("vsmtio-smt".to_owned()),
        spread: true,
        ..ReproduceArgs::default()
    };
    let found = reproduce(&args).unwrap();
    for row in &found.experiments[0].rows {
        assert_eq!(row.by_seed.len(), 3, "{}", row.name);
        let mean = row.by_seed.iter().sum::<f64>() / 3.0;
        let off = (mean - row.simulated).abs();
        assert!(off <= 0.01 * row.simulated.abs(), "{row:?}");
    }
}
