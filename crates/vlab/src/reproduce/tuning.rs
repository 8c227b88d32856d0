// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host policies with what is open in them set by the parameters.

use anyhow::Context;
use policy::host::halt;
use policy::host::isacs::EndTest;
use policy::host::ltcr;
use sim::hypervisor::Cfs;
use sim::hypervisor::CfsSettings;
use sim::hypervisor::Credit2;
use sim::hypervisor::Credit2Settings;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Isacs;
use sim::hypervisor::IsacsSettings;
use sim::hypervisor::Sharing;
use sim::hypervisor::Vsmtio;
use sim::hypervisor::VsmtioSettings;
use sim::hypervisor::Waits;
use sim::hypervisor::by_name;
use units::Ns;

use super::mix::Mix;

/// What is open in the host policies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
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

/// The policy of this name; what is open in it comes from the parameters.
pub(super) fn policy_of(mix: &Mix, name: &str) -> anyhow::Result<Box<dyn Hypervisor>> {
    let (slice, tuning) = (mix.slice, mix.tuning);
    Ok(match name {
        "cfs" => {
            let mut settings = CfsSettings::with_slice(slice);
            settings.min_granularity = tuning.min_slice.unwrap_or(settings.min_granularity);
            settings.wakeup_granularity = tuning.delay.unwrap_or(settings.wakeup_granularity);
            Box::new(Cfs::new(settings))
        }
        "credit2" => {
            let mut settings = Credit2Settings {
                pcpus_per_queue: tuning.per_queue,
                ..Credit2Settings::default()
            };
            settings.rules.slice = slice;
            Box::new(Credit2::new(settings))
        }
        "isacs" => {
            let mut settings = IsacsSettings {
                moves_any: tuning.isacs_moves_any,
                pcpus_per_queue: tuning.per_queue,
                ..IsacsSettings::default()
            };
            settings.rules.slice = slice;
            // I17, I19: see parameters.toml.
            if tuning.isacs_all_spent {
                settings.rules.end_test = EndTest::AllSpent;
            }
            Box::new(Isacs::new("isacs", settings))
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
        _ => {
            let sharing = Sharing {
                vms_per_pcpu: mix.vms.len() as u32,
                slice,
                sweep_permille: 0,
            };
            by_name(name, &sharing).with_context(|| format!("no policy {name}"))?
        }
    })
}
