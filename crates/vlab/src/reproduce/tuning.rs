// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host policies with what is open in them set by the parameters.

use policy::host::cosched::demand;
use policy::host::credit::credit2;
use policy::host::halt;
use policy::host::isacs::EndTest;
use policy::host::isacs::WakeInBoost;
use policy::host::jupiter::rcr::Half;
use policy::host::ltcr;
use sim::hypervisor::CfsSettings;
use sim::hypervisor::Hypervisor;
use sim::hypervisor::Mode;
use sim::hypervisor::NAMES;
use sim::hypervisor::Policy;
use sim::hypervisor::Settings;
use sim::hypervisor::Sharing;
use sim::hypervisor::Values;
use sim::hypervisor::named;
use units::Ns;

use crate::run::Unusable;

/// What is open in the host policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// See `CfsSettings::tick`.
    pub(super) tick: Ns,
    /// CFS cuts no slice shorter; `None`: Linux' 3 ms.
    pub(super) min_slice: Option<Ns>,
    /// Longest poll of enhanced HaltPoll.
    pub(super) poll_max: Ns,
    /// See `halt::Settings::adapts`.
    pub(super) poll_adapts: bool,
    /// See `halt::Settings::until_it_runs`.
    pub(super) poll_until_it_runs: bool,
    /// How far behind the running vCPU one that wakes has to be under CFS (C10's
    /// scheduling delay); `None`: Linux' 4 ms.
    pub(super) delay: Option<Ns>,
    /// See `CfsSettings::idle_scan`.
    pub(super) idle_scan: u32,
    /// See `CfsSettings::newidle_after`.
    pub(super) newidle_after: Ns,
    /// pCPUs that share a run queue of Credit2 and ISACS.
    pub(super) per_queue: u32,
    /// Credit2 with what Xen 4.12 adds to the published text.
    pub(super) as_xen_4_12: bool,
    /// ISACS likewise.
    pub(super) isacs_as_xen_4_12: bool,
    /// ISACS's first phase ends when all have used their credit, not when the one
    /// with the most has.
    pub(super) isacs_all_spent: bool,
    /// ISACS's algorithm 2 as printed.
    pub(super) isacs_moves_any: bool,
    /// A vCPU outside ISACS's group that wakes in phase 2 preempts (A6).
    pub(super) isacs_wake_preempts: bool,
    /// First timeout of vSMT-IO's context retention.
    pub(super) retain: Ns,
    /// What vSMT-IO measures for before it decides anything anew.
    pub(super) period: Ns,
    /// See `VsmtioSettings::yields`.
    pub(super) yields: bool,
    /// See `VsmtioSettings::groups`.
    pub(super) vsmtio_groups: bool,
    /// Periods between two looks of vSMT-IO's adjuster.
    pub(super) adjust_every: u32,
    /// How long an IPI makes a vCPU urgent under demand-based coscheduling.
    pub(super) urgent: Ns,
    /// See `JupiterSettings::by_weight`.
    pub(super) jupiter_by_weight: bool,
    /// See `JupiterSettings::stacks_halted`.
    pub(super) jupiter_stacks_halted: bool,
    /// JUPITER swaps half of an odd number rounded up.
    pub(super) jupiter_half_up: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            tick: CfsSettings::default().tick,
            min_slice: None,
            delay: None,
            idle_scan: CfsSettings::default().idle_scan,
            newidle_after: CfsSettings::default().newidle_after,
            per_queue: 1,
            as_xen_4_12: false,
            isacs_as_xen_4_12: false,
            poll_max: halt::Settings::default().enhanced_max,
            poll_adapts: halt::Settings::default().adapts,
            poll_until_it_runs: halt::Settings::default().until_it_runs,
            isacs_all_spent: false,
            isacs_moves_any: false,
            isacs_wake_preempts: false,
            retain: ltcr::Settings::default().initial,
            period: ltcr::Settings::default().period,
            yields: false,
            vsmtio_groups: true,
            adjust_every: 1,
            urgent: demand::Settings::default().window,
            jupiter_by_weight: false,
            jupiter_stacks_halted: false,
            jupiter_half_up: true,
        }
    }
}

