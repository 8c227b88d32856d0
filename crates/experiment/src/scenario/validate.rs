// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a scenario, and the defaults.

mod arm;
mod device;
mod load;
mod policy;
mod program;
mod real;
mod sim;
pub(super) mod value;
mod vm;

use toml::Spanned;
use units::Ns;

pub(super) use self::real::on_real_vms;
use self::value::duration;
use self::value::identifier;
use self::value::integer;
use self::value::optional_duration;
use self::value::optional_integer;
use self::value::quoted;

use super::Arm;
use super::Baselines;
use super::Compute;
use super::Known;
use super::Load;
use super::Measure;
use super::Scenario;
use super::ScenarioError;
use super::Sharing;
use super::Topology;
use super::error::Locator;
use super::file;

/// The sweep when the file gives none: two pCPUs pass through every phase
/// within ten periods.
const DEFAULT_SWEEP_PERMILLE: u32 = 100;
const DEFAULT_ROUNDS: u32 = 5;
const DEFAULT_WARMUP: Ns = Ns(500_000_000);
const DEFAULT_WINDOW: Ns = Ns(2_000_000_000);
/// Beside `[[vm]]`: every pCPU keeps a book for every VM.
const MAX_PCPUS: u32 = 256;

/// Refuses what this machine alone has not.
pub(super) fn on_this_machine(raw: &file::File, at: &Locator<'_>) -> Result<(), ScenarioError> {
    if let Some(vm) = raw.vms.first() {
        return Err(at.not_here(vm.span(), "vm"));
    }
    if let Some(device) = raw.devices.first() {
        return Err(at.not_here(device.span(), "device"));
    }
    Ok(())
}

/// Checks a parsed file.
pub(super) fn validate(
    raw: file::File,
    known: &Known,
    at: &Locator<'_>,
) -> Result<Scenario, ScenarioError> {
    let name = identifier(raw.name, "name", at)?;
    if raw.title.as_ref().trim().is_empty() {
        return Err(at.value(
            raw.title.span(),
            "title",
            "empty",
            "say in one line what it measures",
        ));
    }
    let topology = topology(&raw.topology, at)?;
    let own_vms = !raw.vms.is_empty();
    let mut sharing = sharing(raw.sharing, own_vms, at)?;
    let measure = measure(raw.measure, at)?;
    let mut threads_per_cpu = optional_integer(
        raw.compute.threads_per_cpu.as_ref(),
        "compute.threads_per_cpu",
        0..=16,
        1,
        at,
    )?;

    let path_of = |device: &Spanned<file::Device>| {
        let path = device.get_ref().path.as_ref();
        path.map_or(device.span(), Spanned::span)
    };
    let device_paths: Vec<_> = raw.devices.iter().map(path_of).collect();
    let completion_of = |device: &Spanned<file::Device>| {
        let vcpu = device.get_ref().completion_vcpu.as_ref();
        vcpu.map_or(device.span(), Spanned::span)
    };
    let completion_vcpus: Vec<_> = raw.devices.iter().map(completion_of).collect();
    let devices = device::devices(raw.devices, own_vms, at)?;
    let mut loads: Vec<Load> = Vec::new();
    let mut spans = Vec::new();
    let context = load::Context {
        window: measure.window,
        devices: &devices,
        profiles: &known.profiles,
        own_vms,
    };
    for (index, raw) in raw.loads.into_iter().enumerate() {
        let span = raw.name.span();
        spans.push(span.clone());
        let load = load::load(raw, index, &context, at)?;
        if loads.iter().any(|other| other.name == load.name) {
            return Err(at.value(
                span,
                format!("load[{index}].name"),
                quoted(&load.name),
                "give each load a name of its own",
            ));
        }
        loads.push(load);
    }
    if loads.is_empty() {
        return Err(at.value(0..0, "load", "missing", "add at least one [[load]]"));
    }
    if own_vms && topology.cpus > MAX_PCPUS {
        let expected = format!("write a number from 1 to {MAX_PCPUS} beside [[vm]]");
        let cpus = &raw.topology.cpus;
        return Err(at.value(cpus.span(), "topology.cpus", topology.cpus, expected));
    }
    let vms = vm::vms(
        raw.vms,
        &vm::Context {
            pcpus: topology.cpus,
            threads_per_cpu,
            devices: &devices,
            device_paths: &device_paths,
            loads: &loads,
        },
        at,
    )?;
    if own_vms {
        let vcpus: u32 = vms.iter().map(|vm| vm.count * vm.vcpus).sum();
        sharing.vms_per_pcpu = vec![vcpus.div_ceil(topology.cpus)];
        threads_per_cpu = vms.first().map_or(0, |vm| vm.threads_per_vcpu);
        loads = vm::phases(loads, &spans, &vms, at)?;
        vm::completions(&vms, &loads, &devices, &completion_vcpus, at)?;
    }

    let mut arms: Vec<Arm> = Vec::new();
    for (index, raw) in raw.arms.into_iter().enumerate() {
        let span = raw.name.span();
        let arm = arm::arm(raw, index, known, at)?;
        if arms.iter().any(|other| other.name == arm.name) {
            return Err(at.value(
                span,
                format!("arm[{index}].name"),
                quoted(&arm.name),
                "give each arm a name of its own",
            ));
        }
        arms.push(arm);
    }
    if arms.is_empty() {
        return Err(at.value(
            0..0,
            "arm",
            "missing",
            "add at least one [[arm]], for instance name = \"vanilla\"",
        ));
    }

    if let Some(text) = &raw.host_config
        && arms.iter().all(|arm| arm.host_policy.is_none())
    {
        return Err(at.value(
            text.span(),
            "host_config",
            "set",
            "only arms with a host_policy read it: give one to an arm, or leave it out",
        ));
    }

    let sim = raw
        .sim
        .map(|raw| sim::sim(raw, topology.cpus, own_vms, known, at))
        .transpose()?;
    let sim = sim.or(own_vms.then(sim::beside_vms));
    let mut measured = Vec::new();
    for (index, raw) in raw.measured.into_iter().enumerate() {
        measured.push(sim::measured(raw, index, &loads, &arms, at)?);
    }

    Ok(Scenario {
        name,
        title: raw.title.into_inner().trim().to_owned(),
        point: String::new(),
        topology,
        sharing,
        measure,
        compute: Compute { threads_per_cpu },
        loads,
        arms,
        host_config: raw.host_config.map(Spanned::into_inner),
        sim,
        vms,
        devices,
        measured,
    })
}

