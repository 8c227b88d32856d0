// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs of 13.1 to 13.5 do, as data: `[[workload]]` of profiles.toml, with
//! what fixed each number.

use std::collections::BTreeMap;

use anyhow::Context;
use anyhow::bail;
use experiment::scenario::amount;
use serde::Deserialize;
use sim::guest::Leave;
use sim::ids::DeviceId;
use sim::program::Alone;
use sim::program::Phases;
use sim::program::ReaderSettings;
use units::Ns;

use super::mix::Work;
use super::parameters::Parameters;

/// `profiles.toml` as far as it is read here.
#[derive(Debug, Deserialize)]
struct File {
    workload: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Reader,
    Echo,
    Parallel,
    Locks,
    Compute,
    Backend,
}

impl Kind {
    /// The fields that one has, and those that it may have.
    const fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Reader => (
                &[
                    "depth",
                    "block_bytes",
                    "file_mib",
                    "sequential",
                    "write",
                    "submit",
                    "process",
                    "spread_permille",
                ],
                &["wait", "at_once", "on", "off"],
            ),
            Self::Echo => (&["work"], &[]),
            Self::Backend => (&["work", "copies_mb_per_s"], &[]),
            Self::Parallel => (
                &["work", "spread_permille", "spin"],
                &["skew_permille", "alone", "alone_permille", "in_turn"],
            ),
            Self::Locks => (&["work", "spread_permille", "hold", "spin"], &[]),
            Self::Compute => (&[], &[]),
        }
    }
}

/// A number, or what is computed from parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Computed(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// What it stands for: for who reads the file.
    #[serde(rename = "title")]
    _title: String,
    kind: Kind,
    /// Another one, whose fields these replace.
    like: Option<String>,
    #[serde(default)]
    value: BTreeMap<String, Value>,
    /// What fixed each number; what is computed names its parameters.
    #[serde(default)]
    fixed_by: BTreeMap<String, String>,
}

/// What each program does, by name.
#[derive(Debug)]
pub(super) struct Workloads {
    all: BTreeMap<String, Entry>,
}

impl Workloads {
    /// The project's.
    pub(super) fn load() -> anyhow::Result<Self> {
        let text = include_str!("../sim/profiles.toml");
        let file: File = toml::from_str(text).context("profiles.toml")?;
        let mut all: BTreeMap<String, Entry> = BTreeMap::new();
        for mut entry in file.workload {
            if let Some(like) = &entry.like {
                let of = all.get(like);
                let of =
                    of.with_context(|| format!("{}: no workload {like} before", entry.name))?;
                for (field, value) in &of.value {
                    if !entry.value.contains_key(field) {
                        entry.value.insert(field.clone(), value.clone());
                        let fixed = of.fixed_by.get(field);
                        entry
                            .fixed_by
                            .extend(fixed.map(|fixed| (field.clone(), fixed.clone())));
                    }
                }
            }
            let (needed, others) = entry.kind.fields();
            for field in entry.value.keys() {
                let field = field.as_str();
                if !needed.contains(&field) && !others.contains(&field) {
                    bail!("workload {}: such a one has no {field}", entry.name);
                }
            }
            all.insert(entry.name.clone(), entry);
        }
        Ok(Self { all })
    }

    fn get(&self, name: &str) -> anyhow::Result<&Entry> {
        self.all
            .get(name)
            .with_context(|| format!("profiles.toml has no workload {name}"))
    }
}

/// Names of parameters in a text that is computed.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
        .filter_map(|word| word.strip_prefix('$'))
}

/// A workload with its numbers.
struct Numbers<'a> {
    p: &'a Parameters,
    entry: &'a Entry,
}

