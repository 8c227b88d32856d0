// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF side into the kernel, with the rules of a policy.

mod timers;

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::Skel;
use libbpf_rs::skel::SkelBuilder;
use policy::host::credit::credit1;
use policy::host::credit::credit2;
use policy::host::isacs;
use policy::host::ische;
use policy::host::vslicer;
use units::Ns;

use crate::policy::Policy;
use crate::probe;
use crate::probe::Unsupported;
use crate::run;
use crate::run::Options;
use crate::run::possible_cpus;
use crate::skel::main::MainSkel;
use crate::skel::main::MainSkelBuilder;
use crate::skel::main::types::sv_settings;

/// How the kernel calls the scheduler, with `_` and the policy's name behind it.
pub(crate) const NAME: &str = "scx_vcpu";

/// After so long on a pCPU that host threads hold a vCPU goes where it gets more, see
/// `relief.h`: twice what the kernel's deadline server gives vCPUs there in each second.
pub(crate) const HELD: Ns = Ns::from_ms(100);

/// After so long of waiting for any reason a vCPU has a turn, see `overdue.h`: in time for a
/// watchdog of this length also if host threads and a stalled host then take as much again.
fn patience(watchdog: Duration) -> Ns {
    Ns(u64::try_from(watchdog.as_nanos()).unwrap_or(u64::MAX) / 3)
}

/// The rules of a policy.
#[derive(Clone, Debug)]
pub enum Rules {
    /// Slice of each possible pCPU.
    Fixed(Vec<Ns>),
    /// See there.
    Credit1(credit1::Settings),
    /// See there.
    Credit2(credit2::Settings),
    /// See there.
    Vslicer(vslicer::Settings),
    /// See there; labels are [`crate::run`]'s business.
    Ische(ische::Settings),
    /// See there.
    Isacs(isacs::Settings),
    /// See [`crate::policy::Policy::Never`].
    Never,
}

impl Rules {
    pub(crate) fn policy(&self) -> Policy {
        match self {
            Self::Fixed(_) => Policy::Fixed,
            Self::Credit1(_) => Policy::Credit1,
            Self::Credit2(_) => Policy::Credit2,
            Self::Vslicer(_) => Policy::Vslicer,
            Self::Ische(_) => Policy::Ische,
            Self::Isacs(_) => Policy::Isacs,
            Self::Never => Policy::Never,
        }
    }
}

/// Loads and attaches all but the scheduler itself with its trace, and what finds vCPUs.
///
/// `hotplugs`: how often CPUs had come or gone when those were counted that are there. If it
/// is more when the scheduler is attached, the kernel ends it as it does for any later one.
pub(crate) fn load<'a>(
    options: &Options,
    hotplugs: u64,
    storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>,
) -> anyhow::Result<MainSkel<'a>> {
    let mut skel = loaded(options, hotplugs, storage)?;
    timers::make(&skel.progs.make_timers, possible_cpus()?)?;
    if skel.progs.irq_raised.autoload() {
        skel.links.irq_raised = Some(skel.progs.irq_raised.attach_trace().map_err(refuse)?);
    }
    if skel.progs.halt_begins.autoload() {
        skel.links.halt_begins = Some(skel.progs.halt_begins.attach_trace().map_err(refuse)?);
        skel.links.halt_ends = Some(skel.progs.halt_ends.attach_trace().map_err(refuse)?);
    }
    Ok(skel)
}

/// Instructions that the verifier went through for each program, with the rules of
/// `options`; nothing is attached.
pub(crate) fn verified(options: &Options) -> anyhow::Result<Vec<(String, u32)>> {
    let mut storage = MaybeUninit::uninit();
    let skel = loaded(options, 0, &mut storage)?;
    let mut ids = std::collections::BTreeMap::new();
    for program in skel.object().progs() {
        // One that this kernel has no use for is not loaded.
        if program.autoload()
            && let Ok(id) = libbpf_rs::Program::id_from_fd(program.as_fd())
        {
            ids.insert(id, program.name().to_string_lossy().into_owned());
        }
    }
    let mut counts: Vec<(String, u32)> = libbpf_rs::query::ProgInfoIter::default()
        .filter_map(|info| Some((ids.get(&info.id)?.clone(), info.verified_insns)))
        .collect();
    counts.sort();
    Ok(counts)
}

