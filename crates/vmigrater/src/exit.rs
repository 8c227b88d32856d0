// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes and the one error type that the commands return.
//!
//! Every failure is one line: what happened, then what to do about it. Scripts
//! branch on the code, people read the line; both are part of the interface.

use std::fmt;
use std::process::ExitCode;

/// How the program ended. The numbers are documented in `--help` and in
/// `docs/configuration.md` and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; `doctor`: it can help here.
    Ok = 0,
    /// Something failed while running.
    Runtime = 1,
    /// The command line or the configuration is wrong (2 is also clap's code).
    Usage = 2,
    /// A capability is missing.
    Permission = 3,
    /// This kernel lacks what is needed.
    Kernel = 4,
    /// Another daemon runs.
    Busy = 5,
    /// `doctor` only: it would work, but there is nothing to gain now.
    NothingToGain = 6,
    /// `status` only: no daemon runs.
    NotRunning = 7,
}

impl Exit {
    /// Every code, in order, with its meaning: the source of all lists of them.
    pub(crate) const ALL: [(Self, &'static str); 8] = [
        (
            Self::Ok,
            "done; for doctor: ready, and there is something to gain",
        ),
        (Self::Runtime, "something failed while running"),
        (
            Self::Usage,
            "the command line or the configuration is wrong",
        ),
        (Self::Permission, "a capability is missing"),
        (Self::Kernel, "this kernel lacks what is needed"),
        (Self::Busy, "another vmigrater daemon runs"),
        (
            Self::NothingToGain,
            "doctor: it would work, but there is nothing to gain now",
        ),
        (Self::NotRunning, "status: no daemon runs"),
    ];

    /// The list for `--help`.
    pub(crate) fn help() -> String {
        let mut text = String::from("Exit codes:");
        for (exit, meaning) in Self::ALL {
            text.push_str(&format!("\n  {}  {meaning}", exit as u8));
        }
        // The supervisor's, which is not a code of ours to choose.
        text.push_str(
            "\n  128 + N  run: the daemon was killed by signal N; every task is restored",
        );
        text
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that could not do what it was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The code the process ends with.
    pub(crate) exit: Exit,
    /// What happened, naming the file, task or CPU.
    pub(crate) cause: String,
    /// What the user can do; empty if `cause` says it.
    pub(crate) fix: String,
}

impl Failure {
    /// A failure with its cause and its fix.
    pub(crate) fn new(exit: Exit, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            exit,
            cause: cause.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message with a line break would look like two journal entries.
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        f.write_str(&one_line(&self.cause))?;
        if !self.fix.is_empty() {
            write!(f, "; {}", one_line(&self.fix))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_listed_in_order_and_without_gaps() {
        for (index, (exit, _)) in Exit::ALL.into_iter().enumerate() {
            assert_eq!(exit as usize, index);
        }
        assert!(Exit::help().contains("\n  5  another"));
    }

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new(Exit::Runtime, "a\nb", "do\n  c");
        assert_eq!(failure.to_string(), "a b; do c");
    }
}
