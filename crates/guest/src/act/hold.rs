// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holding threads; `adopt` takes one, `moves` moves it, `release` lets it go.
//!
//! An [`Actor`] is shared by all mover threads. A mover may be descheduled for a
//! tenth of a second at any instruction, and then no other may have to wait for it.
//! So what a move touches is the thread's own [`Held`] and its own slot of the
//! journal, by atomics only (see the journal's `Position`); tables are replaced, never
//! locked; and the one lock, of the thread itself for its levers and its release, is
//! tried by movers and waited for by those who have time ([`Actor::release`]).

mod adopt;
mod errors;
mod moves;
mod narrowed;
mod release;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::TryLockError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use arc_swap::ArcSwapOption;
use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::TaskKey;
use units::Tid;
use units::VcpuId;

pub use self::errors::Refusal;
pub use self::errors::ReleaseError;
pub use self::errors::Released;
pub use self::errors::StartError;
pub use self::moves::ForeignChange;
pub use self::moves::MoveError;
use self::narrowed::Narrowed;
use super::balloon;
use super::counters::Counters;
use super::debt::Debt;
use super::journal;
use super::journal::Journal;
use super::journal::Original;
use super::journal::Position;
use super::journal::Slot;
use super::lever::Probe;
use super::mask;
use super::restore;
use super::restore::Summary;
use super::task::Roots;
use super::task::TaskDir;

/// What an actor needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where `/proc` and `/sys` are.
    pub roots: Roots,
    /// The journal's file.
    pub journal: PathBuf,
    /// Threads that can be held at once.
    pub capacity: u32,
    /// Threads whose name begins with one of these are never touched.
    pub excluded_comms: Vec<String>,
    /// Processes that are never touched, beside our own and its parent (the
    /// supervisor).
    pub excluded_tgids: Vec<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            roots: Roots::default(),
            journal: journal::DEFAULT_PATH.into(),
            capacity: journal::DEFAULT_CAPACITY,
            excluded_comms: Vec::new(),
            excluded_tgids: Vec::new(),
        }
    }
}

/// A held thread. Clones are the same hold.
#[derive(Clone, Debug)]
pub struct Held(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) original: Original,
    /// What `sched_getaffinity` said at adoption: without offline CPUs.
    seen: CpuSet,
    /// What `/proc` said then: with offline CPUs, so that none that goes or comes changes it.
    listed: CpuSet,
    permitted: Option<CpuSet>,
    /// Its owner had given it more than it had at adoption: an earlier hold ended
    /// while CPUs were offline.
    owed: bool,
    /// `comm` of the thread: reading it fails once the thread is gone, even if
    /// its id is in use again. A pidfd would do too, but not on 6.1, which has
    /// none for threads.
    alive: File,
    /// The last id given out at adoption: if it is still the same when the hold
    /// ends, there are no children to look for.
    last_tid: Option<u32>,
    pub(super) slot: Slot,
    narrowed: Narrowed,
    /// What the thread is to have now that the hold is over: for a mover that
    /// was overtaken by the end. Set once.
    leave_as: ArcSwapOption<CpuSet>,
    /// Levers, release and the like; never a move.
    slow: Mutex<()>,
    /// No child can have our mask any more.
    swept: AtomicBool,
    /// Children that had ended before their fork event was handled, and may
    /// have started others first.
    buried: ArcSwap<HashSet<u32>>,
}

impl Held {
    /// Which thread.
    #[must_use]
    pub fn key(&self) -> TaskKey {
        self.0.original.key
    }

    /// What its owner had given it.
    #[must_use]
    pub fn original(&self) -> &Original {
        &self.0.original
    }

    /// Where it may be moved, as of adoption: its owner's mask within its
    /// cpuset, online CPUs only. [`Actor::allowed`] asks again.
    #[must_use]
    pub fn allowed(&self) -> CpuSet {
        self.0.permitted.map_or(self.0.seen, |permitted| {
            permitted.and(&mask::owners(&self.0.original))
        })
    }

    /// Where it was moved last; `None` if it never was.
    #[must_use]
    pub fn at(&self) -> Option<VcpuId> {
        self.0.slot.position().at()
    }

    /// What is done for its wake-ups.
    #[must_use]
    pub fn lever(&self) -> Lever {
        self.0.slot.lever()
    }

