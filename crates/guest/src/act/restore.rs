// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoing what a daemon has left that could not do it itself.

use std::io;
use std::path::Path;

use policy::guest::wakeup::Lever;
use units::CpuSet;

use super::balloon;
use super::inherit;
use super::inherit::Processes;
use super::journal::Entry;
use super::journal::Journal;
use super::journal::JournalError;
use super::journal::Position;
use super::lever;
use super::lever::Undone;
use super::mask;
use super::sched;
use super::task::Roots;
use super::task::TaskDir;
use super::task::TaskError;

/// What became of the entries of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Threads that have their owner's mask and policy: given back now, or
    /// never changed.
    pub restored: u64,
    /// Threads that have ended; their ids were not touched, reused or not.
    pub gone: u64,
    /// Threads whose mask or policy somebody else has changed since: left alone.
    pub foreign: u64,
    /// Threads that could not be restored; their entries stay.
    pub failed: u64,
    /// Children that had inherited our mask.
    pub widened: u64,
    /// Entries that made no sense and were thrown away.
    pub torn: u64,
}

impl Summary {
    /// Adds what was found in balloons.
    pub(super) fn add(&mut self, left: balloon::Left) {
        self.restored += left.restored;
        self.failed += left.failed;
    }

    /// Was there nothing to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} restored, {} gone, {} changed by others, {} failed, {} children widened",
            self.restored, self.gone, self.foreign, self.failed, self.widened
        )?;
        if self.torn > 0 {
            write!(f, ", {} unreadable", self.torn)?;
        }
        Ok(())
    }
}

/// Undoes everything that the journal of this boot names, and removes it if
/// all of that could be done. No journal is nothing to do. Idempotent.
///
/// Fails with [`JournalError::Owned`] while a daemon is running.
pub fn restore_all(journal: &Path, roots: &Roots) -> Result<Summary, JournalError> {
    let Some(journal) = Journal::open_existing(journal, roots)? else {
        return Ok(Summary::default());
    };
    let mut summary = restore_entries(&journal, roots);
    summary.add(balloon::restore_all(roots));
    journal.remove_if_empty();
    Ok(summary)
}

/// The same for a journal that is open, whose entries nobody holds.
pub(super) fn restore_entries(journal: &Journal, roots: &Roots) -> Summary {
    let mut summary = Summary {
        torn: journal.erase_torn() as u64,
        ..Summary::default()
    };
    let entries = journal.entries();
    if entries.is_empty() {
        return summary;
    }
    // Parents first: a thread that is started after its parent's mask is back
    // inherits that, so none is missed between the two.
    let outcomes: Vec<Outcome> = entries.iter().map(|entry| restore(roots, entry)).collect();
    let processes = Processes::read(roots);
    for (entry, outcome) in entries.iter().zip(outcomes) {
        let sweep = inherit::widen_left_behind(roots, &processes, entry);
        summary.widened += sweep.widened;
        summary.failed += sweep.failed;
        match outcome {
            Outcome::Restored => summary.restored += 1,
            Outcome::Gone => summary.gone += 1,
            Outcome::Foreign => summary.foreign += 1,
            Outcome::Failed => summary.failed += 1,
            Outcome::Released => {}
        }
        if outcome != Outcome::Failed && sweep.failed == 0 {
            journal.erase(entry.slot);
        }
    }
    summary
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Restored,
    Gone,
    Foreign,
    Failed,
    /// The daemon had released it; only its children were left to look at.
    Released,
}

fn restore(roots: &Roots, entry: &Entry) -> Outcome {
    if entry.released && entry.lever == Lever::Off {
        return Outcome::Released;
    }
    let key = entry.original.key;
    let dir = match roots.facts(key) {
        Ok((dir, _)) => dir,
        Err(TaskError::Gone { .. }) => return Outcome::Gone,
        Err(error) => {
            tracing::error!("{error}");
            return Outcome::Failed;
        }
    };
    match restore_thread(roots, &dir, entry) {
        Ok(outcome) => outcome,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Outcome::Gone,
        Err(error) => {
            tracing::error!("cannot restore thread {key}: {error}");
            Outcome::Failed
        }
    }
}

/// A mask is ours if the position says so: the daemon notes a CPU before it
/// narrows a thread to it, so whether it was killed before or after the system
/// call does not matter.
fn restore_thread(roots: &Roots, dir: &TaskDir, entry: &Entry) -> io::Result<Outcome> {
    let original = &entry.original;
    let tid = original.key.tid;
    let position = Position(entry.position);
    let undone = lever::undo(tid, entry.lever, original)?;
    let now = sched::affinity(tid)?;
    let ours = position.cpus();
    // `sched_getaffinity` leaves offline CPUs out, so compare within online.
    let online = roots.online().unwrap_or(original.mask);
    let untouched = now == original.mask.and(&online);
    // When its CPUs had come up the journal does not say.
    let none = CpuSet::default();
    // A mask that looks like the owner's may hide a narrow one that the kernel remembers.
    if !entry.released && (!untouched || !ours.is_empty()) {
        if untouched || position.owns(&now) || mask::fell_back(roots, dir, &ours, &none, &now) {
            mask::give_back(roots, tid, original)?;
        } else {
            return Ok(Outcome::Foreign);
        }
    }
    Ok(if undone == Undone::Foreign {
        Outcome::Foreign
    } else {
        Outcome::Restored
    })
}

#[cfg(test)]
mod tests;
