// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One daemon per machine: a locked file with the owner's pid in it, and a name that
//! the kernel gives to one process.
//!
//! The file says who it is, but another `--lock` is another file. Two daemons would
//! take each other's narrow masks for the owners' and fight over every task, so there
//! is an abstract socket address as well, as the freezer has one. It is per network
//! namespace: of a daemon in a container with a network of its own nobody else knows.
//!
//! `flock`, not the pid in the file, decides: the kernel drops the lock when the
//! last process that inherited it is gone, so nothing stale can keep a new
//! daemon out. The supervisor and the daemon share it. Rejected: the socket as
//! lock, because two starting daemons can both find a stale one and each remove
//! the other's.

use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::FlockOperation;

/// Held as long as it lives, here and in every child.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    _name: UnixListener,
}

/// Whose name it is.
const NAME: &[u8] = b"vmigrater-daemon";

/// Why the lock is not ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Somebody else holds it.
    #[error("another vmigrater daemon runs{}", .pid.map_or(String::new(), |pid| format!(", pid {pid}")))]
    Held { pid: Option<u32> },
    /// The same with another file.
    #[error("another vmigrater daemon runs, with another --lock")]
    Elsewhere,
    /// The file cannot be used.
    #[error("cannot lock {}: {error}", .path.display())]
    Unusable { path: PathBuf, error: io::Error },
}

impl Lock {
    /// Takes the lock, creating the file and its directory where needed.
    pub(crate) fn take(path: &Path) -> Result<Self, LockError> {
        Self::take_as(path, NAME)
    }

    fn take_as(path: &Path, name: &[u8]) -> Result<Self, LockError> {
        let unusable = |error: io::Error| LockError::Unusable {
            path: path.to_owned(),
            error,
        };
        create_private_parent(path).map_err(unusable)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Never through a planted symbolic link.
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(unusable)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let pid = file
                    .read_to_string(&mut text)
                    .ok()
                    .and_then(|_| text.trim().parse().ok());
                return Err(LockError::Held { pid });
            }
            Err(error) => return Err(unusable(error.into())),
        }
        let address = SocketAddr::from_abstract_name(name).map_err(unusable)?;
        let name = match UnixListener::bind_addr(&address) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(LockError::Elsewhere);
            }
            Err(error) => return Err(unusable(error)),
        };
        // The pid is a courtesy for messages: a full disk must not keep us out.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Self {
            _file: file,
            _name: name,
        })
    }
}

/// Creates the directory of `path` with mode 0700 if it is missing; refuses one
/// that others can write to, because they could replace what we put there.
pub(crate) fn create_private_parent(path: &Path) -> io::Result<()> {
    let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)?;
    let metadata = std::fs::metadata(parent)?;
    let me = rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o022 != 0 || (metadata.uid() != me && metadata.uid() != 0) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} can be changed by others; use a directory of your own with mode 0700",
                parent.display()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Tests are many in one machine: each file has a name of its own.
    fn take(path: &Path) -> Result<Lock, LockError> {
        Lock::take_as(path, path.as_os_str().as_encoded_bytes())
    }

    #[test]
    fn another_file_is_no_way_round() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("lock"), dir.path().join("other"));
        let name = path.as_os_str().as_encoded_bytes();
        let first = take(&path).unwrap();
        let second = Lock::take_as(&other, name);
        assert!(matches!(second, Err(LockError::Elsewhere)), "{second:?}");
        drop(first);
        Lock::take_as(&other, name).unwrap();
    }

    #[test]
    fn the_second_is_told_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/lock");
        let first = take(&path).unwrap();
        let error = take(&path).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("pid {}", std::process::id())),
            "{error}"
        );
        drop(first);
        take(&path).unwrap();
        assert_eq!(
            std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn a_left_over_file_locks_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "1\n").unwrap();
        take(&path).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let error = take(&dir.path().join("lock")).unwrap_err().to_string();
        assert!(error.contains("0700"), "{error}");
    }

    #[test]
    fn a_symbolic_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink(dir.path().join("target"), &path).unwrap();
        assert!(take(&path).is_err());
        assert!(!dir.path().join("target").exists());
    }
}
