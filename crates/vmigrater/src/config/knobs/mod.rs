// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every knob: its name, its type and range, its place in the settings, and
//! what it does. One line here is all that a new setting needs in this crate.

use guest::settings::EstimatorChoice;
use guest::settings::ModeChoice;
use guest::settings::Settings;
use guest::settings::SourceChoice;
use policy::guest::wakeup;
use units::Ns;
use units::Permille;

use super::human;

/// A knob that is one of a few words: the words and values, and the field.
macro_rules! choice {
    ($key:literal, $words:ident, $($field:ident).+, $help:literal) => {
        Knob {
            key: $key,
            field: Field::Word {
                get: |settings| $words.word(settings.$($field).+).to_owned(),
                set: |settings, word| {
                    $words.value(word).map(|value| settings.$($field).+ = value).is_some()
                },
                expected: || format!("\"{}\"", $words.0.join("\" or \"")),
            },
            help: $help,
        }
    };
}

/// A knob that is a duration.
macro_rules! duration {
    ($key:literal, $min:expr, $max:expr, $($field:ident).+, $help:literal) => {
        Knob {
            key: $key,
            field: Field::Duration { at: |settings| Some(&mut settings.$($field).+), min: $min, max: $max },
            help: $help,
        }
    };
}

/// A knob that is a share; the range in thousandths.
macro_rules! percent {
    ($key:literal, $min:literal, $max:literal, $($field:ident).+, $help:literal) => {
        Knob {
            key: $key,
            field: Field::Percent {
                at: |settings| Some(&mut settings.$($field).+),
                min: Permille::new($min),
                max: Permille::new($max),
            },
            help: $help,
        }
    };
}

/// A knob that is a switch.
macro_rules! switch {
    ($key:literal, $($field:ident).+, $help:literal) => {
        Knob { key: $key, field: Field::Switch(|settings| &mut settings.$($field).+), help: $help }
    };
}

/// A knob that is a whole number of the given type, whose range includes its own.
macro_rules! count {
    ($key:literal, $min:literal, $max:literal, $($field:ident).+, $type:ty, $help:literal) => {
        Knob {
            key: $key,
            field: Field::Count {
                get: |settings| u64::try_from(settings.$($field).+).unwrap_or(u64::MAX),
                set: |settings, n| settings.$($field).+ = <$type>::try_from(n).unwrap_or(<$type>::MAX),
                min: $min,
                max: $max,
            },
            help: $help,
        }
    };
}

mod special;
mod table;

pub(crate) use table::KNOBS;

/// One thing a user can set.
pub(crate) struct Knob {
    /// Its name in the file, tables joined by dots: `heartbeat.period`.
    pub(crate) key: &'static str,
    /// Its type, its range and its place in the settings.
    pub(crate) field: Field,
    /// What it does, in one or two sentences.
    pub(crate) help: &'static str,
}

/// The type of a knob and its place in the settings. A place is `None` while
/// another knob makes this one meaningless.
pub(crate) enum Field {
    /// `true` or `false`.
    Switch(fn(&mut Settings) -> &mut bool),
    /// A length of time with its unit.
    Duration {
        at: fn(&mut Settings) -> Option<&mut Ns>,
        min: Ns,
        max: Ns,
    },
    /// A share, in percent with at most one decimal.
    Percent {
        at: fn(&mut Settings) -> Option<&mut Permille>,
        min: Permille,
        max: Permille,
    },
    /// A whole number.
    Count {
        get: fn(&Settings) -> u64,
        set: fn(&mut Settings, u64),
        min: u64,
        max: u64,
    },
    /// A whole number that may be absent.
    Optional(fn(&mut Settings) -> &mut Option<u32>),
    /// A word. `set` is false if it does not know the word.
    Word {
        get: fn(&Settings) -> String,
        set: fn(&mut Settings, &str) -> bool,
        expected: fn() -> String,
    },
}

/// A TOML value without its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    /// `true` or `false`.
    Switch(bool),
    /// A whole number; `None` if it does not fit 64 bits.
    Integer(Option<i64>),
    /// A string.
    Text(String),
    /// Anything else: no knob takes it.
    Other,
}

