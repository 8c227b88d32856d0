// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes sense in a `[[load]]` that only the simulator has.

use toml::Spanned;
use units::Ns;

use super::super::Burst;
use super::super::DeviceKind;
use super::super::Leave;
use super::super::Program;
use super::super::ScenarioError;
use super::super::Threads;
use super::super::Trick;
use super::super::error::Locator;
use super::super::file;
use super::device::SPREAD;
use super::load::Context;
use super::load::arrivals;
use super::value::chosen;
use super::value::duration;
use super::value::integer;
use super::value::optional_duration;
use super::value::optional_integer;
use super::value::quoted;

/// Their names.
pub(super) const KINDS: [&str; 6] = [
    "reader",
    "echo",
    "parallel",
    "locks",
    "compute",
    "adversary",
];

/// Each thread's own region, in MiB.
const DEFAULT_FILE_MIB: u32 = 1024;
const DEFAULT_BLOCK: u32 = 4096;
/// Of one load in one VM.
const MAX_THREADS: u32 = 1024;

/// The optional keys of a kind.
pub(super) fn allowed(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "reader" => &[
            "device",
            "pattern",
            "write",
            "queue_depth",
            "block_bytes",
            "file_mib",
            "burst",
            "pause",
            "submit",
            "process",
            "further",
            "spread_permille",
            "threads",
            "vcpu",
            "pinned",
            "weight",
            "arrivals",
            "start_up",
        ],
        "echo" => &["device", "work", "threads", "vcpu", "pinned", "weight"],
        "parallel" => &[
            "work",
            "spread_permille",
            "skew_permille",
            "spin",
            "alone",
            "alone_permille",
            "leave",
            "threads",
            "vcpu",
            "pinned",
            "weight",
        ],
        "locks" => &[
            "work",
            "spread_permille",
            "hold",
            "spin",
            "threads",
            "vcpu",
            "pinned",
            "weight",
        ],
        "compute" => &["threads", "vcpu", "pinned", "weight"],
        "adversary" => &[
            "trick", "tick", "early", "every", "device", "threads", "vcpu", "pinned", "weight",
        ],
        _ => return None,
    })
}

/// Does such a load send requests to a device?
pub(super) fn uses_device(kind: &str, raw: &file::Load) -> bool {
    match kind {
        "reader" | "echo" => true,
        "adversary" => raw.trick.as_ref().is_some_and(|t| t.as_ref() == "fake-io"),
        _ => false,
    }
}

/// Checks one whose keys are known to belong to it.
pub(super) fn program(
    raw: file::Load,
    field: &dyn Fn(&str) -> String,
    context: &Context<'_>,
    device: Option<&str>,
    at: &Locator<'_>,
) -> Result<Program, ScenarioError> {
    let kind = raw.kind.as_ref().as_str();
    let on_network = context
        .devices
        .iter()
        .any(|d| Some(d.name.as_str()) == device && matches!(d.kind, DeviceKind::Network { .. }));
    if kind == "echo" && !on_network {
        let named = quoted(device.unwrap_or_default());
        let expected = "an echo needs a device of kind \"network\", where its clients are";
        let span = raw.device.as_ref().map_or(raw.kind.span(), Spanned::span);
        return Err(at.value(span, field("device"), named, expected));
    }
    let length = |key: &str, value: &Option<Spanned<String>>, range, default| {
        optional_duration(value.as_ref(), &field(key), range, default, at)
    };
    let some = || Ns(1)..=Ns::from_secs(10);
    let any = || Ns::ZERO..=Ns::from_secs(10);
    let whole = |key: &str, value: &Option<Spanned<i64>>, range, default| {
        optional_integer(value.as_ref(), &field(key), range, default, at)
    };
    let spread = |default| whole("spread_permille", &raw.spread_permille, SPREAD, default);
    let work = |default| length("work", &raw.work, some(), default);
    if let (Some(part), None) = (&raw.alone_permille, &raw.alone) {
        let expected = "it is the part of the time that sequential parts of the length `alone` are: say that as well";
        let value = part.as_ref().to_string();
        return Err(at.value(part.span(), field("alone_permille"), value, expected));
    }
    Ok(match kind {
        "reader" => return reader(&raw, field, context, on_network, at),
        "echo" => Program::Echo {
            work: work(Ns::from_us(10))?,
            threads: threads(&raw, Some(1), false, field, at)?,
        },
        "parallel" => Program::Parallel {
            work: work(Ns::from_ms(1))?,
            spread_permille: spread(300)?,
            skew_permille: whole("skew_permille", &raw.skew_permille, SPREAD, 0)?,
            spin: length("spin", &raw.spin, any(), Ns::from_us(20))?,
            alone: length("alone", &raw.alone, any(), Ns::ZERO)?,
            alone_permille: whole("alone_permille", &raw.alone_permille, 0..=990, 100)?,
            leave: match &raw.leave {
                Some(word) => chosen(word, &field("leave"), &Leave::NAMES, at)?,
                None => Leave::default(),
            },
            threads: threads(&raw, None, true, field, at)?,
        },
        "locks" => Program::Locks {
            work: work(Ns::from_us(100))?,
            spread_permille: spread(300)?,
            hold: length("hold", &raw.hold, some(), Ns::from_us(10))?,
            spin: length("spin", &raw.spin, any(), Ns::from_us(20))?,
            threads: threads(&raw, None, true, field, at)?,
        },
        "compute" => Program::Compute {
            threads: threads(&raw, None, true, field, at)?,
        },
        _ => Program::Adversary {
            trick: trick(&raw, field, at)?,
            threads: threads(&raw, None, true, field, at)?,
        },
    })
}

