// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that a scenario names instead of repeating them: `"$ssd.latency_us / 4"`.
//!
//! They are computed in the parsed file, before anything is validated, and keep the
//! place where they are written: an error about one of them names its line and what
//! stands there. Real machines have no parameters; there such a text is refused.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;
use std::str::SplitWhitespace;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use super::ScenarioError;
use super::error::Locator;
use super::validate::value::quoted;

/// Numbers by name, for scenarios of the simulator. A name that ends in `_us` or `_ms`
/// is that of a duration.
pub type Parameters = BTreeMap<String, f64>;

/// Where numbers and durations stand. Not `[[arm]]`: a command may begin with `$`.
const TABLES: [&str; 9] = [
    "topology", "sharing", "measure", "compute", "sim", "load", "vm", "device", "sweep",
];
const MARK: char = '$';
const EXAMPLE: &str = "write names with $, numbers and, between blanks, + - * /: for instance \"$ssd.latency_us / 4\"";
const NO_VALUE: &str = "no value comes out of it: it divides by 0 or is too large";
/// A year, far above any duration's range.
const MAX_NS: f64 = 3.2e16;

/// Is this text to be computed?
pub(super) fn is_computed(text: &str) -> bool {
    text.starts_with(MARK)
}

/// What each text of a file that begins with `$` gives, in TOML.
pub(super) fn computed(
    tree: &DeTable<'_>,
    parameters: &Parameters,
    at: &Locator<'_>,
) -> Result<BTreeMap<String, String>, ScenarioError> {
    let mut computed = BTreeMap::new();
    visit_all(tree, &mut |text, span, field| {
        let amount = Reader {
            words: text.split_whitespace().peekable(),
            parameters,
        }
        .sum();
        let toml = amount.and_then(Amount::toml);
        let toml = toml.map_err(|expected| at.value(span, field, quoted(text), expected))?;
        computed.insert(text.to_owned(), toml);
        Ok(())
    })?;
    Ok(computed)
}

/// What such a text gives: nanoseconds if it is a duration, otherwise the number.
///
/// # Errors
/// It cannot be computed; what should stand there instead.
pub fn amount(text: &str, parameters: &Parameters) -> Result<f64, String> {
    let mut reader = Reader {
        words: text.split_whitespace().peekable(),
        parameters,
    };
    let Amount { value, .. } = reader.sum()?;
    if value.is_finite() {
        return Ok(value);
    }
    Err(NO_VALUE.to_owned())
}

/// Refuses texts that would have to be computed.
pub(super) fn none(tree: &DeTable<'_>, at: &Locator<'_>) -> Result<(), ScenarioError> {
    visit_all(tree, &mut |text, span, field| {
        let expected = "only the simulator has parameters: use `vlab sim` or `vlab sweep`, or write the value itself";
        Err(at.value(span, field, quoted(text), expected))
    })
}

/// Puts what was computed where the texts are.
pub(super) fn put<'a>(tree: &mut DeTable<'a>, computed: &'a BTreeMap<String, String>) {
    for table in TABLES {
        if let Some(value) = tree.get_mut(table) {
            replace(value.get_mut(), computed);
        }
    }
}

fn replace<'a>(value: &mut DeValue<'a>, computed: &'a BTreeMap<String, String>) {
    match value {
        DeValue::String(text) => {
            if let Some(toml) = computed.get(text.as_ref()) {
                let parsed = DeValue::parse(toml).expect("a number or a quoted duration is TOML");
                *value = parsed.into_inner();
            }
        }
        DeValue::Array(all) => all
            .iter_mut()
            .for_each(|value| replace(value.get_mut(), computed)),
        DeValue::Table(table) => table
            .iter_mut()
            .for_each(|(_, value)| replace(value.get_mut(), computed)),
        _ => {}
    }
}

/// Told of a text that begins with `$`, its place and the path of its field.
type Visitor<'v> = dyn FnMut(&str, Range<usize>, &str) -> Result<(), ScenarioError> + 'v;

fn visit_all(tree: &DeTable<'_>, visitor: &mut Visitor<'_>) -> Result<(), ScenarioError> {
    for table in TABLES {
        if let Some(value) = tree.get(table) {
            visit(value, table, visitor)?;
        }
    }
    Ok(())
}