fn topology(raw: &file::Topology, at: &Locator<'_>) -> Result<Topology, ScenarioError> {
    let cpus = integer(&raw.cpus, "topology.cpus", 1..=1024, at)?;
    // The kernel makes no more queues than it has CPUs.
    let queues = |queues| integer(queues, "topology.disk_queues", 1..=cpus, at);
    Ok(Topology {
        cpus,
        disk_queues: raw.disk_queues.as_ref().map(queues).transpose()?,
    })
}

fn sharing(raw: file::Sharing, own_vms: bool, at: &Locator<'_>) -> Result<Sharing, ScenarioError> {
    let vms_per_pcpu = vms_per_pcpu(raw.vms_per_pcpu, raw.slice.span(), own_vms, at)?;
    let slice = duration(
        &raw.slice,
        "sharing.slice",
        Ns::from_us(200)..=Ns::from_secs(1),
        at,
    )?;
    let sweep_permille = optional_integer(
        raw.sweep_permille.as_ref(),
        "sharing.sweep_permille",
        0..=500,
        DEFAULT_SWEEP_PERMILLE,
        at,
    )?;
    Ok(Sharing {
        vms_per_pcpu,
        slice,
        sweep_permille,
    })
}

fn vms_per_pcpu(
    raw: Option<Spanned<Vec<Spanned<i64>>>>,
    slice: std::ops::Range<usize>,
    own_vms: bool,
    at: &Locator<'_>,
) -> Result<Vec<u32>, ScenarioError> {
    const EXAMPLE: &str = "list numbers of VMs from 1 to 64, for instance [2, 4, 8]";
    let field = "sharing.vms_per_pcpu";
    let raw = match (raw, own_vms) {
        // Counted when they are known.
        (None, true) => return Ok(Vec::new()),
        (None, false) => return Err(at.value(slice, field, "missing", EXAMPLE)),
        (Some(given), true) => {
            let expected = "[[vm]] says which VMs there are; leave it out";
            return Err(at.value(given.span(), field, "set", expected));
        }
        (Some(raw), false) => raw,
    };
    let span = raw.span();
    let mut vms_per_pcpu = Vec::new();
    for value in raw.into_inner() {
        let n = integer(&value, field, 1..=64, at)?;
        if vms_per_pcpu.contains(&n) {
            return Err(at.value(value.span(), field, n, "name each number of VMs once"));
        }
        vms_per_pcpu.push(n);
    }
    if vms_per_pcpu.is_empty() {
        return Err(at.value(span, field, "empty", EXAMPLE));
    }
    Ok(vms_per_pcpu)
}

fn measure(raw: file::Measure, at: &Locator<'_>) -> Result<Measure, ScenarioError> {
    Ok(Measure {
        rounds: optional_integer(
            raw.rounds.as_ref(),
            "measure.rounds",
            1..=1000,
            DEFAULT_ROUNDS,
            at,
        )?,
        warmup: optional_duration(
            raw.warmup.as_ref(),
            "measure.warmup",
            Ns::ZERO..=Ns::from_secs(60),
            DEFAULT_WARMUP,
            at,
        )?,
        window: optional_duration(
            raw.window.as_ref(),
            "measure.window",
            Ns::from_ms(50)..=Ns::from_secs(3600),
            DEFAULT_WINDOW,
            at,
        )?,
        baselines: match &raw.baselines {
            Some(word) => baselines(word, at)?,
            None => Baselines::default(),
        },
    })
}

fn baselines(word: &Spanned<String>, at: &Locator<'_>) -> Result<Baselines, ScenarioError> {
    let known = Baselines::NAMES
        .iter()
        .find(|(name, _)| name == word.as_ref());
    known.map(|(_, value)| *value).ok_or_else(|| {
        let names = Baselines::NAMES.map(|(name, _)| quoted(name)).join(", ");
        at.value(
            word.span(),
            "measure.baselines",
            quoted(word.as_ref()),
            format!("write one of {names}"),
        )
    })
}
