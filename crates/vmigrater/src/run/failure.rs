// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the libraries' errors to one line with its exit code.

use std::error::Error;
use std::io;

use guest::act;
use guest::act::balloon::BalloonError;
use guest::act::journal::JournalError;
use guest::act::supervise::SuperviseError;
use guest::engine::StartError;
use guest::sense::SenseError;

use crate::control::ServerError;
use crate::exit::Exit;
use crate::exit::Failure;
use crate::lock::LockError;

/// What to do about a missing permission, wherever it shows.
const ASK_ROOT: &str = "run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_NICE and --socket, --journal \
                        and --lock in a directory of your own";

/// What to do where a thread or a descriptor is refused.
const MORE_THREADS: &str =
    "raise the limits of threads and open files (TasksMax and LimitNOFILE of the unit)";

/// Why the engine does not start.
pub(crate) fn start_failure(error: &StartError) -> Failure {
    match error {
        StartError::Sense(error) => sense_failure(error),
        StartError::Act(act::hold::StartError::Journal(error)) => journal_failure(error),
        StartError::Act(act::hold::StartError::Probe(source)) => match of_io(source) {
            Exit::Permission => Failure::new(Exit::Permission, chain(error), ASK_ROOT),
            other => Failure::new(other, chain(error), MORE_THREADS),
        },
        StartError::Balloon(error @ BalloonError::NoHierarchy) => {
            Failure::new(Exit::Kernel, chain(error), "")
        }
        StartError::Balloon(error) => Failure::new(Exit::Permission, chain(error), ""),
        StartError::Thread(_) => Failure::new(Exit::Runtime, chain(error), MORE_THREADS),
    }
}

/// Why nobody watches over the daemon.
pub(crate) fn supervise_failure(error: &SuperviseError) -> Failure {
    let fix = match error {
        SuperviseError::Threads { .. } => "report this as a bug",
        SuperviseError::Io { .. } => "free some processes or memory and try again",
    };
    Failure::new(Exit::Runtime, chain(error), fix)
}

/// Why a daemon that ran does not any more.
pub(crate) fn engine_failure(reason: &str) -> Failure {
    Failure::new(
        Exit::Runtime,
        reason,
        "all tasks are restored; restart the daemon",
    )
}

/// Why it cannot sense. Messages that say what to do get nothing added.
pub(crate) fn sense_failure(error: &SenseError) -> Failure {
    let (exit, fix) = match error {
        // The verifier says "permission denied" too. With every capability in
        // hand that is what it was.
        SenseError::Permission if crate::doctor::missing_capabilities().is_empty() => {
            return Failure::new(
                Exit::Kernel,
                "the kernel refuses a BPF program",
                "`vmigrater --log-level debug bpf-selftest` shows its reason; report it with the kernel's version",
            );
        }
        SenseError::NoBtf
        | SenseError::LockedDown
        | SenseError::TooManyVcpus { .. }
        | SenseError::NoStealPage { .. } => (Exit::Kernel, ""),
        SenseError::Permission => (Exit::Permission, ""),
        SenseError::Bpf { .. } => (
            Exit::Kernel,
            "`vmigrater doctor` says what this kernel lacks",
        ),
        SenseError::WrongAnswer { .. } => (Exit::Kernel, "report it with the kernel's version"),
        SenseError::StealMap { .. } => (Exit::Usage, "take an id from `bpftool map`, as root"),
        SenseError::System { source, .. } => (of_io(source), "see `vmigrater doctor`"),
    };
    Failure::new(exit, chain(error), fix)
}

/// Why there is no journal; without one nothing is changed.
pub(crate) fn journal_failure(error: &JournalError) -> Failure {
    let (exit, fix) = match error {
        JournalError::Owned { .. } => (Exit::Busy, ""),
        JournalError::NoSpace { .. }
        | JournalError::Foreign { .. }
        | JournalError::BootId { .. } => (Exit::Runtime, ""),
        JournalError::Missing { .. } => (Exit::Runtime, "check --journal"),
        JournalError::Io { source, .. } => match of_io(source) {
            Exit::Permission => (Exit::Permission, ASK_ROOT),
            other => (other, "check --journal"),
        },
    };
    Failure::new(exit, chain(error), fix)
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let (exit, fix) = match &error {
            LockError::Held { .. } | LockError::Elsewhere => (
                Exit::Busy,
                "look at it with `vmigrater status`, stop it with `systemctl stop vmigrater`",
            ),
            LockError::Unusable { error, .. } => match of_io(error) {
                Exit::Permission => (Exit::Permission, ASK_ROOT),
                other => (other, "make room in /run or correct --lock"),
            },
        };
        Self::new(exit, error.to_string(), fix)
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        let (exit, fix) = match &error {
            ServerError::Exists { .. } => (Exit::Usage, "remove it or choose another --socket"),
            ServerError::InUse { .. } => {
                (Exit::Busy, "stop that process or choose another --socket")
            }
            ServerError::Bind { error, .. } => match of_io(error) {
                Exit::Permission => (Exit::Permission, ASK_ROOT),
                other => (other, "choose another --socket"),
            },
        };
        Self::new(exit, error.to_string(), fix)
    }
}

fn of_io(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Exit::Permission,
        _ => Exit::Runtime,
    }
}

/// The error with its causes, each once: some messages contain theirs already.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
