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

/// Has the kernel made the mask `now` of a thread that we had narrowed to one of `ours`,
/// because that CPU has left its cpuset or gone offline?
///
/// The kernel falls back to all that the cpuset still permits (`update_tasks_cpumask`,
/// kernel/cgroup/cpuset.c; `select_fallback_rq`, kernel/sched/core.c), and from 6.2 on it
/// remembers our narrow mask and has it in force again when the CPU is back. So this is
/// nobody's choice, and the owner's mask has to be given back. Not known is to which of
/// `ours` the thread was narrowed last. If all of them are gone, the mask is a fallback.
/// If some are, it is one if it has everything that is left, and a choice otherwise.
///
/// A CPU of ours that is `back` has been away since the thread was narrowed to it. The
/// thread is where the kernel put it, or where its owner did later: a fallback if it has
/// everything that is left.
///
/// An empty mask is nobody's choice either, since none can be asked for: the thread's only CPU
/// is going, and the kernel, which leaves out whatever takes no more threads when it is asked
/// (`sched_getaffinity()`, kernel/sched/syscalls.c), has not moved the thread yet.
pub(super) fn fell_back(
    roots: &Roots,
    dir: &TaskDir,
    ours: &CpuSet,
    back: &CpuSet,
    now: &CpuSet,
) -> bool {
    if now.is_empty() {
        return !ours.is_empty();
    }
    let Some(permitted) = roots.permitted(dir) else {
        return false;
    };
    let up = |cpus: CpuSet| cpus.and_not(&roots.not_up(&cpus));
    let here = up(ours.and(&permitted)).and_not(back);
    let all_are_gone = here.is_empty() && ours.and(back).is_empty();
    // When `now` was read, they may not have been back.
    let left = up(permitted).and_not(back);
    here != *ours && (all_are_gone || left.and_not(now).is_empty())
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

#[cfg(test)]
mod tests {
    use std::fs;

    use units::VcpuId;

    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        cpus.iter().copied().map(VcpuId).collect()
    }

    #[test]
    fn a_fallback_is_told_from_a_choice() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
        };
        let task = roots.proc.join("77");
        let cpu = roots.sys.join("devices/system/cpu");
        let group = roots.sys.join("fs/cgroup/readers");
        for dir in [&task, &cpu, &group] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(task.join("cgroup"), "0::/readers\n").unwrap();
        let task = TaskDir::open(&roots, Tid(77)).unwrap();
        let fell_with = |ours: &[u32], back: &[u32], now: &[u32]| {
            fell_back(&roots, &task, &set(ours), &set(back), &set(now))
        };
        let fell = |ours: &[u32], now: &[u32]| fell_with(ours, &[], now);
        let machine = |permitted: &str, online: &str| {
            fs::write(group.join("cpuset.cpus.effective"), permitted).unwrap();
            fs::write(cpu.join("online"), online).unwrap();
        };
        for (permitted, online) in [("0-1", "0-2"), ("0-2", "0-1")] {
            machine(permitted, online);
            assert!(fell(&[2], &[0, 1]));
            // A mover is at work: either of the two may have come last.
            assert!(fell(&[0, 2], &[0, 1]));
            assert!(
                !fell(&[0, 2], &[1]),
                "chosen: a fallback is all that is left"
            );
            assert!(!fell(&[0, 1], &[0, 1]), "no CPU of ours is gone");
            assert!(!fell(&[], &[0, 1]), "nothing was narrowed");
            assert!(fell(&[0, 2], &[]), "its CPU is going just now");
            assert!(!fell(&[], &[]));
        }
        machine("0-2", "0-2");
        assert!(!fell(&[2], &[0, 1, 2]));
        assert!(fell_with(&[2], &[2], &[0, 1, 2]), "away and back");
        assert!(fell_with(&[0, 2], &[2], &[0, 1, 2]));
        assert!(fell_with(&[2], &[2], &[0, 1]), "away when it was looked at");
        assert!(!fell_with(&[2], &[2], &[0, 2]), "chosen since");
        assert!(!fell_with(&[0], &[2], &[0, 1, 2]), "not to that one");
        machine("0-2", "0-1");
        assert!(fell_with(&[1, 2], &[1], &[0, 1]), "one is away still");
        assert!(!fell_with(&[1, 2], &[1], &[1]));
    }
}
