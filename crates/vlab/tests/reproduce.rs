// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vlab reproduce --quick`: the papers' experiments do not drift away unnoticed.

use vlab::reproduce::ReproduceArgs;
use vlab::reproduce::run;

/// The three numbers of the last lines: median error and rows within 10 % of those
/// that fixed nothing, shape checks that pass.
fn summary(text: &str) -> (f64, u32, u32) {
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line \"{start}\" in\n{text}"))
    };
    let numbers = |line: &str| -> Vec<f64> {
        let words = line.rsplit(": ").next().unwrap_or(line).split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let rows = numbers(line("rows that fixed no parameter"));
    let shapes = numbers(line("shape checks"));
    (rows[0], rows[1] as u32, shapes[0] as u32)
}

/// As of 2026-11-23: 25.0 %, 65 of 211, 41 of 63 (docs/reproduction.md). A change of
/// the model may move a row or two; one that loses more has to say so here and there.
#[test]
fn the_papers_are_reproduced_no_worse_than_before() {
    let args = ReproduceArgs {
        experiment: None,
        quick: true,
        list: false,
        set: Vec::new(),
        parameters: false,
        sensitivity: None,
    };
    let text = run(&args).unwrap();
    assert!(!text.contains("not simulated"), "{text}");
    let (median, within, shapes) = summary(&text);
    assert!(median <= 26.0, "median error {median} %\n{text}");
    assert!(within >= 63, "{within} rows within 10 %\n{text}");
    assert!(shapes >= 40, "{shapes} shape checks\n{text}");
}
