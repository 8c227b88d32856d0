// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What user space says of vCPUs, to the kernel: those that are scheduled are changed by one
//! call for all vCPUs of a VM, others find their mark when they come.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::ProgramInput;
use libbpf_rs::ProgramMut;

use crate::mask::JOURNAL;
use crate::mask::Masks;
use crate::patience::patiently;
use crate::roster::Knobs;
use crate::roster::Told;
use crate::run::lock;
use crate::seat;
use crate::seat::Found;

/// For what passes when a vCPU thread is marked.
const MARK_PATIENCE: Duration = Duration::from_secs(1);

/// vCPUs in one call: `SV_BATCH`, a bit each in its answer.
const BATCH: usize = 64;

/// Who tells.
pub(crate) struct Teller<'a> {
    /// The program `set_vcpus` and its map `batch`.
    set_vcpus: &'a ProgramMut<'a>,
    batch: MapHandle,
    /// The map `vcpus`.
    knobs: MapHandle,
    masks: Mutex<Masks>,
}

impl<'a> Teller<'a> {
    pub(crate) fn new(set_vcpus: &'a ProgramMut<'a>, batch: MapHandle, knobs: MapHandle) -> Self {
        let masks = Mutex::new(Masks::new(Path::new(JOURNAL)));
        Self {
            set_vcpus,
            batch,
            knobs,
            masks,
        }
    }

    /// Tells all of it; how many of these vCPUs are (still) there. CPUs that cannot be set
    /// are a warning: nobody waits for an answer.
    pub(crate) fn tell(&self, told: Told) -> anyhow::Result<usize> {
        let (there, unset) = self.say(told)?;
        for why in unset {
            tracing::warn!("{why}");
        }
        Ok(there)
    }

    /// The same for somebody who has asked for it.
    ///
    /// # Errors
    /// Also when CPUs cannot be set; all else is done then.
    pub(crate) fn answer(&self, told: Told) -> anyhow::Result<usize> {
        let (there, unset) = self.say(told)?;
        anyhow::ensure!(unset.is_empty(), "{}", unset.join("; "));
        Ok(there)
    }

    /// Tells all of it; how many are there, and whose CPUs could not be set and why.
    fn say(&self, told: Told) -> anyhow::Result<(usize, Vec<String>)> {
        let (mut there, mut unset) = (0, Vec::new());
        for some in told.chunks(BATCH) {
            let missing = self.change(some)?;
            for (at, (found, knobs)) in some.iter().enumerate() {
                let told = missing & (1 << at) == 0 || mark(&self.knobs, *found, *knobs)?;
                // A thread that ends is scheduled until it leaves its pCPU for the last time,
                // for which it may wait as long as for any turn. Its id has gone before.
                if !told || seat::policy_of(found.tid).is_none() {
                    continue;
                }
                there += 1;
                let done = lock(&self.masks).set(found.tid, knobs.cpus.as_ref());
                if let Err(error) = done {
                    let Found { vm, vcpu, .. } = found;
                    unset.push(format!(
                        "cannot set the CPUs of vCPU {vcpu} of VM {vm}: {error}"
                    ));
                }
            }
        }
        Ok((there, unset))
    }

    /// Forgets threads that have gone.
    pub(crate) fn retain(&self, alive: impl Fn(u32) -> bool) {
        lock(&self.masks).retain(alive);
    }

    /// Changes those that are scheduled; a bit for each that is not.
    fn change(&self, told: &[(Found, Knobs)]) -> anyhow::Result<u64> {
        let cannot = "cannot change vCPUs that are scheduled";
        let count = u32::try_from(told.len())?;
        let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
        let values: Vec<u8> = told
            .iter()
            .flat_map(|(found, knobs)| set(*found, *knobs))
            .collect();
        self.batch
            .update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
            .context(cannot)?;
        // struct sv_apply
        let mut apply = [0; 16];
        apply[..4].copy_from_slice(&count.to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut apply),
            ..ProgramInput::default()
        };
        let done = self.set_vcpus.test_run(input).context(cannot)?;
        anyhow::ensure!(done.return_value == 0, cannot);
        let mut missing = [0; 8];
        missing.copy_from_slice(&apply[8..]);
        Ok(u64::from_ne_bytes(missing))
    }
}

/// `struct sv_set`
fn set(found: Found, knobs: Knobs) -> Vec<u8> {
    let mut bytes = words(&[found.vm, found.tid]);
    bytes.extend(words(&worth(knobs)));
    bytes.extend(times(knobs));
    bytes
}

