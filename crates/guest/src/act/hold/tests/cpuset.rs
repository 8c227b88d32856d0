// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs leave a held thread's cpuset: the kernel changes the mask, and must not remember
//! ours.

use super::super::super::testing::this_tid;
use super::*;

/// A cpuset of our own, removed with the value.
struct Cpuset(PathBuf);

impl Cpuset {
    fn new(cpus: &CpuSet) -> Self {
        let root = PathBuf::from("/sys/fs/cgroup/cpuset");
        let path = root.join(format!("vmigrater-test-{}", this_tid()));
        std::fs::create_dir(&path).expect("these tests need a cgroup v1 cpuset");
        let mems = std::fs::read_to_string(root.join("cpuset.mems")).unwrap();
        std::fs::write(path.join("cpuset.mems"), mems.trim()).unwrap();
        let set = Self(path);
        set.set(cpus);
        set
    }

    fn set(&self, cpus: &CpuSet) {
        std::fs::write(self.0.join("cpuset.cpus"), cpus.to_string()).unwrap();
    }

    fn add(&self, tid: Tid) {
        std::fs::write(self.0.join("tasks"), tid.to_string()).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        for tid in std::fs::read_to_string(self.0.join("tasks"))
            .unwrap()
            .lines()
        {
            let _ = std::fs::write("/sys/fs/cgroup/cpuset/tasks", tid);
        }
        std::fs::remove_dir(&self.0).unwrap();
    }
}

/// A thread in a cpuset of these CPUs, and an actor for it.
fn in_a_cpuset(cpus: &CpuSet) -> (Subject, Cpuset, Stage) {
    let subject = Subject::new();
    let cpuset = Cpuset::new(cpus);
    cpuset.add(subject.tid);
    (subject, cpuset, Stage::new())
}

#[test]
fn root_a_cpuset_change_in_flight_wins_and_is_not_remembered_narrow() {
    let (a, b) = cpus();
    let both: CpuSet = [a, b].into_iter().collect();
    let (subject, cpuset, stage) = in_a_cpuset(&both);

    // Our CPU leaves the cpuset: the kernel widens the mask.
    let held = stage.actor.adopt(subject.key).unwrap();
    assert!(held.original().whole_cpuset);
    stage.actor.move_to(&held, b).unwrap();
    cpuset.set(&CpuSet::only(a));
    assert_eq!(subject.mask(), CpuSet::only(a));
    assert_eq!(stage.actor.allowed(&held), CpuSet::only(a));
    let error = stage.actor.move_to(&held, a).unwrap_err();
    let change = ForeignChange::CpusetOrHotplug;
    assert!(
        matches!(error, MoveError::Foreign { change: c, .. } if c == change),
        "{error}"
    );
    assert_eq!(subject.mask(), CpuSet::only(a));
    cpuset.set(&both);
    assert_eq!(
        subject.mask(),
        both,
        "the kernel must not remember our mask"
    );

    // The same before we have moved anything, noticed without a move: nothing to undo,
    // and it is not taken for its owner's choice.
    let held = stage.actor.adopt(subject.key).unwrap();
    cpuset.set(&CpuSet::only(a));
    let error = stage.actor.verify(&held).unwrap_err();
    assert!(
        matches!(error, MoveError::Foreign { change: c, .. } if c == change),
        "{error}"
    );
    cpuset.set(&both);
    assert_eq!(subject.mask(), both);

    // Another CPU leaves it: our move there is refused, and the hold goes on.
    let held = stage.actor.adopt(subject.key).unwrap();
    stage.actor.move_to(&held, a).unwrap();
    cpuset.set(&CpuSet::only(a));
    let error = stage.actor.move_to(&held, b).unwrap_err();
    assert!(
        matches!(error, MoveError::Invalid { ref allowed, .. } if **allowed == CpuSet::only(a)),
        "{error}"
    );
    assert_eq!(stage.actor.release(&held).unwrap(), Released::Restored);
    assert_eq!(subject.mask(), CpuSet::only(a));
    cpuset.set(&both);
    assert_eq!(
        subject.mask(),
        both,
        "a widened cpuset reaches the thread again"
    );
}

/// A mover is descheduled between its system call and its note of it, and meanwhile the
/// CPU that it has just chosen leaves the cpuset.
#[test]
fn root_a_cpuset_that_changes_behind_a_movers_back_is_not_remembered_narrow() {
    let (a, b) = cpus();
    let both: CpuSet = [a, b].into_iter().collect();
    let (subject, cpuset, stage) = in_a_cpuset(&both);
    let actor = &stage.actor;
    let set_and_lose = |tid: Tid, mask: &CpuSet| {
        sched::set_affinity(tid, mask)?;
        cpuset.set(&CpuSet::only(a));
        Ok(())
    };

    // Its first move: the mask that the kernel falls back to is no position of ours.
    let held = actor.adopt(subject.key).unwrap();
    let error = actor.move_with(&held, b, set_and_lose).unwrap_err();
    assert!(
        matches!(
            error,
            MoveError::Foreign {
                change: ForeignChange::CpusetOrHotplug,
                ..
            }
        ),
        "{error}"
    );
    assert!(held.is_over());
    cpuset.set(&both);
    assert_eq!(subject.mask(), both, "b must not be remembered");

    // The hold ends before the mover's system call, and nobody else sees to it.
    let held = actor.adopt(subject.key).unwrap();
    let _ = actor.move_with(&held, b, |tid, mask| {
        assert_eq!(actor.release(&held).unwrap(), Released::Restored);
        set_and_lose(tid, mask)
    });
    cpuset.set(&both);
    assert_eq!(subject.mask(), both, "set too late, and taken back");
    actor.sweep_inherited();
    assert_eq!(stage.entries(), 0);
}
