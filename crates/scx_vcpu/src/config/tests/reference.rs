// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of keys in docs/scx_vcpu.md, against the parser.

use std::collections::BTreeSet;

use super::*;

/// A line of the table.
struct Row {
    /// With its table: `vm.weight`.
    key: String,
    takes: String,
    /// As it stands in a file; `None`: left out means something else.
    default: Option<String>,
}

impl Row {
    fn of(line: &str) -> Self {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", key, takes, default, from, meaning, ""] = cells[..] else {
            panic!("not key, takes, default, from and meaning: {line}");
        };
        assert!(!from.is_empty() && !meaning.is_empty(), "{line}");
        let bare = |cell: &str| cell.trim_matches('`').to_owned();
        Self {
            key: bare(key),
            takes: takes.to_owned(),
            default: (default != "none").then(|| bare(default)),
        }
    }

    fn split(&self) -> (&str, &str) {
        self.key.rsplit_once('.').unwrap()
    }

    /// A file without this key, and with nothing else that counts.
    fn without(&self) -> String {
        match self.split() {
            ("vm", "match") => "[[vm]]\nweight = 7\n".to_owned(),
            ("vm", _) => "[[vm]]\nmatch = \"a\"\n".to_owned(),
            // How often what is off by itself is done.
            ("isacs", "balance_period") => "[isacs]\nbalances = true\n".to_owned(),
            (table, _) => format!("[{table}]\n"),
        }
    }

    fn with(&self, value: &str) -> String {
        format!("{}{} = {value}\n", self.without(), self.split().1)
    }

    /// What it takes at most and at least, and the words; and what is just beyond.
    fn examples(&self) -> (Vec<String>, Vec<String>) {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        let mut number = |text: &str, beyond: i128| {
            if let Ok(number) = text.parse::<i128>() {
                good.push(number.to_string());
                bad.push((number + beyond).to_string());
            } else if let Ok(time) = humantime::parse_duration(text) {
                let ns = time.as_nanos().cast_signed();
                good.push(format!("\"{text}\""));
                if ns + beyond >= 0 {
                    bad.push(format!("\"{}ns\"", ns + beyond));
                }
            } else {
                assert!(text.starts_with('`'), "{}: {text}", self.key);
            }
        };
        let mut words = Vec::new();
        for part in self.takes.split(", ") {
            if let Some((from, to)) = part.split_once(" to ") {
                number(from, -1);
                number(to, 1);
            } else if let Some(from) = part.strip_suffix(" up") {
                number(from, -1);
            } else if part == "0 s" {
                words.push("\"0s\"".to_owned());
            } else {
                words.push(part.trim_matches('`').to_owned());
            }
        }
        good.extend(words);
        (good, bad)
    }
}

fn table() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scx_vcpu.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, text) = text.split_once("\n## The policy file\n").unwrap();
    let (text, _) = text.split_once("\n## ").unwrap();
    text.lines()
        .filter(|line| line.starts_with("| `"))
        .map(Row::of)
        .collect()
}

/// All that the rest of the program is told by a file.
fn told(text: &str) -> String {
    let config = Config::parse(text, "f").unwrap_or_else(|error| panic!("{text}\n{error}"));
    let (ische, isacs) = (&config.ische, &config.isacs);
    format!(
        "{:?}",
        (
            (config.credit1.settings(), config.credit2.settings()),
            config.credit2.balances_every(),
            config.vslicer.settings(),
            (ische.settings(&config.credit1), ische.cpus, ische.seed),
            (ische.automatic(), ische.within_share()),
            (isacs.settings(), isacs.balances_every()),
            (isacs.balances_io(), isacs.moves_all()),
            config.worth("a"),
        )
    )
}

/// The keys that the parser knows in the table of this name: it says so of one that it does
/// not know.
fn known(table: &str) -> Option<Vec<String>> {
    let unknown = |header: String| {
        let said = Config::parse(&format!("{header}zzz = 1\n"), "f")
            .unwrap_err()
            .to_string();
        let (_, keys) = said.split_once("unknown field `zzz`, expected ")?;
        let keys: Vec<String> = keys
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        Some(keys)
    };
    if table.is_empty() {
        return unknown(String::new());
    }
    unknown(format!("[{table}]\n")).or_else(|| unknown(format!("[[{table}]]\n")))
}

/// All of them below it, with their tables.
fn leaves(table: &str, all: &mut BTreeSet<String>) {
    for key in known(table).unwrap() {
        let key = if table.is_empty() {
            key
        } else {
            format!("{table}.{key}")
        };
        if known(&key).is_some() {
            leaves(&key, all);
        } else {
            all.insert(key);
        }
    }
}

#[test]
fn the_table_of_the_documentation_has_all_keys_and_no_others() {
    let mut known = BTreeSet::new();
    leaves("", &mut known);
    assert!(known.len() > 50, "{known:?}");
    let rows = table();
    let written: BTreeSet<String> = rows.iter().map(|row| row.key.clone()).collect();
    assert_eq!(written, known, "docs/scx_vcpu.md, The policy file");
    assert_eq!(rows.len(), known.len(), "one is there twice");
}

#[test]
fn each_key_takes_what_the_table_says_and_has_that_default() {
    for row in table() {
        let (good, bad) = row.examples();
        for value in &bad {
            let file = row.with(value);
            assert!(Config::parse(&file, "f").is_err(), "accepted: {file}");
        }
        let values: Vec<String> = good.iter().map(|value| told(&row.with(value))).collect();
        if row.key == "vm.match" {
            assert!(row.default.is_none() && !values.is_empty());
            continue;
        }
        let without = told(&row.without());
        if let Some(default) = &row.default {
            assert_eq!(told(&row.with(default)), without, "default of {}", row.key);
        }
        let counts = values.iter().any(|with| *with != without);
        assert!(counts, "{} changes nothing: {good:?}", row.key);
    }
}
