// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the service manager is told. Without one (no NOTIFY_SOCKET) nothing
//! happens.

use guest::report::Mode;
use guest::report::Report;
use sd_notify::NotifyState;

/// The daemon senses, and its socket answers.
pub(crate) fn ready(report: &Report) {
    send(&[NotifyState::Ready, NotifyState::Status(&status(report))]);
}

/// It is alive, and this is what it does.
pub(crate) fn alive(report: &Report) {
    send(&[NotifyState::Watchdog, NotifyState::Status(&status(report))]);
}

/// It is putting everything back.
pub(crate) fn stopping() {
    send(&[
        NotifyState::Stopping,
        NotifyState::Status("restoring tasks"),
    ]);
}

/// The line that `systemctl status` shows.
fn status(report: &Report) -> String {
    let mode = match report.mode {
        Mode::Asleep => "asleep, no vCPU is taken away",
        Mode::Watching => "watching, no task is I/O-bound",
        Mode::Active => "active",
    };
    let moves: u64 = report.moves.values().sum();
    format!(
        "{mode}; {} I/O-bound tasks, {moves} moves",
        report.tasks.len()
    )
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told what we do");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_counts_all_moves() {
        let mut report = crate::control::report_for_tests(1);
        report.mode = Mode::Active;
        report.moves = [("push".to_owned(), 2), ("pull".to_owned(), 3)].into();
        assert_eq!(status(&report), "active; 0 I/O-bound tasks, 5 moves");
    }
}
