// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's parts that an arm can do without.

use serde::Deserialize;
use serde::Serialize;

/// One part of the daemon. The names are those of `vmigrater run --without`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Leaving a vCPU before its slice ends (V17).
    Push,
    /// Being taken off a vCPU that is gone (V22).
    Pull,
    /// Going to the vCPU that is back first (V12).
    SoonActive,
    /// The short slice or `SCHED_FIFO` for a task that waits behind compute.
    WakeupLever,
    /// Living where a disk with one queue completes.
    CompletionPath,
    /// Asking each program whether it is better off.
    Trial,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Push,
        Self::Pull,
        Self::SoonActive,
        Self::WakeupLever,
        Self::CompletionPath,
        Self::Trial,
    ];

    /// The word for it in scenarios and on the daemon's command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::SoonActive => "soon-active",
            Self::WakeupLever => "wakeup-lever",
            Self::CompletionPath => "completion-path",
            Self::Trial => "trial",
        }
    }

    /// From that word.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == word)
    }
}
