// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Durations and percentages as people write them, exact in both directions.

use units::Ns;
use units::Permille;

/// `300 us`, `5 ms`, `1.5 s`: the largest unit that needs at most three
/// decimals, so that nothing is rounded away (`Ns`'s `Display` rounds).
pub(crate) fn duration(ns: Ns) -> String {
    let n = ns.as_ns();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        let thousandth = unit / 1000;
        if n >= unit && n.is_multiple_of(thousandth) {
            let decimals = format!("{:03}", n % unit / thousandth);
            let decimals = decimals.trim_end_matches('0');
            let point = if decimals.is_empty() { "" } else { "." };
            return format!("{}{point}{decimals} {name}", n / unit);
        }
    }
    format!("{n} ns")
}

/// The inverse of [`duration`], and all that humantime reads; `None` if it is no
/// duration.
pub(crate) fn parse_duration(text: &str) -> Option<Ns> {
    humantime::parse_duration(text.trim()).ok().map(Ns::from)
}

/// `30 %` or `12.5 %`.
pub(crate) fn percent(share: Permille) -> String {
    match (share.get() / 10, share.get() % 10) {
        (whole, 0) => format!("{whole} %"),
        (whole, tenth) => format!("{whole}.{tenth} %"),
    }
}

/// `30 %`, `30%` or `12.5 %`, at most one decimal and 100 %; `None` otherwise.
/// Integer arithmetic: `0.3` has no exact binary form.
pub(crate) fn parse_percent(text: &str) -> Option<Permille> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, tenth) = match number.split_once('.') {
        Some((whole, tenth)) if tenth.len() == 1 => (whole, tenth),
        Some(_) => return None,
        None => (number, "0"),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(tenth) {
        return None;
    }
    let permille = whole.parse::<u16>().ok()?.checked_mul(10)? + tenth.parse::<u16>().ok()?;
    (permille <= 1000).then(|| Permille::new(permille))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back_exactly() {
        for n in [
            0,
            1,
            999,
            1_000,
            1_001,
            1_500,
            300_000,
            5_000_000,
            1_234_567,
            2_500_000_000,
            61_000_000_000,
        ] {
            assert_eq!(
                parse_duration(&duration(Ns(n))),
                Some(Ns(n)),
                "{}",
                duration(Ns(n))
            );
        }
        assert_eq!(duration(Ns(300_000)), "300 us");
        assert_eq!(duration(Ns(2_500_000_000)), "2.5 s");
        assert_eq!(duration(Ns(1_234_567)), "1234.567 us");
    }

    #[test]
    fn a_duration_needs_its_unit() {
        for text in ["", "300", "-5 ms", "5 lightyears", "ms"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn percentages_read_back_exactly() {
        for n in 0..=1000 {
            let share = Permille::new(n);
            assert_eq!(parse_percent(&percent(share)), Some(share));
        }
        assert_eq!(parse_percent("30%"), Some(Permille::new(300)));
    }

    #[test]
    fn other_percentages_are_refused() {
        for text in [
            "30", "101 %", "100.1 %", "0.55 %", "-1 %", "%", "1e1 %", "+5 %", "70000 %", ". %",
        ] {
            assert_eq!(parse_percent(text), None, "{text:?}");
        }
    }
}
