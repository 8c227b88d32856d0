// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pCPUs that vCPU threads may run on, narrowed as the administrator says.
//!
//! The kernel heeds affinities wherever a thread is placed, woken or taken by another
//! pCPU, so that is what `--cpus` sets. Rejected: a mask of our own in BPF, which each of
//! those places would have to heed as well.
//!
//! What a thread's owner had said is restored at the end. It is written down before
//! anything is changed, so that the next start restores it after a SIGKILL.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use units::CpuSet;
use units::VcpuId;

use crate::seat;
use crate::seat::Effective;

/// Where it is written down; gone with the threads at a reboot.
pub(crate) const JOURNAL: &str = "/run/scx_vcpu/masks";

/// A thread whose mask is ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mask {
    /// When it was started, in ticks since boot: ids are used again.
    started: u64,
    /// What its owner had said.
    before: Vec<u32>,
    ours: Vec<u32>,
}

/// All of them, by thread.
#[derive(Debug)]
pub(crate) struct Masks {
    journal: PathBuf,
    threads: BTreeMap<u32, Mask>,
    /// Of how many the mask was as one that was killed had left it.
    restored: usize,
}

impl Masks {
    /// None yet. What one that was killed has left is restored.
    pub(crate) fn new(journal: &Path) -> Self {
        let left = fs::read_to_string(journal).unwrap_or_default();
        let mut masks = Self {
            journal: journal.to_owned(),
            threads: serde_json::from_str(&left).unwrap_or_default(),
            restored: 0,
        };
        masks.restored = masks.restore();
        masks
    }

    /// Threads that had been left with other CPUs than their owners', and have these again.
    pub(crate) const fn restored(&self) -> usize {
        self.restored
    }

    /// Thread `tid` may run on these of its CPUs; `None`: on all that its owner says.
    ///
    /// # Errors
    /// It may run on none of these, or not permitted. One that has gone is no error.
    pub(crate) fn set(&mut self, tid: u32, cpus: Option<&CpuSet>) -> io::Result<()> {
        let Some(cpus) = cpus else {
            if let Some(mask) = self.threads.remove(&tid) {
                undo(tid, &mask);
                self.write()?;
            }
            return Ok(());
        };
        let Some(started) = started(tid) else {
            return Ok(());
        };
        let now = seat::mask(tid);
        if now.is_empty() {
            // No thread has none: it has gone since.
            return Ok(());
        }
        let effective = seat::effective(Path::new("/"), tid);
        let known = self.threads.get(&tid);
        // Its owner may have said something else since.
        let before = match known {
            Some(mask)
                if mask.started == started && is_ours(&mask.ours, &now, effective.as_ref()) =>
            {
                mask.before.clone()
            }
            _ => owners(&now, effective.as_ref()),
        };
        let ours: Vec<u32> = before
            .iter()
            .copied()
            .filter(|cpu| cpus.contains(VcpuId(*cpu)))
            .collect();
        if ours.is_empty() {
            return Err(io::Error::other(format!(
                "thread {tid} may run on none of these; its own CPUs are {}",
                list(&before)
            )));
        }
        if ours == now && known.is_none() {
            return Ok(());
        }
        let mask = Mask {
            started,
            before,
            ours,
        };
        if self.threads.get(&tid) == Some(&mask) {
            return Ok(());
        }
        let ours = mask.ours.clone();
        let known = self.threads.insert(tid, mask);
        let done = self.write().and_then(|()| seat::allow(tid, &ours));
        if done.is_err() {
            // Its mask is what it was, and the next one who asks is not told otherwise.
            self.threads.remove(&tid);
            self.threads.extend(known.map(|mask| (tid, mask)));
        }
        done
    }

    /// Forgets threads that have gone.
    pub(crate) fn retain(&mut self, alive: impl Fn(u32) -> bool) {
        self.threads.retain(|tid, _| alive(*tid));
    }

    /// How many were still as we had left them.
    fn restore(&mut self) -> usize {
        let threads = std::mem::take(&mut self.threads);
        let undone = threads.iter().filter(|(tid, mask)| undo(**tid, mask));
        let count = undone.count();
        let _ = fs::remove_file(&self.journal);
        count
    }

    fn write(&self) -> io::Result<()> {
        if let Some(dir) = self.journal.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)?;
        }
        // Whole or not at all.
        let new = self.journal.with_extension("new");
        fs::write(&new, serde_json::to_string(&self.threads)?)?;
        fs::rename(new, &self.journal)
    }
}

