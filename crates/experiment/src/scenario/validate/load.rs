// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a `[[load]]`.

use toml::Spanned;
use units::Ns;

use super::super::Arrival;
use super::super::Burst;
use super::super::Device;
use super::super::Load;
use super::super::LoadKind;
use super::super::Pattern;
use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::super::known;
use super::program;
use super::value::chosen;
use super::value::duration;
use super::value::identifier;
use super::value::integer;
use super::value::optional_duration;
use super::value::optional_integer;
use super::value::quoted;

const PATTERNS: [(&str, Pattern); 3] = [
    ("random-read", Pattern::RandomRead),
    ("sequential-read", Pattern::SequentialRead),
    ("bursty", Pattern::Bursty),
];
const DEFAULT_BLOCK_KIB: u32 = 4;
const DEFAULT_FILE_MIB: u32 = 256;
/// Filled at the start of every phase; a log's segment is no larger.
const DEFAULT_LOG_MIB: u32 = 64;
const MAX_THREADS: u32 = 64;
/// 100 us: a read of a fast SSD.
const DEFAULT_DEVICE: Ns = Ns(100_000);

/// What a load is checked against.
pub(super) struct Context<'a> {
    /// How long a phase is measured: threads arrive within it.
    pub(super) window: Ns,
    /// What there is to name.
    pub(super) devices: &'a [Device],
    /// Applications; none: not known.
    pub(super) profiles: &'a [String],
    /// Are there `[[vm]]` tables?
    pub(super) own_vms: bool,
}

/// Which optional keys a kind knows: anything else would be ignored in silence, and
/// the writer would believe that it had an effect.
fn allowed(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "disk" => &[
            "pattern",
            "queue_depth",
            "block_kib",
            "file_mib",
            "threads",
            "burst",
            "pause",
            "device",
        ],
        "fsync" => &["pattern", "block_kib", "file_mib", "threads"],
        "pulse" => &["queue_depth", "device", "threads", "cpu", "arrivals"],
        "profile" => &["profile", "device"],
        "idle" => &[],
        other => return program::allowed(other),
    })
}

