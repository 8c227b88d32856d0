// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler's system calls, in the kernel's own words.
//!
//! rustix has the affinity calls, but its `CpuSet` can only be filled bit by
//! bit, which costs more than the call itself; neither rustix nor libc wraps
//! `sched_setattr`. So both go through `libc::syscall` here, and nowhere else.

use std::io;

use units::CpuSet;
use units::Tid;

/// `SCHED_OTHER`, served by EEVDF.
pub(crate) const SCHED_OTHER: u32 = 0;
/// `SCHED_FIFO`.
pub(crate) const SCHED_FIFO: u32 = 1;
/// `SCHED_BATCH`, fair as well.
pub(crate) const SCHED_BATCH: u32 = 3;
/// `SCHED_IDLE`, only when nobody else runs.
pub(crate) const SCHED_IDLE: u32 = 5;
/// `SCHED_DEADLINE`.
pub(crate) const SCHED_DEADLINE: u32 = 6;
/// Children start with the default policy and slice.
pub(crate) const FLAG_RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` of `include/uapi/linux/sched/types.h`, second version.
///
/// The utilisation clamps are here for the size only: a call without the flag
/// `SCHED_FLAG_UTIL_CLAMP` leaves the clamps that a user asked for alone (also
/// over a change of policy), and this crate never sets that flag.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attr {
    /// Of this structure, in bytes.
    pub(crate) size: u32,
    /// `SCHED_*`.
    pub(crate) policy: u32,
    /// `SCHED_FLAG_*`.
    pub(crate) flags: u64,
    /// -20..=19, of fair policies.
    pub(crate) nice: i32,
    /// 1..=99, of real-time policies.
    pub(crate) priority: u32,
    /// Of `SCHED_DEADLINE`; from 6.12 on the slice of fair policies, in
    /// nanoseconds, 0.1 to 100 ms; writing 0 gives the default slice back.
    pub(crate) runtime: u64,
    /// Of `SCHED_DEADLINE`.
    pub(crate) deadline: u64,
    /// Of `SCHED_DEADLINE`.
    pub(crate) period: u64,
    /// Never written, see above.
    pub(crate) util_min: u32,
    /// Never written, see above.
    pub(crate) util_max: u32,
}

const ATTR_SIZE: u32 = 56;
const _: () = assert!(size_of::<Attr>() == ATTR_SIZE as usize);

impl Attr {
    /// Is the policy one that EEVDF serves with nice and slice?
    pub(crate) const fn is_fair(&self) -> bool {
        matches!(self.policy, SCHED_OTHER | SCHED_BATCH)
    }

    /// Do children start with the default policy?
    pub(crate) const fn resets_on_fork(&self) -> bool {
        self.flags & FLAG_RESET_ON_FORK != 0
    }
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// As the kernel's `pid_t`. 0 would mean the caller, and a number that does
/// not fit would mean nothing: both are "no such thread".
fn pid(tid: Tid) -> io::Result<libc::pid_t> {
    match libc::pid_t::try_from(tid.0) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// The thread's policy, nice, priority and slice.
pub(crate) fn attr(tid: Tid) -> io::Result<Attr> {
    let mut attr = Attr::default();
    // SAFETY: `attr` is a writable sched_attr of the size that is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            pid(tid)?,
            &raw mut attr,
            ATTR_SIZE,
            0,
        )
    })?;
    Ok(attr)
}

/// Sets the thread's policy, nice, priority and slice, not its clamps.
pub(crate) fn set_attr(tid: Tid, attr: &Attr) -> io::Result<()> {
    let attr = Attr {
        size: ATTR_SIZE,
        util_min: 0,
        util_max: 0,
        ..*attr
    };
    // SAFETY: `attr` is a sched_attr whose size field is right; it is only read.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, pid(tid)?, &raw const attr, 0) })?;
    Ok(())
}

/// The thread's nice value, which `sched_getattr` hides under a real-time
/// policy. -20..=19.
pub(crate) fn nice(tid: Tid) -> io::Result<i32> {
    let pid = rustix::process::Pid::from_raw(pid(tid)?);
    Ok(rustix::process::getpriority_process(pid)?)
}

/// The CPUs that the thread may use now: its mask without CPUs that are offline.
pub(crate) fn affinity(tid: Tid) -> io::Result<CpuSet> {
    let mut words = [0u64; 16];
    // SAFETY: `words` is writable for as many bytes as are passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            pid(tid)?,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    })?;
    Ok(CpuSet::from_words(&words))
}

/// Sets the thread's mask; the kernel keeps what its cpuset permits of it.
///
/// Immediate for a thread that is queued or asleep. For one that is running
/// elsewhere it waits until that CPU takes part, which a descheduled vCPU does
/// not do (490 ms have been seen): callers must not name such a thread.
pub(crate) fn set_affinity(tid: Tid, set: &CpuSet) -> io::Result<()> {
    let words = set.words();
    // SAFETY: `words` is readable for as many bytes as are passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            pid(tid)?,
            size_of_val(words),
            words.as_ptr(),
        )
    })?;
    Ok(())
}
