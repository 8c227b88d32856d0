// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The moves that the daemon logs at level `trace`, one line each:
//!
//! ```text
//! 2026-01-02T03:04:05.678901Z TRACE moved key=123@456 to=1 why=SoonActive cost=35.2 us
//! ```
//!
//! Its log and not a protocol of its own: what a person debugs with is what the
//! timeline shows, and there is nothing to be kept in step. A line that is not
//! understood is no decision; the timeline then lacks an arrow, and nothing else.

use std::time::SystemTime;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Time;

use crate::load::now;

/// One move, carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Decision {
    /// When it had been carried out, on `CLOCK_MONOTONIC`.
    pub(super) at: Time,
    /// How long that took.
    pub(super) cost: Ns,
    /// Which thread.
    pub(super) tid: u32,
    /// Where to.
    pub(super) to: u32,
    /// Why, in the words of the daemon's report: `soon-active`.
    pub(super) why: String,
}

/// All moves in a log.
pub(super) fn parse(log: &str) -> Vec<Decision> {
    // The log's clock is the wall's; both are read here, one after the other.
    let wall = SystemTime::now();
    let monotonic = now();
    let at = |instant: SystemTime| {
        let ago = wall.duration_since(instant).ok()?;
        Some(monotonic - Ns::from(ago))
    };
    log.lines()
        .filter_map(|line| {
            let (instant, mut decision) = one(line)?;
            decision.at = at(instant)?;
            Some(decision)
        })
        .collect()
}

/// A line, without its instant on our clock.
fn one(line: &str) -> Option<(SystemTime, Decision)> {
    let (stamp, rest) = line.split_once(' ')?;
    let (_, fields) = rest.split_once(" moved ")?;
    // From one key to the next: a duration has a space in it.
    let field = |name: &str| {
        let (_, from) = fields.split_once(&format!("{name}="))?;
        let value = from.split('=').next()?;
        let more = from.len() > value.len();
        let end = if more { value.rfind(' ')? } else { value.len() };
        Some(value[..end].trim())
    };
    Some((
        humantime::parse_rfc3339(stamp).ok()?,
        Decision {
            at: Time::ZERO,
            cost: shown(field("cost")?)?,
            tid: field("key")?.split('@').next()?.parse().ok()?,
            to: field("to")?.parse().ok()?,
            why: kebab(field("why")?),
        },
    ))
}

/// What `Ns` shows: `35.2 us`.
fn shown(text: &str) -> Option<Ns> {
    let (number, unit) = text.split_once(' ')?;
    let ns_per_unit = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * ns_per_unit;
    (ns >= 0.0).then_some(Ns(ns.round() as u64))
}

/// `SoonActive` as `soon-active`.
fn kebab(camel: &str) -> String {
    let mut out = String::new();
    for letter in camel.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_read_from_its_line() {
        let line =
            "2026-01-02T03:04:05.678901Z TRACE moved key=123@456 to=1 why=SoonActive cost=35.2 us";
        let (stamp, decision) = one(line).unwrap();
        assert_eq!(
            decision,
            Decision {
                at: Time::ZERO,
                cost: Ns(35_200),
                tid: 123,
                to: 1,
                why: "soon-active".to_owned(),
            }
        );
        let since = stamp.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since.subsec_micros(), 678_901);
    }

    #[test]
    fn instants_are_put_on_our_clock() {
        let before = now();
        let stamp = humantime::format_rfc3339_nanos(SystemTime::now());
        let log = format!("{stamp} TRACE moved key=1@2 to=0 why=Push cost=9 us\n");
        let parsed = parse(&log);
        // The two clocks are read one after the other, so a little is between.
        let slack = Ns::from_ms(50);
        assert!(parsed[0].at + slack >= before && parsed[0].at <= now() + slack);
        assert_eq!(parsed[0].why, "push");
    }

    #[test]
    fn other_lines_are_no_decisions() {
        for line in [
            "",
            "moved",
            "2026-01-02T03:04:05Z TRACE slice timer vcpu=0 lag=9 us",
            "2026-01-02T03:04:05Z TRACE moved key=x@2 to=0 why=Push cost=9 us",
            "2026-01-02T03:04:05Z TRACE moved key=1@2 to=0 why=Push",
            "yesterday TRACE moved key=1@2 to=0 why=Push cost=9 us",
        ] {
            assert_eq!(one(line), None, "{line}");
        }
    }

    #[test]
    fn durations_are_read_as_they_are_shown() {
        for ns in [0, 999, 1_500, 300_000, 11_000_000, 2_500_000_000] {
            assert_eq!(shown(&Ns(ns).to_string()), Some(Ns(ns)));
        }
        assert_eq!(shown("5"), None);
    }
}
