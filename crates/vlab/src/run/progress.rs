// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a run is, on standard error.

use std::io::IsTerminal;
use std::time::Duration;
use std::time::Instant;

use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;

/// Without a terminal, one line per so many steps.
const LINES: u64 = 10;

/// A bar on a terminal, a few lines elsewhere. It draws between phases only: a
/// thread that redraws would tick while something is measured.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
    /// Steps of an earlier run.
    before: u64,
    terminal: bool,
}

impl Progress {
    /// `before` of the steps are done.
    pub(super) fn new(steps: u64, before: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(steps),
            if terminal {
                ProgressDrawTarget::stderr()
            } else {
                ProgressDrawTarget::hidden()
            },
        );
        // The template is a constant of ours; a wrong one only costs the looks.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {prefix}  {msg}") {
            bar.set_style(style);
        }
        bar.set_position(before);
        Self {
            bar,
            started: Instant::now(),
            before,
            terminal,
        }
    }

    /// What happens now.
    pub(super) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    /// A phase is done.
    pub(super) fn step(&self) {
        self.bar.inc(1);
        let state = State {
            done: self.bar.position(),
            all: self.bar.length().unwrap_or(0),
            before: self.before,
        };
        let elapsed = self.started.elapsed();
        if self.terminal {
            self.bar.set_prefix(state.left(elapsed));
        } else if let Some(line) = state.line(elapsed) {
            eprintln!("{line}");
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// How many steps are done, of how many, and how many of them in an earlier run.
#[derive(Clone, Copy, Debug)]
struct State {
    done: u64,
    all: u64,
    before: u64,
}

impl State {
    /// The time that the rest takes if it is like what was done here in `elapsed`.
    fn left(self, elapsed: Duration) -> String {
        let left = self.all.saturating_sub(self.done);
        let here = self.done.saturating_sub(self.before).max(1);
        let seconds = elapsed.as_secs_f64() * left as f64 / here as f64;
        format!("{seconds:.0} s left")
    }

    /// What is said after this step without a terminal; mostly nothing.
    fn line(self, elapsed: Duration) -> Option<String> {
        let part = |done: u64| done * LINES / self.all.max(1);
        (part(self.done) != part(self.done.saturating_sub(1))).then(|| {
            let Self { done, all, .. } = self;
            format!("{done} of {all} phases, {}", self.left(elapsed))
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Also on errors: the message must not end up behind a bar.
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a run of which `before` of the steps are done and each further one
    /// takes two seconds.
    fn lines(all: u64, before: u64) -> Vec<String> {
        (before + 1..=all)
            .filter_map(|done| {
                let elapsed = Duration::from_secs(2 * (done - before));
                State { done, all, before }.line(elapsed)
            })
            .collect()
    }

    #[test]
    fn without_a_terminal_a_long_run_says_ten_lines() {
        let lines = lines(142, 0);
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[0], "15 of 142 phases, 254 s left");
        assert_eq!(lines[9], "142 of 142 phases, 0 s left");
    }

    #[test]
    fn a_short_run_says_each_step() {
        assert_eq!(lines(3, 0).len(), 3);
    }

    #[test]
    fn what_an_earlier_run_did_took_no_time_here() {
        let lines = lines(142, 100);
        assert_eq!(lines[0], "114 of 142 phases, 56 s left");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_bar_goes_on_where_the_earlier_run_ended() {
        let progress = Progress::new(5, 3);
        progress.step();
        assert_eq!(progress.bar.position(), 4);
        progress.finish();
        assert!(progress.bar.is_finished());
    }
}
