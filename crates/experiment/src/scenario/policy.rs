// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario sets of a host policy, and what a policy has: for the simulator, which
//! tells both ([`super::Known`]).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

/// What one key is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyValue {
    /// A length.
    Duration(Ns),
    /// A whole number.
    Number(u64),
    /// On or off.
    Switch(bool),
    /// One of the key's words.
    Word(String),
}

/// What is set of a policy, by key.
pub type PolicySettings = BTreeMap<String, PolicyValue>;

/// A host policy of the simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPolicy {
    /// Its name.
    pub name: String,
    /// What can be set of it.
    pub keys: Vec<PolicyKey>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyKey {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub kind: PolicyKind,
    /// The switch without which it means nothing, and what that is if nothing is said.
    pub part: Option<(String, bool)>,
}

/// What a key takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// A length in this range.
    Duration(RangeInclusive<Ns>),
    /// The same, or zero for none.
    DurationOrNone(RangeInclusive<Ns>),
    /// A whole number in this range.
    Number(RangeInclusive<u64>),
    /// On or off.
    Switch,
    /// One of these.
    Word(Vec<String>),
}
