// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in `[sim]` and `[[measured]]`.

use toml::Spanned;
use units::Ns;

use super::super::Arm;
use super::super::Known;
use super::super::Load;
use super::super::Measured;
use super::super::Others;
use super::super::ScenarioError;
use super::super::SimSpec;
use super::super::error::Locator;
use super::super::file;
use super::super::known;
use super::policy;
use super::value::duration;
use super::value::integer;
use super::value::quoted;
use crate::result::BASELINES;

/// The defaults beside `[[vm]]`: slots in turn need as many VMs on each pCPU as there
/// are slots.
pub(super) fn beside_vms() -> SimSpec {
    SimSpec {
        host: "cfs".to_owned(),
        others: Others::Same,
        ..SimSpec::default()
    }
}

/// Checks `[sim]`.
pub(super) fn sim(
    raw: file::Sim,
    cpus: u32,
    own_vms: bool,
    names: &Known,
    at: &Locator<'_>,
) -> Result<SimSpec, ScenarioError> {
    let default = if own_vms {
        beside_vms()
    } else {
        SimSpec::default()
    };
    // What `[[vm]]` and `[[device]]` say already.
    for (key, span) in [
        ("others", raw.others.as_ref().map(Spanned::span)),
        (
            "completion_vcpu",
            raw.completion_vcpu.as_ref().map(Spanned::span),
        ),
        ("disk_latency", raw.disk_latency.as_ref().map(Spanned::span)),
        ("disk_begin", raw.disk_begin.as_ref().map(Spanned::span)),
        (
            "io_elsewhere_permille",
            raw.io_elsewhere_permille.as_ref().map(Spanned::span),
        ),
    ] {
        if let Some(span) = span.filter(|_| own_vms) {
            let expected = "[[vm]] and [[device]] say this; leave it out";
            return Err(at.value(span, format!("sim.{key}"), "set", expected));
        }
    }
    let name = |value: Option<Spanned<String>>, field: &str, names: &[String], default: String| {
        value.map_or(Ok(default), |value| known::chosen(value, field, names, at))
    };
    let others = match raw.others {
        None => default.others,
        Some(others) => match others.as_ref().as_str() {
            "phantom" => Others::Phantom,
            "same" => Others::Same,
            "compute" => Others::Compute,
            other => {
                let expected = "write \"phantom\", \"same\" or \"compute\"";
                return Err(at.value(others.span(), "sim.others", quoted(other), expected));
            }
        },
    };
    let number =
        |value: Option<Spanned<i64>>, field: &str, range: std::ops::RangeInclusive<u32>| {
            value
                .map(|value| integer(&value, field, range, at))
                .transpose()
        };
    let length = |value: Option<Spanned<String>>, field: &str| {
        value
            .map(|value| duration(&value, field, Ns::ZERO..=Ns::from_secs(1), at))
            .transpose()
    };
    let threads = raw.threads_per_core.as_ref().map(Spanned::span);
    let threads_per_core = number(raw.threads_per_core, "sim.threads_per_core", 1..=2)?
        .unwrap_or(default.threads_per_core);
    if let Some(span) = threads
        && threads_per_core == 2
        && cpus % 2 == 1
    {
        let expected = format!("two hyperthreads per core need an even topology.cpus, not {cpus}");
        return Err(at.value(span, "sim.threads_per_core", threads_per_core, expected));
    }
    let host = name(raw.host, "sim.host", &names.host_names(), default.host)?;
    let policy = raw.policy.unwrap_or_default();
    Ok(SimSpec {
        policy: policy::settings(policy, "sim.policy", &host, &names.hosts, at)?,
        host,
        others,
        platform: name(
            raw.platform,
            "sim.platform",
            &names.platforms,
            default.platform,
        )?,
        seed: number(raw.seed, "sim.seed", 0..=u32::MAX)?.map_or(default.seed, u64::from),
        threads_per_core,
        cpu_speed_permille: number(
            raw.cpu_speed_permille,
            "sim.cpu_speed_permille",
            100..=10_000,
        )?
        .unwrap_or(default.cpu_speed_permille),
        io_elsewhere_permille: number(
            raw.io_elsewhere_permille,
            "sim.io_elsewhere_permille",
            0..=1000,
        )?
        .unwrap_or(default.io_elsewhere_permille),
        timer_late: length(raw.timer_late, "sim.timer_late")?,
        heartbeat: length(raw.heartbeat, "sim.heartbeat")?,
        traced_switch: length(raw.traced_switch, "sim.traced_switch")?,
        traced_request: length(raw.traced_request, "sim.traced_request")?,
        completion_vcpu: number(raw.completion_vcpu, "sim.completion_vcpu", 0..=cpus - 1)?,
        submit: length(raw.submit, "sim.submit")?,
        process: length(raw.process, "sim.process")?,
        further: length(raw.further, "sim.further")?,
        disk_latency: length(raw.disk_latency, "sim.disk_latency")?,
        disk_begin: length(raw.disk_begin, "sim.disk_begin")?,
    })
}

/// Checks one `[[measured]]`.
pub(super) fn measured(
    raw: file::Measured,
    index: usize,
    loads: &[Load],
    arms: &[Arm],
    at: &Locator<'_>,
) -> Result<Measured, ScenarioError> {
    let field = |name: &str| format!("measured[{index}].{name}");
    let known = |value: &Spanned<String>, name: &str, names: Vec<&str>| {
        if names.contains(&value.as_ref().as_str()) {
            return Ok(());
        }
        let expected = format!("write one of {}", names.join(", "));
        Err(at.value(value.span(), field(name), quoted(value.as_ref()), expected))
    };
    known(
        &raw.load,
        "load",
        loads.iter().map(|load| load.name.as_str()).collect(),
    )?;
    let names = arms.iter().map(|arm| arm.name.as_str()).chain(BASELINES);
    known(&raw.arm, "arm", names.collect())?;
    let rate = |value: &Spanned<f64>, name: &str| {
        let rate = *value.as_ref();
        if rate.is_finite() && rate > 0.0 {
            return Ok(rate);
        }
        Err(at.value(
            value.span(),
            field(name),
            rate,
            "write a rate above 0, per second",
        ))
    };
    Ok(Measured {
        vms_per_pcpu: integer(&raw.vms_per_pcpu, &field("vms_per_pcpu"), 1..=64, at)?,
        ops_per_s: rate(&raw.ops_per_s, "ops_per_s")?,
        low: raw.low.as_ref().map(|low| rate(low, "low")).transpose()?,
        high: raw
            .high
            .as_ref()
            .map(|high| rate(high, "high"))
            .transpose()?,
        load: raw.load.into_inner(),
        arm: raw.arm.into_inner(),
        source: raw.source.into_inner(),
    })
}
