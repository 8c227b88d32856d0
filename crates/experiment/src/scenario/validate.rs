// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a scenario, and the defaults.

use std::ops::RangeInclusive;

use toml::Spanned;
use units::Ns;

use super::Arm;
use super::ArmKind;
use super::Burst;
use super::Compute;
use super::Load;
use super::LoadKind;
use super::Measure;
use super::Pattern;
use super::Scenario;
use super::ScenarioError;
use super::Sharing;
use super::Topology;
use super::error::Locator;
use super::file;
use crate::result::BASELINES;

/// The sweep when the file gives none: two pCPUs pass through every phase
/// within ten periods.
const DEFAULT_SWEEP_PERMILLE: u32 = 100;
const DEFAULT_ROUNDS: u32 = 5;
const DEFAULT_WARMUP: Ns = Ns(500_000_000);
const DEFAULT_WINDOW: Ns = Ns(2_000_000_000);
const DEFAULT_BLOCK_KIB: u32 = 4;
const DEFAULT_FILE_MIB: u32 = 256;
/// 100 us: a read of a fast SSD.
const DEFAULT_DEVICE: Ns = Ns(100_000);

const KINDS_OF_ARM: &str =
    "one of \"vanilla\", \"fifo\", \"nice\", \"dry-run\", \"vmigrater\", \"published\", \"command\"";

/// Checks a parsed file.
pub(super) fn validate(raw: file::File, at: &Locator<'_>) -> Result<Scenario, ScenarioError> {
    let name = identifier(raw.name, "name", at)?;
    if raw.title.as_ref().trim().is_empty() {
        return Err(at.value(raw.title.span(), "title", "empty", "say in one line what it measures"));
    }
    let topology = Topology {
        cpus: integer(&raw.topology.cpus, "topology.cpus", 1..=1024, at)?,
    };
    let sharing = sharing(raw.sharing, at)?;
    let measure = measure(raw.measure, at)?;
    let threads_per_cpu =
        optional_integer(raw.compute.threads_per_cpu.as_ref(), "compute.threads_per_cpu", 0..=16, 1, at)?;

    let mut loads: Vec<Load> = Vec::new();
    for (index, raw) in raw.loads.into_iter().enumerate() {
        let span = raw.name.span();
        let load = load(raw, index, at)?;
        if loads.iter().any(|other| other.name == load.name) {
            return Err(at.value(span, format!("load[{index}].name"), quoted(&load.name), "give each load a name of its own"));
        }
        loads.push(load);
    }
    if loads.is_empty() {
        return Err(at.value(0..0, "load", "missing", "add at least one [[load]]"));
    }

    let mut arms: Vec<Arm> = Vec::new();
    for (index, raw) in raw.arms.into_iter().enumerate() {
        let span = raw.name.span();
        let arm = arm(raw, index, at)?;
        if arms.iter().any(|other| other.name == arm.name) {
            return Err(at.value(span, format!("arm[{index}].name"), quoted(&arm.name), "give each arm a name of its own"));
        }
        arms.push(arm);
    }
    if arms.is_empty() {
        return Err(at.value(0..0, "arm", "missing", "add at least one [[arm]], for instance name = \"vanilla\""));
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
        return Err(at.value(span, field, "empty", "list numbers of VMs from 1 to 64, for instance [2, 4, 8]"));
    }
    let slice = duration(&raw.slice, "sharing.slice", Ns::from_us(200)..=Ns::from_secs(1), at)?;
    let sweep_permille = optional_integer(
        raw.sweep_permille.as_ref(),
        "sharing.sweep_permille",
        0..=500,
        DEFAULT_SWEEP_PERMILLE,
        at,
    )?;
    Ok(Sharing { vms_per_pcpu, slice, sweep_permille })
}

fn measure(raw: file::Measure, at: &Locator<'_>) -> Result<Measure, ScenarioError> {
    Ok(Measure {
        rounds: optional_integer(raw.rounds.as_ref(), "measure.rounds", 1..=1000, DEFAULT_ROUNDS, at)?,
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
    })
}

