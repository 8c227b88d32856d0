// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Children: a thread passes its mask on to the threads and processes that it
//! starts, ours included. They get their parent's original mask.
//!
//! Two ways lead there. [`Actor::on_fork`] is called for every fork event of a
//! held thread; it is quick, and goes down the tree if the child was.
//! [`Actor::sweep_inherited`] looks at every thread of the processes that
//! descend from a held one; it is for lost events, for machines without them,
//! and for the end. A hold that is over stays in the journal until one sweep
//! has passed, so a kill in between loses nobody.
//!
//! A child is taken for ours if it may run on one CPU only, one that we had
//! narrowed its parent to, if it started after the adoption and descends from
//! the parent. What that cannot tell apart: a thread that its owner started
//! meanwhile and pinned to just such a CPU. What it cannot find: a process
//! whose parent ended, that made itself a group of its own, and whose parent's
//! fork event was lost, and a child whose CPU left its cpuset before
//! the child was looked at: the kernel has widened its mask then, and remembers the
//! narrow one.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use units::CpuSet;
use units::Tid;

use super::counters::Counter;
use super::hold::Actor;
use super::hold::Held;
use super::hold::Inner;
use super::journal::Entry;
use super::journal::Original;
use super::mask;
use super::sched;
use super::task::Roots;
use super::task::Stat;
use super::task::TaskDir;
use super::task::TaskError;

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// It had our mask and has its parent's original one now.
    Widened,
    /// It has not inherited anything from us.
    Clean,
    /// It has ended already.
    Gone,
    /// It could not be changed; the next sweep tries again.
    Failed,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Threads that got their parent's original mask.
    pub widened: u64,
    /// Threads that could not be changed.
    pub failed: u64,
}

/// Whose children are looked for, and what they may have inherited.
struct Parent<'a> {
    original: &'a Original,
    touched: CpuSet,
}

impl Actor {
    /// A held thread has started another: `child` gets its parent's original
    /// mask if it has inherited ours, and so does what the child has started
    /// meanwhile. One system call and no lock if there is nothing to do. To be
    /// called for every fork event of a held thread, also after its release.
    pub fn on_fork(&self, parent: &Held, child: Tid) -> Child {
        let inner = &*parent.0;
        let parent = Parent {
            original: &inner.original,
            touched: inner.slot.touched(),
        };
        let result = self.widen(&parent, child);
        match result {
            Child::Widened => self.widen_below(&parent, child),
            Child::Gone => inner.bury(child),
            Child::Clean | Child::Failed => {}
        }
        result
    }

    /// What a child that has just been widened had started before, and so on.
    fn widen_below(&self, parent: &Parent<'_>, child: Tid) {
        let mut seen = HashSet::from([child]);
        let mut open = vec![child];
        while let Some(tid) = open.pop() {
            for next in started_by(&self.settings.roots, tid) {
                if seen.insert(next) && self.widen(parent, next) == Child::Widened {
                    open.push(next);
                }
            }
        }
    }

    /// Looks for children of held threads that still have our mask, and lets
    /// holds that are over leave the journal. Reads `/proc` once for each
    /// process and asks once for each thread of those that descend from held
    /// ones: milliseconds, so not for a thread that has to be quick.
    pub fn sweep_inherited(&self) -> Sweep {
        let registry = self.tidied();
        let all: Vec<&Arc<Inner>> = registry.live.values().chain(&registry.over).collect();
        let live: HashSet<Tid> = registry.live.keys().map(|key| key.tid).collect();
        let mut sweep = Sweep::default();
        if all.is_empty() {
            return sweep;
        }
        let roots = &self.settings.roots;
        // An ended hold stays if its end came after the reading began.
        let over: Vec<bool> = all
            .iter()
            .map(|inner| inner.slot.position().ended())
            .collect();
        let processes = Processes::read(roots);
        for (inner, over) in all.into_iter().zip(over) {
            let parent = Parent {
                original: &inner.original,
                touched: inner.slot.touched(),
            };
            let mut failed = 0;
            let orphans = processes.orphans(&inner.original, &inner.buried());
            let below = processes.threads_below(roots, inner.original.tgid, &orphans);
            for tid in below.into_iter().filter(|tid| !live.contains(tid)) {
                match self.widen(&parent, tid) {
                    Child::Widened => sweep.widened += 1,
                    Child::Failed => failed += 1,
                    Child::Clean | Child::Gone => {}
                }
            }
            if over && failed == 0 {
                inner.retire(|_| true);
            }
            sweep.failed += failed;
        }
        self.change(|_| ());
        sweep
    }

