// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[sweep]`: one file that is many scenarios.
//!
//! Each key names a field, each list its values; every combination is a point. A key
//! of several fields, separated by commas, has lists of as many values: they change
//! together. Values are put into the parsed file where the field is, with the place
//! where they are written: an error about one of them names its line in `[sweep]`.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use super::Scenario;
use super::ScenarioError;
use super::error::Locator;
use super::file;
use super::file::SWEEP;
use super::validate::value::quoted;

/// Points of one file; more are a mistake in nearly all cases, and each is kept.
const MAX_POINTS: usize = 1000;

struct Axis<'a> {
    fields: Vec<&'a str>,
    span: Range<usize>,
    /// At each place a value for each field.
    values: Vec<Vec<Spanned<DeValue<'a>>>>,
}

/// All points of a text, the last axis fastest; axes in the order of their names. Each is
/// checked by `validate`.
pub(super) fn points<'a>(
    mut tree: Spanned<DeTable<'a>>,
    at: &Locator<'a>,
    validate: &mut dyn FnMut(file::File) -> Result<Scenario, ScenarioError>,
) -> Result<Vec<Scenario>, ScenarioError> {
    let axes = match tree.get_mut().remove_entry(SWEEP) {
        Some((_, sweep)) => axes(&sweep, at)?,
        None => Vec::new(),
    };
    let count: usize = axes.iter().map(|axis| axis.values.len()).product();
    let mut points = Vec::with_capacity(count);
    for mut n in 0..count {
        let mut point = tree.clone();
        let mut names = Vec::new();
        for axis in axes.iter().rev() {
            let values = &axis.values[n % axis.values.len()];
            n /= axis.values.len();
            for (field, value) in axis.fields.iter().zip(values).rev() {
                put(point.get_mut(), field, &axis.span, value.clone(), at)?;
                names.push(format!("{field} = {}", shown(value, at)));
            }
        }
        names.reverse();
        let raw = file::file(point, at)?;
        let mut scenario = validate(raw)?;
        if !names.is_empty() {
            scenario.point = names.join(", ");
            scenario.title = format!("{} [{}]", scenario.title, scenario.point);
        }
        points.push(scenario);
    }
    Ok(points)
}

/// A value as it is written, without quotes.
fn shown<'a>(value: &Spanned<DeValue<'_>>, at: &Locator<'a>) -> &'a str {
    let text = at.text.get(value.span()).unwrap_or_default();
    text.trim_matches(['"', '\''])
}

fn axes<'a>(
    sweep: &Spanned<DeValue<'a>>,
    at: &Locator<'a>,
) -> Result<Vec<Axis<'a>>, ScenarioError> {
    const EXAMPLE: &str = "write for instance \"vm.web.vcpus\" = [2, 4] below [sweep]";
    let Some(table) = sweep.get_ref().as_table().filter(|t| !t.is_empty()) else {
        return Err(at.value(sweep.span(), SWEEP, "empty", EXAMPLE));
    };
    let mut axes: Vec<Axis<'a>> = Vec::new();
    let mut count = 1usize;
    for (key, value) in table {
        let span = key.span();
        let field = at.text.get(span.clone()).unwrap_or_default();
        let field = field.trim_matches(['"', '\'']);
        let named = format!("sweep.\"{field}\"");
        let fields: Vec<&str> = field.split(',').map(str::trim).collect();
        // The last one put in would count, and each point would be named by both.
        let others = || axes.iter().flat_map(|axis: &Axis<'_>| &axis.fields);
        let twice = |n: usize| {
            fields[..n]
                .iter()
                .chain(others())
                .any(|other| *other == fields[n])
        };
        if let Some(n) = (0..fields.len()).find(|n| twice(*n)) {
            let field = quoted(fields[n]);
            let expected = "an axis has it already: name each field once";
            return Err(at.value(span, named, field, expected));
        }
        let given = match value.get_ref().as_array() {
            Some(values) if !values.is_empty() => values,
            _ => return Err(at.value(value.span(), named, "no list of values", EXAMPLE)),
        };
        let mut values = Vec::new();
        for (n, value) in given.iter().enumerate() {
            let text = shown(value, at);
            if given[..n].iter().any(|other| shown(other, at) == text) {
                return Err(at.value(value.span(), named, text, "name each value once"));
            }
            values.push(match (fields.len(), value.get_ref().as_array()) {
                (1, _) => vec![value.clone()],
                (wanted, Some(all)) if all.len() == wanted => all.to_vec(),
                (wanted, _) => {
                    let expected = format!("{wanted} fields need a list of {wanted} values here");
                    return Err(at.value(value.span(), named, text, expected));
                }
            });
        }
        count = count.saturating_mul(values.len());
        if count > MAX_POINTS {
            let expected = format!("at most {MAX_POINTS} points are possible; sweep fewer values");
            return Err(at.value(span, SWEEP, format!("{count} points"), expected));
        }
        axes.push(Axis {
            fields,
            span,
            values,
        });
    }
    Ok(axes)
}

