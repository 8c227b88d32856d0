// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that live on one vCPU, and what they wait on.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::event::epoll;
use rustix::time::Itimerspec;
use rustix::time::TimerfdClockId;
use rustix::time::TimerfdFlags;
use rustix::time::TimerfdTimerFlags;
use rustix::time::Timespec;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::core::Core;

/// SCHED_FIFO priority of a monitor: above the FIFO lever (1), so that it is
/// never behind a task that it watches.
pub(super) const MONITOR: i32 = 2;

/// SCHED_FIFO priority of a mover: above its monitor, so that an order is carried
/// out when it is given, and not when the monitor has written its log, set its
/// timer and gone to sleep.
pub(super) const MOVER: i32 = 3;

/// Starts a named thread. If it panics, the daemon cannot go on: nobody would do its
/// work, and what it holds would stay as it is. A failure, not an abort: the tasks are
/// then given back by the way that is taken every day, and the service manager reads
/// why. The supervisor, which restores after an abort, is still there behind it.
pub(super) fn spawn(
    core: &Arc<Core>,
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    let label = name.clone();
    thread::Builder::new()
        .name(name)
        .spawn(move || reporting(&label, |why| core.fail(why), body))
}

/// Runs `body`; of a panic it makes a failure.
fn reporting(name: &str, fail: impl FnOnce(String), body: impl FnOnce()) {
    // What it leaves half done is only read to stop and to give everything back.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        let why = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        fail(format!("the thread {name} panicked: {why}"));
    }
}

/// Starts a named thread, see [`spawn`], that stays on `vcpu` and runs before ordinary tasks.
///
/// Where SCHED_FIFO is refused (no capability, or a cgroup without real-time
/// bandwidth) the thread asks for the lowest nice value instead, and makes do
/// with what it gets.
pub(super) fn on_vcpu(
    core: &Arc<Core>,
    name: String,
    vcpu: VcpuId,
    priority: i32,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    spawn(core, name, move || {
        if let Err(error) = pin(vcpu) {
            // Offline just now, or there only in case a vCPU is plugged in: the
            // kernel will have us run elsewhere, where we do no harm. Its tasks are
            // then pulled by others.
            tracing::debug!(%vcpu, %error, "cannot pin a thread to this vCPU");
        }
        prefer(priority);
        body();
    })
}

/// Binds the calling thread to one vCPU.
fn pin(vcpu: VcpuId) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(vcpu.index());
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// A thread's bond to its vCPU. When a vCPU goes offline the kernel has its
/// threads run elsewhere, with every CPU in their mask, and leaves it at that when
/// the vCPU comes back.
#[derive(Debug)]
pub(super) struct Home {
    vcpu: VcpuId,
    strayed: bool,
}

impl Home {
    /// To be made by the thread itself, once it was pinned. That its vCPU is not
    /// there from the start is no news.
    pub(super) fn new(vcpu: VcpuId) -> Self {
        Self {
            vcpu,
            strayed: rustix::thread::sched_getcpu() != vcpu.index(),
        }
    }

    /// Goes back if need be; false while the vCPU is offline. No system call for
    /// a thread that is where it belongs.
    pub(super) fn stay(&mut self) -> bool {
        if self.strayed || rustix::thread::sched_getcpu() != self.vcpu.index() {
            let strayed = pin(self.vcpu).is_err();
            if strayed != self.strayed {
                let vcpu = self.vcpu;
                tracing::info!(%vcpu, offline = strayed, "a vCPU went or came back");
            }
            self.strayed = strayed;
        }
        !self.strayed
    }
}

fn prefer(priority: i32) {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 names the calling thread and the parameter lives across the call.
    let refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } != 0;
    if refused {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "no SCHED_FIFO for our threads, using nice -20");
        // A refusal leaves us at nice 0: slower, not wrong.
        let _ = rustix::process::setpriority_process(None, -20);
    }
}

/// A counter that wakes its waiter.
#[derive(Debug)]
pub(super) struct Poke(OwnedFd);

impl Poke {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    pub(super) fn poke(&self) {
        // Full means that it is awake already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Poke {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One absolute timer on `CLOCK_MONOTONIC` (V13).
#[derive(Debug)]
pub(super) struct Alarm {
    fd: OwnedFd,
    due: Option<Time>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self {
            fd: rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?,
            due: None,
        })
    }

    /// When it will go off.
    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Arms it, or disarms it with `None`. A second call with the same instant
    /// is free.
    pub(super) fn set(&mut self, due: Option<Time>) {
        if due == self.due {
            return;
        }
        let at = due.map_or(0, Time::as_ns);
        let timer = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: (at / 1_000_000_000) as i64,
                tv_nsec: (at % 1_000_000_000) as i64,
            },
        };
        match rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &timer) {
            Ok(_) => self.due = due,
            Err(error) => tracing::warn!(%error, "cannot arm a slice timer"),
        }
    }

    /// To be called after it went off; returns when it had been due.
    pub(super) fn went_off(&mut self) -> Option<Time> {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        self.due.take()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits for any of a few descriptors.
#[derive(Debug)]
pub(super) struct Waiter(OwnedFd);

impl Waiter {
    /// Each descriptor is named by its place in `fds`.
    pub(super) fn new(fds: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (i, fd) in fds.iter().enumerate() {
            let data = epoll::EventData::new_u64(i as u64);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
        }
        Ok(Self(epoll))
    }

    /// Blocks until one is ready (or the time is over, if one is given) and
    /// returns the ready ones as a bit mask.
    pub(super) fn wait(&self, timeout: Option<std::time::Duration>) -> u32 {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as i64,
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut events = [const {
            epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }
        }; 8];
        // An interrupted wait is an early one: the caller looks and waits again.
        let ready = epoll::wait(&self.0, &mut events, timeout.as_ref()).unwrap_or(0);
        events[..ready]
            .iter()
            .fold(0, |mask, event| mask | 1 << (event.data.u64() & 31))
    }
}

/// What a thread uses from one sleep to the next: its own time, not the clock's, for
/// to wake and to go to sleep are most of it where system calls are dear. What a host
/// without steal clock has stolen is in it.
#[derive(Debug)]
pub(super) struct Meter(Ns);

impl Meter {
    /// To be made by the thread itself.
    pub(super) fn new() -> Self {
        Self(used())
    }

    /// What the calling thread has used since this was last asked.
    pub(super) fn lap(&mut self) -> Ns {
        let before = std::mem::replace(&mut self.0, used());
        self.0 - before
    }
}

fn used() -> Ns {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).map_or(Ns::ZERO, Ns::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure_with_its_reason() {
        let told = |body: fn()| {
            let mut said = None;
            reporting("vmg-mon/3", |why| said = Some(why), body);
            said
        };
        assert_eq!(told(|| {}), None);
        assert_eq!(
            told(|| panic!("no slot")).as_deref(),
            Some("the thread vmg-mon/3 panicked: no slot")
        );
        let formatted = told(|| panic!("no slot {}", std::process::id()));
        assert!(formatted.unwrap().contains("panicked: no slot "));
    }
}