    fn widen(&self, parent: &Parent<'_>, child: Tid) -> Child {
        let result = widen(&self.settings.roots, parent, child);
        match result {
            Child::Widened => {
                self.note_debt(child, parent.original);
                self.counters.add(Counter::Widened);
            }
            Child::Failed => self.counters.add(Counter::WidenFailed),
            Child::Clean | Child::Gone => {}
        }
        result
    }
}

/// Widens the children of an entry that a killed process has left.
pub(super) fn widen_left_behind(roots: &Roots, processes: &Processes, entry: &Entry) -> Sweep {
    let parent = Parent {
        original: &entry.original,
        touched: entry.touched,
    };
    let mut sweep = Sweep::default();
    let orphans = processes.orphans(&entry.original, &HashSet::new());
    for tid in processes.threads_below(roots, entry.original.tgid, &orphans) {
        match widen(roots, &parent, tid) {
            Child::Widened => sweep.widened += 1,
            Child::Failed => sweep.failed += 1,
            Child::Clean | Child::Gone => {}
        }
    }
    sweep
}

/// One child. The cheap question comes first: most have nothing of ours.
fn widen(roots: &Roots, parent: &Parent<'_>, child: Tid) -> Child {
    let original = parent.original;
    if child == original.key.tid {
        return Child::Clean;
    }
    let Ok(mask) = sched::affinity(child) else {
        return Child::Gone;
    };
    if mask.len() != 1 || mask.and(&parent.touched) != mask {
        return Child::Clean;
    }
    let facts = match TaskDir::open(roots, child).and_then(|dir| dir.facts()) {
        Ok(facts) => facts,
        Err(TaskError::Gone { .. }) => return Child::Gone,
        Err(_) => return Child::Failed,
    };
    if facts.mask != mask || facts.key.start_ticks < original.adopted_ticks {
        return Child::Clean;
    }
    match mask::give_back(roots, child, original) {
        Ok(_) => Child::Widened,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Child::Gone,
        Err(error) => {
            tracing::warn!(tid = %child, %error, "inherited mask not widened");
            Child::Failed
        }
    }
}

fn ids(dir: &std::path::Path) -> impl Iterator<Item = u32> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// What a thread may have started: the threads of its process, and its own
/// child processes (with `CONFIG_PROC_CHILDREN`; without, the sweep finds them).
fn started_by(roots: &Roots, tid: Tid) -> Vec<Tid> {
    let tasks = roots.proc.join(tid.to_string()).join("task");
    let list = std::fs::read_to_string(tasks.join(tid.to_string()).join("children"));
    let list = list.unwrap_or_default();
    let processes = list
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok());
    ids(&tasks).chain(processes).map(Tid).collect()
}

/// All processes, as of one reading of `/proc`.
#[derive(Debug)]
pub(super) struct Processes {
    all: Vec<(u32, Stat)>,
    children: HashMap<u32, Vec<u32>>,
}

impl Processes {
    pub(super) fn read(roots: &Roots) -> Self {
        let all: Vec<(u32, Stat)> = ids(&roots.proc)
            .filter_map(|pid| {
                let stat = TaskDir::open(roots, Tid(pid)).ok()?.stat().ok()?;
                Some((pid, stat))
            })
            .collect();
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, stat) in &all {
            children.entry(stat.ppid).or_default().push(*pid);
        }
        Self { all, children }
    }

    /// Processes whose line to this thread is broken, because one between them
    /// has ended: those in the group or the session of a child that ended
    /// before its event was handled (`setsid` and fork again, as daemons do),
    /// and those that init has adopted but that are still in the thread's own
    /// process group.
    fn orphans(&self, original: &Original, buried: &HashSet<u32>) -> Vec<u32> {
        let of = |pid: u32| self.all.iter().find(|(other, _)| *other == pid);
        let group = of(original.tgid).map(|(_, stat)| stat.group);
        self.all
            .iter()
            .filter(|(_, stat)| {
                stat.start_ticks >= original.adopted_ticks
                    && (buried.contains(&stat.group)
                        || buried.contains(&stat.session)
                        || (stat.ppid == 1 && Some(stat.group) == group))
            })
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// All threads of a process, of these others, and of all that descend from
    /// either.
    fn threads_below(&self, roots: &Roots, tgid: u32, others: &[u32]) -> Vec<Tid> {
        let mut open: Vec<u32> = others.iter().copied().chain([tgid]).collect();
        let mut seen: HashSet<u32> = open.iter().copied().collect();
        let mut threads = Vec::new();
        while let Some(pid) = open.pop() {
            let below = roots.proc.join(pid.to_string()).join("task");
            threads.extend(ids(&below).map(Tid));
            for child in self.children.get(&pid).into_iter().flatten() {
                if seen.insert(*child) {
                    open.push(*child);
                }
            }
        }
        threads
    }
}

#[cfg(test)]
mod tests;
