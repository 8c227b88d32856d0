// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open parameters (14) as data, each with the published rows that fixed it, and what
//! the sources state of the set-ups (`setup.toml`).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;

use anyhow::Context;
use serde::Deserialize;
use units::Ns;

use super::workloads::Workloads;
use crate::run::Unusable;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    parameter: Vec<Parameter>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    constant: Vec<Constant>,
}

/// What a source states of a set-up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) value: f64,
    /// The paragraph of mechanisms.md.
    pub(super) source: String,
}

/// One parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) value: f64,
    /// Rows of published.toml, as `experiment/row`, that fixed it, or from which `--fit`
    /// began; empty: none in particular.
    #[serde(default)]
    pub(super) fixed_by: Vec<String>,
    /// Values whose effect is shown instead of half and twice the value: for a switch,
    /// a zero, or where half and twice would mean nothing.
    #[serde(default, rename = "try")]
    pub(super) others: Vec<f64>,
    /// Where `--fit` looks for it, least and most: what is plausible. Without: among
    /// `try`, or nowhere.
    #[serde(default)]
    pub(super) range: Option<[f64; 2]>,
    /// Another parameter with which `--fit` moves it together as well: rows that ask for a
    /// ratio of the two hold both where they are.
    #[serde(default)]
    pub(super) trades_with: Option<String>,
    /// `--fit` leaves it as it is.
    #[serde(default)]
    pub(super) kept_as_it_is: bool,
    /// Where it comes from otherwise, or why it is what it is.
    pub(super) why: String,
    /// Its value was replaced.
    #[serde(skip)]
    pub(super) set: bool,
}

impl Parameter {
    /// As it is kept in a file.
    pub(super) fn kept(&self) -> experiment::reproduction::Parameter {
        experiment::reproduction::Parameter {
            name: self.name.clone(),
            value: self.value,
            set: self.set,
            fixed_by: self.fixed_by.clone(),
            origin: self.origin(),
            why: self.why.clone(),
        }
    }

    /// Where its value comes from.
    pub(super) fn origin(&self) -> String {
        let rows = self.fixed_by.join(", ");
        let fitted = match self.range {
            Some([least, most]) => format!("fitted from {least} to {most}"),
            None if self.is_fitted() => {
                let others: Vec<String> = self.others.iter().map(f64::to_string).collect();
                format!("fitted, or else {}", others.join(", "))
            }
            None if rows.is_empty() => return "a choice".to_owned(),
            None => return format!("fixed by {rows}"),
        };
        match rows.is_empty() {
            true => fitted,
            false => format!("{fitted}, first fixed by {rows}"),
        }
    }

    /// May `--fit` choose another value?
    pub(super) fn is_fitted(&self) -> bool {
        self.range.is_some() || (!self.kept_as_it_is && !self.others.is_empty())
    }

    /// Values whose effect is worth showing.
    pub(super) fn others(&self) -> Vec<f64> {
        if self.others.is_empty() {
            vec![self.value / 2.0, self.value * 2.0]
        } else {
            self.others.clone()
        }
    }
}

/// All parameters.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    all: BTreeMap<String, Parameter>,
    stated: Arc<BTreeMap<String, Constant>>,
    workloads: Arc<Workloads>,
    /// Names that have been asked for, if somebody wants to know.
    read: Option<Arc<Mutex<BTreeSet<String>>>>,
}

