// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a `[[load]]`.

use toml::Spanned;
use units::Ns;

use super::super::Burst;
use super::super::Load;
use super::super::LoadKind;
use super::super::Pattern;
use super::super::ScenarioError;
use super::super::error::Locator;
use super::super::file;
use super::value::duration;
use super::value::identifier;
use super::value::optional_duration;
use super::value::optional_integer;
use super::value::quoted;

const DEFAULT_BLOCK_KIB: u32 = 4;
const DEFAULT_FILE_MIB: u32 = 256;
/// 100 us: a read of a fast SSD.
const DEFAULT_DEVICE: Ns = Ns(100_000);

/// Checks one `[[load]]`.
pub(super) fn load(raw: file::Load, index: usize, at: &Locator<'_>) -> Result<Load, ScenarioError> {
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
            "burst",
            "pause",
        ],
        "pulse" => &["queue_depth", "device", "threads"],
        "idle" => &[],
        other => {
            return Err(at.value(
                raw.kind.span(),
                field("kind"),
                quoted(other),
                "write \"disk\", \"pulse\" or \"idle\"",
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
    ];
    for (key, span) in given {
        if let Some(span) = span
            && !allowed.contains(&key)
        {
            let expected = format!("a load of kind \"{kind_name}\" has no such key; leave it out");
            return Err(at.value(span, field(key), "set", expected));
        }
    }
    let queue_depth = |at: &Locator<'_>| {
        optional_integer(
            raw.queue_depth.as_ref(),
            &field("queue_depth"),
            1..=256,
            1,
            at,
        )
    };
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
                block_kib: optional_integer(
                    raw.block_kib.as_ref(),
                    &field("block_kib"),
                    1..=4096,
                    DEFAULT_BLOCK_KIB,
                    at,
                )?,
                file_mib: optional_integer(
                    raw.file_mib.as_ref(),
                    &field("file_mib"),
                    16..=65536,
                    DEFAULT_FILE_MIB,
                    at,
                )?,
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
