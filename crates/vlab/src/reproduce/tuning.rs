// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host policies with what is open in them set by the parameters.

use policy::host::credit::credit2;
use policy::host::halt;
use policy::host::isacs;
use policy::host::isacs::EndTest;
use policy::host::ltcr;
use sim::hypervisor::Cfs;
use sim::hypervisor::CfsSettings;
use sim::hypervisor::Credit2;
use sim::hypervisor::Credit2Settings;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Isacs;
use sim::hypervisor::IsacsSettings;
use sim::hypervisor::NAMES;
use sim::hypervisor::Sharing;
use sim::hypervisor::Vsmtio;
use sim::hypervisor::VsmtioSettings;
use sim::hypervisor::Waits;
use sim::hypervisor::by_name;
use units::Ns;

use crate::run::Unusable;

/// What is open in the host policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// CFS cuts no slice shorter; `None`: Linux' 3 ms.
    pub(super) min_slice: Option<Ns>,
    /// Longest poll of enhanced HaltPoll.
    pub(super) poll_max: Ns,
    /// How far behind the running vCPU one that wakes has to be under CFS (C10's
    /// scheduling delay); `None`: Linux' 4 ms.
    pub(super) delay: Option<Ns>,
    /// pCPUs that share a run queue of Credit2 and ISACS.
    pub(super) per_queue: u32,
    /// ISACS's first phase ends when all have used their credit, not when the one
    /// with the most has.
    pub(super) isacs_all_spent: bool,
    /// ISACS's algorithm 2 as printed.
    pub(super) isacs_moves_any: bool,
    /// First timeout of vSMT-IO's context retention.
    pub(super) retain: Ns,
    /// See `VsmtioSettings::yields`.
    pub(super) yields: bool,
    /// Periods between two looks of vSMT-IO's adjuster.
    pub(super) adjust_every: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            min_slice: None,
            delay: None,
            per_queue: 1,
            poll_max: halt::Settings::default().enhanced_max,
            isacs_all_spent: false,
            isacs_moves_any: false,
            retain: ltcr::Settings::default().initial,
            yields: false,
            adjust_every: 1,
        }
    }
}

/// What is said of a policy that has its own slices, whatever `sharing.slice` is;
/// `None`: it has that slice.
pub(crate) fn own_slices(name: &str) -> Option<&'static str> {
    Some(match name {
        "credit1" | "credit1-hardened" => "30 ms, 10 ms after an I/O response",
        "ische" | "ische-auto" => "30 ms on general cores, 10 ms on I/O cores",
        "eevdf" => "3 ms",
        "eevdf-slices" => "3 ms, 500 us for I/O-intensive VMs",
        _ => return None,
    })
}

/// The policy of this name, the only way to one for a scenario and for an experiment;
/// what is open in it comes from the parameters. An error if there is none.
pub(crate) fn policy_of(
    name: &str,
    sharing: &Sharing,
    tuning: &Tuning,
) -> anyhow::Result<Box<dyn Hypervisor>> {
    let slice = sharing.slice;
    Ok(match name {
        "cfs" => {
            let mut settings = CfsSettings::with_slice(slice);
            settings.min_granularity = tuning.min_slice.unwrap_or(settings.min_granularity);
            settings.wakeup_granularity = tuning.delay.unwrap_or(settings.wakeup_granularity);
            Box::new(Cfs::new(settings))
        }
        "credit2" | "credit2-hardened" => {
            let (name, rules) = match name {
                "credit2" => ("credit2", credit2::Settings::default()),
                _ => ("credit2-hardened", credit2::Settings::hardened()),
            };
            let mut settings = Credit2Settings {
                rules,
                pcpus_per_queue: tuning.per_queue,
                ..Credit2Settings::default()
            };
            settings.rules.slice = slice;
            Box::new(Credit2::new(name, settings))
        }
        "isacs" | "isacs-hardened" => {
            let (name, rules) = match name {
                "isacs" => ("isacs", isacs::Settings::default()),
                _ => ("isacs-hardened", isacs::Settings::hardened()),
            };
            let mut settings = IsacsSettings {
                rules,
                moves_any: tuning.isacs_moves_any,
                pcpus_per_queue: tuning.per_queue,
                ..IsacsSettings::default()
            };
            settings.rules.slice = slice;
            // I17, I19: see parameters.toml.
            if tuning.isacs_all_spent {
                settings.rules.end_test = EndTest::AllSpent;
            }
            Box::new(Isacs::new(name, settings))
        }
        "haltpoll-enhanced" => {
            let settings = halt::Settings {
                method: halt::Method::EnhancedHaltPoll,
                enhanced_max: tuning.poll_max,
                ..halt::Settings::default()
            };
            let cfs = Cfs::new(CfsSettings::with_slice(slice));
            Box::new(Waits::new(Box::new(cfs), settings))
        }
        "vsmtio" | "vsmtio-ltcr" | "vsmtio-unbalanced" => {
            let all = VsmtioSettings {
                slice,
                ltcr: Some(ltcr::Settings {
                    initial: tuning.retain,
                    ..ltcr::Settings::default()
                }),
                yields: tuning.yields,
                adjust_every: tuning.adjust_every,
                ..VsmtioSettings::default()
            };
            match name {
                "vsmtio" => Box::new(Vsmtio::new("vsmtio", all)),
                "vsmtio-ltcr" => Box::new(Vsmtio::new(
                    "vsmtio-ltcr",
                    VsmtioSettings {
                        rass: None,
                        adjuster: None,
                        ..all
                    },
                )),
                _ => Box::new(Vsmtio::new(
                    "vsmtio-unbalanced",
                    VsmtioSettings {
                        adjuster: None,
                        ..all
                    },
                )),
            }
        }
        _ => by_name(name, sharing).ok_or_else(|| {
            Unusable(format!(
                "the host policy \"{name}\" does not exist; the simulator has {}",
                NAMES.join(", ")
            ))
        })?,
    })
}
