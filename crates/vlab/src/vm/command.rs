// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running the host's tools: a missing one is named with the package that has it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use rustix::process::Pid;
use rustix::process::PidfdFlags;
use rustix::process::Signal;
use rustix::process::kill_process_group;
use rustix::process::pidfd_open;
use thiserror::Error;
use units::Time;

use crate::child::ends_with_parent;
use crate::run::Interrupted;
use crate::run::interrupt::Interrupt;

/// A tool of the host could not do its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The program is not there.
    #[error("{program} is not installed; fix: apt-get install {package}")]
    Missing {
        /// Program that was to be started.
        program: String,
        /// Debian package that has it.
        package: &'static str,
    },
    /// The program is there and could not be started or fed.
    #[error("cannot run {program}")]
    Start {
        /// Program that was to be started.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The program ran and reported failure.
    #[error("{program} failed ({status}): {stderr}")]
    Failed {
        /// Program that ran.
        program: String,
        /// Its exit status in words.
        status: String,
        /// The end of what it wrote to standard error, on one line.
        stderr: String,
    },
    /// The program was ended because a signal asked us to end.
    #[error("{program} was ended: interrupted")]
    Interrupted {
        /// Program that ran.
        program: String,
    },
}

/// Longest part of a tool's complaint that is repeated in an error, in bytes.
const STDERR_SHOWN: usize = 600;

/// Runs `command` to its end and gives back its standard output.
///
/// `package` is the Debian package to name when the program is missing.
pub(crate) fn output(command: &mut Command, package: &'static str) -> Result<Vec<u8>, ToolError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|err| start_error(&program, package, err))?;
    check(&program, &done)?;
    Ok(done.stdout)
}

/// As [`output`], but a signal to us ends the program and all that it has started: a
/// download may take minutes, and what is sent to us alone does not reach it.
pub(crate) fn output_or_interrupt(
    command: &mut Command,
    package: &'static str,
    interrupt: &Interrupt,
) -> Result<Vec<u8>, ToolError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |err| start_error(&program, package, err);
    // Files, not pipes, which would have to be emptied meanwhile.
    let (out, err) = (
        tempfile::tempfile().map_err(failed)?,
        tempfile::tempfile().map_err(failed)?,
    );
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(failed)?)
        .stderr(err.try_clone().map_err(failed)?)
        .process_group(0);
    ends_with_parent(command, Signal::TERM);
    let mut child = command.spawn().map_err(failed)?;
    let group = Pid::from_child(&child);
    let ended = pidfd_open(group, PidfdFlags::empty());
    let waited = ended
        .as_ref()
        .map(|ended| interrupt.wait_readable(ended, Time(u64::MAX)));
    if !matches!(waited, Ok(Ok(_))) {
        // Not reaped yet, so the number cannot belong to somebody else.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(failed)?;
    match waited {
        Err(errno) => return Err(failed((*errno).into())),
        Ok(Err(Interrupted)) => return Err(ToolError::Interrupted { program }),
        Ok(Ok(_)) => {}
    }
    let done = Output {
        status,
        stdout: written(out).map_err(failed)?,
        stderr: written(err).map_err(failed)?,
    };
    check(&program, &done)?;
    Ok(done.stdout)
}

/// What was written to a file, from its beginning.
fn written(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The error for a program that ran and did not succeed.
pub(crate) fn check(program: &str, done: &Output) -> Result<(), ToolError> {
    if done.status.success() {
        return Ok(());
    }
    Err(ToolError::Failed {
        program: program.to_owned(),
        status: done.status.to_string(),
        stderr: one_line(&done.stderr),
    })
}

/// The error for a program that could not be started.
pub(crate) fn start_error(
    program: impl AsRef<OsStr>,
    package: &'static str,
    err: io::Error,
) -> ToolError {
    let program = program.as_ref().to_string_lossy().into_owned();
    if err.kind() == io::ErrorKind::NotFound {
        ToolError::Missing { program, package }
    } else {
        ToolError::Start {
            program,
            source: err,
        }
    }
}

/// The end of a tool's output on one line, so that an error stays one line.
fn one_line(bytes: &[u8]) -> String {
    let from = bytes.len().saturating_sub(STDERR_SHOWN);
    let mut end = &bytes[from..];
    if from > 0
        && let Some(cut) = end.iter().position(|byte| *byte == b'\n')
    {
        end = &end[cut..];
    }
    String::from_utf8_lossy(end)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let err = output(&mut Command::new("no-such-program-here"), "some-package").unwrap_err();
        assert_eq!(
            err.to_string(),
            "no-such-program-here is not installed; fix: apt-get install some-package"
        );
    }

    #[test]
    fn a_failure_repeats_what_the_program_said_on_one_line() {
        let err = output(
            Command::new("sh").args(["-c", "echo one >&2; echo two >&2; exit 3"]),
            "dash",
        )
        .unwrap_err();
        assert_eq!(err.to_string(), "sh failed (exit status: 3): one; two");
    }

    #[test]
    fn a_long_complaint_begins_with_a_whole_line() {
        let line = "a line of a long complaint\n";
        let said = one_line(line.repeat(40).as_bytes());
        assert!(said.starts_with("a line of"), "{said}");
        assert_eq!(said.matches("a line of").count(), STDERR_SHOWN / line.len());
        assert_eq!(one_line("x".repeat(900).as_bytes()).len(), STDERR_SHOWN);
    }

    #[test]
    fn standard_output_comes_back_whole() {
        let out = output(Command::new("printf").arg("a\\nb"), "coreutils").unwrap();
        assert_eq!(out, b"a\nb");
    }

    #[test]
    fn what_a_signal_may_end_says_the_same_if_none_comes() {
        let interrupt = Interrupt::catch().unwrap();
        let run = |program: &str, script: &str| {
            let mut command = Command::new(program);
            output_or_interrupt(command.args(["-c", script]), "dash", &interrupt)
        };
        // More than a pipe holds.
        let out = run("sh", "head -c 300000 /dev/zero; echo two >&2").unwrap();
        assert_eq!(out.len(), 300_000);
        let failed = run("sh", "echo one >&2; echo two >&2; exit 3").unwrap_err();
        assert_eq!(failed.to_string(), "sh failed (exit status: 3): one; two");
        let missing = run("no-such-program-here", "").unwrap_err();
        assert!(matches!(
            missing,
            ToolError::Missing {
                package: "dash",
                ..
            }
        ));
    }
}