impl Knob {
    /// Its present value as TOML; `None` if it is absent.
    pub(crate) fn value(&self, settings: &Settings) -> Option<String> {
        // The accessors want a mutable place; one clone per shown knob is cheaper
        // to maintain than a second set of accessors.
        let mut settings = settings.clone();
        let quoted = |text: String| format!("\"{text}\"");
        match &self.field {
            Field::Switch(at) => Some(at(&mut settings).to_string()),
            Field::Duration { at, .. } => at(&mut settings).map(|ns| quoted(human::duration(*ns))),
            Field::Percent { at, .. } => {
                at(&mut settings).map(|share| quoted(human::percent(*share)))
            }
            Field::Count { get, .. } => Some(get(&settings).to_string()),
            Field::Optional(at) => at(&mut settings).map(|n| n.to_string()),
            Field::Word { get, .. } => Some(quoted(get(&settings))),
        }
    }

    /// Takes a value over; otherwise what is wrong with it.
    pub(crate) fn set(&self, value: &Raw, settings: &mut Settings) -> Result<(), String> {
        let refused = || format!("expected {}", self.expected());
        let meaningless = || {
            "has no meaning while placement.margin is a fixed duration; remove one of the two"
                .to_owned()
        };
        match (&self.field, value) {
            (Field::Switch(at), Raw::Switch(switch)) => *at(settings) = *switch,
            (Field::Duration { at, min, max }, Raw::Text(text)) => {
                let ns = human::parse_duration(text).filter(|ns| (min..=max).contains(&ns));
                let ns = ns.ok_or_else(refused)?;
                *at(settings).ok_or_else(meaningless)? = ns;
            }
            (Field::Percent { at, min, max }, Raw::Text(text)) => {
                let share = human::parse_percent(text).filter(|share| (min..=max).contains(&share));
                let share = share.ok_or_else(refused)?;
                *at(settings).ok_or_else(meaningless)? = share;
            }
            (Field::Count { set, min, max, .. }, Raw::Integer(Some(n))) => {
                let n = u64::try_from(*n).ok().filter(|n| (min..=max).contains(&n));
                set(settings, n.ok_or_else(refused)?);
            }
            (Field::Optional(at), Raw::Integer(Some(n))) => {
                let n = u32::try_from(*n).ok().filter(|n| *n > 0);
                *at(settings) = Some(n.ok_or_else(refused)?);
            }
            (Field::Word { set, .. }, Raw::Text(text)) if set(settings, text) => {}
            _ => return Err(refused()),
        }
        Ok(())
    }

    /// What it takes, in words.
    pub(crate) fn expected(&self) -> String {
        match &self.field {
            Field::Switch(_) => "true or false".into(),
            Field::Duration { min, max, .. } => format!(
                "a duration from \"{}\" to \"{}\"",
                human::duration(*min),
                human::duration(*max)
            ),
            Field::Percent { min, max, .. } => format!(
                "a percentage from \"{}\" to \"{}\"",
                human::percent(*min),
                human::percent(*max)
            ),
            Field::Count { min, max, .. } => format!("a whole number from {min} to {max}"),
            Field::Optional(_) => format!("a whole number from 1 to {}", u32::MAX),
            Field::Word { expected, .. } => expected(),
        }
    }
}

/// The words of a choice and, in the same order, what they mean.
pub(crate) struct Words<T, const N: usize>(pub(crate) [&'static str; N], pub(crate) [T; N]);

impl<T: Copy + PartialEq, const N: usize> Words<T, N> {
    fn word(&self, value: T) -> &'static str {
        let at = self.1.iter().position(|known| *known == value);
        // Every value is listed: the test that sets each word would fail.
        at.map_or("", |at| self.0[at])
    }

    /// What a word means.
    pub(crate) fn value(&self, word: &str) -> Option<T> {
        self.0
            .iter()
            .position(|known| *known == word)
            .map(|at| self.1[at])
    }
}

/// [`SourceChoice`]; also for the command line.
pub(crate) static SOURCES: Words<SourceChoice, 3> = Words(
    ["auto", "steal-page", "heartbeat"],
    [
        SourceChoice::Auto,
        SourceChoice::StealPage,
        SourceChoice::Heartbeat,
    ],
);

/// [`ModeChoice`]; also for the command line.
pub(crate) static MODES: Words<ModeChoice, 2> = Words(
    ["vmigrater", "xballoon"],
    [ModeChoice::Vmigrater, ModeChoice::Xballoon],
);

static ESTIMATORS: Words<EstimatorChoice, 2> = Words(
    ["last-value", "distribution"],
    [EstimatorChoice::LastValue, EstimatorChoice::Distribution],
);

static LEVERS: Words<wakeup::Mode, 4> = Words(
    ["off", "auto", "eevdf-slice", "fifo"],
    [
        wakeup::Mode::Off,
        wakeup::Mode::Auto,
        wakeup::Mode::EevdfSlice,
        wakeup::Mode::Fifo,
    ],
);
