// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What parses can be built: scenarios of the project with something wrong in them,
//! some hundred of them, each with an error that helps or simulated for a moment.

#[path = "../../experiment/src/scenario/tests/mutate.rs"]
mod mutate;

use std::cell::Cell;
use std::time::Duration;
use std::time::Instant;

use experiment::scenario::Scenario;
use proptest::prelude::*;
use proptest::test_runner::Config;
use proptest::test_runner::TestRunner;
use units::Ns;
use vlab::reproduce::known;

/// No scenario takes longer, whatever else the machine does.
const LONGEST: Duration = Duration::from_secs(60);
const CASES: u32 = 300;
/// Points of a sweep that are tried, and vCPUs that are also simulated.
const POINTS: usize = 3;
const SMALL: u32 = 128;

fn vcpus(scenario: &Scenario) -> u32 {
    let own: u32 = scenario.vms.iter().map(|vm| vm.count * vm.vcpus).sum();
    let alike = scenario.sharing.vms_per_pcpu.iter().max();
    own.max(scenario.topology.cpus * alike.copied().unwrap_or(1))
}

/// A moment of one round: what is there is the same.
fn shortened(mut scenario: Scenario) -> Scenario {
    scenario.measure.rounds = 1;
    scenario.measure.warmup = Ns::ZERO;
    scenario.measure.window = Ns::from_us(300);
    scenario.sharing.slice = Ns::from_us(200);
    scenario
}

#[test]
fn what_parses_can_be_built_or_says_why_not() {
    let (built, refused) = (Cell::new(0), Cell::new(0));
    let known = known().unwrap();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(CASES)
    });
    runner
        .run(&mutate::mutated(), |text| {
            let began = Instant::now();
            let points = Scenario::parse_points(&text, "f.toml", &known);
            let points = points.unwrap_or_default();
            for scenario in points.into_iter().take(POINTS) {
                let small = vcpus(&scenario) <= SMALL;
                let scenario = shortened(scenario);
                let outcome = if small {
                    vlab::sim::simulate(&scenario).map(|_| ())
                } else {
                    vlab::sim::check(&scenario).map(|_| ())
                };
                match outcome {
                    Ok(()) => built.set(built.get() + 1),
                    Err(error) => {
                        refused.set(refused.get() + 1);
                        let message = error.to_string();
                        let told = [
                            "arm ",
                            "load ",
                            "sim.",
                            "host policy",
                            "host_config",
                            "application",
                        ];
                        let helps = told.iter().any(|word| message.contains(word));
                        prop_assert!(helps, "{}", message);
                    }
                }
            }
            prop_assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let (built, refused) = (built.get(), refused.get());
    assert!(built > 20, "{built} built, {refused} refused");
}

#[test]
fn every_scenario_for_the_simulator_can_be_built() {
    let known = known().unwrap();
    let mut seen = 0;
    for text in mutate::texts() {
        for scenario in Scenario::parse_points(&text, "f.toml", &known).unwrap() {
            if scenario.vms.is_empty() && scenario.sim.is_none() {
                continue;
            }
            seen += 1;
            let checked = vlab::sim::check(&scenario);
            // What a daemon costs that moves nothing is asked of real VMs alone.
            if scenario.name == "kvm-watching" {
                let refused = checked.unwrap_err().to_string();
                assert!(refused.contains("has no dry run"), "{refused}");
                continue;
            }
            checked.unwrap_or_else(|error| {
                panic!("{} {}: {error}", scenario.name, scenario.point);
            });
        }
    }
    assert!(seen > 60, "{seen} points");
}
