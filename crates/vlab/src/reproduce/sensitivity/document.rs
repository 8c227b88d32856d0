// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `--sensitivity` found: one versioned JSON document, and the table of it in
//! Markdown.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use experiment::reproduction::Experiment;
use experiment::reproduction::figure;
use experiment::result::write_whole;
use serde::Deserialize;
use serde::Serialize;

/// [`Sensitivity::kind`]: tells the document from other files of results.
pub(super) const KIND: &str = "sensitivity";

/// Version of the document.
pub(super) const FORMAT: u32 = 2;

/// How much each open parameter matters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// `sensitivity`.
    pub kind: String,
    /// The version of the document that the program writes.
    pub format: u32,
    /// Which program that was.
    pub vlab: String,
    /// One short round instead of several long ones.
    pub quick: bool,
    /// All experiments, as the parameters are.
    pub base: Total,
    /// The same with other seeds: what chance does.
    pub seeds: Vec<Total>,
    /// Checks that chance turns, as `experiment: claim`. They count for no parameter.
    pub by_chance: Vec<String>,
    /// By name.
    pub parameters: Vec<Varied>,
}

/// How far all experiments are from what was published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Median of the relative errors of published rows, without their signs; inputs left
    /// out.
    pub median: Option<f64>,
    /// Checks of 13.6 that hold.
    pub holding: usize,
    /// Checks of 13.6.
    pub checks: usize,
    /// Configurations whose systems come in the published order.
    pub in_order: usize,
    /// Configurations with such an order.
    pub orders: usize,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Varied {
    /// Its name in parameters.toml.
    pub name: String,
    /// Its value there.
    pub value: f64,
    /// Rows fitted to that lose most with another value, as `experiment/row`; empty: it
    /// decides about none.
    pub held_by: Vec<String>,
    /// Experiments that have asked for it: no other can change with it.
    pub read_by: Vec<String>,
    /// Each other value by itself; none if nothing reads it.
    pub variations: Vec<Variation>,
}

/// What one other value does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variation {
    /// Instead of [`Varied::value`].
    pub value: f64,
    /// All experiments, with it.
    pub total: Total,
    /// Rows of the experiments that read it.
    pub rows: usize,
    /// Of them, those that move by more than 1 % and by more than any of the seeds
    /// moves them.
    pub moved: usize,
    /// Median of how far those move, relative and without signs.
    pub by: Option<f64>,
    /// Checks that turn, those of `by_chance` left out.
    pub turned: Vec<Turned>,
    /// The rows that hold it.
    pub fixing: Vec<Fixing>,
}

/// A check that another value turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turned {
    /// As `experiment: claim`.
    pub check: String,
    /// Does it hold now?
    pub holds: bool,
}

/// A row that holds a parameter, with another value of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixing {
    /// As `experiment/row`.
    pub row: String,
    /// What was published.
    pub published: Option<f64>,
    /// Simulated with the value of parameters.toml.
    pub before: Option<f64>,
    /// Simulated with the other value.
    pub after: Option<f64>,
}

impl Total {
    /// Counts over experiments.
    pub(super) fn of(experiments: &[Experiment]) -> Self {
        let errors: Vec<f64> = experiments
            .iter()
            .flat_map(|e| &e.rows)
            .filter(|row| row.counts())
            .filter_map(|row| Some(row.error?.abs()))
            .collect();
        let shapes = || experiments.iter().flat_map(|e| &e.shapes);
        let orders = || experiments.iter().flat_map(|e| &e.orders);
        Self {
            median: experiment::stats::quantile(&errors, 0.5),
            holding: shapes().filter(|shape| shape.holds).count(),
            checks: shapes().count(),
            in_order: orders().filter(|order| order.holds()).count(),
            orders: orders().count(),
        }
    }

    fn text(&self) -> String {
        format!(
            "{}, {} of {} checks, {} of {} orders",
            self.median.map_or("-".to_owned(), percent),
            self.holding,
            self.checks,
            self.in_order,
            self.orders
        )
    }
}

impl Sensitivity {
    /// Reads a document.
    ///
    /// # Errors
    /// The file cannot be read, or is no such document of this version.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let broken = || format!("{} is no sensitivity of format {FORMAT}", path.display());
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let found: Self = serde_json::from_str(&text).with_context(broken)?;
        anyhow::ensure!(found.kind == KIND && found.format == FORMAT, "{}", broken());
        Ok(found)
    }

    /// Writes it as a whole or not at all.
    ///
    /// # Errors
    /// Cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self)? + "\n";
        write_whole(path, &json).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What was found, with a line for each parameter.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("as they are: {}\n", self.base.text());
        for seed in &self.seeds {
            let _ = writeln!(text, "with another seed: {}", seed.text());
        }
        if !self.by_chance.is_empty() {
            let _ = writeln!(text, "chance turns:");
        }
        for check in &self.by_chance {
            let _ = writeln!(text, "  {check}");
        }
        text.push('\n');
        text.push_str(HEAD);
        for parameter in &self.parameters {
            text.push_str(&parameter.line());
        }
        text
    }
}

const HEAD: &str = "\
| parameter | value | held by: published, simulated, with the other values | median error of all published rows | rows that move, by how much in the median | checks that turn |
|---|---|---|---|---|---|
";