fn loaded<'a>(
    options: &Options,
    hotplugs: u64,
    storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>,
) -> anyhow::Result<MainSkel<'a>> {
    let cpus = possible_cpus()?;
    let mut open = MainSkelBuilder::default().open(storage).map_err(refuse)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.nr_cpu_ids = cpus;
        rodata.settings = sv_settings {
            patience_ns: patience(options.watchdog).0,
            ..settings(&options.rules)?
        };
    }
    let ops = open.struct_ops.vcpu_ops_mut();
    ops.timeout_ms = u32::try_from(options.watchdog.as_millis())?;
    ops.hotplug_seq = hotplugs;
    // Shorter than the field, whose rest is zeros.
    let name = format!("{NAME}_{}", options.rules.policy());
    for (to, from) in ops.name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    open.maps.slices.set_max_entries(cpus).map_err(refuse)?;
    open.maps.pcpus.set_max_entries(cpus).map_err(refuse)?;
    open.maps
        .turn_clocks
        .set_max_entries(cpus)
        .map_err(refuse)?;
    open.maps
        .latency_clocks
        .set_max_entries(cpus)
        .map_err(refuse)?;
    open.maps
        .isacs_totals
        .set_max_entries(cpus)
        .map_err(refuse)?;
    if let Some(entries) = options.table {
        open.maps.table.set_max_entries(entries).map_err(refuse)?;
    }
    let tracing = options.trace.is_some();
    // Without a trace nothing of it is in the kernel's way.
    open.progs.switches.set_autoload(tracing);
    open.progs.wakes.set_autoload(tracing);
    let events = probe::has_kvm_function(Path::new("/"), probe::EVENTS);
    if !events {
        tracing::warn!("{}", probe::no_events());
    }
    open.progs.irq_raised.set_autoload(events);
    let halts = probe::has_kvm_function(Path::new("/"), probe::HALTS);
    if !halts {
        tracing::warn!("{}", probe::no_halts());
    }
    open.progs.halt_begins.set_autoload(halts);
    open.progs.halt_ends.set_autoload(halts);
    let skel = open.load().map_err(refuse)?;
    if let Rules::Fixed(slices) = &options.rules {
        set_slices(&skel.maps.slices, slices)?;
    }
    Ok(skel)
}

/// The slice of each possible pCPU, for the policies in which they differ.
pub(crate) fn set_slices(map: &impl MapCore, slices: &[Ns]) -> anyhow::Result<()> {
    for (cpu, slice) in slices.iter().enumerate() {
        let key = u32::try_from(cpu)?.to_ne_bytes();
        map.update(&key, &slice.0.to_ne_bytes(), MapFlags::ANY)
            .context("cannot set the slices")?;
    }
    Ok(())
}

