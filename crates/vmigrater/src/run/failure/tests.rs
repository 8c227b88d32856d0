// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every way in which the daemon can fail, as its user reads it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use units::Tid;

use super::*;
use crate::control::ClientError;

fn path() -> PathBuf {
    "/x".into()
}

fn denied() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}

fn exhausted() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

#[test]
fn a_cause_is_named_once() {
    let source = io::Error::other("disk gone");
    let error = JournalError::Io {
        action: "write",
        path: "/j".into(),
        source,
    };
    assert_eq!(chain(&error), "cannot write journal /j: disk gone");
    let error = StartError::Thread(io::Error::other("too many"));
    assert_eq!(chain(&error), "cannot start a thread: too many");
}

/// The kinds, numbered: a new one does not compile until it has a number here, and the
/// test below fails until it has a case.
fn sense(error: &SenseError) -> usize {
    match error {
        SenseError::NoBtf => 0,
        SenseError::Permission => 1,
        SenseError::LockedDown => 2,
        SenseError::Bpf { .. } => 3,
        SenseError::NoStealPage { .. } => 4,
        SenseError::StealMap { .. } => 5,
        SenseError::WrongAnswer { .. } => 6,
        SenseError::System { .. } => 7,
        SenseError::TooManyVcpus { .. } => 8,
    }
}

fn journal(error: &JournalError) -> usize {
    match error {
        JournalError::Missing { .. } => 0,
        JournalError::Owned { .. } => 1,
        JournalError::NoSpace { .. } => 2,
        JournalError::Foreign { .. } => 3,
        JournalError::BootId { .. } => 4,
        JournalError::Io { .. } => 5,
    }
}

fn start(error: &StartError) -> usize {
    match error {
        StartError::Sense(_) => 0,
        StartError::Act(act::hold::StartError::Journal(_)) => 1,
        StartError::Act(act::hold::StartError::Probe(_)) => 2,
        StartError::Balloon(BalloonError::NoHierarchy) => 3,
        StartError::Balloon(BalloonError::Refused { .. }) => 4,
        StartError::Thread(_) => 5,
    }
}

fn senses() -> Vec<(SenseError, Exit)> {
    let refused = libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
    let permission = if crate::doctor::missing_capabilities().is_empty() {
        // It can only have been the verifier.
        Exit::Kernel
    } else {
        Exit::Permission
    };
    vec![
        (SenseError::NoBtf, Exit::Kernel),
        (SenseError::Permission, permission),
        (SenseError::LockedDown, Exit::Kernel),
        (
            SenseError::Bpf {
                action: "load",
                source: refused,
            },
            Exit::Kernel,
        ),
        (
            SenseError::NoStealPage {
                reason: "not a KVM guest".into(),
            },
            Exit::Kernel,
        ),
        (
            SenseError::StealMap {
                id: 7,
                reason: "a hash".into(),
            },
            Exit::Usage,
        ),
        (
            SenseError::WrongAnswer {
                program: "snapshot",
                answer: "9".into(),
            },
            Exit::Kernel,
        ),
        (
            SenseError::System {
                call: "epoll",
                source: exhausted(),
            },
            Exit::Runtime,
        ),
        (
            SenseError::System {
                call: "mmap",
                source: denied(),
            },
            Exit::Permission,
        ),
        (SenseError::TooManyVcpus { found: 4096 }, Exit::Kernel),
    ]
}

fn journals() -> Vec<(JournalError, Exit)> {
    let io = |source| JournalError::Io {
        action: "open",
        path: path(),
        source,
    };
    vec![
        (JournalError::Missing { path: path() }, Exit::Runtime),
        (
            JournalError::Owned {
                path: path(),
                pid: 3,
            },
            Exit::Busy,
        ),
        (
            JournalError::NoSpace {
                path: path(),
                bytes: 1,
            },
            Exit::Runtime,
        ),
        (JournalError::Foreign { path: path() }, Exit::Runtime),
        (
            JournalError::BootId {
                path: path(),
                source: exhausted(),
            },
            Exit::Runtime,
        ),
        (io(denied()), Exit::Permission),
        (io(exhausted()), Exit::Runtime),
    ]
}

