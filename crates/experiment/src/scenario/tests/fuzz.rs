// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios of the project with something wrong in them, some thousand of them: an
//! error that helps, or a scenario.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::Config;
use proptest::test_runner::TestRunner;

use super::super::Known;
use super::super::Parameters;
use super::super::Scenario;
use super::mutate::mutated;

/// No text takes longer, whatever else the machine does.
const LONGEST: Duration = Duration::from_secs(20);
const CASES: u32 = 2000;

/// What the project's scenarios name, from the files of the crate that gives it to them.
pub(super) fn known() -> Known {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vlab/src");
    let tables = |file: &str, key: &str| {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        let tree: toml::Table = toml::from_str(&text).unwrap();
        tree[key].as_array().unwrap().clone()
    };
    let name = |table: &toml::Value| table["name"].as_str().unwrap().to_owned();
    let mut all = Parameters::new();
    for (file, key) in [
        ("reproduce/parameters.toml", "parameter"),
        ("reproduce/setup.toml", "constant"),
    ] {
        for table in tables(file, key) {
            let value = &table["value"];
            let value = value.as_float().or(value.as_integer().map(|n| n as f64));
            all.insert(name(&table), value.unwrap());
        }
    }
    for table in tables("sim/profiles.toml", "profile") {
        let migration = table["migration"].as_str().unwrap();
        let us = match migration.strip_prefix('$') {
            Some(parameter) => all[parameter],
            None => humantime::parse_duration(migration).unwrap().as_secs_f64() * 1e6,
        };
        all.insert(format!("{}.migration_us", name(&table)), us);
    }
    Known {
        parameters: all,
        ..Known::default()
    }
}

/// `f.toml:LINE: ` and then words.
fn names_a_line(message: &str) -> bool {
    let rest = message.strip_prefix("f.toml:");
    let line = rest.and_then(|rest| rest.split_once(": "));
    line.is_some_and(|(line, words)| line.parse::<usize>().is_ok_and(|n| n > 0) && words.len() > 8)
}

#[test]
fn whatever_is_wrong_in_a_scenario_is_said_with_its_line() {
    let (good, bad) = (Cell::new(0), Cell::new(0));
    let known = known();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(CASES)
    });
    runner
        .run(&mutated(), |text| {
            let began = Instant::now();
            let outcomes = [
                Scenario::parse(&text, "f.toml").map(|scenario| vec![scenario]),
                Scenario::parse_points(&text, "f.toml", &known),
            ];
            prop_assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
            for outcome in outcomes {
                match outcome {
                    Ok(scenarios) => {
                        good.set(good.get() + 1);
                        for scenario in scenarios {
                            prop_assert!(!scenario.loads.is_empty() && !scenario.arms.is_empty());
                            prop_assert!(!scenario.sharing.vms_per_pcpu.is_empty());
                            let json = serde_json::to_string(&scenario).unwrap();
                            let again: Scenario = serde_json::from_str(&json).unwrap();
                            prop_assert_eq!(again, scenario);
                        }
                    }
                    Err(error) => {
                        bad.set(bad.get() + 1);
                        let message = error.to_string();
                        prop_assert!(names_a_line(&message), "{}", message);
                    }
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // Faults that are none, and faults that are: both are tried.
    let (good, bad) = (good.get(), bad.get());
    assert!(good > 200 && bad > 200, "{good} good, {bad} bad");
}