impl Parameters {
    /// The project's parameters, some of them replaced (`name=value`).
    pub(super) fn load(set: &[String]) -> anyhow::Result<Self> {
        let file: File =
            toml::from_str(include_str!("parameters.toml")).context("parameters.toml")?;
        let setup: Setup = toml::from_str(include_str!("setup.toml")).context("setup.toml")?;
        let constants = setup.constant.into_iter();
        let stated: BTreeMap<String, Constant> = constants.map(|c| (c.name.clone(), c)).collect();
        let mut all: BTreeMap<String, Parameter> = file
            .parameter
            .into_iter()
            .map(|p| (p.name.clone(), p))
            .collect();
        for text in set {
            let parsed = text
                .split_once('=')
                .and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
            let Some((name, value)) = parsed.filter(|(_, value)| value.is_finite()) else {
                return Err(Unusable(format!("--set {text}: name=number is expected")).into());
            };
            if let Some(constant) = stated.get(name) {
                return Err(Unusable(format!(
                    "--set {text}: {name} is not open, its source states {} ({})",
                    constant.value, constant.source
                ))
                .into());
            }
            let names: Vec<String> = all.keys().cloned().collect();
            let Some(parameter) = all.get_mut(name) else {
                return Err(Unusable(format!(
                    "--set {text}: there is no parameter \"{name}\"; there are {}",
                    names.join(", ")
                ))
                .into());
            };
            parameter.value = value;
            parameter.set = true;
        }
        Ok(Self {
            all,
            stated: Arc::new(stated),
            workloads: Arc::new(Workloads::load()?),
            read: None,
        })
    }

    /// The same, and [`Self::read`] will tell what was asked for.
    pub(super) fn watched(&self) -> Self {
        Self {
            all: self.all.clone(),
            stated: Arc::clone(&self.stated),
            workloads: Arc::clone(&self.workloads),
            read: Some(Arc::default()),
        }
    }

    /// What the programs do.
    pub(super) fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// Remembers that somebody has asked for this.
    pub(super) fn note(&self, name: &str) {
        if let Some(mut read) = self.read.as_ref().and_then(|read| read.lock().ok()) {
            read.insert(name.to_owned());
        }
    }

    /// The names that have been asked for since [`Self::watched`], those of workloads among
    /// them.
    pub(super) fn read(&self) -> Vec<String> {
        let read = self.read.as_ref().and_then(|read| read.lock().ok());
        read.map_or(Vec::new(), |read| read.iter().cloned().collect())
    }

    /// The same but for one value.
    pub(super) fn with(&self, name: &str, value: f64) -> Self {
        let mut all = self.all.clone();
        if let Some(parameter) = all.get_mut(name) {
            parameter.value = value;
        }
        Self {
            all,
            stated: Arc::clone(&self.stated),
            workloads: Arc::clone(&self.workloads),
            read: None,
        }
    }

    /// What the sources state, by name.
    pub(super) fn stated(&self) -> impl Iterator<Item = &Constant> {
        self.stated.values()
    }

    /// All open ones, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.all.values()
    }

    /// A number, open or stated.
    pub(super) fn get(&self, name: &str) -> anyhow::Result<f64> {
        if let Some(constant) = self.stated.get(name) {
            return Ok(constant.value);
        }
        let parameter = self.all.get(name);
        let parameter =
            parameter.with_context(|| format!("parameters.toml and setup.toml have no {name}"))?;
        self.note(name);
        Ok(parameter.value)
    }

    /// A length given in microseconds.
    pub(super) fn us(&self, name: &str) -> anyhow::Result<Ns> {
        Ok(Ns((self.get(name)?.max(0.0) * 1000.0) as u64))
    }

    /// A length given in milliseconds.
    pub(super) fn ms(&self, name: &str) -> anyhow::Result<Ns> {
        Ok(Ns((self.get(name)?.max(0.0) * 1e6) as u64))
    }

    /// How many, or thousandths.
    pub(super) fn count(&self, name: &str) -> anyhow::Result<u32> {
        Ok(self.get(name)?.max(0.0) as u32)
    }

    /// A whole number.
    pub(super) fn whole(&self, name: &str) -> anyhow::Result<u64> {
        Ok(self.get(name)?.max(0.0) as u64)
    }

    /// Was a published row used to fix anything?
    pub(super) fn used(&self, row: &str) -> bool {
        self.all
            .values()
            .any(|p| p.fixed_by.iter().any(|f| f == row))
    }
}
