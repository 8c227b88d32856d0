// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adopting: which threads may be touched, and what is noted before the first
//! change.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use arc_swap::ArcSwapOption;
use units::CpuSet;
use units::TaskKey;

use super::Actor;
use super::Held;
use super::Inner;
use super::Refusal;
use super::Standing;
use super::narrowed::Narrowed;
use crate::act::counters::Counter;
use crate::act::debt::Owners;
use crate::act::journal::Original;
use crate::act::sched;
use crate::act::task::Facts;
use crate::act::task::TaskDir;
use crate::act::task::TaskError;

/// Looks at a thread that others take hold of and let go meanwhile. Each look in vain is
/// somebody else's hold.
const ATTEMPTS: u32 = 4;

impl Actor {
    /// Takes hold of a thread: reads its facts, refuses what must be left
    /// alone, and writes the journal. Nothing is changed yet. A thread that is
    /// held already gives the same hold. Waits for nobody: see [`Refusal::Busy`].
    pub fn adopt(&self, key: TaskKey) -> Result<Held, Refusal> {
        self.adopt_if(key, |_| true)
    }

    /// The same, but refuses threads whose name is not wanted.
    pub fn adopt_if(&self, key: TaskKey, wanted: impl Fn(&str) -> bool) -> Result<Held, Refusal> {
        let adopted = self.try_adopt(key, wanted);
        self.counters.add(if adopted.is_ok() {
            Counter::Adopted
        } else {
            Counter::Refused
        });
        adopted
    }

    fn try_adopt(&self, key: TaskKey, wanted: impl Fn(&str) -> bool) -> Result<Held, Refusal> {
        for _ in 0..ATTEMPTS {
            let begun = match self.registry.load().standing(key) {
                Standing::Held(inner) => return Ok(Held(inner)),
                Standing::Ending => break,
                Standing::Clear(begun) => begun,
            };
            let found = self.look_at(key, &wanted);
            if let Some(adopted) = self.enter(key, begun, found) {
                return adopted;
            }
        }
        Err(Refusal::Busy { tid: key.tid })
    }

    /// Enters a hold, or believes the refusal, if nobody else had hold of the thread while
    /// it was looked at. Otherwise that may be what was seen, and `None`.
    fn enter(
        &self,
        key: TaskKey,
        begun: u64,
        found: Result<Inner, Refusal>,
    ) -> Option<Result<Held, Refusal>> {
        let undisturbed =
            |standing: &Standing| matches!(standing, Standing::Clear(now) if *now == begun);
        let inner = match found {
            Ok(inner) => Arc::new(inner),
            Err(refusal) => {
                let standing = self.registry.load().standing(key);
                return undisturbed(&standing).then_some(Err(refusal));
            }
        };
        let mut standing = Standing::Ending;
        self.change(|registry| {
            standing = registry.standing(key);
            if undisturbed(&standing) {
                registry.begin(&inner);
            }
        });
        if undisturbed(&standing) {
            self.pass_on(key);
            return Some(Ok(Held(inner)));
        }
        inner.slot.erase();
        match standing {
            Standing::Held(quicker) => Some(Ok(Held(quicker))),
            Standing::Ending | Standing::Clear(_) => None,
        }
    }

    /// What a hold would have to know; it is in the journal already.
    fn look_at(&self, key: TaskKey, wanted: impl Fn(&str) -> bool) -> Result<Inner, Refusal> {
        let roots = &self.settings.roots;
        let Candidate {
            dir,
            facts,
            permitted,
        } = self.examine(key)?;
        let tid = key.tid;
        if !wanted(&facts.comm) {
            let comm = facts.comm;
            return Err(Refusal::Excluded { tid, comm });
        }
        let io = |source: io::Error| match source.raw_os_error() {
            Some(libc::ESRCH) => Refusal::Vanished { key },
            _ => Refusal::Io { tid, source },
        };
        let attr = sched::attr(tid).map_err(io)?;
        let seen = sched::affinity(tid).map_err(io)?;
        let slice = if attr.is_fair() { attr.runtime } else { 0 };
        let owed = self.owed_to(key, &facts.mask);
        let owners = owed.unwrap_or(Owners {
            mask: facts.mask,
            whole_cpuset: permitted.is_some_and(|set| set.and(&facts.mask) == set),
        });
        let original = Original {
            key,
            tgid: facts.tgid,
            comm: facts.comm,
            mask: owners.mask,
            whole_cpuset: owners.whole_cpuset,
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
            listed: facts.mask,
            permitted,
            owed: owed.is_some(),
            alive,
            last_tid,
            slot,
            narrowed: Narrowed::default(),
            leave_as: ArcSwapOption::empty(),
            slow: Mutex::default(),
            swept: AtomicBool::new(false),
            buried: ArcSwap::default(),
        };
        if !inner.is_alive() {
            inner.slot.erase();
            return Err(Refusal::Vanished { key });
        }
        Ok(inner)
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
pub(super) fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 100 + rest / 10_000_000
}
