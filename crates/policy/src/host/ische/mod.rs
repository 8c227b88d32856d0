// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSche (S1..S9): some cores for I/O, the others for computing.
//!
//! The administrator says how many cores are general cores and which VM is
//! I/O-intensive. [`label`] picks that many at random (S2); I/O-intensive VMs run
//! on I/O cores with 10 ms slices, all others and DOM0 on general cores under
//! unmodified Credit1 with 30 ms slices (S1, S3, S5, S6). [`classify`] is our
//! option for S4: the VM's type from its counters instead of by hand.
//!
//! # Limits
//!
//! As published an I/O core whose VMs sleep idles while general cores are full
//! (S8); [`Settings::idle_io_core`] is the switch. The share of a VM is that of
//! its class's cores, which no weight evens out (S7 measures no fairness).

use units::Ns;

use super::credit::credit1;

pub mod classify;

/// What the published text fixes and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many cores are general cores (S2). Not stated for the evaluation
    /// (S8); half of four, rounded up with DOM0 in mind.
    pub general_cores: usize,
    /// Slice on a general core: 30 ms (S6).
    pub general_slice: Ns,
    /// Slice on an I/O core: 10 ms (S6).
    pub io_slice: Ns,
    /// What an I/O core does when no I/O-intensive vCPU is ready (S8).
    pub idle_io_core: IdleIoCore,
    /// The credit rules that otherwise hold (S5).
    pub credit: credit1::Settings,
}

/// S8: not stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleIoCore {
    /// It idles: S5 as worded takes VMs from the I/O list only.
    Idles,
    /// It takes a CPU-intensive vCPU until an I/O-intensive one is ready.
    TakesCpuVms,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            general_cores: 2,
            general_slice: Ns::from_ms(30),
            io_slice: Ns::from_ms(10),
            idle_io_core: IdleIoCore::Idles,
            credit: credit1::Settings::default(),
        }
    }
}

/// What a core is for (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// DOM0 and CPU-intensive VMs.
    General,
    /// I/O-intensive VMs.
    Io,
}

/// What a VM is (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// DOM0: always CPU-intensive, on one general core (S3).
    Dom0,
    /// CPU-intensive.
    Cpu,
    /// I/O-intensive.
    Io,
}

/// Labels `cores` cores, `general` of them as general cores chosen at random
/// (S2); all again whenever the configuration changes. At least one is a general
/// core, as DOM0 needs one (S3). The same seed gives the same labels.
#[must_use]
pub fn label(cores: usize, general: usize, seed: u64) -> Vec<Core> {
    let general = general.clamp(1, cores.max(1));
    let mut order: Vec<usize> = (0..cores).collect();
    let mut state = seed;
    // Fisher and Yates: each choice of cores is as likely as any other.
    for last in (1..cores).rev() {
        let at = usize::try_from(next_random(&mut state) % (last as u64 + 1)).unwrap_or(0);
        order.swap(last, at);
    }
    let mut labels = vec![Core::Io; cores];
    for &core in order.iter().take(general) {
        labels[core] = Core::General;
    }
    labels
}

/// SplitMix64: enough for a choice of cores, and the same everywhere.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The cores a VM's vCPUs are pinned to (S5); DOM0 to the first general one
/// (S3). If there is no core of its kind, every core.
#[must_use]
pub fn pins(kind: Kind, labels: &[Core]) -> Vec<usize> {
    let of = |core: Core| {
        (0..labels.len())
            .filter(|&c| labels[c] == core)
            .collect::<Vec<_>>()
    };
    let mine = match kind {
        Kind::Dom0 => of(Core::General).into_iter().take(1).collect(),
        Kind::Cpu => of(Core::General),
        Kind::Io => of(Core::Io),
    };
    if mine.is_empty() {
        (0..labels.len()).collect()
    } else {
        mine
    }
}

/// Slice of a vCPU in this class of Credit1 on this core (S6). BOOST keeps
/// Credit1's length, S5 and S7 leave the rest of Credit1 alone.
#[must_use]
pub fn slice(core: Core, vcpu: &credit1::Vcpu, settings: &Settings) -> Ns {
    if vcpu.priority(&settings.credit) == credit1::Priority::Boost {
        return settings.credit.boost_slice;
    }
    match core {
        Core::General => settings.general_slice,
        Core::Io => settings.io_slice,
    }
}

/// The next vCPU of a core's queue (S5): of the core's own list by credit rules,
/// else as [`Settings::idle_io_core`] says. `kind_of` gives the type of the VM
/// that a position of the table belongs to.
#[must_use]
pub fn pick(
    core: Core,
    queue: &credit1::RunQ,
    table: &[credit1::Vcpu],
    kind_of: impl Fn(usize) -> Kind,
    settings: &Settings,
) -> Option<usize> {
    let ready = |v: usize| table.get(v).is_some_and(|v| !v.is_capped(&settings.credit));
    let first = |wanted: &dyn Fn(Kind) -> bool| {
        queue
            .as_slice()
            .iter()
            .copied()
            .find(|&v| ready(v) && wanted(kind_of(v)))
    };
    match (core, settings.idle_io_core) {
        (Core::General, _) => first(&|_| true),
        (Core::Io, IdleIoCore::Idles) => first(&|kind| kind == Kind::Io),
        (Core::Io, IdleIoCore::TakesCpuVms) => {
            first(&|kind| kind == Kind::Io).or_else(|| first(&|kind| kind == Kind::Cpu))
        }
    }
}

#[cfg(test)]
mod tests;