fn starts() -> Vec<(StartError, Exit)> {
    let probe = |source| StartError::Act(act::hold::StartError::Probe(source));
    let mut starts = vec![
        (probe(denied()), Exit::Permission),
        (probe(exhausted()), Exit::Runtime),
        (BalloonError::NoHierarchy.into(), Exit::Kernel),
        (
            StartError::Balloon(BalloonError::Refused {
                path: path(),
                source: denied(),
            }),
            Exit::Permission,
        ),
        (StartError::Thread(exhausted()), Exit::Runtime),
    ];
    starts.extend(senses().into_iter().map(|(e, exit)| (e.into(), exit)));
    let of_journal = |e| StartError::Act(act::hold::StartError::Journal(e));
    starts.extend(
        journals()
            .into_iter()
            .map(|(e, exit)| (of_journal(e), exit)),
    );
    starts
}

/// Locks, sockets and what is found while it runs; the commands beside `run` too.
fn others() -> Vec<(Failure, Exit)> {
    let unusable = |error| LockError::Unusable {
        path: path(),
        error,
    };
    let bind = |error| ServerError::Bind {
        path: path(),
        error,
    };
    vec![
        (LockError::Held { pid: Some(3) }.into(), Exit::Busy),
        (LockError::Held { pid: None }.into(), Exit::Busy),
        (LockError::Elsewhere.into(), Exit::Busy),
        (unusable(denied()).into(), Exit::Permission),
        (unusable(exhausted()).into(), Exit::Runtime),
        (
            ServerError::Exists {
                path: path(),
                what: "not a socket",
            }
            .into(),
            Exit::Usage,
        ),
        (
            ServerError::InUse {
                path: path(),
                pid: None,
            }
            .into(),
            Exit::Busy,
        ),
        (bind(denied()).into(), Exit::Permission),
        (bind(exhausted()).into(), Exit::Runtime),
        (
            ClientError::NotRunning { path: path() }.into(),
            Exit::NotRunning,
        ),
        (
            ClientError::Permission { path: path() }.into(),
            Exit::Permission,
        ),
        (
            ClientError::Broken {
                path: path(),
                error: exhausted(),
            }
            .into(),
            Exit::Runtime,
        ),
        (
            ClientError::Foreign {
                path: path(),
                error: serde_json::from_str::<u8>("x").unwrap_err(),
            }
            .into(),
            Exit::Runtime,
        ),
        (
            supervise_failure(&SuperviseError::Threads { threads: 2 }),
            Exit::Runtime,
        ),
        (
            supervise_failure(&SuperviseError::Io {
                action: "fork the daemon",
                source: exhausted(),
            }),
            Exit::Runtime,
        ),
        (
            engine_failure("the thread vmg-ctl panicked: index\nout of bounds"),
            Exit::Runtime,
        ),
    ]
}

/// One line: what happened; and what can be done about it.
fn check(failure: &Failure, exit: Exit) {
    let line = failure.to_string();
    assert_eq!(failure.exit, exit, "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let (cause, fix) = line
        .split_once("; ")
        .unwrap_or_else(|| panic!("no fix: {line}"));
    let words = |text: &str| text.split_whitespace().count();
    assert!(words(cause) >= 3, "what happened? {line}");
    assert!(words(fix) >= 2, "what to do? {line}");
}

#[test]
fn each_failure_is_a_line_with_cause_and_fix() {
    let all = |seen: BTreeSet<usize>, of: usize| assert_eq!(seen, (0..of).collect());
    all(senses().iter().map(|(error, _)| sense(error)).collect(), 9);
    all(
        journals().iter().map(|(error, _)| journal(error)).collect(),
        6,
    );
    all(starts().iter().map(|(error, _)| start(error)).collect(), 6);
    for (error, exit) in senses() {
        check(&sense_failure(&error), exit);
    }
    for (error, exit) in journals() {
        check(&journal_failure(&error), exit);
    }
    for (error, exit) in starts() {
        check(&start_failure(&error), exit);
    }
    for (failure, exit) in others() {
        check(&failure, exit);
    }
    // Not the end of the daemon, but of a hold.
    let kept = act::hold::ReleaseError {
        tid: Tid(7),
        source: denied(),
    };
    check(
        &Failure::new(Exit::Runtime, kept.to_string(), ""),
        Exit::Runtime,
    );
}
