// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a `[[load]]`.

use toml::Spanned;
use units::Ns;

use super::super::Arrival;
use super::super::Burst;
use super::super::Load;
use super::super::LoadKind;
use super::super::Pattern;
use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::value::duration;
use super::value::identifier;
use super::value::integer;
use super::value::optional_duration;
use super::value::optional_integer;
use super::value::quoted;

const DEFAULT_BLOCK_KIB: u32 = 4;
const DEFAULT_FILE_MIB: u32 = 256;
/// Filled at the start of every phase; a log's segment is no larger.
const DEFAULT_LOG_MIB: u32 = 64;
const MAX_THREADS: u32 = 64;
/// 100 us: a read of a fast SSD.
const DEFAULT_DEVICE: Ns = Ns(100_000);

/// Checks one `[[load]]`.
///
/// `window` is how long a phase is measured: threads arrive within it.
pub(super) fn load(
    raw: file::Load,
    index: usize,
    window: Ns,
    at: &Locator<'_>,
) -> Result<Load, ScenarioError> {
    let field = |name: &str| format!("load[{index}].{name}");
    let name = identifier(raw.name.clone(), &field("name"), at)?;
    let kind_name = raw.kind.as_ref().as_str();
    // Which optional keys this kind knows: anything else would be ignored in
    // silence, and the writer would believe that it had an effect.
    let allowed: &[&str] = match kind_name {
        "disk" => &[
            "pattern",
            "queue_depth",
            "block_kib",
            "file_mib",
            "threads",
            "burst",
            "pause",
        ],
        "fsync" => &["pattern", "block_kib", "file_mib", "threads"],
        "pulse" => &["queue_depth", "device", "threads", "cpu", "arrivals"],
        "profile" => &["profile"],
        "idle" => &[],
        other => {
            return Err(at.value(
                raw.kind.span(),
                field("kind"),
                quoted(other),
                "write \"disk\", \"fsync\", \"pulse\", \"profile\" or \"idle\"",
            ));
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
        ("cpu", raw.cpu.as_ref().map(Spanned::span)),
        ("arrivals", raw.arrivals.as_ref().map(Spanned::span)),
        ("profile", raw.profile.as_ref().map(Spanned::span)),
    ];
    for (key, span) in given {
        if let Some(span) = span
            && !allowed.contains(&key)
        {
            let expected = format!("a load of kind \"{kind_name}\" has no such key; leave it out");
            return Err(at.value(span, field(key), "set", expected));
        }
    }
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
                Some(pattern) => match pattern.as_ref().as_str() {
                    "overwrite" => false,
                    "append" => true,
                    other => {
                        let expected = "write \"overwrite\" or \"append\"";
                        return Err(at.value(
                            pattern.span(),
                            field("pattern"),
                            quoted(other),
                            expected,
                        ));
                    }
                },
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
            arrivals: arrivals(raw.arrivals, threads()?, window, &field("arrivals"), at)?,
        },
        "profile" => LoadKind::Profile {
            // Its own name, if nothing else is said.
            profile: match raw.profile {
                Some(profile) => identifier(profile, &field("profile"), at)?,
                None => name.clone(),
            },
        },
        _ => LoadKind::Idle,
    };
    Ok(Load { name, kind })
}

/// Threads that come within the window, in order, [`MAX_THREADS`] in all.
fn arrivals(
    raw: Option<Spanned<Vec<file::Arrival>>>,
    at_start: u32,
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
        let threads = integer(&raw.threads, &threads_field, 1..=MAX_THREADS, at)?;
        if when == window || arrivals.last().is_some_and(|last| last.at >= when) {
            let expected = format!(
                "write ascending times before the window's end (measure.window is {window})"
            );
            return Err(at.value(raw.at.span(), at_field, quoted(raw.at.as_ref()), expected));
        }
        present += threads;
        if present > MAX_THREADS {
            let expected =
                format!("{present} threads in all by then; at most {MAX_THREADS} are possible");
            return Err(at.value(raw.threads.span(), threads_field, threads, expected));
        }
        arrivals.push(Arrival { at: when, threads });
    }
    Ok(arrivals)
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
