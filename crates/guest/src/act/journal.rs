// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of what was changed, kept where a killed daemon cannot take it
//! along.
//!
//! A file of fixed slots, mapped shared, usually `/run/vmigrater/journal`:
//!
//! * A store to a shared mapping is in the kernel's hands at once: it survives
//!   SIGKILL. Nothing is synced to a disk, because tasks do not survive a power
//!   loss either; an entry of another boot is thrown away.
//! * No `write(2)`: it takes the inode's lock, and a mover that is descheduled
//!   inside would stop every other mover for the length of a gap. Stores to
//!   different slots share nothing.
//! * A slot is written body first, commit word last, before the thread is
//!   touched. A process killed on the way leaves a free slot. A slot whose
//!   checksum is wrong (a file cut short or overwritten) is counted and not
//!   acted upon: a wrong mask given back is worse than none.
//! * All space is allocated at start, so a full disk is one error then, never
//!   a fault later. Slots are reused, so the file does not grow and needs no
//!   compaction.
//! * `flock` gives it one owner.

mod file;
mod record;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::VcpuId;

pub use self::file::JournalError;
use self::file::Map;
pub use self::record::Entry;
pub use self::record::Original;
pub(crate) use self::record::Position;
use self::record::*;
use crate::act::lever;
use crate::act::task::Roots;

/// Where the journal is unless somebody says otherwise.
pub const DEFAULT_PATH: &str = "/run/vmigrater/journal";

/// Slots unless somebody says otherwise: 512 KiB. More threads cannot be held
/// at once; a machine has far fewer that are I/O-bound in the same moment.
pub const DEFAULT_CAPACITY: u32 = 1024;

/// The journal, open and owned by this process.
#[derive(Debug)]
pub struct Journal {
    map: Map,
    /// Slots in use by a [`Slot`] of this process: not the same as committed.
    taken: Vec<AtomicBool>,
    hint: AtomicUsize,
}

impl Journal {
    /// Opens or creates the journal, takes its lock and allocates its space.
    ///
    /// Entries of this boot that a killed daemon has left are kept: see
    /// [`Journal::entries`]. `capacity` is a minimum number of slots.
    pub fn open(path: &Path, roots: &Roots, capacity: u32) -> Result<Self, JournalError> {
        Self::with_map(Map::open(path, roots, Some(capacity))?)
    }

