// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running the host's tools: a missing one is named with the package that has it.

use std::ffi::OsStr;
use std::io;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use thiserror::Error;

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
    String::from_utf8_lossy(&bytes[from..])
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
    fn standard_output_comes_back_whole() {
        let out = output(Command::new("printf").arg("a\\nb"), "coreutils").unwrap();
        assert_eq!(out, b"a\nb");
    }
}
