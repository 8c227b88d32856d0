// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads in and out of SCHED_EXT.
//!
//! The kernel gives everything back by itself when we die: without a scheduler
//! SCHED_EXT threads run in the fair class. What is undone here is the label.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// include/uapi/linux/sched.h; not in the C library's headers.
const SCHED_EXT: i32 = 7;

/// Policies that come before the fair class and ours.
const REAL_TIME: [i32; 3] = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];

/// A vCPU thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Process id of the VMM.
    pub(crate) vm: u32,
    /// The thread.
    pub(crate) tid: u32,
    /// Number of the vCPU.
    pub(crate) vcpu: u32,
}

impl Found {
    /// Reads `struct sv_found`.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_ne_bytes(bytes))
        };
        Some(Self {
            vm: word(0)?,
            tid: word(4)?,
            vcpu: word(8)?,
        })
    }
}

/// Is the thread one of that process? Of a descriptor that another process has as well, or
/// whose thread has ended, it is not: its id may be any other thread's by now.
pub(crate) fn is_there(proc: &Path, found: Found) -> bool {
    proc.join(format!("{}/task/{}", found.vm, found.tid))
        .exists()
}

/// Has its owner made it a real-time thread? That comes before all of ours.
pub(crate) fn is_real_time(tid: u32) -> bool {
    policy_of(tid).is_some_and(|policy| REAL_TIME.contains(&policy))
}

/// A thread that we moved.
#[derive(Clone, Copy, Debug)]
struct Seat {
    found: Found,
    /// Its scheduling policy before, with the flag that it may have.
    before: i32,
}

/// The threads that we moved, by id.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    ours: BTreeMap<u32, Seat>,
}

impl Seats {
    /// Makes a thread SCHED_EXT; whether it was new. One that its owner has made a real-time
    /// thread stays that.
    ///
    /// # Errors
    /// Not permitted. A thread that has gone is no error.
    pub(crate) fn take(&mut self, found: Found) -> io::Result<bool> {
        let Some(before) = policy_and_flag_of(found.tid) else {
            return Ok(false);
        };
        let now = before & !libc::SCHED_RESET_ON_FORK;
        if now == SCHED_EXT && self.ours.contains_key(&found.tid) {
            return Ok(false);
        }
        if REAL_TIME.contains(&now) {
            return Ok(false);
        }
        // What a vCPU thread starts (a worker of the VMM) is no vCPU.
        match set_policy(found.tid, SCHED_EXT | libc::SCHED_RESET_ON_FORK) {
            Ok(()) => Ok(self
                .ours
                .insert(found.tid, Seat { found, before })
                .is_none()),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Forgets threads that have gone.
    pub(crate) fn retain(&mut self, alive: impl Fn(u32) -> bool) {
        self.ours.retain(|tid, _| alive(*tid));
    }

    /// Is none ours? One that has gone counts until [`Self::retain`] has looked.
    pub(crate) fn is_empty(&self) -> bool {
        self.ours.is_empty()
    }

    /// All of them. One that has gone counts as above.
    pub(crate) fn vcpus(&self) -> Vec<Found> {
        self.ours.values().map(|seat| seat.found).collect()
    }

    /// How many VMs and vCPUs are ours and alive.
    pub(crate) fn count(&mut self) -> (usize, usize) {
        self.retain(|tid| policy_of(tid).is_some());
        let vms: std::collections::BTreeSet<u32> =
            self.ours.values().map(|seat| seat.found.vm).collect();
        (vms.len(), self.ours.len())
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        for (tid, seat) in &self.ours {
            // Only what is still as we left it: the id may be another thread's
            // by now, or somebody has chosen a policy since.
            if policy_of(*tid) == Some(SCHED_EXT) {
                let _ = set_policy(*tid, back_to(seat.before));
            }
        }
    }
}

/// Takes a thread that a killed scheduler has left in SCHED_EXT out of it; whether it was.
pub(crate) fn unlabel(tid: u32) -> bool {
    policy_of(tid) == Some(SCHED_EXT) && set_policy(tid, back_to(SCHED_EXT)).is_ok()
}

/// The policy that a thread gets back. Who had ours was left by a predecessor that was killed.
fn back_to(before: i32) -> i32 {
    match before & !libc::SCHED_RESET_ON_FORK {
        SCHED_EXT => libc::SCHED_OTHER,
        _ => before,
    }
}

/// The CPUs that a thread has been allowed, also those that are offline now, of which
/// sched_getaffinity() says nothing (kernel/sched/syscalls.c); none if it has gone.
pub(crate) fn mask(tid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(cpus_of).unwrap_or_default()
}

/// The CPUs that thread `tid` could have now, by its cpuset (v2) or if it has none all that
/// are online. Files are below `root` (normally `/`). In a cpuset the kernel narrows the mask of
/// a thread to these when a CPU goes, and in none it does not. `None`: unknown.
pub(crate) fn effective(root: &Path, tid: u32) -> Option<Effective> {
    let group = std::fs::read_to_string(root.join(format!("proc/{tid}/cpuset"))).ok();
    let group = group
        .as_deref()
        .map_or("", |path| path.trim().trim_matches('/'));
    let file = match group {
        "" => root.join("sys/devices/system/cpu/online"),
        _ => root
            .join("sys/fs/cgroup")
            .join(group)
            .join("cpuset.cpus.effective"),
    };
    Some(Effective {
        cpus: cpus_of(&std::fs::read_to_string(file).ok()?)?,
        by_cpuset: !group.is_empty(),
    })
}

/// See [`effective`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) cpus: Vec<u32>,
    /// They follow a cpuset, for a thread that nobody has pinned.
    pub(crate) by_cpuset: bool,
}

/// A list as the kernel writes it: `0-3,8`. `None`: it is none.
fn cpus_of(list: &str) -> Option<Vec<u32>> {
    let cpus: units::CpuSet = list.trim().parse().ok()?;
    Some(cpus.iter().map(|cpu| cpu.0).collect())
}

/// The CPUs that a thread may run on and that are online; none if it has gone.
pub(crate) fn allowed(tid: u32) -> Vec<u32> {
    let tid = rustix::process::Pid::from_raw(tid.cast_signed());
    let Some(set) = tid.and_then(|tid| rustix::thread::sched_getaffinity(Some(tid)).ok()) else {
        return Vec::new();
    };
    let cpus = 0..rustix::thread::CpuSet::MAX_CPU;
    cpus.filter(|cpu| set.is_set(*cpu))
        .map(|cpu| cpu as u32)
        .collect()
}

/// Lets a thread run on these CPUs only. One that has gone is no error.
pub(crate) fn allow(tid: u32, cpus: &[u32]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize);
    }
    let Some(tid) = rustix::process::Pid::from_raw(tid.cast_signed()) else {
        return Ok(());
    };
    match rustix::thread::sched_setaffinity(Some(tid), &set) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Scheduling policy of a thread; `None` if it has gone.
