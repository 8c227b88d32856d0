// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `scx_vcpu set` may change of a VM, and how it is named.

use policy::host::ische::classify::Classifier;
use serde::Deserialize;
use serde::Serialize;
use thiserror::Error;

use super::Roster;
use super::Told;
use super::kind;
use crate::config::CAP_RANGE;
use crate::config::Class;
use crate::config::MAX_WEIGHT;
use crate::config::Worth;

/// What a user wants to change; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The VM: the process id of its VMM, or a part of its command line.
    pub vm: String,
    /// New weight.
    pub weight: Option<u32>,
    /// New class.
    pub class: Option<Class>,
    /// New cap in per cent of one pCPU; 0: no limit any more.
    pub cap: Option<u32>,
}

/// A change that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetError {
    /// No such VM.
    #[error(
        "no VM that is scheduled has {0:?} in its command line or as its process id; `scx_vcpu list` has them"
    )]
    Nobody(String),
    /// More than one.
    #[error("{pattern:?} fits VMs {vms:?}; name one by its process id")]
    Several {
        /// What was asked for.
        pattern: String,
        /// Process ids of their VMMs.
        vms: Vec<u32>,
    },
    /// Out of range.
    #[error("{field} = {value}; use {} to {}", range.0, range.1)]
    Range {
        /// What.
        field: &'static str,
        /// What was asked for.
        value: u32,
        /// What would be right.
        range: (u32, u32),
    },
}

impl Roster {
    /// Changes a VM, and says what it is worth now.
    pub(crate) fn set(&mut self, change: &Change) -> Result<(u32, Worth, Told), SetError> {
        let range = |field, value: Option<u32>, from, to| match value {
            Some(value) if !(from..=to).contains(&value) => Err(SetError::Range {
                field,
                value,
                range: (from, to),
            }),
            _ => Ok(()),
        };
        range("weight", change.weight, 1, MAX_WEIGHT)?;
        range("cap", change.cap, 0, *CAP_RANGE.end())?;
        let pid = self.find(&change.vm)?;
        let Some(vm) = self.vms.get_mut(&pid) else {
            return Err(SetError::Nobody(change.vm.clone()));
        };
        let worth = &mut vm.worth;
        worth.weight = change.weight.unwrap_or(worth.weight);
        if let Some(cap) = change.cap {
            worth.cap = (cap > 0).then_some(cap);
        }
        if let Some(class) = change.class {
            worth.class = class;
            vm.classifier = Classifier::new(kind(class));
        }
        let worth = *worth;
        Ok((pid, worth, self.tell(pid)))
    }

    fn find(&self, pattern: &str) -> Result<u32, SetError> {
        let by_pid = pattern
            .parse()
            .ok()
            .filter(|pid| self.vms.contains_key(pid));
        if let Some(pid) = by_pid {
            return Ok(pid);
        }
        let named = self.vms.iter().filter(|(_, vm)| vm.line.contains(pattern));
        let vms: Vec<u32> = named.map(|(pid, _)| *pid).collect();
        match vms.as_slice() {
            _ if pattern.is_empty() => Err(SetError::Nobody(String::new())),
            [] => Err(SetError::Nobody(pattern.to_owned())),
            [pid] => Ok(*pid),
            _ => Err(SetError::Several {
                pattern: pattern.to_owned(),
                vms,
            }),
        }
    }
}
