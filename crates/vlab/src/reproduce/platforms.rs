// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' machines and the open parameters of `parameters.toml` by name, for
//! scenarios (`sim.platform`, `"$ssd.latency_us"`): a file and an experiment mean the
//! same machine and the same numbers.

use experiment::scenario::Known;
use sim::guest::DaemonCosts;
use sim::machine::Costs;
use sim::machine::Smt;
use units::Ns;

use super::parameters::Parameters;
use super::tuning::Tuning;
use crate::run::Unusable;
use crate::sim::host;
use crate::sim::platform::NAMES;
use crate::sim::profile;

/// What a scenario can name. Texts with `$`: what is open, what is stated, and
/// `migration_us` of each application.
///
/// # Errors
/// The embedded files are broken.
pub fn known() -> anyhow::Result<Known> {
    let own = Parameters::load(&[])?;
    let mut parameters: experiment::scenario::Parameters =
        own.iter().map(|p| (p.name.clone(), p.value)).collect();
    parameters.extend(own.stated().map(|c| (c.name.clone(), c.value)));
    let applications = profile::all()?;
    for profile in &applications {
        let us = profile.migration()?.as_us_f64();
        parameters.insert(format!("{}.migration_us", profile.name), us);
    }
    Ok(Known {
        parameters,
        hosts: host::known(),
        platforms: NAMES.iter().map(|name| (*name).to_owned()).collect(),
        profiles: applications.into_iter().map(|known| known.name).collect(),
    })
}

/// A parameter that is a length in microseconds.
///
/// # Errors
/// There is none of this name.
pub(crate) fn us(name: &str) -> anyhow::Result<Ns> {
    Parameters::load(&[])?.us(name)
}

/// A parameter that is a number of something, or thousandths.
///
/// # Errors
/// There is none of this name.
pub(crate) fn count(name: &str) -> anyhow::Result<u32> {
    Parameters::load(&[])?.count(name)
}

/// What the daemon's own work costs on the papers' machines, with Linux 4.4 to 5.3.
pub(crate) const DAEMON: DaemonCosts = DaemonCosts {
    bell: Ns::from_us(50),
    resume: Ns::from_us(50),
    first_look: Ns::ZERO,
    timer: Ns::from_us(30),
    react: Ns::from_us(50),
    think: Ns::from_us(20),
    beat: Ns::from_us(5),
    // Not stated, and of other programs than ours.
    traced_switch: Ns::ZERO,
    traced_request: Ns::ZERO,
    hold: Ns::from_us(50),
};

/// What is particular to a paper's machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper {
    pub(crate) costs: Costs,
    pub(crate) smt: Smt,
    /// Guests do not charge a task for its vCPU's absence.
    pub(crate) steal_accounted: bool,
    /// Completions go to a vCPU that runs.
    pub(crate) completes_where_it_runs: bool,
    /// CPU time to submit a request.
    pub(crate) submit: Ns,
    /// Spread of the work for a completion: sigma of the logarithm, in thousandths.
    pub(crate) process_spread: u32,
    /// Of a disk for which nothing is said.
    pub(crate) disk_latency: Ns,
    /// Its spread, likewise.
    pub(crate) disk_spread: u32,
    /// Requests that it works on at once.
    pub(crate) disk_channels: u32,
    /// Bytes per second.
    pub(crate) disk_rate: u64,
}

/// What switching costs on the machine of this name.
///
/// # Errors
/// There is none.
pub(super) fn costs(p: &Parameters, name: &str) -> anyhow::Result<Costs> {
    // Only what a machine needs is asked for: the sensitivity table goes by that.
    Ok(match name {
        "paper-kvm" => Costs {
            vcpu_switch: p.us("kvm.switch_us")?,
            vcpu_cache: p.us("kvm.cache_us")?,
            ..Costs::default()
        },
        "paper-xen" => Costs {
            vcpu_switch: p.us("xen.switch_us")?,
            vcpu_cache: p.us("xen.cache_us")?,
            ..Costs::default()
        },
        "paper-smt" => Costs {
            vcpu_switch: p.us("smt.switch_us")?,
            vcpu_cache: p.us("smt.cache_us")?,
            vcpu_wake: p.us("smt.wake_us")?,
            vcpu_wake_cold: (p.get("smt.wake_cold")? * 1000.0) as u32,
            wake_cold_after: Ns::from_ms(p.whole("smt.wake_cold_ms")?),
            ..Costs::default()
        },
        "paper-jupiter" => Costs {
            vcpu_switch: p.us("jupiter.switch_us")?,
            vcpu_cache: p.us("jupiter.cache_us")?,
            cache_pcpus: p.count("jupiter.cache_pcpus")?,
            vcpu_wake: p.us("jupiter.wake_us")?,
            ..Costs::default()
        },
        _ => {
            let names = NAMES.join(", ");
            let text = format!("sim.platform is \"{name}\"; the simulator has {names}");
            return Err(Unusable(text).into());
        }
    })
}

