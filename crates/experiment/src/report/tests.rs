// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::path::Path;

use units::Ns;

use crate::analysis::tests::fixture;
use crate::analysis::tests::under_two_policies;
use crate::lab::Lab;
use crate::lab::LabPhase;
use crate::result::ResultError;
use crate::result::RunResult;
use crate::result::SeenVcpu;

#[test]
fn the_text_report_of_fixed_numbers() {
    insta::assert_snapshot!(super::text(&fixture()));
}

#[test]
fn a_result_survives_writing_and_reading() {
    let json = fixture().to_json().unwrap();
    insta::assert_snapshot!(json);
    assert_eq!(
        RunResult::parse(&json, Path::new("x.json")).unwrap(),
        fixture()
    );
}

#[test]
fn what_a_daemon_saw_is_told_beside_what_the_host_delivered() {
    let mut result = fixture();
    assert!(!super::text(&result).contains(" saw, by "));
    for daemon in result.phases.iter_mut().filter_map(|p| p.daemon.as_mut()) {
        daemon.source = Some("steal-page".to_owned());
        let seen = [Ns::from_ms(900), Ns::from_ms(1100)].into_iter().zip(0..);
        daemon.vcpus = seen
            .map(|(stolen, id)| SeenVcpu {
                id,
                gaps: 90,
                stolen,
            })
            .collect();
    }
    let text = super::text(&result);
    let line = "ours saw, by steal-page, its vCPUs away for 0.500 [0.500..0.500] of the time";
    assert!(text.contains(line), "{text}");
    let again = RunResult::parse(&result.to_json().unwrap(), Path::new("x.json"));
    assert_eq!(again.unwrap(), result);
}

#[test]
fn a_result_of_another_format_is_named_as_such() {
    let json = fixture()
        .to_json()
        .unwrap()
        .replacen("\"format\": 2", "\"format\": 99", 1);
    let error = RunResult::parse(&json, Path::new("x.json")).unwrap_err();
    assert!(
        matches!(error, ResultError::Version { found: 99, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("x.json"), "{error}");
    let error = RunResult::parse("{\"format\": 1}", Path::new("x.json")).unwrap_err();
    assert!(error.to_string().starts_with("x.json:1"), "{error}");
}

/// A file of the version before: what it lacks is absent, not zero or wrong.
#[test]
fn the_format_before_is_still_read() {
    let json = include_str!("../../testdata/format1.json");
    let result = RunResult::parse(json, Path::new("x.json")).unwrap();
    assert_eq!(result.format, 1);
    assert!(
        result
            .phases
            .iter()
            .all(|p| p.io_time.is_none() && p.timeline.is_none())
    );
    assert!(
        result
            .phases
            .iter()
            .all(|p| p.is_alive() && p.machine.stolen.is_none())
    );
    let text = super::text(&result);
    assert!(
        text.contains("vanilla") && !text.contains("disturbed by"),
        "{text}"
    );
    super::html::page(&result).unwrap();
}

/// One of the fields of a timeline is not what it should be.
#[test]
fn a_broken_timeline_is_named_with_its_line() {
    let json = fixture()
        .to_json()
        .unwrap()
        .replace("R0:1000000", "X0:1000000");
    let error = RunResult::parse(&json, Path::new("x.json")).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.to_string().starts_with("x.json:"), "{error}");
    assert!(source.contains("`X0:1000000` is no stretch"), "{source}");
}

#[test]
fn host_policies_have_a_table_of_their_own() {
    assert!(!super::text(&fixture()).contains("by the host's scheduler"));
    let mut result = under_two_policies();
    result.lab = Some(Lab {
        phases: vec![LabPhase {
            load: "pulse".to_owned(),
            arm: "vanilla-c2".to_owned(),
            vms_per_pcpu: 2,
            ran: vec![units::Ns::from_ms(1000), units::Ns::from_ms(2000)],
            ..LabPhase::default()
        }],
        ..Lab::default()
    });
    let text = super::text(&result);
    let table = text
        .split("pulse, by the host's scheduler:")
        .nth(1)
        .unwrap();
    let row = |host: &str| {
        let mut lines = table.lines();
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        lines
            .find_map(|line| {
                Some(words(line)).filter(|words| words.get(1).is_some_and(|w| w == host))
            })
            .unwrap()
    };
    // No column for the kernel's own, which was not measured; a policy is not compared
    // with itself, and of two seconds on two CPUs one VM had a quarter.
    assert!(!table.contains("to eevdf"), "{table}");
    let fixed = row("fixed");
    assert!(fixed.ends_with(&["-".to_owned()]), "{fixed:?}");
    let credit2 = row("credit2").join(" ");
    assert!(credit2.contains("7000 [6000..8000] 2.00 - "), "{credit2}");
    assert!(credit2.ends_with("0.25 0.50"), "{credit2}");
}
