// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be set of a policy, by name: every reading of a source, every length that
//! it leaves open, every part that can be switched off.
//!
//! `field` has keys and values, `xen` and `kvm` the one description of each policy's
//! settings. A scenario's `[sim.policy]` is checked against [`Policy::keys`] and put in
//! by [`Policy::set`].

mod field;
mod kvm;
mod xen;

use std::ops::RangeInclusive;

use policy::host::credit::credit1;
use policy::host::halt;
use policy::host::ische as rules;
use policy::host::ische::classify;
use policy::host::vslicer;
use units::Ns;

pub use self::field::Key;
pub use self::field::Kind;
pub use self::field::SettingError;
pub use self::field::Value;
pub use self::field::Values;

use self::field::Fields;
use super::Cfs;
use super::CfsSettings;
use super::Cosched;
use super::CoschedSettings;
use super::Credit1;
use super::Credit2;
use super::Credit2Settings;
use super::Eevdf;
use super::EevdfSettings;
use super::Fixed;
use super::FixedSettings;
use super::Hypervisor;
use super::Isacs;
use super::IsacsSettings;
use super::Jupiter;
use super::JupiterSettings;
use super::Vslicer;
use super::Vsmtio;
use super::VsmtioSettings;
use super::Waits;
use super::ische;

/// What a slice or a period may be: as `sharing.slice` of a scenario.
fn slices() -> RangeInclusive<Ns> {
    Ns::from_us(200)..=Ns::from_secs(1)
}

/// What any other length may be.
fn lengths() -> RangeInclusive<Ns> {
    Ns::from_us(1)..=Ns::from_secs(10)
}

/// The settings of a policy, of whichever kind.
#[derive(Clone, Debug)]
pub enum Settings {
    /// Slices in turn.
    Fixed(FixedSettings),
    /// CFS.
    Cfs(CfsSettings),
    /// EEVDF.
    Eevdf(EevdfSettings),
    /// Credit1.
    Credit1(credit1::Settings),
    /// Credit2.
    Credit2(Credit2Settings),
    /// ISACS.
    Isacs(IsacsSettings),
    /// iSche.
    Ische {
        /// Its rules.
        rules: rules::Settings,
        /// VMs are classified by their counters, with these settings.
        automatic: Option<classify::Settings>,
        /// Nobody gains by being classified: our fix.
        within_share: bool,
        /// Of the choice of cores (S2).
        seed: u64,
    },
    /// vSlicer.
    Vslicer(vslicer::Settings),
    /// vCPUs that poll or block, above CFS.
    Waits {
        /// Who runs.
        below: CfsSettings,
        /// How a vCPU waits.
        waits: halt::Settings,
    },
    /// vSMT-IO.
    Vsmtio(VsmtioSettings),
    /// Balance scheduling and coscheduling.
    Cosched(CoschedSettings),
    /// JUPITER.
    Jupiter(JupiterSettings),
}

/// A policy by name, before it is built.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name in scenarios and results.
    pub name: &'static str,
    /// Its settings.
    pub settings: Settings,
}

impl Settings {
    /// Do VMs have no more than their caps under it (K1)?
    #[must_use]
    pub const fn heeds_caps(&self) -> bool {
        matches!(self, Self::Credit1(_) | Self::Ische { .. })
    }
}

impl Policy {
    /// What can be set of it, with what it is now; in a fixed order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let none = Values::new();
        let mut own = self.clone();
        own.visit(&none).0
    }

    /// Sets what is named. Parts come before what belongs to them, so that the order
    /// of the values does not matter; what belongs to a part that is off is without
    /// effect.
    ///
    /// # Errors
    /// It has no such key, or the value is none for it; then nothing is set.
    pub fn set(&mut self, values: &Values) -> Result<(), SettingError> {
        let mut next = self.clone();
        let (keys, wrong) = next.visit(values);
        let is_known = |name: &&String| keys.iter().any(|key| key.name == *name);
        if let Some(key) = values.keys().find(|name| !is_known(name)) {
            let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
            let known = match names.as_slice() {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            return Err(SettingError::Unknown {
                policy: self.name,
                key: key.clone(),
                known,
            });
        }
        if let Some((key, value)) = wrong {
            return Err(SettingError::Value {
                policy: self.name,
                key,
                value,
            });
        }
        *self = next;
        Ok(())
    }

    /// The one description of the settings, listed and set.
    fn visit(&mut self, values: &Values) -> (Vec<Key>, Option<(&'static str, Value)>) {
        let mut fields = Fields::new(values);
        match &mut self.settings {
            // A scenario's `[sharing]` says all of it.
            Settings::Fixed(_) => {}
            Settings::Cfs(own) => kvm::cfs(&mut fields, own),
            Settings::Eevdf(own) => kvm::eevdf(&mut fields, own),
            Settings::Credit1(own) => xen::credit1(&mut fields, own, true),
            Settings::Credit2(own) => xen::credit2(&mut fields, own),
            Settings::Isacs(own) => xen::isacs(&mut fields, own),
            Settings::Ische {
                rules,
                automatic,
                within_share,
                seed,
            } => xen::ische(&mut fields, rules, automatic, within_share, seed),
            Settings::Vslicer(own) => xen::vslicer(&mut fields, own),
            Settings::Waits { below, waits } => kvm::waits(&mut fields, below, waits),
            Settings::Vsmtio(own) => kvm::vsmtio(&mut fields, own),
            Settings::Cosched(own) => kvm::cosched(&mut fields, own),
            Settings::Jupiter(own) => kvm::jupiter(&mut fields, own),
        }
        fields.finish()
    }

    /// Ready to schedule.
    #[must_use]
    pub fn build(self) -> Box<dyn Hypervisor> {
        let name = self.name;
        match self.settings {
            Settings::Fixed(own) => Box::new(Fixed::new(own)),
            Settings::Cfs(own) => Box::new(Cfs::new(own)),
            Settings::Eevdf(own) => Box::new(Eevdf::new(name, own)),
            Settings::Credit1(own) => Box::new(Credit1::new(name, own)),
            Settings::Credit2(own) => Box::new(Credit2::new(name, own)),
            Settings::Isacs(own) => Box::new(Isacs::new(name, own)),
            Settings::Ische {
                rules,
                automatic,
                within_share,
                seed,
            } => Box::new(ische(name, &rules, automatic, within_share, seed)),
            Settings::Vslicer(own) => Box::new(Vslicer::new(own)),
            Settings::Waits { below, waits } => {
                Box::new(Waits::new(Box::new(Cfs::new(below)), waits))
            }
            Settings::Vsmtio(own) => Box::new(Vsmtio::new(name, own)),
            Settings::Cosched(own) => Box::new(Cosched::new(name, own)),
            Settings::Jupiter(own) => Box::new(Jupiter::new(name, own)),
        }
    }
}

#[cfg(test)]
mod tests;
