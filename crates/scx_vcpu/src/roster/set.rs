// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `scx_vcpu set` may change of a VM, and how it is named.

use std::ops::RangeInclusive;

use policy::host::ische::classify::Classifier;
use serde::Deserialize;
use serde::Serialize;
use thiserror::Error;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use super::Roster;
use super::Seat;
use super::Told;
use super::kind;
use crate::config::CAP_RANGE;
use crate::config::Class;
use crate::config::LATENCY_RANGE;
use crate::config::MAX_WEIGHT;
use crate::config::SLICE_RANGE;
use crate::config::Worth;
use crate::mask;

/// What a user wants to change; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The VM: the process id of its VMM, or a part of its command line that is not a number.
    pub vm: String,
    /// New weight.
    pub weight: Option<u32>,
    /// New class.
    pub class: Option<Class>,
    /// New cap in per cent of one pCPU; 0: no limit any more.
    pub cap: Option<u32>,
    /// New longest turn of its vCPUs; zero: as its policy says.
    pub slice: Option<Ns>,
    /// New rescheduling latency; zero: as its policy says.
    pub latency: Option<Ns>,
    /// pCPUs that it may use, of those that its owner allows; all of [`CpuSet`]: all of those.
    pub cpus: Option<CpuSet>,
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
    /// Out of range.
    #[error("{field} = {value}; use {} to {}, or 0s for what the policy says", range.0, range.1)]
    Time {
        /// What.
        field: &'static str,
        /// What was asked for.
        value: Ns,
        /// What would be right.
        range: (Ns, Ns),
    },
    /// No pCPU is left.
    #[error("cpus = {cpus}: vCPU {vcpu} may run on none of these; its own are {allowed}")]
    Cpus {
        /// What was asked for.
        cpus: String,
        /// A vCPU.
        vcpu: u32,
        /// Where its owner lets it run.
        allowed: String,
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
        let time = |field, value: Option<Ns>, range: RangeInclusive<Ns>| match value {
            Some(value) if value > Ns::ZERO && !range.contains(&value) => Err(SetError::Time {
                field,
                value,
                range: range.into_inner(),
            }),
            _ => Ok(()),
        };
        time("slice", change.slice, SLICE_RANGE)?;
        time("latency", change.latency, LATENCY_RANGE)?;
        let pid = self.find(&change.vm)?;
        let Some(vm) = self.vms.get_mut(&pid) else {
            return Err(SetError::Nobody(change.vm.clone()));
        };
        if let Some(cpus) = change.cpus {
            let may = |seat: &Seat| seat.allowed.iter().any(|cpu| cpus.contains(VcpuId(*cpu)));
            if let Some(seat) = vm.seats.values().find(|seat| !may(seat)) {
                return Err(SetError::Cpus {
                    cpus: cpus.to_string(),
                    vcpu: seat.found.vcpu,
                    allowed: mask::list(&seat.allowed),
                });
            }
            vm.worth.cpus = Some(cpus).filter(|cpus| cpus.len() < CpuSet::CAPACITY);
        }
        let worth = &mut vm.worth;
        let or_policy = |time: Ns| Some(time).filter(|time| *time > Ns::ZERO);
        worth.slice = change.slice.map_or(worth.slice, or_policy);
        worth.latency = change.latency.map_or(worth.latency, or_policy);
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
        // A process id and nothing else: the VM may have gone, and its number be a part of
        // another one's command line.
        if !pattern.is_empty() && pattern.bytes().all(|byte| byte.is_ascii_digit()) {
            let by_pid = pattern
                .parse()
                .ok()
                .filter(|pid| self.vms.contains_key(pid));
            return by_pid.ok_or_else(|| SetError::Nobody(pattern.to_owned()));
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
