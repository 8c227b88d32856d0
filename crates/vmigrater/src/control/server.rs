// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's end. It never wakes by itself: the main thread polls the
//! listening socket together with its signals, without a timeout.

use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use guest::report::Report;
use rustix::net::AddressFamily;
use rustix::net::SocketAddrUnix;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

use crate::lock::create_private_parent;

/// A client that does not read gets this long before it is dropped: the main
/// thread serves it and has signals to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of what we created, so that we never remove another's.
    identity: (u64, u64),
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// Something else has this name.
    #[error("{} exists and is {what}", .path.display())]
    Exists { path: PathBuf, what: &'static str },
    /// It answers: somebody listens.
    #[error("another process listens on {}{}", .path.display(), .pid.map_or(String::new(), |pid| format!(", pid {pid}")))]
    InUse { path: PathBuf, pid: Option<u32> },
    /// The kernel refused.
    #[error("cannot listen on {}: {error}", .path.display())]
    Bind { path: PathBuf, error: io::Error },
}

impl Server {
    /// Listens on `path`, mode 0600, in a directory that only we can change. A
    /// stale socket of ours is replaced; anything else with this name stays.
    pub(crate) fn bind(path: &Path) -> Result<Self, ServerError> {
        let failed = |error: io::Error| ServerError::Bind {
            path: path.to_owned(),
            error,
        };
        create_private_parent(path).map_err(failed)?;
        remove_stale(path)?;
        // By hand, not UnixListener::bind: the mode must be right before the
        // first client can connect, which is between bind and listen.
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|errno| failed(errno.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
        rustix::net::bind(&socket, &address).map_err(|errno| failed(errno.into()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| failed(errno.into()))?;
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        Ok(Self {
            listener: UnixListener::from(socket),
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    /// Answers every client that waits now. A client that fails is its own
    /// affair: logged for whoever debugs it, never an error of the daemon.
    pub(crate) fn serve(&self, report: impl Fn() -> Report) {
        loop {
            match self.listener.accept() {
                Ok((client, _)) => {
                    if let Err(error) = answer(client, &report()) {
                        tracing::debug!(%error, "a status client did not get its report");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        tracing::warn!(%error, "cannot accept status clients");
                    }
                    return;
                }
            }
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn answer(mut client: UnixStream, report: &Report) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(report)?;
    text.push(b'\n');
    client.write_all(&text)
}

fn remove_stale(path: &Path) -> Result<(), ServerError> {
    let failed = |error: io::Error| ServerError::Bind {
        path: path.to_owned(),
        error,
    };
    let exists = |what| {
        Err(ServerError::Exists {
            path: path.to_owned(),
            what,
        })
    };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.file_type().is_socket() {
        return exists("not a socket");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return exists("another user's socket");
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let pid = rustix::net::sockopt::socket_peercred(&stream)
                .ok()
                .map(|credentials| credentials.pid.as_raw_nonzero().get().unsigned_abs());
            Err(ServerError::InUse {
                path: path.to_owned(),
                pid,
            })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::debug!(path = %path.display(), "removing a stale socket");
            fs::remove_file(path).map_err(failed)
        }
        // For example a datagram socket: not one of ours.
        Err(_) => exists("a socket that is not vmigrater's"),
    }
}