    /// Is the hold over: released, gone, or taken by a foreign change?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.slot.position().ended()
    }

    /// Is it the same hold, and not just one on the same thread?
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Tests are whoever has his hands on a thread, and descheduled.
    #[cfg(test)]
    pub(crate) fn hands_on(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
}

impl Inner {
    fn tid(&self) -> Tid {
        self.original.key.tid
    }

    /// Does the thread still exist? Any doubt is a no: then nothing is done.
    fn is_alive(&self) -> bool {
        self.alive.read_at(&mut [0; 16], 0).is_ok()
    }

    /// For who has time: the holder may be descheduled with it.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same without waiting; `None` if somebody else has it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        match self.slow.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The first to say it is believed.
    fn leave_as(&self, mask: CpuSet) {
        let unset = None::<Arc<CpuSet>>;
        self.leave_as.compare_and_swap(&unset, Some(Arc::new(mask)));
    }

    /// Changes the position, whatever it is; returns what it is then.
    fn update(&self, change: impl Fn(Position) -> Position) -> Position {
        let mut position = self.slot.position();
        loop {
            let next = change(position);
            match self.slot.change(position, next) {
                Ok(()) => return next,
                Err(now) => position = now,
            }
        }
    }

    /// Ends the hold. False if it was over: then whoever ended it sees to the mask, and
    /// may have done so long ago.
    fn end(&self) -> bool {
        let mut position = self.slot.position();
        while !position.ended() {
            match self.slot.change(position, position.end()) {
                Ok(()) => return true,
                Err(now) => position = now,
            }
        }
        false
    }

    /// Is it over, and nothing of it in force any more or about to be?
    ///
    /// The position first: whoever sets a lever notes it before he looks a second time
    /// whether the hold has ended.
    fn is_idle(&self) -> bool {
        self.slot.position().is_settled() && self.slot.lever() == Lever::Off
    }

    /// Takes the entry of an ended hold out, once no mover can touch the thread
    /// any more, everything has been taken back, and no child can have
    /// inherited anything, either because none was started or because they
    /// have been looked at.
    pub(super) fn retire(&self, no_heirs: impl FnOnce(Option<u32>) -> bool) {
        if self.is_idle() && no_heirs(self.last_tid) {
            self.swept.store(true, Ordering::Release);
            self.slot.erase();
        }
    }

    /// The same for a hold that has just ended.
    fn retire_now(&self, roots: &Roots) {
        self.retire(|last| last.is_some() && last == roots.last_tid());
    }

    /// Remembers a child that has ended; only as many as matter, for after a
    /// sweep they are forgotten.
    pub(super) fn bury(&self, child: Tid) {
        self.buried.rcu(|buried| {
            let mut buried = HashSet::clone(buried);
            if buried.len() < BURIED {
                buried.insert(child.0);
            }
            buried
        });
    }

    /// The children that have ended since this was asked last.
    pub(super) fn buried(&self) -> Arc<HashSet<u32>> {
        self.buried.swap(Arc::default())
    }
}

/// Ended children remembered for each hold between two sweeps.
const BURIED: usize = 4096;

/// All holds: those in force and those that are over but whose children have
/// not been looked at. Whoever changes them puts a changed copy in their place.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    pub(super) live: HashMap<TaskKey, Arc<Inner>>,
    pub(super) over: Vec<Arc<Inner>>,
    /// Holds that have ever begun, by their thread's id: see [`Standing::Clear`].
    begun: [u64; BEGUN],
}

/// Counts of holds that have begun. Threads that share one only make each other look
/// once more.
const BEGUN: usize = 32;

/// How it stands with a thread.
enum Standing {
    /// It is held.
    Held(Arc<Inner>),
    /// A hold of it has ended, but what was set is in force still, or a mover that was
    /// overtaken by the end may still set it. To take hold of it now would be to take
    /// what is ours for its owner's, and whoever lets go would undo what is done next.
    Ending,
    /// Nothing of it is ours. What is read of it is its owner's if this number is still
    /// the same afterwards: else a hold may have begun and ended meanwhile.
    Clear(u64),
}

