// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a scenario, and the defaults.

mod arm;
mod load;
mod sim;
mod value;

use units::Ns;

use self::value::duration;
use self::value::identifier;
use self::value::integer;
use self::value::optional_duration;
use self::value::optional_integer;
use self::value::quoted;

use super::Arm;
use super::Baselines;
use super::Compute;
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

/// Checks a parsed file.
pub(super) fn validate(raw: file::File, at: &Locator<'_>) -> Result<Scenario, ScenarioError> {
    let name = identifier(raw.name, "name", at)?;
    if raw.title.as_ref().trim().is_empty() {
        return Err(at.value(
            raw.title.span(),
            "title",
            "empty",
            "say in one line what it measures",
        ));
    }
    let topology = Topology {
        cpus: integer(&raw.topology.cpus, "topology.cpus", 1..=1024, at)?,
    };
    let sharing = sharing(raw.sharing, at)?;
    let measure = measure(raw.measure, at)?;
    let threads_per_cpu = optional_integer(
        raw.compute.threads_per_cpu.as_ref(),
        "compute.threads_per_cpu",
        0..=16,
        1,
        at,
    )?;

    let mut loads: Vec<Load> = Vec::new();
    for (index, raw) in raw.loads.into_iter().enumerate() {
        let span = raw.name.span();
        let load = load::load(raw, index, measure.window, at)?;
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

    let mut arms: Vec<Arm> = Vec::new();
    for (index, raw) in raw.arms.into_iter().enumerate() {
        let span = raw.name.span();
        let arm = arm::arm(raw, index, at)?;
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
        .map(|raw| sim::sim(raw, topology.cpus, at))
        .transpose()?;
    let mut measured = Vec::new();
    for (index, raw) in raw.measured.into_iter().enumerate() {
        measured.push(sim::measured(raw, index, &loads, &arms, at)?);
    }

    Ok(Scenario {
        name,
        title: raw.title.into_inner().trim().to_owned(),
        topology,
        sharing,
        measure,
        compute: Compute { threads_per_cpu },
        loads,
        arms,
        host_config: raw.host_config.map(toml::Spanned::into_inner),
        sim,
        measured,
    })
}

fn sharing(raw: file::Sharing, at: &Locator<'_>) -> Result<Sharing, ScenarioError> {
    let field = "sharing.vms_per_pcpu";
    let span = raw.vms_per_pcpu.span();
    let mut vms_per_pcpu = Vec::new();
    for value in raw.vms_per_pcpu.into_inner() {
        let n = integer(&value, field, 1..=64, at)?;
        if vms_per_pcpu.contains(&n) {
            return Err(at.value(value.span(), field, n, "name each number of VMs once"));
        }
        vms_per_pcpu.push(n);
    }
    if vms_per_pcpu.is_empty() {
        return Err(at.value(
            span,
            field,
            "empty",
            "list numbers of VMs from 1 to 64, for instance [2, 4, 8]",
        ));
    }
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

fn baselines(word: &toml::Spanned<String>, at: &Locator<'_>) -> Result<Baselines, ScenarioError> {
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
