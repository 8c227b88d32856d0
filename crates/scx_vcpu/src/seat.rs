// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads in and out of SCHED_EXT.
//!
//! The kernel gives everything back by itself when we die: without a scheduler
//! SCHED_EXT threads run in the fair class. What is undone here is the label.

use std::collections::BTreeMap;
use std::io;

/// include/uapi/linux/sched.h; not in the C library's headers.
const SCHED_EXT: i32 = 7;

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

/// The threads that we moved, by id.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    ours: BTreeMap<u32, Found>,
}

impl Seats {
    /// Makes a thread SCHED_EXT; whether it was new.
    ///
    /// # Errors
    /// Not permitted. A thread that has gone is no error.
    pub(crate) fn take(&mut self, found: Found) -> io::Result<bool> {
        if policy_of(found.tid) == Some(SCHED_EXT) && self.ours.contains_key(&found.tid) {
            return Ok(false);
        }
        // What a vCPU thread starts (a worker of the VMM) is no vCPU.
        match set_policy(found.tid, SCHED_EXT | libc::SCHED_RESET_ON_FORK) {
            Ok(()) => Ok(self.ours.insert(found.tid, found).is_none()),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many VMs and vCPUs are ours and alive.
    pub(crate) fn count(&mut self) -> (usize, usize) {
        self.ours.retain(|tid, _| policy_of(*tid).is_some());
        let vms: std::collections::BTreeSet<u32> = self.ours.values().map(|seat| seat.vm).collect();
        (vms.len(), self.ours.len())
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        for tid in self.ours.keys() {
            // Only what is still as we left it: the id may be another thread's
            // by now, or somebody has chosen a policy since.
            if policy_of(*tid) == Some(SCHED_EXT) {
                let _ = set_policy(*tid, libc::SCHED_OTHER);
            }
        }
    }
}

/// The CPUs that a thread may run on; none if it has gone.
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
    let tid = libc::pid_t::try_from(tid).ok()?;
    // SAFETY: takes a number and touches no memory of ours.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    (policy >= 0).then_some(policy & !libc::SCHED_RESET_ON_FORK)
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