impl Numbers<'_> {
    fn of(&self, field: &str) -> anyhow::Result<Option<f64>> {
        let Some(value) = self.entry.value.get(field) else {
            return Ok(None);
        };
        let told = || format!("profiles.toml: {field} of workload {}", self.entry.name);
        Ok(Some(match value {
            Value::Number(number) => *number,
            Value::Computed(text) => {
                // Only what it names is asked for: the sensitivity table goes by that.
                let open = names(text).map(|name| Ok((name.to_owned(), self.p.get(name)?)));
                let open = open.collect::<anyhow::Result<_>>().with_context(told)?;
                amount(text, &open)
                    .map_err(anyhow::Error::msg)
                    .with_context(told)?
            }
        }))
    }

    fn number(&self, field: &str) -> anyhow::Result<f64> {
        let name = &self.entry.name;
        self.of(field)?
            .with_context(|| format!("profiles.toml: workload {name} has no {field}"))
    }

    fn whole(&self, field: &str) -> anyhow::Result<u64> {
        Ok(self.number(field)?.max(0.0) as u64)
    }

    fn count(&self, field: &str) -> anyhow::Result<u32> {
        Ok(self.number(field)?.max(0.0) as u32)
    }

    fn length(&self, field: &str) -> anyhow::Result<Ns> {
        Ok(Ns(self.number(field)?.max(0.0).round() as u64))
    }
}

/// What a thread of this program does; requests go to this device.
///
/// # Errors
/// There is none of this name, or the embedded files are broken.
pub(super) fn work(p: &Parameters, name: &str, device: u32) -> anyhow::Result<Work> {
    let entry = p.workloads().get(name)?;
    p.note(name);
    let n = Numbers { p, entry };
    Ok(match entry.kind {
        Kind::Reader => Work::Io(ReaderSettings {
            device: DeviceId(device),
            depth: n.count("depth")?,
            bytes: n.count("block_bytes")?,
            start: 0,
            span: n.whole("file_mib")? << 20,
            sequential: n.number("sequential")? != 0.0,
            submit: n.length("submit")?,
            process: n.length("process")?,
            process_spread: n.count("spread_permille")?,
            // No paper says what a batch of completions saves its reader.
            further: None,
            write: n.number("write")? != 0.0,
            phases: match n.of("on")? {
                None => None,
                Some(_) => Some(Phases {
                    on: n.length("on")?,
                    off: n.length("off")?,
                }),
            },
        }),
        Kind::Echo => Work::Echo(device, n.length("work")?),
        Kind::Parallel => Work::Parallel {
            length: n.length("work")?,
            spread: n.count("spread_permille")?,
            skew: match n.of("skew_permille")? {
                None => 0,
                Some(_) => n.count("skew_permille")?,
            },
            spin: n.length("spin")?,
            alone: match n.of("alone")? {
                None => None,
                Some(_) => {
                    let permille = n.count("alone_permille")?;
                    Alone::part(n.length("alone")?, permille, n.length("work")?)
                }
            },
            leave: match n.of("in_turn")? {
                None => Leave::AtOnce,
                Some(_) if n.number("in_turn")? == 0.0 => Leave::AtOnce,
                Some(_) => Leave::InTurn,
            },
        },
        Kind::Locks => Work::Locks {
            work: n.length("work")?,
            spread: n.count("spread_permille")?,
            hold: n.length("hold")?,
            spin: n.length("spin")?,
        },
        Kind::Compute => Work::Compute,
        Kind::Backend => Work::Backend {
            work: n.length("work")?,
            copies: Some((n.number("copies_mb_per_s")? * 1e6) as u64),
        },
    })
}

/// The same for a program that reads, in a part of the device that begins at `start`.
///
/// # Errors
/// Likewise, and if it does not read.
pub(super) fn reader(p: &Parameters, name: &str, device: u32, start: u64) -> anyhow::Result<Work> {
    match work(p, name, device)? {
        Work::Io(settings) => Ok(Work::Io(ReaderSettings { start, ..settings })),
        other => bail!("profiles.toml: workload {name} is no reader: {other:?}"),
    }
}

/// What a program of 13.4 waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// For how long, while few do.
    pub(super) mean: Ns,
    /// So many requests are worked on at the same time; others queue.
    pub(super) at_once: u32,
}

/// What this program waits for.
///
/// # Errors
/// There is none of this name, or nothing is said of it.
pub(super) fn wait(p: &Parameters, name: &str) -> anyhow::Result<Wait> {
    let entry = p.workloads().get(name)?;
    let numbers = Numbers { p, entry };
    Ok(Wait {
        mean: numbers.length("wait")?,
        at_once: numbers.count("at_once")?,
    })
}