pub(crate) fn policy_of(tid: u32) -> Option<i32> {
    policy_and_flag_of(tid).map(|policy| policy & !libc::SCHED_RESET_ON_FORK)
}

/// The same with SCHED_RESET_ON_FORK if it has that.
fn policy_and_flag_of(tid: u32) -> Option<i32> {
    let tid = libc::pid_t::try_from(tid).ok()?;
    // SAFETY: takes a number and touches no memory of ours.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    (policy >= 0).then_some(policy)
}

fn set_policy(tid: u32, policy: i32) -> io::Result<()> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` outlives the call, which only reads it.
    let done = unsafe { libc::sched_setscheduler(tid, policy, &raw const param) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_gone_is_no_error_and_no_seat() {
        let mut seats = Seats::default();
        let nobody = Found {
            vm: 1,
            tid: u32::MAX / 2,
            vcpu: 0,
        };
        assert!(!seats.take(nobody).unwrap());
        assert_eq!(seats.count(), (0, 0));
    }

    /// A descriptor that two processes have leads to the same thread from both.
    #[test]
    fn a_thread_is_its_own_processs_vcpu_while_it_lives() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(proc.path().join("7/task/70")).unwrap();
        std::fs::create_dir_all(proc.path().join("8/task/8")).unwrap();
        let found = |vm, tid| Found { vm, tid, vcpu: 0 };
        assert!(is_there(proc.path(), found(7, 70)));
        assert!(!is_there(proc.path(), found(8, 70)), "it has the file only");
        assert!(!is_there(proc.path(), found(7, 71)), "it has ended");
        // The id of one that has ended is another process's now.
        assert!(!is_there(proc.path(), found(7, 8)));
    }

    #[test]
    fn what_a_thread_could_have_is_its_cpusets_word_or_what_is_online() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("proc/7/cpuset", "/\n"),
            ("proc/8/cpuset", "/machine/web\n"),
            ("proc/9/cpuset", "/gone\n"),
            ("sys/devices/system/cpu/online", "0-1,3\n"),
            ("sys/fs/cgroup/machine/web/cpuset.cpus.effective", "1\n"),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let of = |tid| effective(root.path(), tid).map(|it| (it.cpus, it.by_cpuset));
        assert_eq!(of(7), Some((vec![0, 1, 3], false)));
        assert_eq!(of(8), Some((vec![1], true)));
        assert_eq!(of(9), None);
        assert_eq!(
            of(10),
            Some((vec![0, 1, 3], false)),
            "it has gone, or no cpusets"
        );
        assert_eq!(cpus_of("\t0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpus_of("none"), None);
        let own = std::process::id();
        assert!(allowed(own).iter().all(|cpu| mask(own).contains(cpu)));
    }

    #[test]
    fn a_thread_gets_back_the_policy_that_it_had() {
        let reset = libc::SCHED_RESET_ON_FORK;
        for before in [
            libc::SCHED_OTHER,
            libc::SCHED_BATCH,
            libc::SCHED_IDLE | reset,
        ] {
            assert_eq!(back_to(before), before);
        }
        assert_eq!(back_to(SCHED_EXT), libc::SCHED_OTHER);
        assert_eq!(back_to(SCHED_EXT | reset), libc::SCHED_OTHER);
    }

    #[test]
    fn a_found_vcpu_is_decoded_as_the_bpf_side_wrote_it() {
        let mut bytes = Vec::new();
        for word in [7u32, 70, 3, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        let found = Found::decode(&bytes).unwrap();
        assert_eq!((found.vm, found.tid, found.vcpu), (7, 70, 3));
        assert_eq!(Found::decode(&bytes[..8]), None);
    }
}
