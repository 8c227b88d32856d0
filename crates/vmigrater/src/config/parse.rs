// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text to values: TOML, the names of the keys, and where each value stands.
//!
//! Nothing here depends on the machine or on ranges: a file that parses here
//! parses everywhere.

use std::ops::Range;
use std::str::FromStr;

use toml::de::DeTable;
use toml::de::DeValue;

use super::error::ConfigError;
use super::error::Position;
use super::knobs::KNOBS;
use super::knobs::Raw;
use super::profile::Profile;

/// The table of user-defined priorities; an array, so not a knob.
pub(crate) const TASKS: &str = "tasks";
/// Selects the values underneath; decided before any knob.
pub(crate) const PROFILE: &str = "profile";
/// What a task rule may say.
const RULE_KEYS: [&str; 3] = ["comm", "priority", "ignore"];

/// One `key = value`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Dotted, without the name of the array for entries of a task rule.
    pub(crate) key: String,
    /// What stands behind the `=`.
    pub(crate) value: Raw,
    /// The same, exactly as written, for messages.
    pub(crate) written: String,
    /// Where the key stands.
    pub(crate) at: Position,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) profile: Option<Profile>,
    pub(crate) entries: Vec<Entry>,
    /// `[[tasks]]`, each with the place of its beginning.
    pub(crate) tasks: Vec<(Position, Vec<Entry>)>,
}

/// Reads `text`; `file` is only for messages.
pub(crate) fn parse(file: &str, text: &str) -> Result<Document, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        file: file.to_owned(),
        at: Position::of(text, error.span().map_or(0, |span| span.start)),
        problem: error
            .message()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    })?;
    let mut reader = Reader {
        file,
        text,
        document: Document::default(),
    };
    reader.table("", table.get_ref())?;
    Ok(reader.document)
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    document: Document,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) -> Result<(), ConfigError> {
        for (name, value) in table.iter() {
            let at = Position::of(self.text, name.span().start);
            let key = match prefix {
                "" => name.get_ref().to_string(),
                _ => format!("{prefix}.{}", name.get_ref()),
            };
            let inner = format!("{key}.");
            match value.get_ref() {
                _ if key == TASKS => self.tasks(at, value.get_ref(), value.span())?,
                DeValue::Table(table) if KNOBS.iter().any(|knob| knob.key.starts_with(&inner)) => {
                    self.table(&key, table)?;
                }
                other => {
                    let entry = self.entry(key, other, value.span(), at);
                    self.add(entry)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: Entry) -> Result<(), ConfigError> {
        if entry.key == PROFILE {
            let profile = match &entry.value {
                Raw::Text(word) => Profile::from_str(word).ok(),
                _ => None,
            };
            let Some(profile) = profile else {
                return Err(entry.refused(self.file, format!("expected {}", Profile::expected())));
            };
            self.document.profile = Some(profile);
            return Ok(());
        }
        if KNOBS.iter().any(|knob| knob.key == entry.key) {
            self.document.entries.push(entry);
            return Ok(());
        }
        let names: Vec<&str> = KNOBS
            .iter()
            .map(|knob| knob.key)
            .chain([PROFILE, TASKS])
            .collect();
        Err(self.unknown(entry.at, &entry.key, &names))
    }

    fn tasks(
        &mut self,
        at: Position,
        value: &DeValue<'_>,
        span: Range<usize>,
    ) -> Result<(), ConfigError> {
        let expected =
            "one [[tasks]] section per rule, each with `comm` and `priority` or `ignore`";
        let refused = |entry: Entry| entry.refused(self.file, format!("expected {expected}"));
        let DeValue::Array(rules) = value else {
            return Err(refused(self.entry(TASKS.to_owned(), value, span, at)));
        };
        for rule in rules.iter() {
            let start = Position::of(self.text, rule.span().start);
            let DeValue::Table(table) = rule.get_ref() else {
                let entry = self.entry(TASKS.to_owned(), rule.get_ref(), rule.span(), start);
                return Err(refused(entry));
            };
            let mut entries = Vec::new();
            for (name, value) in table.iter() {
                let at = Position::of(self.text, name.span().start);
                if !RULE_KEYS.contains(&name.get_ref().as_ref()) {
                    return Err(self.unknown(at, name.get_ref(), &RULE_KEYS));
                }
                let key = name.get_ref().to_string();
                entries.push(self.entry(key, value.get_ref(), value.span(), at));
            }
            self.document.tasks.push((start, entries));
        }
        Ok(())
    }

    fn entry(&self, key: String, value: &DeValue<'_>, span: Range<usize>, at: Position) -> Entry {
        let written = self.text.get(span).unwrap_or_default();
        let value = match value {
            DeValue::Boolean(switch) => Raw::Switch(*switch),
            DeValue::Integer(n) => Raw::Integer(i64::from_str_radix(n.as_str(), n.radix()).ok()),
            DeValue::String(text) => Raw::Text(text.to_string()),
            _ => Raw::Other,
        };
        Entry {
            key,
            value,
            written: written.split_whitespace().collect::<Vec<_>>().join(" "),
            at,
        }
    }

    fn unknown(&self, at: Position, key: &str, names: &[&str]) -> ConfigError {
        let nearest = names
            .iter()
            .map(|name| (distance(key, name), name))
            .min_by_key(|(distance, _)| *distance)
            // Further away than a third of the word, the guess would only puzzle.
            .filter(|(distance, name)| *distance <= name.len() / 3);
        let hint = match nearest {
            Some((_, name)) => format!("did you mean `{name}`?"),
            None => "`vmigrater run --show-config` lists all keys".to_owned(),
        };
        ConfigError::UnknownKey {
            file: self.file.to_owned(),
            at,
            key: key.to_owned(),
            hint,
        }
    }
}

impl Entry {
    /// The error that this value is not what its key takes.
    pub(crate) fn refused(&self, file: &str, expected: String) -> ConfigError {
        ConfigError::Value {
            file: file.to_owned(),
            at: self.at,
            key: self.key.clone(),
            value: self.written.clone(),
            expected,
        }
    }
}

/// Levenshtein distance: how many letters to add, drop or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn keys_carry_their_place_and_their_text() {
        let document = parse(
            "f",
            "# one\ndry_run = true\n\n[heartbeat]\n  period = \"1 ms\"\n",
        )
        .unwrap();
        let seen: Vec<_> = document
            .entries
            .iter()
            .map(|entry| format!("{} {} {}", entry.at, entry.key, entry.written))
            .collect();
        assert_eq!(seen, ["2:1 dry_run true", "5:3 heartbeat.period \"1 ms\""]);
    }
}