/// Puts a value where an axis says.
fn put<'a>(
    root: &mut DeTable<'a>,
    path: &'a str,
    span: &Range<usize>,
    value: Spanned<DeValue<'a>>,
    at: &Locator<'_>,
) -> Result<(), ScenarioError> {
    let wrong = |expected: String| {
        let field = format!("sweep.\"{path}\"");
        Err(at.value(span.clone(), field, "no field", expected))
    };
    let parts: Vec<&str> = path.split('.').collect();
    let (table, field) = match parts.as_slice() {
        [
            table @ ("topology" | "sharing" | "measure" | "compute" | "sim"),
            field,
        ] => {
            let Some(value) = inner(root, table, span) else {
                return wrong(format!("`{table}` has to be a table"));
            };
            (value, *field)
        }
        ["sim", "policy", field] => {
            let Some(table) = inner(root, "sim", span).and_then(|sim| inner(sim, "policy", span))
            else {
                return wrong("`sim` and `sim.policy` have to be tables".to_owned());
            };
            (table, *field)
        }
        [kind @ ("vm" | "load" | "device" | "arm"), name, rest @ ..]
            if rest.len() == 1 || (*kind == "arm" && matches!(rest, ["settings", _])) =>
        {
            let Some(table) = root.get_mut(*kind).and_then(|all| named(all, name)) else {
                return wrong(format!("there is no [[{kind}]] of the name \"{name}\""));
            };
            match rest {
                [table_of, field] => match inner(table, table_of, span) {
                    Some(table) => (table, *field),
                    None => return wrong(format!("`{table_of}` has to be a table")),
                },
                _ => (table, rest[0]),
            }
        }
        _ => {
            return wrong(
                "write \"table.field\" (topology, sharing, measure, compute, sim), \"sim.policy.key\", \"table.name.field\" (vm, load, device, arm) or \"arm.name.settings.key\""
                    .to_owned(),
            );
        }
    };
    if field == "name" {
        return wrong("a name is no axis: others refer to it".to_owned());
    }
    let key = Spanned::new(span.clone(), field.into());
    // The key that is there has another place, and places are no part of what is
    // compared: taken out first, the new one's counts.
    table.remove(field);
    table.insert(key, value);
    Ok(())
}

/// The table of this name in another one, made if it is not there; `None` if something
/// else is.
fn inner<'t, 'a>(
    table: &'t mut DeTable<'a>,
    name: &'a str,
    span: &Range<usize>,
) -> Option<&'t mut DeTable<'a>> {
    let empty = || Spanned::new(span.clone(), DeValue::Table(DeTable::new()));
    let key = Spanned::new(span.clone(), name.into());
    match table.entry(key).or_insert_with(empty).get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// The table of this name among those of a kind.
fn named<'t, 'a>(all: &'t mut Spanned<DeValue<'a>>, name: &str) -> Option<&'t mut DeTable<'a>> {
    let DeValue::Array(tables) = all.get_mut() else {
        return None;
    };
    tables.iter_mut().find_map(|table| match table.get_mut() {
        DeValue::Table(table) => {
            let own = table.get("name").and_then(|name| name.get_ref().as_str());
            (own == Some(name)).then_some(table)
        }
        _ => None,
    })
}
