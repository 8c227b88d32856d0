// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holding threads: adopting one, moving it, letting it go.
//!
//! An [`Actor`] is shared by all mover threads. What a move touches is the
//! thread's own [`Held`] and its own slot of the journal, by atomics only: a
//! mover may be descheduled for a tenth of a second at any instruction, and
//! then no other may have to wait for it (see the journal's `Position`). Adoption and release
//! take a lock around a look into a table, levers and release one of the thread
//! itself; no move takes either.

mod errors;
mod moves;
mod release;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

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
use super::balloon;
use super::counters::Counter;
use super::counters::Counters;
use super::debt::Debt;
use super::journal;
use super::journal::Journal;
use super::journal::Original;
use super::journal::Position;
use super::journal::Slot;
use super::lever::Probe;
use super::restore;
use super::restore::Summary;
use super::sched;
use super::task::Facts;
use super::task::Roots;
use super::task::TaskDir;
use super::task::TaskError;

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
    permitted: Option<CpuSet>,
    /// `comm` of the thread: reading it fails once the thread is gone, even if
    /// its id is in use again. A pidfd would do too, but not on 6.1, which has
    /// none for threads.
    alive: File,
    /// The last id given out at adoption: if it is still the same when the hold
    /// ends, there are no children to look for.
    last_tid: Option<u32>,
    pub(super) slot: Slot,
    /// What the thread is to have now that the hold is over: for a mover that
    /// was overtaken by the end.
    leave_as: OnceLock<CpuSet>,
    /// Levers, release and the like; never a move.
    slow: Mutex<()>,
    /// No child can have our mask any more.
    swept: AtomicBool,
    /// Children that had ended before their fork event was handled, and may
    /// have started others first.
    buried: Mutex<HashSet<u32>>,
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
            permitted.and(&self.0.original.mask)
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
}

impl Inner {
    fn tid(&self) -> Tid {
        self.original.key.tid
    }

