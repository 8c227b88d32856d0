// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys and values: one description of a policy's settings, which lists them and sets
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use units::Ns;

/// What a key takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A length in this range.
    Duration(RangeInclusive<Ns>),
    /// A length in this range, or zero for none.
    DurationOrNone(RangeInclusive<Ns>),
    /// A whole number in this range.
    Number(RangeInclusive<u64>),
    /// On or off.
    Switch,
    /// One of these.
    Word(Vec<&'static str>),
}

/// What a key is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A length.
    Duration(Ns),
    /// A whole number.
    Number(u64),
    /// On or off.
    Switch(bool),
    /// A word.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(length) => length.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Switch(on) => on.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Values by key.
pub type Values = BTreeMap<String, Value>;

/// One thing that can be set of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name in a scenario.
    pub name: &'static str,
    /// Paragraph of the source that it comes from, or where it is open; empty: ours.
    pub source: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is without being set.
    pub default: Value,
    /// The switch that has to be on for it to mean anything.
    pub part: Option<&'static str>,
}

/// Why a policy cannot be set so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// It has no such key.
    #[error("the host policy \"{policy}\" has no \"{key}\"; it has {known}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// What was named.
        key: String,
        /// What there is.
        known: String,
    },
    /// A value of another kind or out of its range.
    #[error("the host policy \"{policy}\" cannot have \"{key}\" = {value}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The key.
        key: &'static str,
        /// What was given.
        value: Value,
    },
}

/// Where a description is used: to list what there is, or to set it.
pub(super) struct Fields<'a> {
    keys: Vec<Key>,
    values: &'a Values,
    wrong: Option<(&'static str, Value)>,
    part: Option<&'static str>,
}

impl<'a> Fields<'a> {
    /// Sets what is in `values`, and lists everything.
    pub(super) fn new(values: &'a Values) -> Self {
        Self {
            keys: Vec::new(),
            values,
            wrong: None,
            part: None,
        }
    }

    /// The keys, and the first value that does not fit.
    pub(super) fn finish(self) -> (Vec<Key>, Option<(&'static str, Value)>) {
        (self.keys, self.wrong)
    }

    /// Lists a key and gives what it is to be set to, if it fits.
    fn key(
        &mut self,
        name: &'static str,
        source: &'static str,
        kind: Kind,
        default: Value,
    ) -> Option<Value> {
        let given = self.values.get(name).cloned();
        let fits = |value: &Value| match (&kind, value) {
            (Kind::Duration(range), Value::Duration(length)) => range.contains(length),
            (Kind::DurationOrNone(range), Value::Duration(length)) => {
                *length == Ns::ZERO || range.contains(length)
            }
            (Kind::Number(range), Value::Number(number)) => range.contains(number),
            (Kind::Switch, Value::Switch(_)) => true,
            (Kind::Word(words), Value::Word(word)) => words.contains(&word.as_str()),
            _ => false,
        };
        let given = given.and_then(|value| {
            if fits(&value) {
                return Some(value);
            }
            self.wrong.get_or_insert((name, value));
            None
        });
        self.keys.push(Key {
            name,
            source,
            kind,
            default,
            part: self.part,
        });
        given
    }

    pub(super) fn duration(
        &mut self,
        name: &'static str,
        source: &'static str,
        range: RangeInclusive<Ns>,
        place: &mut Ns,
    ) {
        let default = Value::Duration(*place);
        if let Some(Value::Duration(length)) =
            self.key(name, source, Kind::Duration(range), default)
        {
            *place = length;
        }
    }

    /// Zero is none, or never.
    pub(super) fn duration_or_none(
        &mut self,
        name: &'static str,
        source: &'static str,
        range: RangeInclusive<Ns>,
        place: &mut Option<Ns>,
    ) {
        let default = Value::Duration(place.unwrap_or(Ns::ZERO));
        let kind = Kind::DurationOrNone(range);
        if let Some(Value::Duration(length)) = self.key(name, source, kind, default) {
            *place = Some(length).filter(|length| *length > Ns::ZERO);
        }
    }

    /// Zero is never, and what the policy writes for it too.
    pub(super) fn period(
        &mut self,
        name: &'static str,
        source: &'static str,
        range: RangeInclusive<Ns>,
        place: &mut Ns,
    ) {
        let mut period = Some(*place).filter(|period| *period > Ns::ZERO);
        self.duration_or_none(name, source, range, &mut period);
        *place = period.unwrap_or(Ns::ZERO);
    }

    pub(super) fn number<T: Copy + TryFrom<u64> + TryInto<u64>>(
        &mut self,
        name: &'static str,
        source: &'static str,
        range: RangeInclusive<u64>,
        place: &mut T,
    ) {
        let default = Value::Number((*place).try_into().unwrap_or(u64::MAX));
        if let Some(Value::Number(number)) = self.key(name, source, Kind::Number(range), default)
            && let Ok(number) = T::try_from(number)
        {
            *place = number;
        }
    }

    pub(super) fn switch(&mut self, name: &'static str, source: &'static str, place: &mut bool) {
        let default = Value::Switch(*place);
        if let Some(Value::Switch(on)) = self.key(name, source, Kind::Switch, default) {
            *place = on;
        }
    }

    pub(super) fn word<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        source: &'static str,
        words: &[(&'static str, T)],
        place: &mut T,
    ) {
        let own = words.iter().find(|(_, value)| value == place);
        let default = Value::Word(own.map_or("", |(word, _)| word).to_owned());
        let kind = Kind::Word(words.iter().map(|(word, _)| *word).collect());
        if let Some(Value::Word(word)) = self.key(name, source, kind, default) {
            let chosen = words.iter().find(|(other, _)| *other == word);
            *place = chosen.map_or(*place, |(_, value)| *value);
        }
    }

    /// A part with keys of its own, under a switch of this name; what it has is listed
    /// whether it is on or not.
    pub(super) fn part<T: Clone>(
        &mut self,
        name: &'static str,
        source: &'static str,
        place: &mut Option<T>,
        default: T,
        keys: impl FnOnce(&mut Self, &mut T),
    ) {
        let mut on = place.is_some();
        self.switch(name, source, &mut on);
        let mut settings = place.take().unwrap_or(default);
        let outer = self.part.replace(name);
        keys(self, &mut settings);
        self.part = outer;
        *place = on.then_some(settings);
    }
}
