// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of single values: names, numbers in a range, durations.

use std::ops::RangeInclusive;

use toml::Spanned;
use units::Ns;

use super::super::ScenarioError;
use super::super::error::Locator;

pub(in crate::scenario) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

pub(in crate::scenario) fn identifier(
    value: Spanned<String>,
    field: &str,
    at: &Locator<'_>,
) -> Result<String, ScenarioError> {
    let text = value.as_ref();
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > 32 || !text.chars().all(good) {
        let expected = "use 1 to 32 lower-case letters, digits and hyphens";
        return Err(at.value(value.span(), field, quoted(text), expected));
    }
    Ok(value.into_inner())
}

pub(super) fn integer(
    value: &Spanned<i64>,
    field: &str,
    range: RangeInclusive<u32>,
    at: &Locator<'_>,
) -> Result<u32, ScenarioError> {
    u32::try_from(*value.as_ref())
        .ok()
        .filter(|n| range.contains(n))
        .ok_or_else(|| {
            let expected = format!("write a number from {} to {}", range.start(), range.end());
            at.value(value.span(), field, value.as_ref(), expected)
        })
}

pub(super) fn optional_integer(
    value: Option<&Spanned<i64>>,
    field: &str,
    range: RangeInclusive<u32>,
    default: u32,
    at: &Locator<'_>,
) -> Result<u32, ScenarioError> {
    value.map_or(Ok(default), |value| integer(value, field, range, at))
}

pub(super) fn duration(
    value: &Spanned<String>,
    field: &str,
    range: RangeInclusive<Ns>,
    at: &Locator<'_>,
) -> Result<Ns, ScenarioError> {
    humantime::parse_duration(value.as_ref())
        .ok()
        .map(Ns::from)
        .filter(|duration| range.contains(duration))
        .ok_or_else(|| {
            let expected = format!(
                "write a duration from {} to {}, for instance \"11 ms\"",
                range.start(),
                range.end()
            );
            at.value(value.span(), field, quoted(value.as_ref()), expected)
        })
}

pub(super) fn optional_duration(
    value: Option<&Spanned<String>>,
    field: &str,
    range: RangeInclusive<Ns>,
    default: Ns,
    at: &Locator<'_>,
) -> Result<Ns, ScenarioError> {
    value.map_or(Ok(default), |value| duration(value, field, range, at))
}

/// One of several words.
pub(super) fn chosen<T: Clone>(
    word: &Spanned<String>,
    field: &str,
    words: &[(&str, T)],
    at: &Locator<'_>,
) -> Result<T, ScenarioError> {
    let known = words.iter().find(|(name, _)| name == word.as_ref());
    known.map(|(_, value)| value.clone()).ok_or_else(|| {
        let names: Vec<String> = words.iter().map(|(name, _)| quoted(name)).collect();
        let expected = format!("write one of {}", names.join(", "));
        at.value(word.span(), field, quoted(word.as_ref()), expected)
    })
}

/// A number with a fraction.
pub(super) fn number(
    value: Option<&Spanned<f64>>,
    field: &str,
    range: RangeInclusive<f64>,
    default: f64,
    at: &Locator<'_>,
) -> Result<f64, ScenarioError> {
    match value {
        None => Ok(default),
        // NaN is in no range.
        Some(value) if range.contains(value.as_ref()) => Ok(*value.as_ref()),
        Some(value) => {
            let expected = format!("write a number from {} to {}", range.start(), range.end());
            Err(at.value(value.span(), field, value.as_ref(), expected))
        }
    }
}