fn load(raw: file::Load, index: usize, at: &Locator<'_>) -> Result<Load, ScenarioError> {
    let field = |name: &str| format!("load[{index}].{name}");
    let name = identifier(raw.name.clone(), &field("name"), at)?;
    let kind_name = raw.kind.as_ref().as_str();
    // Which optional keys this kind knows: anything else would be ignored in
    // silence, and the writer would believe that it had an effect.
    let allowed: &[&str] = match kind_name {
        "disk" => &["pattern", "queue_depth", "block_kib", "file_mib", "burst", "pause"],
        "pulse" => &["queue_depth", "device", "threads"],
        "idle" => &[],
        other => {
            return Err(at.value(raw.kind.span(), field("kind"), quoted(other), "write \"disk\", \"pulse\" or \"idle\""));
        }
    };
    let given = [
        ("pattern", raw.pattern.as_ref().map(Spanned::span)),
        ("queue_depth", raw.queue_depth.as_ref().map(Spanned::span)),
        ("block_kib", raw.block_kib.as_ref().map(Spanned::span)),
        ("file_mib", raw.file_mib.as_ref().map(Spanned::span)),
        ("burst", raw.burst.as_ref().map(Spanned::span)),
        ("pause", raw.pause.as_ref().map(Spanned::span)),
        ("device", raw.device.as_ref().map(Spanned::span)),
        ("threads", raw.threads.as_ref().map(Spanned::span)),
    ];
    for (key, span) in given {
        if let Some(span) = span
            && !allowed.contains(&key)
        {
            let expected = format!("a load of kind \"{kind_name}\" has no such key; leave it out");
            return Err(at.value(span, field(key), "set", expected));
        }
    }
    let queue_depth =
        |at: &Locator<'_>| optional_integer(raw.queue_depth.as_ref(), &field("queue_depth"), 1..=256, 1, at);
    let kind = match kind_name {
        "disk" => {
            let Some(pattern) = &raw.pattern else {
                let expected = "write \"random-read\", \"sequential-read\" or \"bursty\"";
                return Err(at.value(raw.kind.span(), field("pattern"), "missing", expected));
            };
            let pattern_span = pattern.span();
            let pattern = match pattern.as_ref().as_str() {
                "random-read" => Pattern::RandomRead,
                "sequential-read" => Pattern::SequentialRead,
                "bursty" => Pattern::Bursty,
                other => {
                    let expected = "write \"random-read\", \"sequential-read\" or \"bursty\"";
                    return Err(at.value(pattern_span, field("pattern"), quoted(other), expected));
                }
            };
            LoadKind::Disk {
                pattern,
                queue_depth: queue_depth(at)?,
                block_kib: optional_integer(raw.block_kib.as_ref(), &field("block_kib"), 1..=4096, DEFAULT_BLOCK_KIB, at)?,
                file_mib: optional_integer(raw.file_mib.as_ref(), &field("file_mib"), 16..=65536, DEFAULT_FILE_MIB, at)?,
                burst: burst(pattern, pattern_span, raw.burst.as_ref(), raw.pause.as_ref(), &field, at)?,
            }
        }
        "pulse" => LoadKind::Pulse {
            queue_depth: queue_depth(at)?,
            device: optional_duration(
                raw.device.as_ref(),
                &field("device"),
                Ns::from_us(10)..=Ns::from_ms(100),
                DEFAULT_DEVICE,
                at,
            )?,
            threads: optional_integer(raw.threads.as_ref(), &field("threads"), 1..=64, 1, at)?,
        },
        _ => LoadKind::Idle,
    };
    Ok(Load { name, kind })
}