/// The rules as the kernel's side reads them.
pub(crate) fn settings(rules: &Rules) -> anyhow::Result<sv_settings> {
    let all = sv_settings {
        // Caps are K1's; where a policy does not say, so is their period.
        refill_ns: credit1::Settings::default().refill_period.0,
        held_ns: HELD.0,
        patience_ns: patience(*run::WATCHDOG.end()).0,
        ..sv_settings::default()
    };
    let credit1 = |rules: &credit1::Settings| sv_settings {
        policy: 1,
        slice_ns: rules.slice.0,
        boost_slice_ns: rules.boost_slice.0,
        refill_ns: rules.refill_period.0,
        credit_limit_ns: rules.credit_limit.0,
        zero_is_under: u32::from(rules.zero_is_under),
        boost_needs_under: u32::from(rules.boost_needs_under),
        over_stays: u32::from(rules.idle_takes == credit1::IdleTakes::Under),
        ..all
    };
    Ok(match rules {
        Rules::Fixed(_) => sv_settings { policy: 0, ..all },
        Rules::Never => sv_settings { policy: 6, ..all },
        Rules::Credit1(rules) => credit1(rules),
        Rules::Credit2(rules) => sv_settings {
            policy: 2,
            slice_ns: rules.slice.0,
            default_credit_ns: rules.default_credit.0,
            reference: rules.reference.get(),
            reset_adds: u32::from(rules.reset == credit2::Reset::AddToDebt),
            reset_at_zero: u32::from(rules.reset_at_zero),
            slice_ends_with_credit: u32::from(rules.slice_ends_with_credit),
            ..all
        },
        Rules::Vslicer(rules) => sv_settings {
            policy: 3,
            slice_ns: rules.slice.0,
            micro_ns: rules.micro.0,
            ..all
        },
        Rules::Ische(rules) => sv_settings {
            policy: 4,
            slice_ns: rules.general_slice.0,
            lends_idle: u32::from(rules.idle_io_core == ische::IdleIoCore::TakesCpuVms),
            // Whom an I/O core takes is S8's matter, not K7's.
            over_stays: 0,
            ..credit1(&rules.credit)
        },
        Rules::Isacs(rules) => sv_settings {
            policy: 5,
            slice_ns: rules.slice.0,
            default_credit_ns: rules.default_credit.0,
            reference: rules.reference.get(),
            cutoff_ns: rules.cutoff.0,
            boost_unit_ns: rules.boost_unit.0,
            late_events_count: u32::from(rules.late_events_count),
            equation_2_printed: u32::from(rules.equation_2 == isacs::Equation2::AsPrinted),
            spent_strictly_below: u32::from(rules.spent_strictly_below),
            boost_strictly_below: u32::from(rules.boost_strictly_below),
            fall_through_burns: u32::from(rules.fall_through_burns),
            keeps_old_choice: u32::from(rules.keeps_old_choice),
            one_pass: u32::from(rules.one_pass),
            preempts_boost: u32::from(rules.wake_in_boost == isacs::WakeInBoost::Preempts),
            boost_counts_as_consumed: u32::from(rules.boost_counts_as_consumed),
            end_all: u32::from(rules.end_test == isacs::EndTest::AllSpent),
            limit_strength: u32::from(rules.limit_strength),
            slice_ends_with_credit: u32::from(rules.slice_ends_with_credit),
            keeps_debt: u32::from(rules.keeps_debt),
            ..all
        },
    })
}

/// What a refusal of the kernel means. The verifier says EACCES too: only who lacks
/// privileges is told so. What it only cannot do now is no [`Unsupported`]: a service manager
/// is to try again.
pub(crate) fn refuse(error: libbpf_rs::Error) -> anyhow::Error {
    use libbpf_rs::ErrorKind;
    if let ErrorKind::OutOfMemory | ErrorKind::WouldBlock | ErrorKind::Interrupted = error.kind() {
        let now = "the kernel cannot take the scheduler's BPF programs at the moment";
        return anyhow::Error::from(error).context(now);
    }
    match probe::privileges(Path::new("/proc/self/status")) {
        Err(why) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => why.into(),
        _ => Unsupported::Refused(error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_cannot_do_now_is_no_reason_to_stay_away() {
        let is_unsupported = |errno| {
            let error = libbpf_rs::Error::from_raw_os_error(errno);
            refuse(error).is::<Unsupported>()
        };
        for errno in [libc::ENOMEM, libc::EAGAIN, libc::EINTR] {
            assert!(!is_unsupported(errno), "{errno}");
        }
        for errno in [libc::EINVAL, libc::E2BIG, libc::EACCES, libc::EPERM] {
            assert!(is_unsupported(errno), "{errno}");
        }
        let error = libbpf_rs::Error::from_raw_os_error(libc::ENOMEM);
        let text = format!("{:#}", refuse(error));
        assert!(
            text.contains("at the moment") && text.contains("memory"),
            "{text}"
        );
    }
}
