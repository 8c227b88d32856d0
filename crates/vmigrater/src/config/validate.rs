// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values to settings: types, ranges, and what contradicts itself.

use guest::settings::PriorityRule;
use guest::settings::Settings;
use policy::guest::placement::Margin;
use units::Permille;

use super::error::ConfigError;
use super::error::Position;
use super::human;
use super::knobs::KNOBS;
use super::knobs::Raw;
use super::parse::Document;
use super::parse::Entry;

/// The kernel cuts thread names to 15 bytes: a longer prefix would match nothing.
const COMM_MAX: usize = 15;
/// Priorities are an order, not a quantity; this is plenty and cannot overflow.
const PRIORITY_RANGE: std::ops::RangeInclusive<i64> = -1000..=1000;

/// `settings` with everything that the document says.
pub(crate) fn apply(
    file: &str,
    document: &Document,
    mut settings: Settings,
) -> Result<Settings, ConfigError> {
    // In the knobs' order, not the file's: `placement.margin` decides what
    // `placement.margin_base` means, wherever it stands.
    for knob in KNOBS {
        for entry in document
            .entries
            .iter()
            .filter(|entry| entry.key == knob.key)
        {
            knob.set(&entry.value, &mut settings)
                .map_err(|problem| entry.refused(file, problem))?;
        }
    }
    for (at, entries) in &document.tasks {
        settings.priorities.push(rule(file, *at, entries)?);
    }
    match contradiction(&settings) {
        Some(problem) => Err(ConfigError::Contradiction {
            file: file.to_owned(),
            problem,
        }),
        None => Ok(settings),
    }
}

fn rule(file: &str, at: Position, entries: &[Entry]) -> Result<PriorityRule, ConfigError> {
    let mut comm = None;
    let mut priority = None;
    let mut ignore = None;
    for entry in entries {
        let refused = |expected: String| entry.refused(file, format!("expected {expected}"));
        match (entry.key.as_str(), &entry.value) {
            ("comm", Raw::Text(text)) if (1..=COMM_MAX).contains(&text.len()) => {
                comm = Some(text.clone());
            }
            ("comm", _) => {
                return Err(refused(format!(
                    "the first 1 to {COMM_MAX} bytes of a thread name"
                )));
            }
            ("priority", Raw::Integer(Some(n))) if PRIORITY_RANGE.contains(n) => {
                priority = i32::try_from(*n).ok();
            }
            ("priority", _) => {
                return Err(refused(format!(
                    "a whole number from {} to {}, higher goes first",
                    PRIORITY_RANGE.start(),
                    PRIORITY_RANGE.end()
                )));
            }
            ("ignore", Raw::Switch(switch)) => ignore = Some(*switch),
            _ => return Err(refused("true or false".into())),
        }
    }
    let problem = match (comm, priority, ignore.unwrap_or(false)) {
        (Some(comm_prefix), priority, ignore) if priority.is_some() != ignore => {
            return Ok(PriorityRule {
                comm_prefix,
                priority,
            });
        }
        (None, ..) => "this [[tasks]] section has no `comm`; add the beginning of a thread name",
        (Some(_), Some(_), _) => {
            "this [[tasks]] section has both `priority` and `ignore`; keep one"
        }
        (Some(_), None, _) => {
            "this [[tasks]] section says nothing; add `priority = 1` or `ignore = true`"
        }
    };
    Err(ConfigError::Contradiction {
        file: format!("{file}:{at}"),
        problem: problem.into(),
    })
}

/// What no single range can say.
fn contradiction(settings: &Settings) -> Option<String> {
    let above = |low: Permille, high: Permille, names: [&str; 2]| {
        (low > high).then(|| {
            format!(
                "{} ({}) is above {} ({}); lower the first or raise the second",
                names[0],
                human::percent(low),
                names[1],
                human::percent(high)
            )
        })
    };
    let iobound = &settings.iobound;
    let crossed = above(
        iobound.leave,
        iobound.enter,
        ["iobound.leave", "iobound.enter"],
    );
    if crossed.is_some() {
        return crossed;
    }
    let xballoon = &settings.xballoon;
    let crossed = above(
        xballoon.reserve_min,
        xballoon.reserve_max,
        ["xballoon.reserve_min", "xballoon.reserve_max"],
    );
    if crossed.is_some() {
        return crossed;
    }
    let slice = &settings.slice;
    if slice.min_cycles > slice.window {
        return Some(format!(
            "slice.min_cycles ({}) is above slice.window ({}); it would always abstain",
            slice.min_cycles, slice.window
        ));
    }
    if let Margin::Adaptive { min, max, .. } = settings.placement.margin
        && min > max
    {
        return Some(format!(
            "placement.margin_min ({}) is longer than placement.margin_max ({}); swap them",
            human::duration(min),
            human::duration(max)
        ));
    }
    if settings.trial.rest > settings.trial.rest_max {
        return Some(format!(
            "trial.rest ({}) is longer than trial.rest_max ({}); swap them",
            human::duration(settings.trial.rest),
            human::duration(settings.trial.rest_max)
        ));
    }
    (iobound.min_accounted > iobound.window).then(|| {
        format!(
            "iobound.min_accounted ({}) is longer than iobound.window ({}); no window would ever count",
            human::duration(iobound.min_accounted),
            human::duration(iobound.window)
        )
    })
}
