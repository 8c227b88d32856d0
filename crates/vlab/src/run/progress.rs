// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a run is, on standard error.

use std::io::IsTerminal;
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
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let left = all.saturating_sub(done);
        let here = done.saturating_sub(self.before).max(1);
        let seconds = self.started.elapsed().as_secs_f64() * left as f64 / here as f64;
        let left = format!("{seconds:.0} s left");
        if self.terminal {
            self.bar.set_prefix(left);
        } else if done * LINES / all.max(1) != (done - 1) * LINES / all.max(1) {
            eprintln!("{done} of {all} phases, {left}");
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Also on errors: the message must not end up behind a bar.
        self.bar.finish_and_clear();
    }
}
