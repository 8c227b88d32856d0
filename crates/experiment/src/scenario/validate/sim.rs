// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in `[sim]` and `[[measured]]`.

use toml::Spanned;
use units::Ns;

use super::super::Arm;
use super::super::Load;
use super::super::Measured;
use super::super::Others;
use super::super::ScenarioError;
use super::super::SimSpec;
use super::super::error::Locator;
use super::super::file;
use super::value::duration;
use super::value::identifier;
use super::value::integer;
use super::value::quoted;
use crate::result::BASELINES;

/// Checks `[sim]`.
pub(super) fn sim(raw: file::Sim, cpus: u32, at: &Locator<'_>) -> Result<SimSpec, ScenarioError> {
    let default = SimSpec::default();
    let name = |value: Option<Spanned<String>>, field: &str, default: String| match value {
        Some(value) => identifier(value, field, at),
        None => Ok(default),
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
    Ok(SimSpec {
        host: name(raw.host, "sim.host", default.host)?,
        others,
        platform: name(raw.platform, "sim.platform", default.platform)?,
        seed: number(raw.seed, "sim.seed", 0..=u32::MAX)?.map_or(default.seed, u64::from),
        threads_per_core: number(raw.threads_per_core, "sim.threads_per_core", 1..=2)?
            .unwrap_or(default.threads_per_core),
        completion_vcpu: number(raw.completion_vcpu, "sim.completion_vcpu", 0..=cpus - 1)?,
        submit: length(raw.submit, "sim.submit")?,
        process: length(raw.process, "sim.process")?,
        disk_latency: length(raw.disk_latency, "sim.disk_latency")?,
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
