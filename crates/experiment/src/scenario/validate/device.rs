// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a `[[device]]`.

use std::ops::Range;
use std::ops::RangeInclusive;

use toml::Spanned;
use units::Ns;

use super::super::Device;
use super::super::DeviceKind;
use super::super::Elevator;
use super::super::ScenarioError;
use super::super::device::median_of_mean;
use super::super::error::Locator;
use super::super::file;
use super::value::chosen;
use super::value::duration;
use super::value::identifier;
use super::value::integer;
use super::value::number;
use super::value::optional_duration;
use super::value::optional_integer;
use super::value::quoted;

const KINDS: &str = "write \"ssd\", \"hdd\" or \"network\"";
const MAX_DEVICES: usize = 16;
/// Sigma of a logarithm: at 3 the 99.9th percentile is 10 000 times the median.
pub(super) const SPREAD: RangeInclusive<u32> = 0..=3000;

/// Checks all of them.
pub(super) fn devices(
    raw: Vec<Spanned<file::Device>>,
    own_vms: bool,
    at: &Locator<'_>,
) -> Result<Vec<Device>, ScenarioError> {
    let mut devices: Vec<Device> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let span = raw.span();
        if !own_vms {
            let expected = "devices belong to [[vm]] tables; add one, or leave the device out";
            return Err(at.value(span, format!("device[{index}]"), "set", expected));
        }
        if index >= MAX_DEVICES {
            let expected = format!("at most {MAX_DEVICES} devices are possible");
            return Err(at.value(span, "device", format!("{} tables", index + 1), expected));
        }
        let name = raw.get_ref().name.clone();
        let device = device(raw.into_inner(), index, at)?;
        if devices.iter().any(|other| other.name == device.name) {
            return Err(at.value(
                name.span(),
                format!("device[{index}].name"),
                quoted(&device.name),
                "give each device a name of its own",
            ));
        }
        devices.push(device);
    }
    Ok(devices)
}

fn device(raw: file::Device, index: usize, at: &Locator<'_>) -> Result<Device, ScenarioError> {
    let field = |name: &str| format!("device[{index}].{name}");
    only_known(&raw, &field, at)?;
    let path = raw.path.as_ref();
    let paths = [("vhost", false), ("driver-domain", true)];
    let behind_driver = path.map_or(Ok(false), |path| chosen(path, &field("path"), &paths, at))?;
    let completion_vcpu = raw
        .completion_vcpu
        .as_ref()
        .map(|vcpu| integer(vcpu, &field("completion_vcpu"), 0..=1023, at))
        .transpose()?;
    let kind = kind(&raw, &field, at)?;
    Ok(Device {
        name: identifier(raw.name, &field("name"), at)?,
        kind,
        behind_driver,
        completion_vcpu,
    })
}

