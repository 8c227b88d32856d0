// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest said: its result, and the part of its logs worth repeating.

use std::time::Duration;

/// How much of the serial log an error repeats, in lines.
const SERIAL_SHOWN: usize = 6;

/// What to repeat of a log: the panic, if there is one, and the last lines.
///
/// A panic's own line stands far above the end, behind registers and a trace.
pub(super) fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let from = lines.len().saturating_sub(SERIAL_SHOWN);
    let panic = lines[..from]
        .iter()
        .rfind(|line| line.contains("Kernel panic"));
    let shown: Vec<&str> = panic.into_iter().chain(&lines[from..]).copied().collect();
    shown.join(" | ")
}

/// Exit code, uptime at start and duration, or nothing if the script did not end.
pub(super) fn parse_ctl(text: &str) -> Option<(i32, Duration, Duration)> {
    let mut start = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("start") => start = seconds(words.next()?),
            Some("exit") => {
                let code = words.next()?.parse().ok()?;
                let (start, end) = (start?, seconds(words.next()?)?);
                return Some((code, start, end.saturating_sub(start)));
            }
            _ => {}
        }
    }
    None
}

/// `12.34` of /proc/uptime.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, hundredths) = text.split_once('.')?;
    if hundredths.len() != 2 {
        return None;
    }
    let centis = whole
        .parse::<u64>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths.parse().ok()?)?;
    Some(Duration::from_millis(centis.checked_mul(10)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_code_boot_time_and_duration() {
        let parsed = parse_ctl("start 2.50\nexit 7 12.75\n");
        assert_eq!(
            parsed,
            Some((
                7,
                Duration::from_millis(2_500),
                Duration::from_millis(10_250)
            ))
        );
    }

    #[test]
    fn a_guest_that_died_has_no_result() {
        for text in ["", "start 2.50\n", "exit 0 3.00\n", "start 2.50\nexit 0"] {
            assert_eq!(parse_ctl(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_panic_is_told_even_behind_a_long_trace() {
        let log = format!("a\nKernel panic: x\n{}end\n", "trace\n".repeat(40));
        let told = last_words(&log);
        assert!(told.starts_with("Kernel panic: x | trace"), "{told}");
        assert!(told.ends_with("| end"), "{told}");
        assert_eq!(last_words("one\n\n two\n"), "one | two");
    }

    #[test]
    fn uptime_is_read_in_hundredths_only() {
        assert_eq!(seconds("0.05"), Some(Duration::from_millis(50)));
        for bad in ["5", "5.1", "5.123", "a.bc", "-1.00"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
