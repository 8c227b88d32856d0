// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two reproductions: what a change of the simulator or of a parameter has moved.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Experiment;
use super::Reproduction;
use super::Row;
use super::Shape;
use super::figure;
use super::percent;

/// A row has moved if it is so far from what it was.
const MOVED: f64 = 0.01;

/// Rows that moved by more than 1 %, statements that turned, what only one of them has,
/// parameters and lengths that differ.
#[must_use]
pub fn compare(a: &Reproduction, b: &Reproduction, names: [&str; 2]) -> String {
    let mut text = format!("A: {}\nB: {}\n", names[0], names[1]);
    if a.quick != b.quick {
        text.push_str("not the same: one of them is --quick, so differences may be chance\n");
    }
    let values = |r: &Reproduction| -> BTreeMap<String, f64> {
        let all = r.parameters.iter();
        all.map(|p| (p.name.clone(), p.value)).collect()
    };
    let (old, new) = (values(a), values(b));
    for (name, value) in &new {
        match old.get(name) {
            Some(before) if before != value => {
                let _ = writeln!(text, "not the same: {name} {before} / {value}");
            }
            Some(_) => {}
            None => {
                let _ = writeln!(text, "only in B: {name} {value}");
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        let _ = writeln!(text, "only in A: {name}");
    }
    let mut same = 0;
    for one in &b.experiments {
        let Some(before) = a.experiments.iter().find(|e| e.name == one.name) else {
            let _ = writeln!(text, "\n{}: only in B", one.name);
            continue;
        };
        let mut lines = String::new();
        let length = |e: &Experiment| format!("{} x {} after {}", e.seeds, e.window, e.warmup);
        if a.quick == b.quick && length(before) != length(one) {
            let (old, new) = (length(before), length(one));
            let _ = writeln!(lines, "  not the same: {old} / {new}");
        }
        for row in &one.rows {
            match before.rows.iter().find(|old| old.name == row.name) {
                Some(old) if has_moved(old, row) => lines.push_str(&moved(old, row)),
                Some(_) => same += 1,
                None => {
                    let _ = writeln!(lines, "{:<44} only in B", row.name);
                }
            }
        }
        let is_in_b = |old: &&Row| one.rows.iter().any(|row| row.name == old.name);
        for gone in before.rows.iter().filter(|old| !is_in_b(old)) {
            let _ = writeln!(lines, "{:<44} only in A", gone.name);
        }
        for shape in &one.shapes {
            let old = before.shapes.iter().find(|old| old.claim == shape.claim);
            let word = match (old.map(|old| old.holds), shape.holds) {
                (None, _) => "only in B",
                (Some(false), true) => "holds now",
                (Some(true), false) => "FAILS now",
                (Some(_), _) => continue,
            };
            let _ = writeln!(lines, "  {word}  {}", shape.claim);
        }
        let is_in_b = |old: &&Shape| one.shapes.iter().any(|shape| shape.claim == old.claim);
        for gone in before.shapes.iter().filter(|old| !is_in_b(old)) {
            let _ = writeln!(lines, "  only in A  {}", gone.claim);
        }
        if !lines.is_empty() {
            let _ = writeln!(
                text,
                "\n{}: {}\n{:<44} {:>10} {:>10} {:>10} {:>9}",
                one.name, one.title, "", "published", "A", "B", "B/A"
            );
            text.push_str(&lines);
        }
    }
    for one in &a.experiments {
        if !b.experiments.iter().any(|e| e.name == one.name) {
            let _ = writeln!(text, "\n{}: only in A", one.name);
        }
    }
    let _ = writeln!(text, "\n{same} rows moved by no more than 1 %");
    for (name, r) in [("A", a), ("B", b)] {
        let tally = r.tally();
        let errors = tally.all().map_or("none".to_owned(), |e| e.text());
        let _ = writeln!(
            text,
            "{name}: published rows: {errors}; {} statements hold",
            tally.shapes()
        );
    }
    text
}

fn has_moved(old: &Row, new: &Row) -> bool {
    // A figure that has come or gone is no number of percent away.
    if old.simulated.is_finite() != new.simulated.is_finite() {
        return true;
    }
    let size = old.simulated.abs().max(new.simulated.abs());
    (old.simulated - new.simulated).abs() > MOVED * size
}

fn moved(old: &Row, new: &Row) -> String {
    let change = new.simulated / old.simulated - 1.0;
    let change = if change.is_finite() {
        percent(change)
    } else {
        "-".to_owned()
    };
    format!(
        "{:<44} {:>10} {:>10} {:>10} {change:>9}\n",
        new.name,
        new.published.map_or("-".to_owned(), figure),
        figure(old.simulated),
        figure(new.simulated),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn what_moved_is_shown_and_nothing_else() {
        let a = sample();
        let mut b = sample();
        b.parameters[0].value = 3.0;
        b.experiments[0].rows[0].simulated = 1.5;
        b.experiments[0].rows[2].simulated = 1.501;
        b.experiments[0].shapes[0].holds = false;
        let text = compare(&a, &b, ["a.json", "b.json"]);
        for part in [
            "not the same: kvm.switch_us 2.5 / 3",
            "a/vanilla                                          2.00       1.00       1.50   +50.0 %",
            "  FAILS now  ours is first",
            "3 rows moved by no more than 1 %",
            "A: published rows: median error 26.7 %, 1 of 2 rows within 10 %; 1 of 2 statements hold",
            "0 of 2 statements hold",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(
            !text.contains("b/vanilla") && !text.contains("by far"),
            "{text}"
        );
        let none = compare(&a, &a, ["a", "a"]);
        assert!(none.contains("4 rows moved by no more"), "{none}");
    }

    #[test]
    fn what_came_and_what_went_is_shown() {
        let a = sample();
        let mut b = sample();
        let one = &mut b.experiments[0];
        one.seeds = 3;
        // Nothing came out of one, and of another that had been nothing.
        one.rows[0].simulated = f64::NAN;
        one.rows[3].simulated = 2.0;
        let gone = one.rows.remove(1).name;
        one.shapes[1].claim = "by very far".to_owned();
        let text = compare(&a, &b, ["a.json", "b.json"]);
        for part in [
            "  not the same: 2 x 4 s after 1 s / 3 x 4 s after 1 s\n",
            "a/vanilla                                          2.00       1.00          -         -\n",
            "b/ours                                             0.00          -       2.00         -\n",
            &format!("{gone:<44} only in A\n"),
            "  only in B  by very far\n",
            "  only in A  by far\n",
            "1 rows moved by no more than 1 %",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
