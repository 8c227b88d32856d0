// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Giving masks back.

use std::io;

use units::CpuSet;
use units::Tid;

use super::journal::Original;
use super::sched;
use super::task::Roots;
use super::task::TaskDir;

/// What the owner of a thread had asked for: see [`Original::whole_cpuset`].
pub(super) fn owners(original: &Original) -> CpuSet {
    if original.whole_cpuset {
        CpuSet::first(CpuSet::CAPACITY)
    } else {
        original.mask
    }
}

/// Gives a thread (that of the entry, or a child of it) its owner's mask.
///
/// If the cpuset has left nothing of that mask, the kernel refuses it; it would
/// itself have fallen back to the whole cpuset then. We ask for both, so that
/// the owner's CPUs return when the cpuset does: from 6.2 on the kernel
/// remembers what was asked for, and must not remember our narrow mask.
pub(super) fn give_back(roots: &Roots, tid: Tid, original: &Original) -> io::Result<CpuSet> {
    let wanted = owners(original);
    match sched::set_affinity(tid, &wanted) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let dir = TaskDir::open(roots, tid).map_err(|_| error)?;
            let permitted = roots
                .permitted(&dir)
                .unwrap_or(CpuSet::first(CpuSet::CAPACITY));
            let both: CpuSet = wanted.iter().chain(permitted.iter()).collect();
            sched::set_affinity(tid, &both)?;
            Ok(both)
        }
        result => result.map(|()| wanted),
    }
}

/// A thread with a reused id may have been given the mask `ours` in the few
/// instructions between our checks. Nobody knows what it had; a new thread has
/// what its process or its parent has, so it gets that.
pub(super) fn undo_reuse(roots: &Roots, tid: Tid, ours: &CpuSet) -> io::Result<()> {
    if sched::affinity(tid)? != *ours {
        return Ok(());
    }
    let Ok(facts) = TaskDir::open(roots, tid).and_then(|dir| dir.facts()) else {
        return Ok(());
    };
    let kin = if facts.tgid == tid.0 {
        facts.ppid
    } else {
        facts.tgid
    };
    let mask = sched::affinity(Tid(kin))?;
    if mask == *ours {
        Ok(())
    } else {
        sched::set_affinity(tid, &mask)
    }
}
