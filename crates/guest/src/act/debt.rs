// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that could not be given back because they were offline.
//!
//! The kernel cuts every mask that is asked for down to the CPUs that are online
//! (`cpuset_cpus_allowed`, kernel/cgroup/cpuset.c), and what it does when a CPU
//! comes back depends on its version and on the thread's cgroup: threads of the
//! root cgroup are left as they are. So a thread that we give back meanwhile is
//! remembered, and given back once more when its CPUs are online.
//!
//! In memory only: at the end of the daemon it is too late for a repetition, and
//! whoever takes CPUs away and ends us before they return reads a warning.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use units::CpuSet;
use units::TaskKey;
use units::Tid;

use super::counters::Counter;
use super::hold::Actor;
use super::journal::Original;
use super::mask;
use super::sched;
use super::task::Roots;
use super::task::TaskError;

/// A thread that has fewer CPUs than its owner gave it.
#[derive(Clone, Debug)]
pub(super) struct Debt {
    key: TaskKey,
    /// What its owner had given it, and what has to be asked for to get that.
    owners: Owners,
    asked: CpuSet,
    /// What the kernel has made of it; anything else is somebody's later choice.
    left: CpuSet,
    /// What is missing, offline when we looked last.
    missing: CpuSet,
    /// `comm`: cannot be read once the thread is gone.
    alive: Arc<File>,
    /// Somebody was told already that it could not be given back.
    told: Arc<AtomicBool>,
}

impl Debt {
    /// What a thread with this mask still lacks of `original`, if CPUs are offline
    /// for that reason.
    fn of(roots: &Roots, tid: Tid, original: &Original) -> Option<Self> {
        let key = roots.key(tid).ok()?;
        let (dir, facts) = roots.facts(key).ok()?;
        let missing = roots.not_up(&original.mask.and_not(&facts.mask));
        if missing.is_empty() {
            return None;
        }
        Some(Self {
            key,
            owners: Owners {
                mask: original.mask,
                whole_cpuset: original.whole_cpuset,
            },
            asked: mask::owners(original),
            left: facts.mask,
            missing,
            alive: Arc::new(dir.file("comm").ok()?),
            told: Arc::default(),
        })
    }

    fn is_alive(&self) -> bool {
        self.alive.read_at(&mut [0; 16], 0).is_ok()
    }

    /// Tries again, by that system call. What is then still owed, if anything.
    fn repay(&self, roots: &Roots, set: impl Fn(Tid, &CpuSet) -> io::Result<()>) -> Repaid {
        let tid = self.key.tid;
        let facts = match roots.facts(self.key) {
            Ok((_, facts)) if self.is_alive() => facts,
            Ok(_) | Err(TaskError::Gone { .. }) => return Repaid::Gone,
            Err(error) => return Repaid::Failed(io::Error::other(error)),
        };
        if facts.mask != self.left {
            // By the kernel itself, as some versions do.
            let has_all = self
                .left
                .iter()
                .chain(self.missing.iter())
                .all(|cpu| facts.mask.contains(cpu));
            return if has_all { Repaid::Paid } else { Repaid::Void };
        }
        let still = roots.not_up(&self.missing);
        if still == self.missing {
            return Repaid::Owed;
        }
        match set(tid, &self.asked) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Repaid::Gone,
            Err(error) => return Repaid::Failed(error),
        }
        tracing::info!(%tid, cpus = %self.missing, "given back: the CPUs are online again");
        if still.is_empty() {
            return Repaid::Paid;
        }
        let left = match roots.facts(self.key) {
            Ok((_, facts)) => facts.mask,
            Err(TaskError::Gone { .. }) => return Repaid::Gone,
            // What the kernel makes of it.
            Err(_) => {
                let back = self.missing.and_not(&still);
                self.left.iter().chain(back.iter()).collect()
            }
        };
        Repaid::Less(Arc::new(Self {
            missing: still,
            left,
            ..self.clone()
        }))
    }
}

/// See the fields of [`Original`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    pub(super) mask: CpuSet,
    pub(super) whole_cpuset: bool,
}

#[derive(Debug)]
enum Repaid {
    /// It has all of its CPUs.
    Paid,
    /// It has been given another mask by somebody else, who wins.
    Void,
    /// It has ended.
    Gone,
    /// It could not be given anything: to be tried again.
    Failed(io::Error),
    /// All of it is still offline.
    Owed,
    /// Some of it is: what is owed now.
    Less(Arc<Debt>),
}

impl Actor {
    /// Gives a thread its owner's mask, see [`mask::give_back`], and remembers what
    /// of it is offline.
    pub(super) fn give_back(&self, tid: Tid, original: &Original) -> io::Result<CpuSet> {
        let given = mask::give_back(&self.settings.roots, tid, original)?;
        self.note_debt(tid, original);
        Ok(given)
    }

    /// A thread has just been given this owner's mask: remembers what is offline.
    pub(super) fn note_debt(&self, tid: Tid, original: &Original) {
        if let Some(debt) = Debt::of(&self.settings.roots, tid, original) {
            tracing::debug!(%tid, cpus = %debt.missing, "offline, given back later");
            let debt = Arc::new(debt);
            self.change_debts(|debts| debts.push(Arc::clone(&debt)));
        }
    }

