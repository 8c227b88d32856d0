// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How tasks get their masks back when the daemon is killed.
//!
//! `run` forks. The child is the daemon. The parent does nothing but wait for
//! it, without timers: it passes signals on, and when the child is dead, for
//! whatever reason, it undoes what the journal still names and ends with the
//! child's exit code.
//!
//! | what is killed | what happens |
//! |---|---|
//! | the daemon, by any signal | the supervisor restores |
//! | the supervisor | the daemon gets SIGTERM (`PR_SET_PDEATHSIG`) and ends in order |
//! | both in the same moment | the next start, or `vmigrater restore`, restores |
//!
//! systemd: the main process is the supervisor, the one that notifies and feeds
//! the watchdog is the daemon. So the unit needs `Type=notify`,
//! `NotifyAccess=all`, `KillMode=mixed` (SIGTERM to the supervisor only, which
//! passes it on; SIGKILL to both) and `ExecStopPost=vmigrater restore` for the
//! last line of the table. `WATCHDOG_PID` names the main process; it is
//! changed to the daemon's here, or libraries would take the watchdog for
//! somebody else's. A watchdog's SIGABRT goes to the supervisor, which passes
//! it on.
//!
//! The kernel forgets the parent-death signal when a process changes its user
//! or gains capabilities; dropping some does not matter.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::WaitOptions;
use rustix::process::WaitStatus;

use super::journal::JournalError;
use super::restore;
use super::restore::Summary;
use super::task::Roots;

/// Why there is no supervisor.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// A fork copies one thread only.
    #[error("cannot supervise: {threads} threads run already")]
    Threads {
        /// How many.
        threads: usize,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Which of the two processes has come back from [`supervise`].
#[derive(Debug)]
pub enum Supervised {
    /// The daemon: end with this.
    Child(ExitCode),
    /// The supervisor: the daemon is dead. Say what was found and end with the
    /// code.
    Parent {
        /// The daemon's, or 128 and the signal that killed it.
        code: ExitCode,
        /// The signal that killed it.
        killed_by: Option<i32>,
        /// What had been left to undo.
        restored: Result<Summary, JournalError>,
    },
}

/// What is passed on to the child.
const FORWARDED: [libc::c_int; 7] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Forks; runs `child_main` in the child and returns its code there; waits in
/// the parent and restores.
///
/// To be called before any thread exists and before the journal is opened:
/// a lock that the parent had too would outlive the child.
pub fn supervise(
    journal: &Path,
    roots: &Roots,
    child_main: impl FnOnce() -> ExitCode,
) -> Result<Supervised, SuperviseError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(SuperviseError::Threads { threads });
    }
    let parent = rustix::process::getpid();
    // Blocked before the fork: a signal that comes in between waits.
    let (blocked, before) = block_signals()?;
    // SAFETY: this process has one thread, so the child's memory is whole and
    // no lock in it is held by a thread that it lacks.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        let source = io::Error::last_os_error();
        set_mask(&before)?;
        return Err(SuperviseError::Io {
            action: "fork the daemon",
            source,
        });
    }
    let Some(child) = Pid::from_raw(pid) else {
        become_daemon(parent)?;
        set_mask(&before)?;
        return Ok(Supervised::Child(child_main()));
    };
    let status = wait_for(child, &blocked)?;
    let restored = restore::restore_all(journal, roots);
    let killed_by = status.terminating_signal();
    let code = killed_by.map_or_else(|| status.exit_status().unwrap_or(1), |signal| 128 + signal);
    Ok(Supervised::Parent {
        code: ExitCode::from(u8::try_from(code).unwrap_or(1)),
        killed_by,
        restored,
    })
}

fn block_signals() -> Result<(libc::sigset_t, libc::sigset_t), SuperviseError> {
    // SAFETY: sigset_t is plain memory; sigemptyset and sigaddset make it valid.
    let (mut blocked, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: both sets are valid and writable.
    let result = unsafe {
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGCHLD);
        for signal in FORWARDED {
            libc::sigaddset(&raw mut blocked, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before)
    };
    if result != 0 {
        let source = io::Error::last_os_error();
        return Err(SuperviseError::Io {
            action: "block signals",
            source,
        });
    }
    Ok((blocked, before))
}

fn set_mask(mask: &libc::sigset_t) -> Result<(), SuperviseError> {
    // SAFETY: `mask` is a valid set; the old one is not asked for.
    let result = unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
    if result != 0 {
        let source = io::Error::last_os_error();
        return Err(SuperviseError::Io {
            action: "unblock signals",
            source,
        });
    }
    Ok(())
}

/// Runs in the child before anything else.
fn become_daemon(parent: Pid) -> Result<(), SuperviseError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| {
        SuperviseError::Io {
            action: "ask for the parent-death signal",
            source: error.into(),
        }
    })?;
    if rustix::process::getppid() != Some(parent) {
        // It died before we could ask.
        let source = io::Error::other("the supervisor has been killed");
        return Err(SuperviseError::Io {
            action: "start the daemon",
            source,
        });
    }
    if std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == parent.as_raw_nonzero().to_string()) {
        // SAFETY: the process has one thread, so nobody reads the environment.
        unsafe { std::env::set_var("WATCHDOG_PID", std::process::id().to_string()) };
    }
    Ok(())
}

/// The supervisor's whole life.
fn wait_for(child: Pid, blocked: &libc::sigset_t) -> Result<WaitStatus, SuperviseError> {
    loop {
        // SAFETY: siginfo_t is plain memory, filled by the call below.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `blocked` is a valid set of blocked signals, `info` writable.
        let signal = unsafe { libc::sigwaitinfo(blocked, &raw mut info) };
        match signal {
            libc::SIGCHLD => {
                let waited = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
                let waited = waited.map_err(|error| SuperviseError::Io {
                    action: "wait for the daemon",
                    source: error.into(),
                })?;
                if let Some((_, status)) = waited {
                    return Ok(status);
                }
            }
            // A terminal has sent it to the whole group, the child included; a
            // second one might mean "at once" to it.
            _ if info.si_code == libc::SI_KERNEL => {}
            signal if signal > 0 => {
                // SAFETY: the child has not been waited for, so its id is its own.
                unsafe { libc::kill(child.as_raw_nonzero().get(), signal) };
            }
            // EINTR, after a stop and a continue.
            _ => {}
        }
    }
}
