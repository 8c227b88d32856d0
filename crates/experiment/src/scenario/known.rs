// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario can name that this crate does not have.

use toml::Spanned;

use super::KnownPolicy;
use super::Parameters;
use super::ScenarioError;
use super::error::Locator;
use super::validate::value::identifier;
use super::validate::value::quoted;

/// What the simulator has, for scenarios that name it.
///
/// A list that is empty is not looked at: any name will do. [`super::Scenario::parse`]
/// does so, since no real machine has what these name.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Numbers, for texts with `$`.
    pub parameters: Parameters,
    /// Host policies, for `sim.host`, `sim.policy` and arms of kind `host`.
    pub hosts: Vec<KnownPolicy>,
    /// Platforms, for `sim.platform`.
    pub platforms: Vec<String>,
    /// Applications, for loads of kind `profile`.
    pub profiles: Vec<String>,
}

impl Known {
    /// Names of the host policies.
    pub(super) fn host_names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }
}

/// One of `names`, or of no names any identifier.
pub(super) fn chosen(
    name: Spanned<String>,
    field: &str,
    names: &[String],
    at: &Locator<'_>,
) -> Result<String, ScenarioError> {
    if names.is_empty() {
        return identifier(name, field, at);
    }
    if names.contains(name.as_ref()) {
        return Ok(name.into_inner());
    }
    let expected = format!("write one of {}", names.join(", "));
    Err(at.value(name.span(), field, quoted(name.as_ref()), expected))
}
