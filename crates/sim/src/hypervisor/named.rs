// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published policies by name: their default settings and the variants that the
//! papers compare.

use policy::host::cosched::demand;
use policy::host::cosched::gang;
use policy::host::credit::credit1;
use policy::host::credit::credit2;
use policy::host::halt;
use policy::host::isacs;
use policy::host::ische::Settings as IscheSettings;
use policy::host::ische::classify;
use policy::host::jupiter::PERIOD;
use policy::host::vslicer;
use units::Ns;

use super::CfsSettings;
use super::CoschedSettings;
use super::Credit2Settings;
use super::EevdfSettings;
use super::IsacsSettings;
use super::JupiterSettings;
use super::Mode;
use super::Settings;
use super::Sharing;
use super::VsmtioSettings;

/// The settings of a published policy; `None` if there is none of that name.
pub(super) fn published(name: &str, sharing: &Sharing) -> Option<Settings> {
    let slice = sharing.slice;
    let ische = |automatic, hardened| {
        let mut rules = IscheSettings::default();
        if hardened {
            rules.credit = credit1::Settings::hardened();
        }
        Settings::Ische {
            rules,
            automatic,
            within_share: hardened,
            seed: 1,
        }
    };
    let classified = Some(classify::Settings::default());
    let isacs = |rules| {
        Settings::Isacs(IsacsSettings {
            rules,
            ..IsacsSettings::default()
        })
    };
    let credit2 = |rules| {
        Settings::Credit2(Credit2Settings {
            rules,
            ..Credit2Settings::default()
        })
    };
    Some(match name {
        "credit1" => Settings::Credit1(credit1::Settings::default()),
        "credit1-hardened" => Settings::Credit1(credit1::Settings::hardened()),
        "credit2" => credit2(credit2::Settings::default()),
        "credit2-hardened" => credit2(credit2::Settings::hardened()),
        "isacs" => isacs(isacs::Settings::default()),
        "isacs-hardened" => isacs(isacs::Settings::hardened()),
        "ische" => ische(None, false),
        "ische-hardened" => ische(None, true),
        "ische-auto" => ische(classified, false),
        "ische-auto-hardened" => ische(classified, true),
        // In KVM, where a slice is shorter than Xen's 30 ms, so is its part.
        "vslicer" => Settings::Vslicer(vslicer::Settings {
            slice,
            micro: slice / vslicer::Settings::default().turns(),
        }),
        "blocking" => waits(halt::Method::Blocking, sharing),
        "polling" => waits(halt::Method::Polling, sharing),
        "haltpoll" => waits(halt::Method::HaltPoll, sharing),
        "haltpoll-enhanced" => waits(halt::Method::EnhancedHaltPoll, sharing),
        "vsmtio" => Settings::Vsmtio(VsmtioSettings {
            slice,
            ..VsmtioSettings::default()
        }),
        // Context retention alone (Fig 3.6).
        "vsmtio-ltcr" => Settings::Vsmtio(VsmtioSettings {
            slice,
            rass: None,
            adjuster: None,
            ..VsmtioSettings::default()
        }),
        // With unbalanced scheduling, without the adjuster (Fig 3.6).
        "vsmtio-unbalanced" => Settings::Vsmtio(VsmtioSettings {
            slice,
            adjuster: None,
            ..VsmtioSettings::default()
        }),
        "eevdf" => Settings::Eevdf(EevdfSettings::default()),
        // VMs that are declared I/O-intensive get short slices; one that is shorter
        // than what follows an interrupt would make them wait in the middle of it.
        "eevdf-slices" => Settings::Eevdf(EevdfSettings {
            io_slice: Some(Ns::from_us(500)),
            ..EevdfSettings::default()
        }),
        "balance" => cosched(Mode::Balance, sharing),
        // O3: strict, all of the VM's vCPUs.
        "cosched" => {
            let strict = gang::Settings {
                members: gang::Members::All,
                ..gang::Settings::default()
            };
            cosched(Mode::Gang(strict), sharing)
        }
        "relaxed" => {
            let relaxed = gang::Settings {
                relax_permille: 500,
                ..gang::Settings::default()
            };
            cosched(Mode::Gang(relaxed), sharing)
        }
        "demand" => cosched(Mode::Demand(demand::Settings::default()), sharing),
        _ => Settings::Jupiter(jupiter(name, sharing)?),
    })
}

fn waits(method: halt::Method, sharing: &Sharing) -> Settings {
    Settings::Waits {
        below: CfsSettings::with_slice(sharing.slice),
        waits: halt::Settings {
            method,
            ..halt::Settings::default()
        },
    }
}

fn cosched(mode: Mode, sharing: &Sharing) -> Settings {
    Settings::Cosched(CoschedSettings {
        mode,
        slice: sharing.slice,
        wakeup_granularity: CfsSettings::default().wakeup_granularity,
    })
}

/// JUPITER, and with one part only (Fig 4.13).
fn jupiter(name: &str, sharing: &Sharing) -> Option<JupiterSettings> {
    let all = JupiterSettings {
        slice: sharing.slice,
        ..JupiterSettings::default()
    };
    let none = JupiterSettings {
        dats: None,
        dasl: None,
        rcr: None,
        elb: None,
        ..all.clone()
    };
    Some(match name {
        "jupiter" => all,
        "jupiter-dats" => JupiterSettings {
            dats: all.dats,
            ..none
        },
        "jupiter-dasl" => JupiterSettings {
            dasl: all.dasl,
            ..none
        },
        // O6, on balance scheduling: a bucket of one period.
        "leaky-bucket" => {
            let bucket = Some(PERIOD);
            let disable = None;
            JupiterSettings {
                bucket,
                disable,
                ..none
            }
        }
        // Fig 4.13 before RCR is added.
        "jupiter-no-rcr" => JupiterSettings { rcr: None, ..all },
        "jupiter-elb" => {
            let elb = all.elb;
            JupiterSettings { elb, ..none }
        }
        _ => return None,
    })
}
