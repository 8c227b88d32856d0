// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts of the daemon that `--without` leaves out, to see what each is worth.
//!
//! Each is a knob with its value for "off", so that a part can be left out in the
//! file as well; the names are also those of an experiment's arms.

use guest::settings::Settings;
use policy::guest::wakeup;

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Leaving a vCPU before its slice ends (V17); without it nothing is soon-active either.
    Push,
    /// Being taken off a vCPU that is gone (V22).
    Pull,
    /// Going to the vCPU that is back first (V12).
    SoonActive,
    /// The short slice or SCHED_FIFO for a task that waits behind compute.
    WakeupLever,
    /// Living where a disk with one queue completes.
    CompletionPath,
    /// Asking each program whether it is better off.
    Trial,
}

/// Every part: its name, the knob and value that leave it out, what goes.
pub(super) const PARTS: [(Part, &str, &str, &str); 6] = [
    (
        Part::Push,
        "push",
        "placement.push = false",
        "no task leaves a vCPU before its slice ends; then nothing is moved by the soon-active rule either, which is a kind of push",
    ),
    (
        Part::Pull,
        "pull",
        "placement.pull = false",
        "no task is taken off a vCPU that is gone already",
    ),
    (
        Part::SoonActive,
        "soon-active",
        "placement.soon_active = false",
        "where no vCPU runs on, tasks stay",
    ),
    (
        Part::WakeupLever,
        "wakeup-lever",
        "wakeup.mode = \"off\"",
        "a task that waits behind compute gets neither a short slice nor SCHED_FIFO",
    ),
    (
        Part::CompletionPath,
        "completion-path",
        "placement.completion = false",
        "tasks of a disk with one queue are moved like any others",
    ),
    (
        Part::Trial,
        "trial",
        "trial.enabled = false",
        "no program is let go to see whether it does better, and none that does is left alone",
    ),
];

impl Part {
    /// Leaves it out.
    pub(super) fn leave_out(self, settings: &mut Settings) {
        match self {
            Self::Push => settings.placement.push = false,
            Self::Pull => settings.placement.pull = false,
            Self::SoonActive => settings.placement.soon_active = false,
            Self::WakeupLever => settings.wakeup.mode = wakeup::Mode::Off,
            Self::CompletionPath => settings.placement.completion = false,
            Self::Trial => settings.trial.enabled = false,
        }
    }
}
