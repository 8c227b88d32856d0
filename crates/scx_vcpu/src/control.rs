// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu set` to the scheduler that runs: one line of JSON each way over a socket
//! that only root can open.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;

use crate::config::Worth;
use crate::probe::Unsupported;
use crate::roster::Change;
use crate::roster::Roster;
use crate::roster::Told;

/// Where the scheduler listens. Its directory is root's alone, so the name cannot be
/// taken by others before us.
pub const SOCKET: &str = "/run/scx_vcpu/control";

/// Who asks gets or gives his line within this; the scheduler's loop waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Longest line.
const LIMIT: u64 = 64 * 1024;

/// What the scheduler says to a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Done.
    Done {
        /// Process id of the VMM.
        vm: u32,
        /// What the VM is worth now.
        worth: Worth,
        /// vCPUs that were told.
        vcpus: usize,
    },
    /// Not done, and why.
    Refused(String),
}

/// The scheduler's end; the socket goes with it.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: std::path::PathBuf,
    /// The socket's directory, locked for as long as we run.
    _alone: std::fs::File,
}

impl Server {
    /// Listens at `path`, alone: what is there already was left by one that was killed.
    ///
    /// # Errors
    /// [`Unsupported::Runs`]: one listens. The kernel would not tell of one that has no vCPU and
    /// waits. Or the socket cannot be made.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        Self::listen(path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Unsupported::Runs.into(),
            _ => anyhow::Error::new(error)
                .context(format!("cannot make {} for `scx_vcpu set`", path.display())),
        })
    }

    /// `WouldBlock`: another one listens there.
    fn listen(path: &Path) -> io::Result<Self> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        if !dir.exists() {
            std::fs::DirBuilder::new().mode(0o700).create(dir)?;
        }
        // Of a process that has ended, however, the kernel takes it back.
        let alone = std::fs::File::open(dir)?;
        rustix::fs::flock(&alone, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            _alone: alone,
        })
    }

    /// Answers everybody who waits. One who fails is his own affair.
    pub(crate) fn serve(&self, mut apply: impl FnMut(&Change) -> Answer) {
        while let Ok((client, _)) = self.listener.accept() {
            if let Err(error) = answer(&client, &mut apply) {
                tracing::debug!(%error, "`scx_vcpu set` was not answered");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Does `change`. `tell` hands knobs to the kernel's side and says how many vCPUs are
/// (still) there.
pub(crate) fn apply(
    roster: &mut Roster,
    change: &Change,
    tell: impl Fn(Told) -> anyhow::Result<usize>,
) -> Answer {
    match roster.set(change) {
        Ok((vm, worth, told)) => match tell(told) {
            // Its threads ended since the roster was last looked through.
            Ok(0) => Answer::Refused(format!("VM {vm} has gone; nothing was changed")),
            Ok(vcpus) => Answer::Done { vm, worth, vcpus },
            Err(error) => Answer::Refused(format!("{error:#}")),
        },
        Err(error) => Answer::Refused(error.to_string()),
    }
}

/// Does a scheduler listen at `path`? Also while it has no vCPU, when the kernel knows of none.
///
/// # Errors
/// Not permitted to know: the socket is root's.
pub fn runs(path: &Path) -> io::Result<bool> {
    match UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(false),
    }
}

/// That none does, as far as we may know.
///
/// # Errors
/// [`Unsupported::Runs`]
pub fn alone(path: &Path) -> Result<(), Unsupported> {
    match runs(path) {
        Ok(true) => Err(Unsupported::Runs),
        _ => Ok(()),
    }
}

fn answer(client: &UnixStream, apply: &mut impl FnMut(&Change) -> Answer) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let answer = match serde_json::from_str(&line(client, PATIENCE)?) {
        Ok(change) => apply(&change),
        Err(error) => Answer::Refused(format!("not a change: {error}")),
    };
    say(client, &answer)
}

/// Asks the scheduler that listens at `path`.
///
/// # Errors
/// None runs, or it refuses.
pub fn ask(path: &Path, change: &Change) -> anyhow::Result<Answer> {
    let client = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => anyhow::anyhow!("not permitted; run as root"),
        _ => anyhow::anyhow!(
            "scx_vcpu does not run on this machine (nobody listens at {}); start it with `scx_vcpu run`",
            path.display()
        ),
    })?;
    say(&client, change).context("the scheduler does not listen")?;
    // It looks ten times a second, on a machine that may be busy.
    let line = line(&client, 10 * PATIENCE).context("the scheduler does not answer")?;
    serde_json::from_str(&line).context("the scheduler is of another version")
}

fn say(mut to: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    to.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(what)?;
    text.push('\n');
    to.write_all(text.as_bytes())
}

fn line(from: &UnixStream, patience: Duration) -> io::Result<String> {
    from.set_read_timeout(Some(patience))?;
    let mut line = String::new();
    BufReader::new(from.take(LIMIT)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::seat::Found;

    #[test]
    fn a_change_arrives_and_its_answer_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control");
        let server = Server::bind(&path).unwrap();
        let second = Server::bind(&path).unwrap_err();
        assert!(
            matches!(second.downcast_ref(), Some(Unsupported::Runs)),
            "{second}"
        );
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let change = Change {
            vm: "web".to_owned(),
            cap: Some(50),
            ..Change::default()
        };
        let asked = change.clone();
        let at = path.clone();
        let client = std::thread::spawn(move || ask(&at, &asked).unwrap());
        let mut seen = None;
        while seen.is_none() {
            server.serve(|change| {
                seen = Some(change.clone());
                Answer::Refused("no".to_owned())
            });
            std::thread::yield_now();
        }
        assert_eq!(seen, Some(change));
        assert_eq!(client.join().unwrap(), Answer::Refused("no".to_owned()));

        assert!(runs(&path).unwrap() && alone(&path).is_err());
        drop(server);
        assert!(!path.exists() && !runs(&path).unwrap());
        let why = ask(&path, &Change::default()).unwrap_err().to_string();
        assert!(why.contains("scx_vcpu run"), "{why}");
    }

    #[test]
    fn a_vm_that_goes_while_it_is_set_is_told_of() {
        let mut roster = Roster::new(Config::default(), None);
        for vcpu in 0..2 {
            let tid = 70 + vcpu;
            roster.add(Found { vm: 7, tid, vcpu }, "web".to_owned(), vec![0]);
        }
        let change = Change {
            vm: "web".to_owned(),
            weight: Some(3),
            ..Change::default()
        };
        // One of two threads is still there.
        let one = apply(&mut roster, &change, |told| Ok(told.len() - 1));
        assert!(
            matches!(
                one,
                Answer::Done {
                    vm: 7,
                    vcpus: 1,
                    ..
                }
            ),
            "{one:?}"
        );
        let none = apply(&mut roster, &change, |_| Ok(0));
        let Answer::Refused(why) = none else {
            panic!("{none:?}");
        };
        assert_eq!(why, "VM 7 has gone; nothing was changed");
    }

    #[test]
    fn what_is_no_change_is_refused_and_a_stale_socket_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left by one that was killed");
        let server = Server::bind(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"vm\": 3}\n").unwrap();
        server.serve(|_| panic!("nothing to apply"));
        assert!(line(&client, PATIENCE).unwrap().contains("not a change"));
    }
}
