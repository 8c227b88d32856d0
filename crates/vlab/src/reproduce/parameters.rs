// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open parameters (14) as data, each with the published rows that fixed it.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;
use units::Ns;

use crate::run::Unusable;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    parameter: Vec<Parameter>,
}

/// One parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) value: f64,
    /// Rows of published.toml, as `experiment/row`; empty: a choice.
    #[serde(default)]
    pub(super) fixed_by: Vec<String>,
    /// Where it comes from otherwise, or why it is what it is.
    pub(super) why: String,
}

/// All parameters.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    all: BTreeMap<String, Parameter>,
}

impl Parameters {
    /// The project's parameters, some of them replaced (`name=value`).
    pub(super) fn load(set: &[String]) -> anyhow::Result<Self> {
        let file: File =
            toml::from_str(include_str!("parameters.toml")).context("parameters.toml")?;
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
            let names: Vec<String> = all.keys().cloned().collect();
            let Some(parameter) = all.get_mut(name) else {
                return Err(Unusable(format!(
                    "--set {text}: there is no parameter \"{name}\"; there are {}",
                    names.join(", ")
                ))
                .into());
            };
            parameter.value = value;
        }
        Ok(Self { all })
    }

    /// All of them, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.all.values()
    }

    /// A number.
    pub(super) fn get(&self, name: &str) -> anyhow::Result<f64> {
        let parameter = self.all.get(name);
        let parameter = parameter.with_context(|| format!("parameters.toml has no {name}"))?;
        Ok(parameter.value)
    }

    /// A length given in microseconds.
    pub(super) fn us(&self, name: &str) -> anyhow::Result<Ns> {
        Ok(Ns((self.get(name)?.max(0.0) * 1000.0) as u64))
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
