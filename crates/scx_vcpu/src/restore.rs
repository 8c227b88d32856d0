// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu restore`: what a scheduler that was killed has left.
//!
//! The kernel takes the scheduler back by itself. What it does not know of are the CPUs that
//! `set --cpus` narrowed, the label of vCPU threads, and the names of the maps.

use std::fs;
use std::io;
use std::path::Path;

use crate::control::SOCKET;
use crate::control::Server;
use crate::mask::JOURNAL;
use crate::mask::Masks;
use crate::probe::Unsupported;
use crate::seat;
use crate::table;

/// What `/proc/PID/fd` shows for a vCPU, before its number.
const VCPU: &str = "anon_inode:kvm-vcpu";

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Threads whose CPUs had been narrowed.
    pub masks: usize,
    /// vCPU threads that were still in SCHED_EXT.
    pub labels: usize,
    /// Names of maps.
    pub maps: usize,
}

impl std::fmt::Display for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::default() {
            return f.write_str("nothing was left");
        }
        write!(
            f,
            "given back: their CPUs to {} thread(s), their class to {} vCPU(s); {} map(s) removed",
            self.masks, self.labels, self.maps
        )
    }
}

/// Gives it back.
///
/// # Errors
/// [`Unsupported::Runs`]: it is not left but in use; [`Unsupported::NotPermitted`].
pub fn restore() -> anyhow::Result<Restored> {
    // Until the end, so that none starts meanwhile.
    let _alone = Server::bind(Path::new(SOCKET)).map_err(told)?;
    let masks = Masks::new(Path::new(JOURNAL)).restored();
    let maps = table::PINS
        .iter()
        .filter(|pin| fs::remove_file(pin).is_ok());
    Ok(Restored {
        masks,
        maps: maps.count(),
        labels: unlabel(Path::new("/")),
    })
}

/// Who may not open the scheduler's directory is told what to do about it.
fn told(error: anyhow::Error) -> anyhow::Error {
    let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    if error.root_cause().downcast_ref().is_some_and(denied) {
        return Unsupported::NotPermitted(format!("to make {SOCKET}")).into();
    }
    error
}

/// Takes the vCPU threads below `root` (normally `/`) out of SCHED_EXT, unless another sched_ext
/// scheduler has the machine: then they may be its. How many there were.
fn unlabel(root: &Path) -> usize {
    let state = fs::read_to_string(root.join("sys/kernel/sched_ext/state"));
    if state.is_ok_and(|state| state.trim() == "enabled") {
        return 0;
    }
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let processes = below(&root.join("proc")).filter(|process| {
        let is_vcpu = |fd: fs::DirEntry| {
            fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with(VCPU))
        };
        below(&process.path().join("fd")).any(is_vcpu)
    });
    let threads = processes.flat_map(|process| below(&process.path().join("task")));
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    ids.filter(|tid| seat::unlabel(*tid)).count()
}