impl Registry {
    fn standing(&self, key: TaskKey) -> Standing {
        let live = self.live.get(&key);
        if let Some(inner) = live.filter(|inner| !inner.slot.position().ended()) {
            return Standing::Held(Arc::clone(inner));
        }
        let over = self.over.iter().filter(|inner| inner.original.key == key);
        if live.into_iter().chain(over).all(|inner| inner.is_idle()) {
            Standing::Clear(self.begun[begun_at(key)])
        } else {
            Standing::Ending
        }
    }

    fn begin(&mut self, inner: &Arc<Inner>) {
        let key = inner.original.key;
        self.begun[begun_at(key)] += 1;
        self.live.insert(key, Arc::clone(inner));
    }

    /// Sorts out holds that have ended.
    fn tidy(&mut self) {
        let over = self
            .live
            .extract_if(|_, inner| inner.slot.position().ended());
        self.over.extend(over.map(|(_, inner)| inner));
        self.over
            .retain(|inner| !inner.swept.load(Ordering::Acquire));
    }
}

const fn begun_at(key: TaskKey) -> usize {
    key.tid.0 as usize % BEGUN
}

/// Adopts, moves and releases threads. See the module.
#[derive(Debug)]
pub struct Actor {
    pub(super) settings: Settings,
    journal: Arc<Journal>,
    registry: ArcSwap<Registry>,
    pub(super) counters: Counters,
    pub(super) debts: ArcSwap<Vec<Arc<Debt>>>,
    probe: Probe,
    own: [u32; 2],
}

impl Actor {
    /// Opens the journal, undoes what a killed daemon has left in it, and finds
    /// out which levers work.
    pub fn start(settings: Settings) -> Result<(Self, Summary), StartError> {
        let journal = Journal::open(&settings.journal, &settings.roots, settings.capacity)?;
        let mut left = restore::restore_entries(&journal, &settings.roots);
        left.add(balloon::restore_all(&settings.roots));
        let actor = Self {
            journal: Arc::new(journal),
            registry: ArcSwap::default(),
            counters: Counters::default(),
            debts: ArcSwap::default(),
            probe: Probe::run().map_err(StartError::Probe)?,
            own: [std::process::id(), std::os::unix::process::parent_id()],
            settings,
        };
        Ok((actor, left))
    }

    /// The levers that work here.
    #[must_use]
    pub fn probe(&self) -> Probe {
        self.probe
    }

    /// What was done so far, by name.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The holds in force.
    #[must_use]
    pub fn holds(&self) -> Vec<Held> {
        let registry = self.registry.load();
        let live = registry.live.values();
        live.filter(|inner| !inner.slot.position().ended())
            .cloned()
            .map(Held)
            .collect()
    }

    /// Tests hold threads of their own process.
    #[cfg(test)]
    pub(super) fn allow_own_threads(&mut self) {
        self.own = [0, 0];
    }

    /// Tidies the tables and changes them. Waits for nobody: if somebody was quicker, it
    /// is done once more on what he has made of them. Some microseconds, and as many
    /// more as there are holds over ten.
    pub(super) fn change(&self, mut change: impl FnMut(&mut Registry)) {
        self.registry.rcu(|registry| {
            let mut registry = Registry::clone(registry);
            registry.tidy();
            change(&mut registry);
            registry
        });
    }

    /// The tables as they are now, without what has ended meanwhile.
    pub(super) fn tidied(&self) -> Arc<Registry> {
        self.change(|_| ());
        self.registry.load_full()
    }

    /// The hold on this thread, if there is one.
    #[must_use]
    pub fn held(&self, key: TaskKey) -> Option<Held> {
        let registry = self.registry.load();
        let live = registry.live.get(&key);
        live.filter(|inner| !inner.slot.position().ended())
            .cloned()
            .map(Held)
    }

    /// Where the thread may be moved now: its owner's mask within its cpuset,
    /// online CPUs only. For when something about CPUs has been noticed.
    #[must_use]
    pub fn allowed(&self, held: &Held) -> CpuSet {
        TaskDir::open(&self.settings.roots, held.key().tid)
            .ok()
            .and_then(|dir| self.settings.roots.permitted(&dir))
            .map_or(held.allowed(), |permitted| {
                permitted.and(&mask::owners(&held.0.original))
            })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.release_all();
    }
}