/// How hyperthreads disturb each other.
pub(super) fn smt(p: &Parameters) -> anyhow::Result<Smt> {
    Ok(Smt {
        computing: (p.get("smt.computing")? * 1000.0) as u32,
        ..Smt::default()
    })
}

/// The machine of this name.
///
/// # Errors
/// There is none.
pub(crate) fn named(name: &str) -> anyhow::Result<Paper> {
    let p = Parameters::load(&[])?;
    Ok(Paper {
        costs: costs(&p, name)?,
        smt: smt(&p)?,
        steal_accounted: p.get("guest.steal_accounted")? != 0.0,
        completes_where_it_runs: name == "paper-kvm"
            && p.get("kvm.completes_where_it_runs")? != 0.0,
        submit: p.us("guest.submit_us")?,
        process_spread: p.count("guest.process_spread_permille")?,
        disk_latency: p.us("ssd.latency_us")?,
        disk_spread: p.count("device.spread_permille")?,
        disk_channels: p.count("device.channels")?,
        disk_rate: p.whole("ssd.mb_per_s")? * 1_000_000,
    })
}

/// What is open in host policies on the platform of this name.
///
/// # Errors
/// The embedded files are broken.
pub(crate) fn tuning_of(name: &str) -> anyhow::Result<Tuning> {
    tuning(&Parameters::load(&[])?, name)
}

/// The same, with other parameters than the embedded ones.
pub(super) fn tuning(p: &Parameters, name: &str) -> anyhow::Result<Tuning> {
    Ok(match name {
        "paper-kvm" => Tuning {
            tick: p.us("kvm.tick_us")?,
            min_slice: Some(p.us("kvm.min_slice_us")?),
            ..Tuning::default()
        },
        "paper-xen" => Tuning {
            per_queue: p.count("xen.pcpus_per_queue")?,
            as_xen_4_12: p.get("xen.as_4_12")? != 0.0,
            isacs_as_xen_4_12: p.get("isacs.as_4_12")? != 0.0,
            isacs_moves_any: p.get("isacs.moves_any")? != 0.0,
            isacs_wake_preempts: p.get("isacs.wake_preempts")? != 0.0,
            isacs_all_spent: p.get("isacs.all_spent")? != 0.0,
            ..Tuning::default()
        },
        "paper-smt" => Tuning {
            tick: p.us("smt.tick_us")?,
            idle_scan: p.count("smt.idle_scan")?,
            newidle_after: p.us("smt.newidle_us")?,
            poll_max: p.us("smt.poll_max_us")?,
            poll_adapts: p.get("smt.poll_adapts")? != 0.0,
            poll_until_it_runs: p.get("smt.poll_until_it_runs")? != 0.0,
            retain: p.us("smt.retain_us")?,
            period: p.ms("smt.period_ms")?,
            yields: p.get("smt.yields")? != 0.0,
            vsmtio_groups: p.get("smt.own_groups")? != 0.0,
            ..Tuning::default()
        },
        "paper-jupiter" => Tuning {
            urgent: p.us("jupiter.urgent_us")?,
            jupiter_by_weight: p.get("jupiter.by_weight")? != 0.0,
            jupiter_stacks_halted: p.get("jupiter.stacks_halted")? != 0.0,
            jupiter_half_up: p.get("jupiter.half_up")? != 0.0,
            ..Tuning::default()
        },
        _ => Tuning::default(),
    })
}

/// Do the tasks of one session of a guest share the weight of one
/// (`SCHED_AUTOGROUP`)?
pub(super) fn autogroup(name: &str) -> anyhow::Result<bool> {
    let desktop = matches!(name, "paper-kvm" | "paper-xen");
    Ok(desktop && Parameters::load(&[])?.get("guest.autogroup")? != 0.0)
}
