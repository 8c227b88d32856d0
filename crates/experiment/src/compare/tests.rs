// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::analysis::tests::fixture;

fn row<'a>(comparison: &'a Comparison, load: &str, arm: &str) -> &'a Row {
    let mine = |row: &&Row| row.key.load == load && row.key.arm == arm;
    comparison.rows.iter().find(mine).unwrap()
}

#[test]
fn a_result_is_the_same_as_itself() {
    let comparison = compare(&fixture(), &fixture());
    assert_eq!(comparison.differences, Vec::<String>::new());
    for row in &comparison.rows {
        assert!((row.rates.unwrap().centre - 1.0).abs() < 1e-12, "{row:?}");
    }
}

/// A machine twice as fast: rates double, gains do not.
#[test]
fn a_faster_machine_is_no_better_daemon() {
    let mut b = fixture();
    b.environment.kernel = "7.0".to_owned();
    for io in b.phases.iter_mut().filter_map(|p| p.io.as_mut()) {
        io.ops_per_s *= 2.0;
    }
    let comparison = compare(&fixture(), &b);
    let ours = row(&comparison, "pulse", "ours");
    assert!((ours.rates.unwrap().centre - 2.0).abs() < 1e-12);
    assert!((ours.gains.unwrap().centre - 1.0).abs() < 1e-12);
    assert!((ours.compute.unwrap().centre - 1.0).abs() < 1e-12);
    assert_eq!(comparison.differences, ["kernel: 6.18.0 / 7.0"]);
    assert_eq!(row(&comparison, "pulse", "vanilla").gains, None);
    insta::assert_snapshot!(text(&comparison, ["a.json", "b.json"]));
}

#[test]
fn what_only_one_has_is_shown_without_a_ratio() {
    let mut a = fixture();
    a.phases.retain(|p| p.load != "disk");
    let comparison = compare(&a, &fixture());
    let disk = row(&comparison, "disk", "ours");
    assert!(disk.a.is_none() && disk.b.is_some() && disk.rates.is_none());
}
