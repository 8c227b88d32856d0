// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of `vmigrater status`.

use std::io;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use guest::report::Report;

use crate::exit::Exit;
use crate::exit::Failure;

/// Longer than the daemon ever needs, unless its vCPU has been taken away.
const PATIENCE: Duration = Duration::from_secs(5);
/// A report is some kilobytes; more than this is not one.
const LIMIT: u64 = 16 << 20;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody listens.
    #[error("no vmigrater daemon answers on {}", .path.display())]
    NotRunning { path: PathBuf },
    /// The socket is for root.
    #[error("{} is only for the user that runs the daemon", .path.display())]
    Permission { path: PathBuf },
    /// The connection broke or the daemon is stuck.
    #[error("the daemon on {} did not answer: {error}", .path.display())]
    Broken { path: PathBuf, error: io::Error },
    /// Another program, or another version.
    #[error("what answers on {} is not this version of vmigrater: {error}", .path.display())]
    Foreign {
        path: PathBuf,
        error: serde_json::Error,
    },
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let (exit, fix) = match &error {
            ClientError::NotRunning { .. } => (
                Exit::NotRunning,
                "start it with `systemctl start vmigrater` or `vmigrater run`",
            ),
            ClientError::Permission { .. } => {
                (Exit::Permission, "ask as root, for example with sudo")
            }
            ClientError::Broken { .. } => {
                (Exit::Runtime, "try again; if it stays, restart the daemon")
            }
            ClientError::Foreign { .. } => (
                Exit::Runtime,
                "restart the daemon so that both have the same version",
            ),
        };
        Self::new(exit, error.to_string(), fix)
    }
}

/// The daemon's report and its text, which is kept exactly for `--json`.
pub(crate) fn fetch(path: &Path) -> Result<(Report, String), ClientError> {
    let path = || path.to_owned();
    let stream = UnixStream::connect(path()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ClientError::NotRunning { path: path() }
        }
        io::ErrorKind::PermissionDenied => ClientError::Permission { path: path() },
        _ => ClientError::Broken {
            path: path(),
            error,
        },
    })?;
    let broken = |error| ClientError::Broken {
        path: path(),
        error,
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let mut text = String::new();
    stream
        .take(LIMIT)
        .read_to_string(&mut text)
        .map_err(broken)?;
    let report = serde_json::from_str(&text).map_err(|error| ClientError::Foreign {
        path: path(),
        error,
    })?;
    Ok((report, text))
}