    /// Changes the table, without waiting for anybody: see [`Actor::change`].
    fn change_debts(&self, mut change: impl FnMut(&mut Vec<Arc<Debt>>)) {
        self.debts.rcu(|debts| {
            let mut debts = Vec::clone(debts);
            change(&mut debts);
            debts
        });
    }

    /// Does any thread lack CPUs that were offline when it was given back?
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.debts.load().is_empty()
    }

    /// Gives back what has come online. Returns the threads that have all of their
    /// CPUs now. What fails stays owed, is counted each time and told once. Reads a few
    /// files for each thread: not for one that has to be quick.
    pub fn repay(&self) -> Vec<Tid> {
        self.repay_with(sched::set_affinity)
    }

    /// The same with the system call as an argument, so that tests can have it fail.
    fn repay_with(&self, set: impl Fn(Tid, &CpuSet) -> io::Result<()>) -> Vec<Tid> {
        let mut paid = Vec::new();
        // They stay in the table meanwhile, for `owed_to`.
        for debt in &*self.debts.load_full() {
            let tid = debt.key.tid;
            let less = match debt.repay(&self.settings.roots, &set) {
                Repaid::Owed => continue,
                Repaid::Failed(error) => {
                    self.counters.add(Counter::RepayFailed);
                    if !debt.told.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            %tid, %error, cpus = %debt.missing,
                            "CPUs that are back were not given back: trying again"
                        );
                    }
                    continue;
                }
                Repaid::Less(less) => Some(less),
                Repaid::Void => None,
                Repaid::Gone => {
                    self.counters.add(Counter::OwedGone);
                    tracing::debug!(%tid, "ended before its CPUs were back");
                    None
                }
                Repaid::Paid => {
                    paid.push(tid);
                    None
                }
            };
            // It is not there any more if a hold has taken it over.
            self.change_debts(|debts| {
                if let Some(at) = debts.iter().position(|d| Arc::ptr_eq(d, debt)) {
                    debts.splice(at..=at, less.clone());
                }
            });
        }
        paid
    }

    /// A thread with this mask is taken hold of again before all of its CPUs are back:
    /// the new hold owes what the last one did, or its narrow mask would be taken for
    /// somebody's choice and the missing CPUs forgotten. What its owner had given it, if
    /// anything is owed.
    pub(super) fn owed_to(&self, key: TaskKey, mask: &CpuSet) -> Option<Owners> {
        let debts = self.debts.load();
        let of = debts
            .iter()
            .find(|debt| debt.key == key && debt.left == *mask)?;
        Some(of.owners)
    }

    /// A hold on this thread sees to what is owed to it.
    pub(super) fn pass_on(&self, key: TaskKey) {
        // Mostly nothing is owed to anybody.
        if self.owes() {
            self.change_debts(|debts| debts.retain(|debt| debt.key != key));
        }
    }

    /// At the end: what will not be given back.
    pub(super) fn write_off(&self) {
        self.repay();
        for debt in &*self.debts.swap(Arc::default()) {
            let Debt {
                key,
                asked,
                missing,
                ..
            } = &**debt;
            tracing::warn!(
                "thread {key} may not run on CPUs {missing}, which are offline or could not be \
                 given back; once they are back: taskset -p -c {asked} {}",
                key.tid
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use units::VcpuId;

    use super::super::testing::DEADLINE;
    use super::super::testing::Stage;
    use super::super::testing::Subject;
    use super::super::testing::cpus;
    use super::*;

    /// A stage whose machine says that these CPUs are online. What the kernel does
    /// to a mask while a CPU is offline is done by hand.
    fn stage(online: &CpuSet) -> (Stage, tempfile::TempDir) {
        let sys = tempfile::tempdir().unwrap();
        let cpu = sys.path().join("devices/system/cpu");
        std::fs::create_dir_all(&cpu).unwrap();
        std::fs::write(cpu.join("online"), online.to_string()).unwrap();
        let stage = Stage::with_sys(sys.path());
        (stage, sys)
    }

    fn comes_back(sys: &tempfile::TempDir, online: &CpuSet) {
        let file = sys.path().join("devices/system/cpu/online");
        std::fs::write(file, online.to_string()).unwrap();
    }

    #[test]
    fn root_an_offline_cpu_is_given_back_when_it_is_online() {
        let (a, b) = cpus();
        let both: CpuSet = [a, b].into_iter().collect();
        let (stage, sys, subject) = owed(a, b);
        assert!(stage.actor.repay().is_empty(), "still offline");
        assert!(stage.actor.owes());

        comes_back(&sys, &both);
        assert_eq!(stage.actor.repay(), [subject.tid]);
        assert_eq!(subject.mask(), both);
        assert!(!stage.actor.owes());
    }

    #[test]
    fn root_what_could_not_be_given_back_is_tried_again() {
        let (a, b) = cpus();
        let both: CpuSet = [a, b].into_iter().collect();
        let (stage, sys, subject) = owed(a, b);
        let actor = &stage.actor;
        comes_back(&sys, &both);
        let fails = |errno| move |_: Tid, _: &CpuSet| Err(io::Error::from_raw_os_error(errno));
        for errno in [libc::EPERM, libc::EINVAL, libc::ENOMEM] {
            assert!(actor.repay_with(fails(errno)).is_empty());
            assert!(actor.owes());
        }
        assert_eq!(actor.counters().get(Counter::RepayFailed), 3);
        assert_eq!(subject.mask(), CpuSet::only(a));
        assert_eq!(actor.repay(), [subject.tid]);
        assert_eq!(subject.mask(), both);
        assert!(!actor.owes());
        assert_eq!(actor.counters().get(Counter::OwedGone), 0);
    }

    #[test]
    fn root_who_ends_in_the_middle_of_it_is_owed_nothing() {
        let (a, b) = cpus();
        let (stage, sys, _subject) = owed(a, b);
        comes_back(&sys, &[a, b].into_iter().collect());
        let gone = |_: Tid, _: &CpuSet| Err(io::Error::from_raw_os_error(libc::ESRCH));
        assert!(stage.actor.repay_with(gone).is_empty());
        assert!(!stage.actor.owes());
        assert_eq!(stage.actor.counters().get(Counter::OwedGone), 1);
        assert_eq!(stage.actor.counters().get(Counter::RepayFailed), 0);
    }

    #[test]
    fn root_nothing_is_owed_where_the_kernel_gave_all() {
        let (a, b) = cpus();
        let both: CpuSet = [a, b].into_iter().collect();
        let (stage, sys) = stage(&both);
        let subject = Subject::new();
        sched::set_affinity(subject.tid, &both).unwrap();
        let held = stage.actor.adopt(subject.key).unwrap();
        // Offline by its name only: this kernel has both.
        comes_back(&sys, &CpuSet::only(a));
        stage.actor.give_back(subject.tid, held.original()).unwrap();
        assert_eq!(subject.mask().and(&both), both);
        assert!(!stage.actor.owes());
    }

    /// A thread of both CPUs that has kept `a` only, since `b` was offline.
    fn owed(a: VcpuId, b: VcpuId) -> (Stage, tempfile::TempDir, Subject) {
        let both: CpuSet = [a, b].into_iter().collect();
        let (stage, sys) = stage(&both);
        let subject = Subject::new();
        sched::set_affinity(subject.tid, &both).unwrap();
        let held = stage.actor.adopt(subject.key).unwrap();
        comes_back(&sys, &CpuSet::only(a));
        sched::set_affinity(subject.tid, &CpuSet::only(a)).unwrap();
        stage.actor.note_debt(subject.tid, held.original());
        assert!(stage.actor.owes());
        (stage, sys, subject)
    }

    #[test]
    fn root_what_is_owed_passes_to_the_next_hold() {
        let (a, b) = cpus();
        let both: CpuSet = [a, b].into_iter().collect();
        let absent = VcpuId(500);
        let (stage, sys) = stage(&both);
        let subject = Subject::new();
        sched::set_affinity(subject.tid, &both).unwrap();
        // Its owner gave it a third CPU, which is offline.
        let held = stage.actor.adopt(subject.key).unwrap();
        let mut original = held.original().clone();
        original.mask = [a, b, absent].into_iter().collect();
        original.whole_cpuset = false;
        stage.actor.release(&held).unwrap();
        stage.actor.note_debt(subject.tid, &original);
        assert!(stage.actor.owes());

        let held = stage.actor.adopt(subject.key).unwrap();
        assert_eq!(held.original().mask, original.mask);
        assert_eq!(held.allowed(), both);
        stage.actor.move_to(&held, a).unwrap();
        assert!(stage.actor.repay().is_empty(), "the hold sees to it");
        stage.actor.release(&held).unwrap();
        assert_eq!(subject.mask(), both);
        assert!(stage.actor.owes(), "still offline");

        // The same with a hold that moves nothing.
        let held = stage.actor.adopt(subject.key).unwrap();
        stage.actor.release(&held).unwrap();
        assert!(stage.actor.owes(), "still offline");
        comes_back(&sys, &original.mask);
        stage.actor.repay();
        assert!(!stage.actor.owes());
    }

    #[test]
    fn root_whoever_chose_another_mask_meanwhile_keeps_it() {
        let (a, b) = cpus();
        let (stage, sys, subject) = owed(a, b);
        sched::set_affinity(subject.tid, &CpuSet::only(b)).unwrap();
        comes_back(&sys, &[a, b].into_iter().collect());
        assert!(stage.actor.repay().is_empty());
        assert_eq!(subject.mask(), CpuSet::only(b));
        assert!(!stage.actor.owes());
    }

    #[test]
    fn root_threads_that_have_ended_are_owed_nothing() {
        let (a, b) = cpus();
        let (stage, _sys, subject) = owed(a, b);
        drop(subject);
        let end = std::time::Instant::now() + DEADLINE;
        while stage.actor.owes() {
            assert!(std::time::Instant::now() < end);
            assert!(stage.actor.repay().is_empty());
        }
        assert_eq!(stage.actor.counters().get(Counter::OwedGone), 1);
    }
}
