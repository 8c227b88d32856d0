// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ctrl-C: every wait of a run ends when a signal asks for it, and the normal
//! way out cleans up.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use units::Ns;
use units::Time;

use crate::load::now;

/// The user, or whoever manages this process, asked it to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; everything that the run started has been ended")]
pub struct Interrupted;

/// Turns signals into a readable descriptor.
///
/// Not a flag that waits look at from time to time: a run must not tick while
/// it measures, and a long wait must still end at once.
#[derive(Debug)]
pub(crate) struct Interrupt {
    signals: UnixStream,
}

/// How a wait for a descriptor ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It can be read.
    Readable,
    /// The time is over.
    Elapsed,
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub(crate) fn catch() -> io::Result<Self> {
        let (signals, writer) = UnixStream::pair()?;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self { signals })
    }

    /// Has a signal arrived?
    #[must_use]
    pub(crate) fn is_set(&self) -> bool {
        self.sleep_until(Time::ZERO).is_err()
    }

    /// Waits until an instant, or fails when a signal arrives.
    pub(crate) fn sleep_until(&self, until: Time) -> Result<(), Interrupted> {
        loop {
            let mut fds = [PollFd::new(&self.signals, PollFlags::IN)];
            match poll(&mut fds, until) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(Interrupted),
                // A signal that is not ours, or the kernel is out of memory for
                // an instant: look again.
                Err(_) => {}
            }
        }
    }

    /// Waits for a length of time, or fails when a signal arrives.
    pub(crate) fn sleep(&self, length: Ns) -> Result<(), Interrupted> {
        self.sleep_until(now() + length)
    }

    /// Waits until a descriptor can be read (or is at its end).
    pub(crate) fn wait_readable(&self, fd: impl AsFd, until: Time) -> Result<Waited, Interrupted> {
        loop {
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&fd, PollFlags::IN),
            ];
            match poll(&mut fds, until) {
                Ok(0) => return Ok(Waited::Elapsed),
                Ok(_) if !fds[0].revents().is_empty() => return Err(Interrupted),
                Ok(_) => return Ok(Waited::Readable),
                Err(_) => {}
            }
        }
    }
}

fn poll(fds: &mut [PollFd<'_>], until: Time) -> rustix::io::Result<usize> {
    let left = until.since(now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (left.0 % 1_000_000_000) as _,
    };
    rustix::event::poll(fds, Some(&timeout))
}