fn burst(
    pattern: Pattern,
    pattern_span: std::ops::Range<usize>,
    on: Option<&Spanned<String>>,
    off: Option<&Spanned<String>>,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Option<Burst>, ScenarioError> {
    let range = Ns::from_ms(1)..=Ns::from_secs(10);
    match (pattern, on, off) {
        (Pattern::Bursty, Some(on), Some(off)) => Ok(Some(Burst {
            on: duration(on, &field("burst"), range.clone(), at)?,
            off: duration(off, &field("pause"), range, at)?,
        })),
        (Pattern::Bursty, on, _) => {
            let missing = if on.is_none() { "burst" } else { "pause" };
            let expected = "a bursty load needs both, for instance burst = \"50 ms\" and pause = \"50 ms\"";
            Err(at.value(pattern_span, field(missing), "missing", expected))
        }
        (_, None, None) => Ok(None),
        (_, Some(extra), _) | (_, None, Some(extra)) => {
            let expected = "only pattern = \"bursty\" pauses; leave it out or change the pattern";
            Err(at.value(extra.span(), field("burst/pause"), quoted(extra.as_ref()), expected))
        }
    }
}

fn arm(raw: file::Arm, index: usize, at: &Locator<'_>) -> Result<Arm, ScenarioError> {
    let field = |name: &str| format!("arm[{index}].{name}");
    let name = identifier(raw.name.clone(), &field("name"), at)?;
    if BASELINES.contains(&name.as_str()) {
        let expected = "this baseline is always measured; give the arm another name or leave it out";
        return Err(at.value(raw.name.span(), field("name"), quoted(&name), expected));
    }
    let kind_value = raw.kind.as_ref().unwrap_or(&raw.name);
    let kind_name = kind_value.as_ref().as_str();
    let is_daemon = matches!(kind_name, "vmigrater" | "dry-run" | "published");
    if let Some(config) = &raw.config
        && !is_daemon
    {
        return Err(at.value(config.span(), field("config"), "set", "only arms that start the daemon have a configuration"));
    }
    if let Some(profile) = &raw.profile
        && !matches!(kind_name, "vmigrater" | "dry-run")
    {
        let expected = "only arms of kind \"vmigrater\" or \"dry-run\" take a profile";
        return Err(at.value(profile.span(), field("profile"), quoted(profile.as_ref()), expected));
    }
    if let Some(command) = &raw.command
        && kind_name != "command"
    {
        return Err(at.value(command.span(), field("command"), "set", "set kind = \"command\" too, or leave it out"));
    }
    let profile = raw.profile.map(Spanned::into_inner);
    let config = raw.config.map(Spanned::into_inner);
    let kind = match kind_name {
        "vanilla" => ArmKind::Vanilla,
        "fifo" => ArmKind::Fifo,
        "nice" => ArmKind::Nice,
        "vmigrater" => ArmKind::Vmigrater { dry_run: false, profile, config },
        "dry-run" => ArmKind::Vmigrater { dry_run: true, profile, config },
        "published" => ArmKind::Vmigrater { dry_run: false, profile: Some("published".to_owned()), config },
        "command" => match raw.command {
            Some(command) if !command.as_ref().is_empty() => ArmKind::Command { command: command.into_inner() },
            other => {
                let span = other.map_or(kind_value.span(), |command| command.span());
                let expected = "give the program and its arguments, for instance [\"my-tool\", \"{tids}\"]";
                return Err(at.value(span, field("command"), "missing or empty", expected));
            }
        },
        other => {
            let expected = format!("write kind = {KINDS_OF_ARM}");
            return Err(at.value(kind_value.span(), field("kind"), quoted(other), expected));
        }
    };
    let rounds = match &raw.rounds {
        Some(rounds) => Some(integer(rounds, &field("rounds"), 1..=1000, at)?),
        None => None,
    };
    Ok(Arm { name, kind, rounds })
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn identifier(value: Spanned<String>, field: &str, at: &Locator<'_>) -> Result<String, ScenarioError> {
    let text = value.as_ref();
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > 32 || !text.chars().all(good) {
        let expected = "use 1 to 32 lower-case letters, digits and hyphens";
        return Err(at.value(value.span(), field, quoted(text), expected));
    }
    Ok(value.into_inner())
}

fn integer(
    value: &Spanned<i64>,
    field: &str,
    range: RangeInclusive<u32>,
    at: &Locator<'_>,
) -> Result<u32, ScenarioError> {
    u32::try_from(*value.as_ref())
        .ok()
        .filter(|n| range.contains(n))
        .ok_or_else(|| {
            let expected = format!("write a number from {} to {}", range.start(), range.end());
            at.value(value.span(), field, value.as_ref(), expected)
        })
}

fn optional_integer(
    value: Option<&Spanned<i64>>,
    field: &str,
    range: RangeInclusive<u32>,
    default: u32,
    at: &Locator<'_>,
) -> Result<u32, ScenarioError> {
    value.map_or(Ok(default), |value| integer(value, field, range, at))
}

fn duration(
    value: &Spanned<String>,
    field: &str,
    range: RangeInclusive<Ns>,
    at: &Locator<'_>,
) -> Result<Ns, ScenarioError> {
    humantime::parse_duration(value.as_ref())
        .ok()
        .map(Ns::from)
        .filter(|duration| range.contains(duration))
        .ok_or_else(|| {
            let expected = format!("write a duration from {} to {}, for instance \"11 ms\"", range.start(), range.end());
            at.value(value.span(), field, quoted(value.as_ref()), expected)
        })
}

fn optional_duration(
    value: Option<&Spanned<String>>,
    field: &str,
    range: RangeInclusive<Ns>,
    default: Ns,
    at: &Locator<'_>,
) -> Result<Ns, ScenarioError> {
    value.map_or(Ok(default), |value| duration(value, field, range, at))
}