/// What is said of a policy that has its own slices, whatever `sharing.slice` is, if
/// nothing is set of it;
/// `None`: it has that slice.
pub(crate) fn own_slices(name: &str) -> Option<&'static str> {
    Some(match name {
        "credit1" | "credit1-hardened" => "30 ms, 10 ms after an I/O response",
        "ische" | "ische-hardened" | "ische-auto" | "ische-auto-hardened" => {
            "30 ms on general cores, 10 ms on I/O cores"
        }
        "eevdf" => "3 ms",
        "eevdf-slices" => "3 ms, 500 us for I/O-intensive VMs",
        _ => return None,
    })
}

/// The policy of this name, the only way to one for a scenario and for an experiment;
/// what is open in it comes from the parameters, and `values` count before those. An
/// error if there is none, or if it has no such thing to set.
pub(crate) fn policy_of(
    name: &str,
    sharing: &Sharing,
    tuning: &Tuning,
    values: &Values,
) -> anyhow::Result<Box<dyn Hypervisor>> {
    let mut policy = tuned(name, sharing, tuning)?;
    policy
        .set(values)
        .map_err(|error| Unusable(error.to_string()))?;
    Ok(policy.build())
}

/// The policy of this name with what the parameters say of it, not built yet.
pub(crate) fn tuned(name: &str, sharing: &Sharing, tuning: &Tuning) -> anyhow::Result<Policy> {
    let mut policy = named(name, sharing).ok_or_else(|| {
        Unusable(format!(
            "the host policy \"{name}\" does not exist; the simulator has {}",
            NAMES.join(", ")
        ))
    })?;
    let slice = sharing.slice;
    match &mut policy.settings {
        Settings::Cfs(own) => {
            own.min_granularity = tuning.min_slice.unwrap_or(own.min_granularity);
            own.wakeup_granularity = tuning.delay.unwrap_or(own.wakeup_granularity);
            below(own, tuning);
        }
        Settings::Credit2(own) => {
            own.rules.slice = slice;
            own.pcpus_per_queue = tuning.per_queue;
            own.xen = tuning.as_xen_4_12.then(credit2::Xen::default);
        }
        Settings::Isacs(own) => {
            own.rules.slice = slice;
            own.xen = tuning.isacs_as_xen_4_12.then(credit2::Xen::default);
            own.moves_any = tuning.isacs_moves_any;
            own.pcpus_per_queue = tuning.per_queue;
            if tuning.isacs_wake_preempts {
                own.rules.wake_in_boost = WakeInBoost::Preempts;
            }
            // I17, I19: see parameters.toml.
            if tuning.isacs_all_spent {
                own.rules.end_test = EndTest::AllSpent;
            }
        }
        // The longest window of HaltPoll is KVM's: this one is the enhanced form's alone. How
        // windows adapt is one piece of code in KVM, for both.
        Settings::Waits { waits, below: cfs } => {
            below(cfs, tuning);
            waits.enhanced_max = tuning.poll_max;
            waits.adapts = tuning.poll_adapts;
            waits.until_it_runs = tuning.poll_until_it_runs;
        }
        Settings::Vsmtio(own) => {
            if let Some(ltcr) = &mut own.ltcr {
                ltcr.initial = tuning.retain;
                ltcr.period = tuning.period;
            }
            own.yields = tuning.yields;
            own.groups = tuning.vsmtio_groups;
            own.adjust_every = tuning.adjust_every;
        }
        Settings::Cosched(own) => {
            if let Mode::Demand(demand) = &mut own.mode {
                demand.window = tuning.urgent;
            }
        }
        Settings::Jupiter(own) => {
            // The simple leaky bucket (O6) is one of slices, and so of budgets.
            own.by_weight = tuning.jupiter_by_weight && own.bucket.is_none();
            // It stands on balance scheduling.
            own.stacks_halted = tuning.jupiter_stacks_halted && own.bucket.is_none();
            // Linux' own value for all is what they begin with.
            let linux = own.wakeup_granularity;
            if let (true, Some(dasl)) = (own.by_weight, &mut own.dasl) {
                dasl.initial = linux;
            }
            if let Some(rcr) = &mut own.rcr {
                if own.by_weight {
                    rcr.low_latency = linux / 2;
                }
                rcr.half = if tuning.jupiter_half_up {
                    Half::Up
                } else {
                    Half::Down
                };
            }
        }
        _ => {}
    }
    Ok(policy)
}

/// What CFS has under every policy on it.
fn below(cfs: &mut CfsSettings, tuning: &Tuning) {
    cfs.tick = tuning.tick;
    cfs.idle_scan = tuning.idle_scan;
    cfs.newidle_after = tuning.newidle_after;
}