fn reader(
    raw: &file::Load,
    field: &dyn Fn(&str) -> String,
    context: &Context<'_>,
    on_network: bool,
    at: &Locator<'_>,
) -> Result<Program, ScenarioError> {
    let patterns = [("random", false), ("sequential", true)];
    let sequential = match &raw.pattern {
        Some(word) => chosen(word, &field("pattern"), &patterns, at)?,
        None => true,
    };
    let write = raw.write.as_ref().is_some_and(|write| *write.as_ref());
    if on_network && !write {
        let span = raw.write.as_ref().map_or(raw.kind.span(), Spanned::span);
        let expected =
            "a reader on a network streams: write = true, or use kind \"echo\" for messages";
        return Err(at.value(span, field("write"), write, expected));
    }
    let range = Ns::from_us(10)..=Ns::from_secs(10);
    let burst = match (&raw.burst, &raw.pause) {
        (Some(on), Some(off)) => Some(Burst {
            on: duration(on, &field("burst"), range.clone(), at)?,
            off: duration(off, &field("pause"), range, at)?,
        }),
        (None, None) => None,
        (on, off) => {
            let missing = if on.is_none() { "burst" } else { "pause" };
            let span = on.as_ref().or(off.as_ref()).map_or(0..0, Spanned::span);
            let expected = "give both, for instance burst = \"50 ms\" and pause = \"50 ms\"";
            return Err(at.value(span, field(missing), "missing", expected));
        }
    };
    let whole = |key: &str, value: &Option<Spanned<i64>>, range, default| {
        optional_integer(value.as_ref(), &field(key), range, default, at)
    };
    let length = |key: &str, value: &Option<Spanned<String>>| {
        let range = Ns::ZERO..=Ns::from_secs(10);
        let value = value.as_ref();
        value
            .map(|value| duration(value, &field(key), range, at))
            .transpose()
    };
    if let (None, Some(start_up)) = (&raw.arrivals, &raw.start_up) {
        let expected = "leave it out, or say with `arrivals` which threads have to start up";
        let value = quoted(start_up.as_ref());
        return Err(at.value(start_up.span(), field("start_up"), value, expected));
    }
    let threads = threads(raw, Some(1), false, field, at)?;
    Ok(Program::Reader {
        sequential,
        write,
        queue_depth: whole("queue_depth", &raw.queue_depth, 1..=256, 1)?,
        block_bytes: whole("block_bytes", &raw.block_bytes, 1..=1 << 24, DEFAULT_BLOCK)?,
        file_mib: whole("file_mib", &raw.file_mib, 1..=65_536, DEFAULT_FILE_MIB)?,
        burst,
        submit: length("submit", &raw.submit)?,
        process: length("process", &raw.process)?,
        further: length("further", &raw.further)?,
        spread_permille: raw
            .spread_permille
            .as_ref()
            .map(|value| integer(value, &field("spread_permille"), SPREAD, at))
            .transpose()?,
        threads,
        arrivals: arrivals(
            raw.arrivals.clone(),
            (threads.count.unwrap_or(1), MAX_THREADS),
            context.window,
            &field("arrivals"),
            at,
        )?,
        start_up: length("start_up", &raw.start_up)?,
    })
}

/// Of a thread, in the units of Linux: idle priority is 3, nice -20 is 88761.
const TASK_WEIGHT: std::ops::RangeInclusive<u32> = 2..=88_761;

fn threads(
    raw: &file::Load,
    count: Option<u32>,
    pinned: bool,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Threads, ScenarioError> {
    let given = raw.threads.as_ref();
    let given = given.map(|value| integer(value, &field("threads"), 1..=MAX_THREADS, at));
    Ok(Threads {
        count: given.transpose()?.or(count),
        vcpu: optional_integer(raw.vcpu.as_ref(), &field("vcpu"), 0..=1023, 0, at)?,
        pinned: raw.pinned.as_ref().map_or(pinned, |value| *value.as_ref()),
        weight: raw
            .weight
            .as_ref()
            .map(|value| integer(value, &field("weight"), TASK_WEIGHT, at))
            .transpose()?,
    })
}

fn trick(
    raw: &file::Load,
    field: &dyn Fn(&str) -> String,
    at: &Locator<'_>,
) -> Result<Trick, ScenarioError> {
    let Some(word) = &raw.trick else {
        let expected = "write \"dodge\" or \"fake-io\"";
        return Err(at.value(raw.kind.span(), field("trick"), "missing", expected));
    };
    let dodges = chosen(
        word,
        &field("trick"),
        &[("dodge", true), ("fake-io", false)],
        at,
    )?;
    let (other, what) = if dodges {
        (&raw.every, "every")
    } else {
        (
            raw.tick.as_ref().map_or(&raw.early, |_| &raw.tick),
            "tick/early",
        )
    };
    if let Some(other) = other {
        let expected = "belongs to the other trick; leave it out";
        return Err(at.value(other.span(), field(what), quoted(other.as_ref()), expected));
    }
    let length = |key: &str, value: &Option<Spanned<String>>, range, default| {
        optional_duration(value.as_ref(), &field(key), range, default, at)
    };
    let range = Ns::from_us(10)..=Ns::from_secs(1);
    if !dodges {
        return Ok(Trick::FakeIo {
            every: length("every", &raw.every, range, Ns::from_ms(1))?,
        });
    }
    // Xen's ticks (K3).
    let tick = length("tick", &raw.tick, range, Ns::from_ms(10))?;
    let most = tick / 4;
    Ok(Trick::Dodge {
        tick,
        early: length(
            "early",
            &raw.early,
            Ns(1)..=most,
            Ns::from_us(100).min(most),
        )?,
    })
}
