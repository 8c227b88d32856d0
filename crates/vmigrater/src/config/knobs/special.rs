// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Knobs that are more than one field's value: the push margin, an enum in the
//! settings and five knobs in the file, and a duration that may be "never".

use guest::settings::Settings;
use policy::guest::placement;
use policy::guest::placement::Margin;
use units::Ns;
use units::Permille;

use crate::config::human;

const ADAPTIVE: &str = "adaptive";
const NEVER: &str = "never";
/// More than this would leave nothing of any slice that hosts give.
const MAX: Ns = Ns::from_ms(100);

pub(super) fn margin(settings: &Settings) -> String {
    match settings.placement.margin {
        Margin::Fixed(ns) => human::duration(ns),
        Margin::Adaptive { .. } => ADAPTIVE.into(),
    }
}

pub(super) fn set_margin(settings: &mut Settings, word: &str) -> bool {
    let margin = &mut settings.placement.margin;
    if word == ADAPTIVE {
        // From a fixed one: with our values, which the other knobs may change.
        if matches!(margin, Margin::Fixed(_)) {
            *margin = placement::Settings::default().margin;
        }
        return true;
    }
    match human::parse_duration(word).filter(|ns| *ns <= MAX) {
        Some(ns) => *margin = Margin::Fixed(ns),
        None => return false,
    }
    true
}

pub(super) fn expected_margin() -> String {
    format!(
        "\"{ADAPTIVE}\" or a duration from \"0 ns\" to \"{}\"",
        human::duration(MAX)
    )
}

pub(super) fn margin_base(settings: &mut Settings) -> Option<&mut Ns> {
    match &mut settings.placement.margin {
        Margin::Adaptive { base, .. } => Some(base),
        Margin::Fixed(_) => None,
    }
}

pub(super) fn margin_min(settings: &mut Settings) -> Option<&mut Ns> {
    match &mut settings.placement.margin {
        Margin::Adaptive { min, .. } => Some(min),
        Margin::Fixed(_) => None,
    }
}

pub(super) fn margin_max(settings: &mut Settings) -> Option<&mut Ns> {
    match &mut settings.placement.margin {
        Margin::Adaptive { max, .. } => Some(max),
        Margin::Fixed(_) => None,
    }
}

pub(super) fn margin_max_of_slice(settings: &mut Settings) -> Option<&mut Permille> {
    match &mut settings.placement.margin {
        Margin::Adaptive { max_of_slice, .. } => Some(max_of_slice),
        Margin::Fixed(_) => None,
    }
}

pub(super) fn overdue_after(settings: &Settings) -> String {
    or_never(settings.placement.overdue_after)
}

pub(super) fn set_overdue_after(settings: &mut Settings, word: &str) -> bool {
    set_or_never(&mut settings.placement.overdue_after, word)
}

pub(super) fn back_overdue_after(settings: &Settings) -> String {
    or_never(settings.placement.back_overdue_after)
}

pub(super) fn set_back_overdue_after(settings: &mut Settings, word: &str) -> bool {
    set_or_never(&mut settings.placement.back_overdue_after, word)
}

fn or_never(after: Option<Ns>) -> String {
    after.map_or(NEVER.into(), human::duration)
}

fn set_or_never(after: &mut Option<Ns>, word: &str) -> bool {
    let time = human::parse_duration(word).filter(|ns| *ns <= MAX);
    if word != NEVER && time.is_none() {
        return false;
    }
    *after = time;
    true
}

pub(super) fn expected_or_never() -> String {
    format!(
        "\"{NEVER}\" or a duration from \"0 ns\" to \"{}\"",
        human::duration(MAX)
    )
}
