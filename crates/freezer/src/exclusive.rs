// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One freezer at a time: two would add their gaps, and neither would know of the
//! other's limit for all CPUs at once.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::time::Duration;
use std::time::Instant;

/// The right to freeze. An abstract socket address: the kernel gives it to one
/// process and takes it back when that dies, and no file is left behind, as a
/// lock file would be.
pub(crate) struct Exclusive {
    _socket: UnixListener,
}

impl Exclusive {
    /// Waits at most `wait` for another freezer to end; `None` if it does not.
    pub(crate) fn take(wait: Duration) -> io::Result<Option<Self>> {
        let give_up = Instant::now() + wait;
        let address = SocketAddr::from_abstract_name(b"vmigrater-freezer")?;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => return Ok(Some(Self { _socket: socket })),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(_) if Instant::now() >= give_up => return Ok(None),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