fn worth(knobs: Knobs) -> [u32; 4] {
    [
        knobs.weight,
        knobs.cap_permille,
        knobs.class as u32,
        knobs.home.map_or(0, |cpu| cpu + 1),
    ]
}

fn times(knobs: Knobs) -> impl Iterator<Item = u8> {
    [knobs.slice, knobs.latency]
        .into_iter()
        .flat_map(|time| time.0.to_ne_bytes())
}

/// Tells the BPF side what a thread is and what it is worth, before it is scheduled;
/// whether the thread is (still) there.
pub(crate) fn mark(map: &impl MapCore, found: Found, knobs: Knobs) -> anyhow::Result<bool> {
    let Some(tid) = rustix::process::Pid::from_raw(found.tid.cast_signed()) else {
        return Ok(false);
    };
    // PIDFD_THREAD (6.9), older than any kernel with sched_ext.
    let thread = rustix::process::PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
    match rustix::process::pidfd_open(tid, thread) {
        Ok(pidfd) => mark_at(map, pidfd.as_fd(), found, knobs),
        // One that has gone needs no mark; no thread has an id that is out of range.
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(false),
        Err(error) => Err(error).context("cannot mark a vCPU thread"),
    }
}

/// The same for the thread behind `pidfd`, which may end at any moment.
pub(crate) fn mark_at(
    map: &impl MapCore,
    pidfd: BorrowedFd<'_>,
    found: Found,
    knobs: Knobs,
) -> anyhow::Result<bool> {
    // struct sv_knobs
    let mut value = words(&[found.vm, found.vcpu, 0]);
    value.extend(words(&worth(knobs)));
    value.extend(words(&[0]));
    value.extend(times(knobs));
    let key = pidfd.as_raw_fd().to_ne_bytes();
    let marked = marked_by(
        || map.update(&key, &value, MapFlags::ANY),
        || seat::policy_of(found.tid).is_none(),
    );
    marked.context("cannot mark a vCPU thread")
}

/// Storage of a task is refused for a moment while the kernel's side makes or deletes some of
/// the same task (EAGAIN), holds its lock (EBUSY, EDEADLK, ETIMEDOUT) or has no memory that it
/// need not wait for (ENOMEM; kernel/bpf/bpf_local_storage.c): what lasts is an error.
fn marked_by(
    mark: impl FnMut() -> libbpf_rs::Result<()>,
    has_gone: impl Fn() -> bool,
) -> libbpf_rs::Result<bool> {
    // The kernel says ENOENT of a thread that has ended; ESRCH has no kind.
    let gone =
        |error: &libbpf_rs::Error| error.kind() == libbpf_rs::ErrorKind::NotFound || has_gone();
    let passes = |done: &libbpf_rs::Result<()>| done.as_ref().is_err_and(|error| !gone(error));
    match patiently(MARK_PATIENCE, passes, mark) {
        Ok(()) => Ok(true),
        Err(error) if gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of these answers in turn, the last one for ever, and how often it was asked.
    fn said(errnos: &[i32], has_gone: bool) -> (libbpf_rs::Result<bool>, usize) {
        let mut calls = 0;
        let answer = || {
            let errno = errnos[calls.min(errnos.len() - 1)];
            calls += 1;
            match errno {
                0 => Ok(()),
                errno => Err(libbpf_rs::Error::from_raw_os_error(errno)),
            }
        };
        let said = marked_by(answer, || has_gone);
        (said, calls)
    }

    #[test]
    fn a_mark_that_the_kernel_refuses_for_a_moment_is_made_a_moment_later() {
        let moments = [
            libc::EAGAIN,
            libc::ENOMEM,
            libc::EBUSY,
            libc::EDEADLK,
            libc::ETIMEDOUT,
            0,
        ];
        let (marked, calls) = said(&moments, false);
        assert!(marked.unwrap());
        assert_eq!(calls, moments.len());
    }

    #[test]
    fn a_thread_that_has_gone_is_not_waited_for() {
        let (marked, calls) = said(&[libc::ENOENT], false);
        assert!(!marked.unwrap());
        assert_eq!(calls, 1);
        let (marked, calls) = said(&[libc::EINVAL], true);
        assert!(!marked.unwrap());
        assert_eq!(calls, 1);
    }

    #[test]
    fn a_refusal_that_lasts_is_an_error() {
        let (marked, calls) = said(&[libc::EAGAIN], false);
        assert_eq!(marked.unwrap_err().kind(), libbpf_rs::ErrorKind::WouldBlock);
        assert!(calls > 1);
    }
}