/// Where each optional key is, if it was given.
fn given(raw: &file::Load) -> [(&'static str, Option<std::ops::Range<usize>>); 32] {
    let text = |value: &Option<Spanned<String>>| value.as_ref().map(Spanned::span);
    let whole = |value: &Option<Spanned<i64>>| value.as_ref().map(Spanned::span);
    [
        ("pattern", text(&raw.pattern)),
        ("queue_depth", whole(&raw.queue_depth)),
        ("block_kib", whole(&raw.block_kib)),
        ("file_mib", whole(&raw.file_mib)),
        ("burst", text(&raw.burst)),
        ("pause", text(&raw.pause)),
        ("device", text(&raw.device)),
        ("threads", whole(&raw.threads)),
        ("cpu", text(&raw.cpu)),
        ("arrivals", raw.arrivals.as_ref().map(Spanned::span)),
        ("profile", text(&raw.profile)),
        ("write", raw.write.as_ref().map(Spanned::span)),
        ("block_bytes", whole(&raw.block_bytes)),
        ("submit", text(&raw.submit)),
        ("process", text(&raw.process)),
        ("further", text(&raw.further)),
        ("start_up", text(&raw.start_up)),
        ("spread_permille", whole(&raw.spread_permille)),
        ("skew_permille", whole(&raw.skew_permille)),
        ("work", text(&raw.work)),
        ("spin", text(&raw.spin)),
        ("hold", text(&raw.hold)),
        ("alone", text(&raw.alone)),
        ("alone_permille", whole(&raw.alone_permille)),
        ("leave", text(&raw.leave)),
        ("trick", text(&raw.trick)),
        ("tick", text(&raw.tick)),
        ("early", text(&raw.early)),
        ("every", text(&raw.every)),
        ("vcpu", whole(&raw.vcpu)),
        ("pinned", raw.pinned.as_ref().map(Spanned::span)),
        ("weight", whole(&raw.weight)),
    ]
}

/// Checks one `[[load]]`.
pub(super) fn load(
    raw: file::Load,
    index: usize,
    context: &Context<'_>,
    at: &Locator<'_>,
) -> Result<Load, ScenarioError> {
    let field = |name: &str| format!("load[{index}].{name}");
    let name = identifier(raw.name.clone(), &field("name"), at)?;
    let kind_name = raw.kind.as_ref().as_str();
    let Some(allowed) = allowed(kind_name) else {
        let simulated = program::KINDS.map(quoted).join(", ");
        let expected = format!(
            "write \"disk\", \"fsync\", \"pulse\", \"profile\" or \"idle\", or for the simulator one of {simulated}"
        );
        return Err(at.value(raw.kind.span(), field("kind"), quoted(kind_name), expected));
    };
    if program::allowed(kind_name).is_some() && !context.own_vms {
        let expected = "only the simulator has it: add [[vm]] tables and use `vlab sim`, or write \"disk\", \"fsync\", \"pulse\" or \"idle\"";
        return Err(at.value(raw.kind.span(), field("kind"), quoted(kind_name), expected));
    }
    for (key, span) in given(&raw) {
        if let Some(span) = span
            && !allowed.contains(&key)
        {
            let expected = format!("a load of kind \"{kind_name}\" has no such key; leave it out");
            return Err(at.value(span, field(key), "set", expected));
        }
    }
    let device = device(&raw, context, &field, at)?;
    let number = |key: &str, value: &Option<Spanned<i64>>, range, default| {
        optional_integer(value.as_ref(), &field(key), range, default, at)
    };
    let queue_depth = || number("queue_depth", &raw.queue_depth, 1..=256, 1);
    let threads = || number("threads", &raw.threads, 1..=MAX_THREADS, 1);
    let block_kib = || number("block_kib", &raw.block_kib, 1..=4096, DEFAULT_BLOCK_KIB);
    let file_mib = |default| number("file_mib", &raw.file_mib, 16..=65536, default);
    let kind = match kind_name {
        "disk" => {
            let Some(pattern) = &raw.pattern else {
                let expected = "write \"random-read\", \"sequential-read\" or \"bursty\"";
                return Err(at.value(raw.kind.span(), field("pattern"), "missing", expected));
            };
            let pattern_span = pattern.span();
            let pattern = chosen(pattern, &field("pattern"), &PATTERNS, at)?;
            LoadKind::Disk {
                pattern,
                queue_depth: queue_depth()?,
                block_kib: block_kib()?,
                file_mib: file_mib(DEFAULT_FILE_MIB)?,
                threads: threads()?,
                burst: burst(
                    pattern,
                    pattern_span,
                    raw.burst.as_ref(),
                    raw.pause.as_ref(),
                    &field,
                    at,
                )?,
            }
        }
        "fsync" => LoadKind::Fsync {
            block_kib: block_kib()?,
            file_mib: file_mib(DEFAULT_LOG_MIB)?,
            append: match &raw.pattern {
                None => false,
                Some(pattern) => {
                    let words = [("overwrite", false), ("append", true)];
                    chosen(pattern, &field("pattern"), &words, at)?
                }
            },
            threads: threads()?,
        },
        "pulse" => LoadKind::Pulse {
            queue_depth: queue_depth()?,
            device: optional_duration(
                raw.device.as_ref(),
                &field("device"),
                Ns::from_us(10)..=Ns::from_ms(100),
                DEFAULT_DEVICE,
                at,
            )?,
            threads: threads()?,
            cpu: optional_duration(
                raw.cpu.as_ref(),
                &field("cpu"),
                Ns::ZERO..=Ns::from_ms(100),
                Ns::ZERO,
                at,
            )?,
            arrivals: arrivals(
                raw.arrivals,
                (threads()?, MAX_THREADS),
                context.window,
                &field("arrivals"),
                at,
            )?,
        },
        "profile" => LoadKind::Profile {
            // Its own name, if nothing else is said.
            profile: match raw.profile {
                Some(profile) => known::chosen(profile, &field("profile"), context.profiles, at)?,
                None => known::chosen(raw.name, &field("name"), context.profiles, at)?,
            },
        },
        "idle" => LoadKind::Idle,
        _ => LoadKind::Simulated {
            program: program::program(raw, &field, context, device.as_deref(), at)?,
        },
    };
    Ok(Load { name, kind, device })
}

/// The device that a load names, or the only one that there is.
fn device(
    raw: &file::Load,
    context: &Context<'_>,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Option<String>, ScenarioError> {
    let kind = raw.kind.as_ref().as_str();
    // A pulse has a time there, and a device of its own.
    let uses = matches!(kind, "disk" | "profile") || program::uses_device(kind, raw);
    if !uses {
        return match &raw.device {
            Some(name) if kind != "pulse" => {
                let expected = "only trick = \"fake-io\" uses a device; leave it out";
                Err(at.value(name.span(), field("device"), "set", expected))
            }
            _ => Ok(None),
        };
    }
    let names: Vec<&str> = context.devices.iter().map(|d| d.name.as_str()).collect();
    let list = names.iter().map(|name| quoted(name)).collect::<Vec<_>>();
    let expected = match names.as_slice() {
        [] => "add a [[device]] of that name beside [[vm]]".to_owned(),
        _ => format!("write one of {}", list.join(", ")),
    };
    match (&raw.device, names.as_slice()) {
        (Some(name), _) if names.contains(&name.as_ref().as_str()) => {
            Ok(Some(name.as_ref().clone()))
        }
        (Some(name), _) => Err(at.value(
            name.span(),
            field("device"),
            quoted(name.as_ref()),
            expected,
        )),
        (None, [only]) => Ok(Some((*only).to_owned())),
        // The platform's own disk.
        (None, []) if matches!(kind, "disk" | "profile") => Ok(None),
        (None, _) => Err(at.value(raw.kind.span(), field("device"), "missing", expected)),
    }
}

/// Threads that come within the window, in order; with those `at_start` at most `most`.
pub(super) fn arrivals(
    raw: Option<Spanned<Vec<file::Arrival>>>,
    (at_start, most): (u32, u32),
    window: Ns,
    field: &str,
    at: &Locator<'_>,
) -> Result<Vec<Arrival>, ScenarioError> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut present = at_start;
    for (index, raw) in raw
        .map(Spanned::into_inner)
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let (at_field, threads_field) = (
            format!("{field}[{index}].at"),
            format!("{field}[{index}].threads"),
        );
        let when = duration(&raw.at, &at_field, Ns::from_ms(1)..=window, at)?;
        let threads = integer(&raw.threads, &threads_field, 1..=most, at)?;
        if when == window || arrivals.last().is_some_and(|last| last.at >= when) {
            let expected = format!(
                "write ascending times before the window's end (measure.window is {window})"
            );
            return Err(at.value(raw.at.span(), at_field, quoted(raw.at.as_ref()), expected));
        }
        present += threads;
        if present > most {
            let expected = format!("{present} threads in all by then; at most {most} are possible");
            return Err(at.value(raw.threads.span(), threads_field, threads, expected));
        }
        arrivals.push(Arrival { at: when, threads });
    }
    Ok(arrivals)
}

pub(super) fn burst(
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
            let expected =
                "a bursty load needs both, for instance burst = \"50 ms\" and pause = \"50 ms\"";
            Err(at.value(pattern_span, field(missing), "missing", expected))
        }
        (_, None, None) => Ok(None),
        (_, Some(extra), _) | (_, None, Some(extra)) => {
            let expected = "only pattern = \"bursty\" pauses; leave it out or change the pattern";
            Err(at.value(
                extra.span(),
                field("burst/pause"),
                quoted(extra.as_ref()),
                expected,
            ))
        }
    }
}