impl Varied {
    /// As a line of a table in Markdown.
    #[must_use]
    pub fn line(&self) -> String {
        let each = |cell: &dyn Fn(&Variation) -> String| {
            let cells = self.variations.iter().map(|variation| {
                let Variation { value, .. } = variation;
                format!("{value}: {}", cell(variation))
            });
            let cells: Vec<String> = cells.collect();
            match cells.is_empty() {
                true => "nothing reads it".to_owned(),
                false => cells.join("; "),
            }
        };
        let turns: Vec<String> = self
            .variations
            .iter()
            .filter(|variation| !variation.turned.is_empty())
            .map(|variation| format!("{}: {}", variation.value, variation.turns()))
            .collect();
        format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            self.name,
            self.value,
            self.held(),
            each(&|v| v.total.median.map_or("-".to_owned(), percent)),
            each(&Variation::moves),
            if turns.is_empty() {
                "none".to_owned()
            } else {
                turns.join("; ")
            }
        )
    }

    fn held(&self) -> String {
        if self.held_by.is_empty() {
            return "nothing".to_owned();
        }
        let named = self.held_by.iter().map(|name| {
            let others = self.variations.iter().filter_map(|variation| {
                let fixing = variation.fixing.iter().find(|one| one.row == *name)?;
                Some((variation.value, fixing))
            });
            let others: Vec<(f64, &Fixing)> = others.collect();
            // Markdown's own sign within a cell.
            let mut text = name.replace('|', "/");
            if let Some((_, first)) = others.first() {
                let _ = write!(
                    text,
                    ": {}, {}",
                    or_none(first.published),
                    or_none(first.before)
                );
            }
            for (value, fixing) in &others {
                let _ = write!(text, ", {value}: {}", or_none(fixing.after));
            }
            text
        });
        let named: Vec<String> = named.collect();
        named.join("; ")
    }
}

impl Variation {
    fn moves(&self) -> String {
        let by = self
            .by
            .map_or(String::new(), |by| format!(" by {}", percent(by)));
        format!("{} of {}{by}", self.moved, self.rows)
    }

    fn turns(&self) -> String {
        let side = |word: &str, holds: bool| {
            let checks = self.turned.iter().filter(|one| one.holds == holds);
            let checks: Vec<String> = checks.map(|one| one.check.replace('|', "/")).collect();
            (!checks.is_empty()).then(|| format!("{word} *{}*", checks.join("*, *")))
        };
        let sides = [side("fails", false), side("passes", true)];
        sides.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn or_none(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), figure)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn total(median: f64, holding: usize) -> Total {
        Total {
            median: Some(median),
            holding,
            checks: 3,
            in_order: 1,
            orders: 2,
        }
    }

    fn sample() -> Sensitivity {
        let variation = |value: f64, after: f64| Variation {
            value,
            total: total(0.3, 1),
            rows: 4,
            moved: 2,
            by: Some(0.125),
            turned: Vec::new(),
            fixing: vec![Fixing {
                row: "figx/a|b".to_owned(),
                published: Some(2.0),
                before: Some(2.1),
                after: Some(after),
            }],
        };
        let mut second = variation(4.0, 3.0);
        second.turned.push(Turned {
            check: "figx: ours is first".to_owned(),
            holds: false,
        });
        let choice = Varied {
            name: "x.none".to_owned(),
            value: 5.0,
            held_by: Vec::new(),
            read_by: Vec::new(),
            variations: Vec::new(),
        };
        Sensitivity {
            kind: KIND.to_owned(),
            format: FORMAT,
            vlab: "0".to_owned(),
            quick: true,
            base: total(0.25, 2),
            seeds: vec![total(0.26, 3)],
            by_chance: vec!["figx: by far".to_owned()],
            parameters: vec![
                Varied {
                    name: "x.cost_us".to_owned(),
                    value: 2.0,
                    held_by: vec!["figx/a|b".to_owned()],
                    read_by: vec!["figx".to_owned()],
                    variations: vec![variation(1.0, 1.5), second],
                },
                choice,
            ],
        }
    }

    #[test]
    fn a_line_says_what_holds_it_what_moves_and_what_turns() {
        let sample = sample();
        assert_eq!(
            sample.parameters[0].line(),
            "| `x.cost_us` | 2 | figx/a/b: 2.00, 2.10, 1: 1.50, 4: 3.00 | 1: 30.0 %; 4: 30.0 % | 1: 2 of 4 by 12.5 %; 4: 2 of 4 by 12.5 % | 4: fails *figx: ours is first* |\n"
        );
        assert_eq!(
            sample.parameters[1].line(),
            "| `x.none` | 5 | nothing | nothing reads it | nothing reads it | none |\n"
        );
        let text = sample.text();
        assert!(text.starts_with("as they are: 25.0 %, 2 of 3 checks, 1 of 2 orders\n"));
        assert!(text.contains("chance turns:\n  figx: by far\n"), "{text}");
    }

    #[test]
    fn a_document_survives_its_file_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.json");
        let sample = sample();
        sample.save(&path).unwrap();
        assert_eq!(Sensitivity::load(&path).unwrap(), sample);
        let newer = Sensitivity {
            format: 9,
            ..sample
        };
        newer.save(&path).unwrap();
        let error = Sensitivity::load(&path).unwrap_err().to_string();
        assert!(error.contains("no sensitivity of format 2"), "{error}");
    }
}
