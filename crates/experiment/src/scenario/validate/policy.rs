// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in `[sim.policy]` and in the `settings` of an arm.

use toml::Spanned;
use toml::Value;
use units::Ns;

use super::super::KnownPolicy;
use super::super::PolicyKey;
use super::super::PolicyKind;
use super::super::PolicySettings;
use super::super::PolicyValue;
use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::value::quoted;

/// Checks what is set of the policy `host`; `table` is the path of the table.
pub(super) fn settings(
    raw: file::Settings,
    table: &str,
    host: &str,
    policies: &[KnownPolicy],
    at: &Locator<'_>,
) -> Result<PolicySettings, ScenarioError> {
    let policy = policies.iter().find(|policy| policy.name == host);
    let mut settings = PolicySettings::new();
    for (key, value) in raw.iter() {
        let field = format!("{table}.{}", key.as_ref());
        let value = match policy {
            Some(policy) => {
                let known = policy.keys.iter().find(|own| own.name == *key.as_ref());
                let Some(known) = known else {
                    let expected = unknown(key.as_ref(), policy, policies);
                    return Err(at.value(key.span(), field, "no key", expected));
                };
                needs_part(known, key, &field, &raw, at)?;
                checked(known, value, &field, at)?
            }
            // No real machine has it: any key will do.
            None => guessed(value, &field, at)?,
        };
        settings.insert(key.as_ref().clone(), value);
    }
    Ok(settings)
}

/// Which keys there are, and whose the one is that was written.
fn unknown(key: &str, policy: &KnownPolicy, policies: &[KnownPolicy]) -> String {
    let has = |policy: &&KnownPolicy| policy.keys.iter().any(|own| own.name == key);
    let others: Vec<&str> = policies
        .iter()
        .filter(has)
        .map(|p| p.name.as_str())
        .collect();
    let theirs = match others.as_slice() {
        [] => String::new(),
        others => format!("it belongs to {}; ", others.join(", ")),
    };
    let names: Vec<&str> = policy.keys.iter().map(|own| own.name.as_str()).collect();
    let own = match names.as_slice() {
        [] => "no keys".to_owned(),
        names => names.join(", "),
    };
    format!("{theirs}the policy \"{}\" has {own}", policy.name)
}

/// A key of a part that is switched off would do nothing.
fn needs_part(
    known: &PolicyKey,
    key: &Spanned<String>,
    field: &str,
    raw: &file::Settings,
    at: &Locator<'_>,
) -> Result<(), ScenarioError> {
    let Some((part, default)) = &known.part else {
        return Ok(());
    };
    let given = raw.iter().find(|(other, _)| other.as_ref() == part);
    let on = given.map_or(Some(*default), |(_, value)| value.as_ref().as_bool());
    if on != Some(false) {
        return Ok(());
    }
    let expected = format!("`{part}` is off, without which it means nothing: write {part} = true");
    Err(at.value(key.span(), field, "set", expected))
}

fn checked(
    known: &PolicyKey,
    value: &Spanned<Value>,
    field: &str,
    at: &Locator<'_>,
) -> Result<PolicyValue, ScenarioError> {
    let wrong = |expected: String| Err(at.value(value.span(), field, shown(value), expected));
    let length = || value.as_ref().as_str().and_then(length);
    match &known.kind {
        PolicyKind::Duration(range) => match length() {
            Some(length) if range.contains(&length) => Ok(PolicyValue::Duration(length)),
            _ => wrong(format!(
                "write a duration from {} to {}, for instance \"10 ms\"",
                range.start(),
                range.end()
            )),
        },
        PolicyKind::DurationOrNone(range) => match length() {
            Some(length) if length == Ns::ZERO || range.contains(&length) => {
                Ok(PolicyValue::Duration(length))
            }
            _ => wrong(format!(
                "write a duration from {} to {}, or \"0 s\" for none",
                range.start(),
                range.end()
            )),
        },
        PolicyKind::Number(range) => match value.as_ref().as_integer().map(u64::try_from) {
            Some(Ok(number)) if range.contains(&number) => Ok(PolicyValue::Number(number)),
            _ => wrong(format!(
                "write a whole number from {} to {}",
                range.start(),
                range.end()
            )),
        },
        PolicyKind::Switch => match value.as_ref().as_bool() {
            Some(on) => Ok(PolicyValue::Switch(on)),
            None => wrong("write true or false".to_owned()),
        },
        PolicyKind::Word(words) => match value.as_ref().as_str() {
            Some(word) if words.iter().any(|known| known == word) => {
                Ok(PolicyValue::Word(word.to_owned()))
            }
            _ => {
                let names: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                wrong(format!("write one of {}", names.join(", ")))
            }
        },
    }
}

/// Of a policy that is not known.
fn guessed(
    value: &Spanned<Value>,
    field: &str,
    at: &Locator<'_>,
) -> Result<PolicyValue, ScenarioError> {
    Ok(match value.as_ref() {
        Value::Boolean(on) => PolicyValue::Switch(*on),
        Value::Integer(number) if *number >= 0 => PolicyValue::Number(number.unsigned_abs()),
        Value::String(text) => match length(text) {
            Some(length) => PolicyValue::Duration(length),
            None => PolicyValue::Word(text.clone()),
        },
        _ => {
            let expected =
                "write a duration such as \"10 ms\", a whole number, true, false or a word";
            return Err(at.value(value.span(), field, shown(value), expected));
        }
    })
}

fn length(text: &str) -> Option<Ns> {
    humantime::parse_duration(text).ok().map(Ns::from)
}

fn shown(value: &Spanned<Value>) -> String {
    value.as_ref().to_string()
}
