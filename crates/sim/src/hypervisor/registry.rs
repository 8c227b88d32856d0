// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies by name, as scenarios ask for them.

use units::Ns;

use super::CfsSettings;
use super::FixedSettings;
use super::Hypervisor;
use super::Policy;
use super::Settings;
use super::named::published;

/// What a scenario says about sharing, whatever the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// VMs per pCPU, phantoms included.
    pub vms_per_pcpu: u32,
    /// How long one of them runs before the next one does, where a policy has one
    /// slice for all.
    pub slice: Ns,
    /// See [`FixedSettings::sweep_permille`].
    pub sweep_permille: u32,
}

/// The names that [`named`] knows, in the order of the documentation. To add a policy:
/// its module, one line here, one arm there or in `named.rs`, its kind and its keys in
/// `settings`.
pub const NAMES: &[&str] = &[
    "fixed",
    "cfs",
    "eevdf",
    "eevdf-slices",
    "credit1",
    "credit1-hardened",
    "credit2",
    "credit2-hardened",
    "isacs",
    "isacs-hardened",
    "ische",
    "ische-hardened",
    "ische-auto",
    "ische-auto-hardened",
    "vslicer",
    "blocking",
    "polling",
    "haltpoll",
    "haltpoll-enhanced",
    "vsmtio",
    "vsmtio-ltcr",
    "vsmtio-unbalanced",
    "balance",
    "cosched",
    "relaxed",
    "demand",
    "leaky-bucket",
    "jupiter",
    "jupiter-dats",
    "jupiter-dasl",
    "jupiter-elb",
    "jupiter-no-rcr",
];

/// A policy with its default settings, to be changed or built; `None` if there is none
/// of that name.
#[must_use]
pub fn named(name: &str, sharing: &Sharing) -> Option<Policy> {
    let name = NAMES.iter().find(|known| **known == name)?;
    let settings = match *name {
        "fixed" => Settings::Fixed(FixedSettings {
            slots: sharing.vms_per_pcpu,
            slice: sharing.slice,
            sweep_permille: sharing.sweep_permille,
            keeps_idle: false,
        }),
        "cfs" => Settings::Cfs(CfsSettings::with_slice(sharing.slice)),
        _ => published(name, sharing)?,
    };
    Some(Policy { name, settings })
}

/// The same, built.
#[must_use]
pub fn by_name(name: &str, sharing: &Sharing) -> Option<Box<dyn Hypervisor>> {
    named(name, sharing).map(Policy::build)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_policy_of_that_name() {
        let sharing = Sharing {
            vms_per_pcpu: 2,
            slice: Ns::from_ms(11),
            sweep_permille: 100,
        };
        for name in NAMES {
            let policy = by_name(name, &sharing);
            assert_eq!(policy.map(|policy| policy.name()), Some(*name));
        }
        assert!(by_name("none", &sharing).is_none());
    }
}