    /// Does the thread still exist? Any doubt is a no: then nothing is done.
    fn is_alive(&self) -> bool {
        self.alive.read_at(&mut [0; 16], 0).is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Takes the entry of an ended hold out, once no mover can touch the thread
    /// any more, everything has been taken back, and no child can have
    /// inherited anything, either because none was started or because they
    /// have been looked at.
    pub(super) fn retire(&self, no_heirs: impl FnOnce(Option<u32>) -> bool) {
        let idle = self.slot.position().is_settled() && self.slot.lever() == Lever::Off;
        if idle && no_heirs(self.last_tid) {
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
        let mut buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
        if buried.len() < BURIED {
            buried.insert(child.0);
        }
    }

    /// The children that have ended since this was asked last.
    pub(super) fn buried(&self) -> HashSet<u32> {
        std::mem::take(&mut *self.buried.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ended children remembered for each hold between two sweeps.
const BURIED: usize = 4096;

/// All holds: those in force and those that are over but whose children have
/// not been looked at.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) live: HashMap<TaskKey, Arc<Inner>>,
    pub(super) over: Vec<Arc<Inner>>,
}

impl Registry {
    /// Sorts out holds that have ended.
    pub(super) fn tidy(&mut self) {
        let over = self
            .live
            .extract_if(|_, inner| inner.slot.position().ended());
        self.over.extend(over.map(|(_, inner)| inner));
        self.over
            .retain(|inner| !inner.swept.load(Ordering::Acquire));
    }
}

/// Adopts, moves and releases threads. See the module.
#[derive(Debug)]
pub struct Actor {
    pub(super) settings: Settings,
    journal: Arc<Journal>,
    pub(super) registry: Mutex<Registry>,
    pub(super) counters: Counters,
    debts: Mutex<Vec<Debt>>,
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
            registry: Mutex::default(),
            counters: Counters::default(),
            debts: Mutex::default(),
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
        let mut registry = self.lock();
        registry.tidy();
        registry.live.values().cloned().map(Held).collect()
    }

    /// Tests hold threads of their own process.
    #[cfg(test)]
    pub(super) fn allow_own_threads(&mut self) {
        self.own = [0, 0];
    }

    /// Only ever held for a look into the tables, never over a system call: a
    /// mover that adopts may be descheduled with it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Self::lock`]: for a look into a table.
    pub(super) fn debts(&self) -> MutexGuard<'_, Vec<Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes hold of a thread: reads its facts, refuses what must be left
    /// alone, and writes the journal. Nothing is changed yet. A thread that is
    /// held already gives the same hold.
    pub fn adopt(&self, key: TaskKey) -> Result<Held, Refusal> {
        let adopted = self.try_adopt(key);
        self.counters.add(if adopted.is_ok() {
            Counter::Adopted
        } else {
            Counter::Refused
        });
        adopted
    }

    fn try_adopt(&self, key: TaskKey) -> Result<Held, Refusal> {
        if let Some(held) = self.held(key) {
            return Ok(held);
        }
        let roots = &self.settings.roots;
        let Candidate {
            dir,
            facts,
            permitted,
        } = self.examine(key)?;
        let tid = key.tid;
        let io = |source: io::Error| match source.raw_os_error() {
            Some(libc::ESRCH) => Refusal::Vanished { key },
            _ => Refusal::Io { tid, source },
        };
        let attr = sched::attr(tid).map_err(io)?;
        let seen = sched::affinity(tid).map_err(io)?;
        let slice = if attr.is_fair() { attr.runtime } else { 0 };
        let original = Original {
            key,
            tgid: facts.tgid,
            comm: facts.comm,
            mask: facts.mask,
            whole_cpuset: permitted.is_some_and(|set| set.and(&facts.mask) == set),
            policy: attr.policy,
            priority: attr.priority,
            nice: if attr.is_fair() {
                attr.nice
            } else {
                sched::nice(tid).map_err(io)?
            },
            reset_on_fork: attr.resets_on_fork(),
            slice_ns: if slice == self.probe.default_slice.0 {
                0
            } else {
                slice
            },
            adopted_ticks: now_ticks(),
        };
        let alive = dir.file("comm").map_err(|error| refusal(key, error))?;
        let last_tid = roots.last_tid();
        let slot = match self.journal.insert(&original) {
            Some(slot) => slot,
            None => {
                // Ended holds that wait for a look at their children may be all
                // that fills it.
                self.sweep_inherited();
                let full = Refusal::JournalFull {
                    tid,
                    capacity: self.journal.capacity(),
                };
                self.journal.insert(&original).ok_or(full)?
            }
        };
        let inner = Inner {
            original,
            seen,
            permitted,
            alive,
            last_tid,
            slot,
            leave_as: OnceLock::new(),
            slow: Mutex::default(),
            swept: AtomicBool::new(false),
            buried: Mutex::default(),
        };
        if !inner.is_alive() {
            inner.slot.erase();
            return Err(Refusal::Vanished { key });
        }
        let mut registry = self.lock();
        registry.tidy();
        match registry.live.get(&key) {
            // Somebody was quicker.
            Some(other) => {
                inner.slot.erase();
                Ok(Held(Arc::clone(other)))
            }
            None => {
                let inner = Arc::new(inner);
                registry.live.insert(key, Arc::clone(&inner));
                Ok(Held(inner))
            }
        }
    }

    /// The hold on this thread, if there is one.
    #[must_use]
    pub fn held(&self, key: TaskKey) -> Option<Held> {
        let mut registry = self.lock();
        registry.tidy();
        registry.live.get(&key).cloned().map(Held)
    }

    /// What `/proc` says about a thread.
    pub fn facts(&self, key: TaskKey) -> Result<Facts, Refusal> {
        let (_, facts) = self
            .settings
            .roots
            .facts(key)
            .map_err(|error| refusal(key, error))?;
        Ok(facts)
    }

    /// Would [`Actor::adopt`] take this thread? Returns where it might be
    /// moved. For dry runs.
    pub fn check(&self, key: TaskKey) -> Result<CpuSet, Refusal> {
        self.examine(key).map(|candidate| candidate.usable())
    }

    /// Is this a thread that may be touched?
    fn examine(&self, key: TaskKey) -> Result<Candidate, Refusal> {
        let roots = &self.settings.roots;
        let (dir, facts) = roots.facts(key).map_err(|error| refusal(key, error))?;
        let tid = key.tid;
        let comm = facts.comm.clone();
        let settings = &self.settings;
        if facts.is_kernel_thread() {
            return Err(Refusal::KernelThread { tid, comm });
        }
        if self.own.contains(&facts.tgid) {
            return Err(Refusal::Own { tid });
        }
        if settings.excluded_tgids.contains(&facts.tgid)
            || settings
                .excluded_comms
                .iter()
                .any(|prefix| comm.starts_with(prefix))
        {
            return Err(Refusal::Excluded { tid, comm });
        }
        if facts.is_immovable() {
            return Err(Refusal::Immovable { tid, comm });
        }
        if facts.policy == sched::SCHED_DEADLINE {
            return Err(Refusal::Deadline { tid, comm });
        }
        let permitted = roots.permitted(&dir);
        let candidate = Candidate {
            dir,
            facts,
            permitted,
        };
        match candidate.usable() {
            cpus if cpus.len() < 2 => Err(Refusal::Pinned {
                tid,
                comm,
                cpus: Box::new(cpus),
            }),
            _ => Ok(candidate),
        }
    }

    /// Where the thread may be moved now: its owner's mask within its cpuset,
    /// online CPUs only. For when something about CPUs has been noticed.
    #[must_use]
    pub fn allowed(&self, held: &Held) -> CpuSet {
        TaskDir::open(&self.settings.roots, held.key().tid)
            .ok()
            .and_then(|dir| self.settings.roots.permitted(&dir))
            .map_or(held.allowed(), |permitted| {
                permitted.and(&held.0.original.mask)
            })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// A thread that may be adopted.
struct Candidate {
    dir: TaskDir,
    facts: Facts,
    permitted: Option<CpuSet>,
}

impl Candidate {
    fn usable(&self) -> CpuSet {
        self.permitted
            .map_or(self.facts.mask, |permitted| permitted.and(&self.facts.mask))
    }
}

fn refusal(key: TaskKey, error: TaskError) -> Refusal {
    match error {
        TaskError::Gone { .. } => Refusal::Vanished { key },
        other => Refusal::Task(other),
    }
}

/// Clock ticks since boot, as field 22 of `/proc/<tid>/stat` counts them:
/// `USER_HZ` is 100 on every architecture that has KVM.
fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 100 + rest / 10_000_000
}