impl Drop for Masks {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Only what is still as we left it: its owner may have said something else since. Whether it
/// was.
fn undo(tid: u32, mask: &Mask) -> bool {
    let effective = seat::effective(Path::new("/"), tid);
    started(tid) == Some(mask.started)
        && is_ours(&mask.ours, &seat::mask(tid), effective.as_ref())
        && seat::allow(tid, &mask.before).is_ok()
}

/// Is `now` the mask `ours`, or what the kernel has made of it because CPUs are offline or its
/// cpuset has others? If none of ours is left the thread may run on any.
///
/// Limits: if one is there again before we look, it has all of them for good.
fn is_ours(ours: &[u32], now: &[u32], effective: Option<&Effective>) -> bool {
    let Some(effective) = effective else {
        return ours == now;
    };
    let mut left = ours.to_vec();
    left.retain(|cpu| effective.cpus.contains(cpu));
    ours == now || left == now || left.is_empty()
}

/// What the owner of a thread with the mask `now` has said. In a cpuset, who has all of its
/// CPUs was not pinned: he gets those too that the cpuset has later, so all are written down.
fn owners(now: &[u32], effective: Option<&Effective>) -> Vec<u32> {
    let follows = effective.is_some_and(|effective| {
        effective.by_cpuset && effective.cpus.iter().all(|cpu| now.contains(cpu))
    });
    if follows {
        (0..CpuSet::CAPACITY).collect()
    } else {
        now.to_vec()
    }
}

/// When a thread was started; `None` if it has gone.
fn started(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // The name, in parentheses, may have any characters; starttime is field 22.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// CPUs for people.
pub(crate) fn list(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_of(cpus: &[u32]) -> CpuSet {
        cpus.iter().map(|cpu| VcpuId(*cpu)).collect()
    }

    struct Child(std::process::Child);

    impl Child {
        fn new() -> Self {
            let child = std::process::Command::new("sleep").arg("60").spawn();
            Self(child.unwrap())
        }

        fn tid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_mask_is_narrowed_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("run/masks");
        let child = Child::new();
        let tid = child.tid();
        let before = seat::allowed(tid);
        let one = [before[0]];
        let mut masks = Masks::new(&journal);
        masks.set(tid, Some(&set_of(&one))).unwrap();
        assert_eq!(seat::allowed(tid), one);
        // Wider again: by what its owner had, not by what we left.
        masks.set(tid, Some(&set_of(&before))).unwrap();
        assert_eq!(seat::allowed(tid), before);
        masks.set(tid, Some(&set_of(&one))).unwrap();
        masks.set(tid, None).unwrap();
        assert_eq!(seat::allowed(tid), before);
        let why = masks
            .set(tid, Some(&set_of(&[1000])))
            .unwrap_err()
            .to_string();
        assert!(why.contains("none of these; its own CPUs are"), "{why}");

        // Killed, its successor restores.
        masks.set(tid, Some(&set_of(&one))).unwrap();
        std::mem::forget(masks);
        let masks = Masks::new(&journal);
        assert_eq!(seat::allowed(tid), before);
        drop(masks);
        assert!(!journal.exists());
        Masks::new(&journal)
            .set(u32::MAX / 2, Some(&set_of(&one)))
            .unwrap();
    }

    /// Many, so that some of them go between two looks at the same thread.
    #[test]
    fn a_thread_that_goes_meanwhile_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut masks = Masks::new(&dir.path().join("masks"));
        let here = set_of(&seat::allowed(std::process::id()));
        for _ in 0..200 {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            let tid = child.id();
            let reaped = std::thread::spawn(move || child.wait());
            while started(tid).is_some() {
                masks.set(tid, Some(&here)).unwrap();
            }
            assert!(reaped.join().unwrap().unwrap().success());
        }
    }

    /// CPUs 0 to 3 are the owner's, 1 and 2 ours.
    #[test]
    fn a_mask_stays_ours_when_a_cpu_goes() {
        let ours = [1, 2];
        let effective = |cpus: &[u32], by_cpuset| {
            Some(Effective {
                cpus: cpus.to_vec(),
                by_cpuset,
            })
        };
        let cases: [(&[u32], &[u32], bool, bool); 7] = [
            (&[1, 2], &[0, 1, 2, 3], false, true),
            // CPU 2 is offline: the mask stays, or in a cpuset does not.
            (&[1, 2], &[0, 1, 3], false, true),
            (&[1], &[0, 1, 3], true, true),
            // None is left, and the kernel lets it run anywhere.
            (&[0, 1, 2, 3], &[0, 3], false, true),
            // Somebody has said something else.
            (&[1], &[0, 1, 2, 3], false, false),
            (&[3], &[0, 1, 3], false, false),
            (&[0, 1, 2, 3], &[0, 1, 3], false, false),
        ];
        for (now, cpus, by_cpuset, is) in cases {
            let effective = effective(cpus, by_cpuset);
            assert_eq!(
                is_ours(&ours, now, effective.as_ref()),
                is,
                "{now:?} {cpus:?}"
            );
        }
        assert!(is_ours(&ours, &ours, None) && !is_ours(&ours, &[1], None));

        // Who is pinned has that back, who is not all that its cpuset will have.
        assert_eq!(
            owners(&[0, 1], effective(&[0, 1, 3], true).as_ref()),
            [0, 1]
        );
        assert_eq!(owners(&[0, 1], effective(&[0, 1], false).as_ref()), [0, 1]);
        let all = owners(&[0, 1], effective(&[0, 1], true).as_ref());
        assert_eq!(all.len(), CpuSet::CAPACITY as usize);
    }

    #[test]
    fn what_its_owner_says_meanwhile_counts() {
        let dir = tempfile::tempdir().unwrap();
        let child = Child::new();
        let before = seat::allowed(child.tid());
        if before.len() < 2 {
            return;
        }
        let mut masks = Masks::new(&dir.path().join("masks"));
        masks.set(child.tid(), Some(&set_of(&before[..1]))).unwrap();
        seat::allow(child.tid(), &before[1..2]).unwrap();
        drop(masks);
        assert_eq!(seat::allowed(child.tid()), before[1..2]);
    }

    /// Of a thread with the id of one that was narrowed and has gone nothing is known, and one
    /// that has its own back or is forgotten is nobody's business either: what it has is its
    /// owner's choice, even if it is the mask that was ours.
    #[test]
    fn who_is_not_ours_any_more_keeps_what_he_has() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("masks");
        let child = Child::new();
        let tid = child.tid();
        let before = seat::allowed(tid);
        if before.len() < 2 {
            return;
        }
        let one = before[..1].to_vec();
        let anothers = || Mask {
            started: started(tid).unwrap() + 1,
            before: before.clone(),
            ours: one.clone(),
        };
        seat::allow(tid, &one).unwrap();
        let left = BTreeMap::from([(tid, anothers())]);
        fs::write(&journal, serde_json::to_string(&left).unwrap()).unwrap();
        let mut masks = Masks::new(&journal);
        assert_eq!(seat::allowed(tid), one, "as the predecessor left it");
        masks.threads.insert(tid, anothers());
        masks.set(tid, Some(&set_of(&one))).unwrap();
        drop(masks);
        assert_eq!(seat::allowed(tid), one, "as this one found it");

        seat::allow(tid, &before).unwrap();
        let mut masks = Masks::new(&journal);
        masks.set(tid, Some(&set_of(&before))).unwrap();
        assert!(!journal.exists(), "nothing was to be done");
        masks.set(tid, Some(&set_of(&one))).unwrap();
        masks.set(tid, None).unwrap();
        seat::allow(tid, &one).unwrap();
        // Killed.
        std::mem::forget(masks);
        drop(Masks::new(&journal));
        assert_eq!(seat::allowed(tid), one, "it had its own back");

        seat::allow(tid, &before).unwrap();
        let mut masks = Masks::new(&journal);
        masks.set(tid, Some(&set_of(&one))).unwrap();
        masks.retain(|_| false);
        drop(masks);
        assert_eq!(seat::allowed(tid), one, "forgotten");
    }