/// A paragraph or section of the sources, a published row, or a choice with its reason.
#[cfg(test)]
pub(crate) fn is_reason(text: &str) -> bool {
    if let Some(reason) = text.strip_prefix("choice: ") {
        return reason.len() > 5;
    }
    let first = text.split([' ', ':', ',']).next().unwrap_or_default();
    let digits = first.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let paragraph = digits.len() < first.len() && digits.parse::<u32>().is_ok();
    let section =
        first.split('.').count() == 2 && first.split('.').all(|part| part.parse::<u32>().is_ok());
    let row = text.split_once('/').is_some_and(|(experiment, row)| {
        let published = super::outcome::published().unwrap();
        let figures = published.figures.get(experiment);
        figures.is_some_and(|figures| figures.contains_key(row))
    });
    paragraph || section || row
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::experiments::EXPERIMENTS;
    use super::super::mix::Effort;
    use super::*;

    #[test]
    fn a_reason_is_a_paragraph_a_row_or_a_choice() {
        for good in [
            "J17: a period",
            "13.1",
            "table3/hdfs/N_min",
            "choice: a page or so",
        ] {
            assert!(is_reason(good), "{good}");
        }
        for bad in [
            "",
            "because",
            "choice:",
            "choice: x",
            "table3/nothing",
            "Fig: 3",
        ] {
            assert!(!is_reason(bad), "{bad}");
        }
    }

    /// What is computed names parameters, each of which says what fixed it; every other
    /// number says so itself, and nobody else does.
    #[test]
    fn no_field_of_a_workload_lacks_what_fixed_it() {
        let parameters = Parameters::load(&[]).unwrap();
        let said: BTreeSet<&str> = parameters
            .iter()
            .map(|p| (&*p.name, p.why.is_empty() && p.fixed_by.is_empty()))
            .chain(parameters.stated().map(|c| (&*c.name, c.source.is_empty())))
            .filter_map(|(name, silent)| (!silent).then_some(name))
            .collect();
        let all = Workloads::load().unwrap().all;
        assert!(all.len() > 30, "{}", all.len());
        for (name, entry) in &all {
            let (needed, _) = entry.kind.fields();
            for field in needed {
                assert!(entry.value.contains_key(*field), "{name} has no {field}");
            }
            for (field, value) in &entry.value {
                match value {
                    Value::Computed(text) => {
                        assert!(names(text).count() > 0, "{name}: {field}");
                        for parameter in names(text) {
                            assert!(said.contains(parameter), "{name}: {field}: {parameter}");
                        }
                    }
                    Value::Number(_) => {
                        let reason = entry.fixed_by.get(field);
                        let reason =
                            reason.unwrap_or_else(|| panic!("{name}: {field} is by nothing"));
                        assert!(is_reason(reason), "{name}: {field}: {reason}");
                    }
                }
            }
            for field in entry.fixed_by.keys() {
                let number = entry.value.get(field);
                assert!(
                    matches!(number, Some(Value::Number(_))),
                    "{name}: {field} is no number"
                );
            }
        }
    }

    /// Every workload is one that an experiment asks for.
    #[test]
    fn every_workload_is_used() {
        let parameters = Parameters::load(&[]).unwrap().watched();
        let effort = Effort {
            warmup: Ns::ZERO,
            window: Ns::from_ms(4),
            seeds: 1,
            first: 1,
            memo: None,
        };
        for experiment in EXPERIMENTS {
            (experiment.simulate)(&parameters, effort).unwrap();
        }
        let used: BTreeSet<String> = parameters.read().into_iter().collect();
        for name in parameters.workloads().all.keys() {
            assert!(used.contains(name), "nothing runs {name}");
        }
    }

    #[test]
    fn numbers_follow_the_parameters() {
        let parameters = Parameters::load(&["smt.clamav_run_us=100".to_owned()]).unwrap();
        let Work::Io(reader) = work(&parameters, "smt-clamav", 3).unwrap() else {
            panic!("it reads");
        };
        assert_eq!(
            (reader.submit, reader.process),
            (Ns::from_us(10), Ns::from_us(90))
        );
        assert_eq!(
            (reader.device, reader.depth, reader.bytes),
            (DeviceId(3), 1, 4096)
        );
        let error = work(&parameters, "nothing", 0).unwrap_err().to_string();
        assert!(error.contains("no workload nothing"), "{error}");
    }
}