    /// Opens and locks the journal if there is one with entries of this boot;
    /// one of another boot is removed.
    pub fn open_existing(path: &Path, roots: &Roots) -> Result<Option<Self>, JournalError> {
        match Map::open(path, roots, None) {
            Ok(map) => Self::with_map(map).map(Some),
            Err(JournalError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the file says, without its lock: for people to look at while a
    /// daemon may be running. No file, or one of another boot, is an empty list.
    pub fn list(path: &Path, roots: &Roots) -> Result<Vec<Entry>, JournalError> {
        let words = file::read_slots(path, roots)?;
        Ok(words
            .chunks_exact(WORDS)
            .enumerate()
            .filter_map(|(slot, words)| decode(slot, words).ok().flatten())
            .collect())
    }

    fn with_map(map: Map) -> Result<Self, JournalError> {
        let mut taken = Vec::new();
        taken.resize_with(map.slots(), || AtomicBool::new(false));
        Ok(Self {
            map,
            taken,
            hint: AtomicUsize::new(0),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// Number of slots.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.taken.len()
    }

    /// All committed entries.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        (0..self.capacity())
            .filter_map(|slot| self.read(slot).ok().flatten())
            .collect()
    }

    /// Slots that are neither free nor whole.
    #[must_use]
    pub fn torn(&self) -> usize {
        (0..self.capacity())
            .filter(|slot| self.read(*slot).is_err())
            .count()
    }

    fn read(&self, slot: usize) -> Result<Option<Entry>, Torn> {
        let words: Vec<u64> = self
            .map
            .slot(slot)
            .iter()
            .map(|word| word.load(Ordering::Acquire))
            .collect();
        decode(slot, &words)
    }

    /// Takes an entry out. The slot can be used again unless somebody holds it.
    pub(crate) fn erase(&self, slot: usize) {
        self.map.slot(slot)[COMMIT].store(0, Ordering::Release);
    }

    /// Frees the slots whose checksum is wrong; says how many.
    pub(crate) fn erase_torn(&self) -> usize {
        let torn = (0..self.capacity()).filter(|slot| self.read(*slot).is_err());
        torn.map(|slot| self.erase(slot)).count()
    }

    /// Writes a new entry and commits it. `None` if the journal is full.
    pub(crate) fn insert(self: &Arc<Self>, original: &Original) -> Option<Slot> {
        let start = self.hint.load(Ordering::Relaxed);
        let index = (0..self.capacity())
            .map(|n| (start + n) % self.capacity())
            .find(|index| self.claim(*index))?;
        self.hint.store(index + 1, Ordering::Relaxed);
        let words = self.map.slot(index);
        words[POSITION].store(Position::START.0, Ordering::Relaxed);
        words[LEVER].store(lever::pack(Lever::Off), Ordering::Relaxed);
        for word in &words[TOUCHED..BODY] {
            word.store(0, Ordering::Relaxed);
        }
        let body = original.encode();
        for (word, value) in words[BODY..].iter().zip(body) {
            word.store(value, Ordering::Relaxed);
        }
        words[COMMIT].store(checksum(&body), Ordering::Release);
        // The system calls that change the thread must not be seen before this.
        fence(Ordering::SeqCst);
        Some(Slot {
            journal: Arc::clone(self),
            index,
        })
    }

    fn claim(&self, index: usize) -> bool {
        let taken = &self.taken[index];
        if taken.swap(true, Ordering::AcqRel) {
            return false;
        }
        // A leftover that could not be restored stays until it can.
        let free = self.map.slot(index)[COMMIT].load(Ordering::Acquire) == 0;
        if !free {
            taken.store(false, Ordering::Release);
        }
        free
    }

    /// Removes the file if it holds no entry any more. The lock stays until
    /// the journal is dropped.
    pub(crate) fn remove_if_empty(&self) {
        if self
            .map
            .words()
            .chunks_exact(WORDS)
            .all(|s| s[COMMIT].load(Ordering::Acquire) == 0)
        {
            self.map.unlink();
        }
    }
}

/// A slot that is neither free nor whole.
struct Torn;

fn decode(slot: usize, words: &[u64]) -> Result<Option<Entry>, Torn> {
    if words[COMMIT] == 0 {
        return Ok(None);
    }
    let mut body = [0; BODY_WORDS];
    body.copy_from_slice(&words[BODY..BODY + BODY_WORDS]);
    if words[COMMIT] != checksum(&body) {
        return Err(Torn);
    }
    let position = Position(words[POSITION]);
    Ok(Some(Entry {
        original: Original::decode(&body),
        at: position.at(),
        touched: CpuSet::from_words(&words[TOUCHED..BODY]),
        lever: lever::unpack(words[LEVER]),
        released: position.is_settled(),
        position: position.0,
        slot,
    }))
}

/// One entry, held by this process. Dropping it makes the slot free for others
/// once its entry has been erased; it does not erase it.
#[derive(Debug)]
pub(crate) struct Slot {
    journal: Arc<Journal>,
    index: usize,
}

impl Slot {
    fn words(&self) -> &[AtomicU64] {
        self.journal.map.slot(self.index)
    }

    /// Where the thread is.
    pub(crate) fn position(&self) -> Position {
        Position(self.words()[POSITION].load(Ordering::SeqCst))
    }

    /// Changes the position unless it has changed: then says what it is.
    pub(crate) fn change(&self, from: Position, to: Position) -> Result<(), Position> {
        self.words()[POSITION]
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst)
            .map(|_| ())
            .map_err(Position)
    }

    /// Notes that the thread, and so any child it has from now on, may be
    /// narrowed to this CPU.
    pub(crate) fn touch(&self, cpu: VcpuId) {
        if let Some(word) = self.words()[TOUCHED..BODY].get(cpu.index() / 64) {
            let bit = 1 << (cpu.0 % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::SeqCst);
            }
        }
    }

    /// Every CPU that the thread was ever narrowed to.
    pub(crate) fn touched(&self) -> CpuSet {
        let words: Vec<u64> = self.words()[TOUCHED..BODY]
            .iter()
            .map(|word| word.load(Ordering::SeqCst))
            .collect();
        CpuSet::from_words(&words)
    }

    /// The lever in force.
    pub(crate) fn lever(&self) -> Lever {
        lever::unpack(self.words()[LEVER].load(Ordering::SeqCst))
    }

    /// Notes the lever; before it is applied, after it has been undone.
    pub(crate) fn set_lever(&self, lever: Lever) {
        self.words()[LEVER].store(lever::pack(lever), Ordering::SeqCst);
    }

    /// Takes the entry out.
    pub(crate) fn erase(&self) {
        self.journal.erase(self.index);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.journal.taken[self.index].store(false, Ordering::Release);
    }
}
