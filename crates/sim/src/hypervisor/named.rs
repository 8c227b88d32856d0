// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published policies by name, with their default settings and the variants
//! that the papers compare.

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

use super::Cfs;
use super::CfsSettings;
use super::Cosched;
use super::CoschedSettings;
use super::Credit1;
use super::Credit2;
use super::Credit2Settings;
use super::Eevdf;
use super::EevdfSettings;
use super::Hypervisor;
use super::Isacs;
use super::IsacsSettings;
use super::Jupiter;
use super::JupiterSettings;
use super::Mode;
use super::Sharing;
use super::Vslicer;
use super::Vsmtio;
use super::VsmtioSettings;
use super::Waits;
use super::ische;
use super::ische_hardened;

/// A published policy; `None` if there is none of that name.
pub(super) fn published(name: &str, sharing: &Sharing) -> Option<Box<dyn Hypervisor>> {
    let slice = sharing.slice;
    Some(match name {
        "credit1" => Box::new(Credit1::new("credit1", credit1::Settings::default())),
        "credit1-hardened" => Box::new(Credit1::new(
            "credit1-hardened",
            credit1::Settings::hardened(),
        )),
        "credit2" => Box::new(Credit2::new("credit2", Credit2Settings::default())),
        "credit2-hardened" => Box::new(Credit2::new(
            "credit2-hardened",
            Credit2Settings {
                rules: credit2::Settings::hardened(),
                ..Credit2Settings::default()
            },
        )),
        "isacs" => Box::new(Isacs::new("isacs", IsacsSettings::default())),
        "isacs-hardened" => Box::new(Isacs::new(
            "isacs-hardened",
            IsacsSettings {
                rules: isacs::Settings::hardened(),
                ..IsacsSettings::default()
            },
        )),
        "ische" => Box::new(ische(&IscheSettings::default(), None, 1)),
        "ische-hardened" => Box::new(ische_hardened(&IscheSettings::default(), None, 1)),
        "ische-auto-hardened" => Box::new(ische_hardened(
            &IscheSettings::default(),
            Some(classify::Settings::default()),
            1,
        )),
        "ische-auto" => Box::new(ische(
            &IscheSettings::default(),
            Some(classify::Settings::default()),
            1,
        )),
        // In KVM, where a slice is shorter than Xen's 30 ms, so is its part.
        "vslicer" => Box::new(Vslicer::new(vslicer::Settings {
            slice,
            micro: slice / vslicer::Settings::default().turns(),
        })),
        "blocking" => waits(halt::Method::Blocking, sharing),
        "polling" => waits(halt::Method::Polling, sharing),
        "haltpoll" => waits(halt::Method::HaltPoll, sharing),
        "haltpoll-enhanced" => waits(halt::Method::EnhancedHaltPoll, sharing),
        "vsmtio" => Box::new(Vsmtio::new(
            "vsmtio",
            VsmtioSettings {
                slice,
                ..VsmtioSettings::default()
            },
        )),
        // Context retention alone (Fig 3.6).
        "vsmtio-ltcr" => Box::new(Vsmtio::new(
            "vsmtio-ltcr",
            VsmtioSettings {
                slice,
                rass: None,
                adjuster: None,
                ..VsmtioSettings::default()
            },
        )),
        // With unbalanced scheduling, without the adjuster (Fig 3.6).
        "vsmtio-unbalanced" => Box::new(Vsmtio::new(
            "vsmtio-unbalanced",
            VsmtioSettings {
                slice,
                adjuster: None,
                ..VsmtioSettings::default()
            },
        )),
        "eevdf" => Box::new(Eevdf::new("eevdf", EevdfSettings::default())),
        // VMs that are declared I/O-intensive get short slices; one that is shorter
        // than what follows an interrupt would make them wait in the middle of it.
        "eevdf-slices" => Box::new(Eevdf::new(
            "eevdf-slices",
            EevdfSettings {
                io_slice: Some(Ns::from_us(500)),
                ..EevdfSettings::default()
            },
        )),
        "balance" => cosched("balance", Mode::Balance, sharing),
        // O3: strict, all of the VM's vCPUs.
        "cosched" => {
            let strict = gang::Settings {
                members: gang::Members::All,
                ..gang::Settings::default()
            };
            cosched("cosched", Mode::Gang(strict), sharing)
        }
        "relaxed" => {
            let relaxed = gang::Settings {
                relax_permille: 500,
                ..gang::Settings::default()
            };
            cosched("relaxed", Mode::Gang(relaxed), sharing)
        }
        "demand" => cosched("demand", Mode::Demand(demand::Settings::default()), sharing),
        _ => return jupiter(name, sharing),
    })
}

fn waits(method: halt::Method, sharing: &Sharing) -> Box<dyn Hypervisor> {
    let settings = halt::Settings {
        method,
        ..halt::Settings::default()
    };
    let cfs = Cfs::new(CfsSettings::with_slice(sharing.slice));
    Box::new(Waits::new(Box::new(cfs), settings))
}

fn cosched(name: &'static str, mode: Mode, sharing: &Sharing) -> Box<dyn Hypervisor> {
    let settings = CoschedSettings {
        mode,
        slice: sharing.slice,
        wakeup_granularity: CfsSettings::default().wakeup_granularity,
    };
    Box::new(Cosched::new(name, settings))
}

/// JUPITER, and with one part only (Fig 4.13).
fn jupiter(name: &str, sharing: &Sharing) -> Option<Box<dyn Hypervisor>> {
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
    let (name, settings) = match name {
        "jupiter" => ("jupiter", all),
        "jupiter-dats" => {
            let (dats, rcr) = (all.dats, all.rcr);
            ("jupiter-dats", JupiterSettings { dats, rcr, ..none })
        }
        "jupiter-dasl" => {
            let (dasl, rcr) = (all.dasl, all.rcr);
            ("jupiter-dasl", JupiterSettings { dasl, rcr, ..none })
        }
        // O6, on balance scheduling: a bucket of one period.
        "leaky-bucket" => {
            let bucket = Some(PERIOD);
            let disable = None;
            (
                "leaky-bucket",
                JupiterSettings {
                    bucket,
                    disable,
                    ..none
                },
            )
        }
        // Fig 4.13 before RCR is added.
        "jupiter-no-rcr" => ("jupiter-no-rcr", JupiterSettings { rcr: None, ..all }),
        "jupiter-elb" => {
            let elb = all.elb;
            ("jupiter-elb", JupiterSettings { elb, ..none })
        }
        _ => return None,
    };
    Some(Box::new(Jupiter::new(name, settings)))
}