    /// A journal that cannot be written (a file is where its directory is to be) leaves the
    /// thread alone, and is no reason not to try again.
    #[test]
    fn what_could_not_be_written_down_is_not_done_and_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let in_the_way = dir.path().join("run");
        fs::write(&in_the_way, "").unwrap();
        let child = Child::new();
        let before = seat::allowed(child.tid());
        if before.len() < 2 {
            return;
        }
        let one = set_of(&before[..1]);
        let mut masks = Masks::new(&in_the_way.join("masks"));
        for _ in 0..2 {
            assert!(masks.set(child.tid(), Some(&one)).is_err());
            assert_eq!(seat::allowed(child.tid()), before);
        }
        fs::remove_file(&in_the_way).unwrap();
        masks.set(child.tid(), Some(&one)).unwrap();
        assert_eq!(seat::allowed(child.tid()), before[..1]);

        // What had been done before is not forgotten for it.
        fs::remove_dir_all(&in_the_way).unwrap();
        fs::write(&in_the_way, "").unwrap();
        let other = set_of(&before[1..2]);
        assert!(masks.set(child.tid(), Some(&other)).is_err());
        assert_eq!(seat::allowed(child.tid()), before[..1]);
        drop(masks);
        assert_eq!(seat::allowed(child.tid()), before);
    }
}
