// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reproduction for a terminal.

use std::fmt::Write;

use super::Experiment;
use super::Reproduction;
use super::Row;

impl Reproduction {
    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text: String = self.experiments.iter().map(Experiment::text).collect();
        text.push_str(&self.tally().summary());
        text
    }
}

impl Experiment {
    fn text(&self) -> String {
        let mut text = format!("\n{}: {}\n", self.name, self.title);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<44} {:>10} {:>10} {:>9}",
            "", "published", "simulated", "error"
        );
        for row in &self.rows {
            let published = row.published.map_or("-".to_owned(), figure);
            let error = row.error.map_or(String::new(), percent);
            let mark = match row {
                Row { input: true, .. } => " =",
                Row { fixed: true, .. } => " *",
                _ => "",
            };
            let spread = row.spread().map_or(String::new(), |(low, high)| {
                format!("  [{}..{}]", figure(low), figure(high))
            });
            let _ = writeln!(
                text,
                "{:<44} {published:>10} {:>10} {error:>9}{mark}{spread}",
                row.name,
                figure(row.simulated)
            );
        }
        for name in &self.not_simulated {
            let _ = writeln!(text, "{name:<44} not simulated");
        }
        for shape in &self.shapes {
            let word = if shape.holds { "pass" } else { "FAIL" };
            let mark = if shape.fixed { " *" } else { "" };
            let _ = writeln!(text, "  {word}  {}{mark}", shape.claim);
        }
        for order in self.orders.iter().filter(|order| !order.holds()) {
            let _ = writeln!(
                text,
                "  order  {}: published {}, simulated {}",
                order.configuration, order.published, order.simulated
            );
        }
        text
    }
}

/// `+12.3 %`.
#[must_use]
pub fn percent(error: f64) -> String {
    format!("{:+.1} %", error * 100.0)
}

/// A figure with as many digits as are worth reading; `-` where nothing came out.
#[must_use]
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;

    #[test]
    fn the_text_says_what_is_near_and_what_holds() {
        let text = sample().text();
        for part in [
            "a/ours                                             3.00       3.10    +3.3 % *  [2.90..3.30]",
            "published rows: median error 26.7 %, 1 of 2 rows within 10 %",
            "of them fitted to (*): median error 3.3 %, 1 of 1 rows within 10 %",
            "of them kept out of the fit: median error 50.0 %, 0 of 1 rows within 10 %",
            "  FAIL  by far",
            "not simulated",
            "  pass  ours is first *",
            "  order  a: published vanilla < ours, simulated ours = vanilla",
            "1 of 2 pass; 1 of them fixed a parameter (*)",
            "orderings: 0 of 1 as published",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