fn visit(
    value: &Spanned<DeValue<'_>>,
    field: &str,
    visitor: &mut Visitor<'_>,
) -> Result<(), ScenarioError> {
    match value.get_ref() {
        DeValue::String(text) if is_computed(text) => visitor(text, value.span(), field),
        DeValue::Array(all) => {
            for (n, value) in all.iter().enumerate() {
                visit(value, &format!("{field}[{n}]"), visitor)?;
            }
            Ok(())
        }
        DeValue::Table(table) => {
            for (key, value) in table {
                let key = key.get_ref();
                let field = if key.contains('.') {
                    format!("{field}.{}", quoted(key))
                } else {
                    format!("{field}.{key}")
                };
                visit(value, &field, visitor)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A duration in nanoseconds, or a plain number.
#[derive(Clone, Copy, Debug)]
struct Amount {
    value: f64,
    is_duration: bool,
}

impl Amount {
    fn toml(self) -> Result<String, String> {
        let Self { value, is_duration } = self;
        if !value.is_finite() {
            return Err(NO_VALUE.to_owned());
        }
        if !is_duration {
            let whole = value.fract() == 0.0 && value.abs() < 1e15;
            return Ok(if whole {
                format!("{value:.0}")
            } else {
                format!("{value:?}")
            });
        }
        let ns = value.round();
        if !(0.0..=MAX_NS).contains(&ns) {
            return Err(format!(
                "{ns} ns come out of it; write what is a duration from 0 s to a year"
            ));
        }
        let duration = humantime::format_duration(Duration::from_nanos(ns as u64));
        Ok(quoted(&duration.to_string()))
    }
}

/// Reads sums of products from the left, word by word.
struct Reader<'a> {
    words: Peekable<SplitWhitespace<'a>>,
    parameters: &'a Parameters,
}

impl Reader<'_> {
    fn sum(&mut self) -> Result<Amount, String> {
        let mut sum = self.product()?;
        while let Some(sign) = self.operator(["+", "-"]) {
            let next = self.product()?;
            if sum.is_duration != next.is_duration {
                return Err(format!(
                    "`{sign}` is between a duration and a number; names that end in _us and _ms are durations"
                ));
            }
            sum.value += if sign == "+" { next.value } else { -next.value };
        }
        match self.words.next() {
            None => Ok(sum),
            Some(_) => Err(EXAMPLE.to_owned()),
        }
    }

    fn product(&mut self) -> Result<Amount, String> {
        let mut product = self.operand()?;
        while let Some(sign) = self.operator(["*", "/"]) {
            let next = self.operand()?;
            match (sign, product.is_duration, next.is_duration) {
                ("*", true, true) | ("/", false, true) => {
                    return Err(format!(
                        "`{sign}` gives neither a duration nor a number here; multiply and divide durations by numbers"
                    ));
                }
                ("*", left, right) => {
                    product.value *= next.value;
                    product.is_duration = left || right;
                }
                (_, left, right) => {
                    product.value /= next.value;
                    product.is_duration = left && !right;
                }
            }
        }
        Ok(product)
    }

    fn operator(&mut self, of: [&'static str; 2]) -> Option<&'static str> {
        let sign = of
            .into_iter()
            .find(|sign| self.words.peek() == Some(sign))?;
        self.words.next();
        Some(sign)
    }

    fn operand(&mut self) -> Result<Amount, String> {
        let word = self.words.next().unwrap_or_default();
        if let Some(name) = word.strip_prefix(MARK) {
            return self.named(name);
        }
        let value = word.parse().map_err(|_| EXAMPLE.to_owned())?;
        Ok(Amount {
            value,
            is_duration: false,
        })
    }

    fn named(&self, name: &str) -> Result<Amount, String> {
        let Some(value) = self.parameters.get(name) else {
            return Err(self.unknown(name));
        };
        let ns = match name.rsplit_once('_') {
            Some((_, "us")) => Some(1e3),
            Some((_, "ms")) => Some(1e6),
            _ => None,
        };
        Ok(Amount {
            value: value * ns.unwrap_or(1.0),
            is_duration: ns.is_some(),
        })
    }

    /// Names that begin as this one does, or what names begin with.
    fn unknown(&self, name: &str) -> String {
        if name.contains(['+', '*', '/', MARK]) {
            return EXAMPLE.to_owned();
        }
        let group = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let names = self.parameters.keys();
        let near: Vec<&str> = names
            .clone()
            .filter(|other| group(other) == group(name))
            .map(String::as_str)
            .collect();
        if !near.is_empty() {
            let near = near.join(", ");
            return format!("there is no parameter `{name}`; there are {near}");
        }
        let mut groups: Vec<String> = names.map(|name| group(name)).collect();
        groups.dedup();
        let groups = groups.join(", ");
        format!(
            "there is no parameter `{name}`; their names begin with {groups} (`vlab reproduce --parameters`)"
        )
    }
}