/// Refuses keys that this kind does not know.
fn only_known(
    raw: &file::Device,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<(), ScenarioError> {
    let kind = raw.kind.as_ref().as_str();
    let allowed: &[&str] = match kind {
        "ssd" => &["latency", "mean", "spread_permille", "parallelism", "turn"],
        "hdd" => match raw.scheduler.as_ref().map(|word| word.as_ref().as_str()) {
            Some("work-conserving") => &["seek", "scheduler"],
            _ => &["seek", "scheduler", "wait", "turn"],
        },
        "network" => &["under_way", "spread_permille", "interval"],
        other => return Err(at.value(raw.kind.span(), field("kind"), quoted(other), KINDS)),
    };
    let text = |value: &Option<Spanned<String>>| value.as_ref().map(Spanned::span);
    let whole = |value: &Option<Spanned<i64>>| value.as_ref().map(Spanned::span);
    let given: [(&str, Option<Range<usize>>); 10] = [
        ("latency", text(&raw.latency)),
        ("mean", text(&raw.mean)),
        ("spread_permille", whole(&raw.spread_permille)),
        ("parallelism", whole(&raw.parallelism)),
        ("turn", text(&raw.turn)),
        ("seek", text(&raw.seek)),
        ("scheduler", text(&raw.scheduler)),
        ("wait", text(&raw.wait)),
        ("under_way", text(&raw.under_way)),
        ("interval", text(&raw.interval)),
    ];
    for (key, span) in given {
        if let Some(span) = span
            && !allowed.contains(&key)
        {
            let known = allowed.join(", ");
            let expected = format!("such a device ({kind}) has mb_per_s, {known}; leave it out");
            return Err(at.value(span, field(key), "set", expected));
        }
    }
    Ok(())
}

fn kind(
    raw: &file::Device,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<DeviceKind, ScenarioError> {
    let length = |value: &Option<Spanned<String>>, key: &str, range, default| {
        optional_duration(value.as_ref(), &field(key), range, default, at)
    };
    let any = || Ns::ZERO..=Ns::from_secs(10);
    let some = || Ns(1)..=Ns::from_secs(10);
    let spread = || {
        let value = raw.spread_permille.as_ref();
        optional_integer(value, &field("spread_permille"), SPREAD, 300, at)
    };
    let rate = |default: f64| {
        let value = raw.mb_per_s.as_ref();
        number(value, &field("mb_per_s"), 0.001..=10_000_000.0, default, at)
    };
    Ok(match raw.kind.as_ref().as_str() {
        "ssd" => DeviceKind::Ssd {
            latency: latency(raw, spread()?, field, at)?,
            spread_permille: spread()?,
            parallelism: optional_integer(
                raw.parallelism.as_ref(),
                &field("parallelism"),
                1..=65_536,
                16,
                at,
            )?,
            mb_per_s: rate(1000.0)?,
            turn: length(&raw.turn, "turn", any(), Ns::ZERO)?,
        },
        "hdd" => DeviceKind::Hdd {
            seek: length(&raw.seek, "seek", any(), Ns::from_ms(8))?,
            mb_per_s: rate(150.0)?,
            scheduler: elevator(raw, field, at)?,
        },
        _ => DeviceKind::Network {
            mb_per_s: rate(125.0)?,
            under_way: length(&raw.under_way, "under_way", some(), Ns::from_us(50))?,
            spread_permille: spread()?,
            interval: length(&raw.interval, "interval", some(), Ns::from_ms(10))?,
        },
    })
}

/// The median device time, which is what a device is told, or from the mean.
fn latency(
    raw: &file::Device,
    spread_permille: u32,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Ns, ScenarioError> {
    let range = || Ns(1)..=Ns::from_secs(10);
    let Some(mean) = &raw.mean else {
        // The disk of 13.1 (C19).
        let default = Ns::from_us(90);
        return optional_duration(
            raw.latency.as_ref(),
            &field("latency"),
            range(),
            default,
            at,
        );
    };
    if raw.latency.is_some() {
        let expected =
            "`latency` is the median and follows from the mean; leave one of the two out";
        return Err(at.value(mean.span(), field("mean"), "set", expected));
    }
    let given = duration(mean, &field("mean"), range(), at)?;
    let median = median_of_mean(given, spread_permille);
    if median == Ns::ZERO {
        let shown = quoted(mean.as_ref());
        let expected = "the median is below 1 ns; write a longer mean or a smaller spread_permille";
        return Err(at.value(mean.span(), field("mean"), shown, expected));
    }
    Ok(median)
}

fn elevator(
    raw: &file::Device,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Elevator, ScenarioError> {
    let words = [("work-conserving", true), ("non-work-conserving", false)];
    let word = raw.scheduler.as_ref();
    let conserving = word.map_or(Ok(false), |word| {
        chosen(word, &field("scheduler"), &words, at)
    })?;
    if conserving {
        return Ok(Elevator::WorkConserving);
    }
    let length = |value: &Option<Spanned<String>>, key: &str, default| {
        let range = Ns::from_us(1)..=Ns::from_secs(10);
        optional_duration(value.as_ref(), &field(key), range, default, at)
    };
    Ok(Elevator::NonWorkConserving {
        wait: length(&raw.wait, "wait", Ns::from_ms(8))?,
        turn: length(&raw.turn, "turn", Ns::from_ms(100))?,
    })
}
