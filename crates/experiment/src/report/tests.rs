// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::path::Path;

use crate::analysis::tests::fixture;
use crate::result::ResultError;
use crate::result::RunResult;

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
fn a_result_of_another_format_is_named_as_such() {
    let json = fixture()
        .to_json()
        .unwrap()
        .replacen("\"format\": 1", "\"format\": 99", 1);
    let error = RunResult::parse(&json, Path::new("x.json")).unwrap_err();
    assert!(
        matches!(error, ResultError::Version { found: 99, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("x.json"), "{error}");
    let error = RunResult::parse("{\"format\": 1}", Path::new("x.json")).unwrap_err();
    assert!(error.to_string().starts_with("x.json:1"), "{error}");
}
