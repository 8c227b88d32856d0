// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the vCPUs of a guest away in turn, as a host does that has too few CPUs.
//!
//! A guest under TCG has one host thread per vCPU. This stops such a thread by
//! ptrace and lets it go on after the gap; the guest's clock does not stop, so
//! for the guest its vCPU was descheduled. The vCPUs' gaps are spread evenly over
//! the period: with two vCPUs and gaps shorter than slices one always runs.
//!
//! There is no steal time in such a guest, as on hosts that do not report it:
//! what senses gaps here is the heartbeat. Rejected: pinning QEMU and hogs to one
//! CPU (the scheduler's slices are too short to be sensed, and the guest starves);
//! SIGSTOP (stops all vCPUs at once).
//!
//! # Limits
//! A vCPU thread that is stopped while it holds QEMU's big lock stops the devices
//! and every other vCPU that needs them, so gaps must be short. Nothing here is
//! fit for measuring.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use nix::sys::ptrace;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// How vCPUs are taken away. With `off` longer than `on` two vCPUs are away at
/// the same time for a while. Begins when the guest's script prints
/// [`Sharing::START`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// How long a vCPU runs.
    pub on: Duration,
    /// How long it is away then.
    pub off: Duration,
}

impl Sharing {
    /// The line with which a script asks that the sharing begin.
    pub const START: &str = "vlab: share";
}

/// A thread that takes vCPUs away until it is stopped or they are gone.
#[derive(Debug)]
pub(super) struct Sharer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<u64>>,
}

/// Between two looks whether the guest's script has begun.
const POLL: Duration = Duration::from_millis(20);

impl Sharer {
    /// Begins once [`Sharing::START`] is in `out`, what the guest's script has printed:
    /// boot and preparations are not disturbed.
    pub(super) fn start(sharing: Sharing, qemu: u32, vcpus: u32, out: PathBuf) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("vlab-sharing".into())
            .spawn(move || {
                while !fs::read_to_string(&out)
                    .is_ok_and(|out| out.lines().any(|line| line == Sharing::START))
                {
                    if stopped.load(Ordering::Relaxed) {
                        return Ok(0);
                    }
                    std::thread::sleep(POLL);
                }
                share(sharing, &vcpu_threads(qemu, vcpus)?, &stopped)
            })?;
        Ok(Self { stop, thread })
    }

    /// Gives all vCPUs back; returns how many gaps there were.
    pub(super) fn stop(self) -> io::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that took vCPUs away panicked")))
    }
}

/// The host threads of the vCPUs, by the names that QEMU gives them.
fn vcpu_threads(qemu: u32, vcpus: u32) -> io::Result<Vec<Pid>> {
    let mut threads = vec![None; vcpus as usize];
    for task in fs::read_dir(format!("/proc/{qemu}/task"))? {
        let task = task?;
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let tid = task.file_name().to_string_lossy().parse().ok();
        if let Some(nr) = vcpu_of(&comm)
            && let Some(place) = threads.get_mut(nr)
        {
            *place = tid.map(Pid::from_raw);
        }
    }
    threads
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| io::Error::other("QEMU has no thread for each vCPU"))
}

/// `0` of `CPU 0/TCG`.
fn vcpu_of(comm: &str) -> Option<usize> {
    let (nr, accelerator) = comm.trim_end().strip_prefix("CPU ")?.split_once('/')?;
    (accelerator == "TCG").then(|| nr.parse().ok())?
}

/// One vCPU's thread.
struct Taken {
    tid: Pid,
    next: Instant,
    away: bool,
}

/// The whole life of the thread. What is stopped when it ends goes on, because
/// the kernel detaches what a thread traced.
fn share(sharing: Sharing, threads: &[Pid], stop: &AtomicBool) -> io::Result<u64> {
    let period = sharing.on + sharing.off;
    let begin = Instant::now();
    let mut taken = Vec::new();
    for (nr, tid) in threads.iter().enumerate() {
        match ptrace::seize(*tid, ptrace::Options::empty()) {
            Ok(()) => {}
            Err(nix::Error::ESRCH) => continue,
            Err(error) => return Err(error.into()),
        }
        let share =
            u32::try_from(nr).unwrap_or(0) * period / u32::try_from(threads.len()).unwrap_or(1);
        taken.push(Taken {
            tid: *tid,
            next: begin + sharing.on + share,
            away: false,
        });
    }
    let mut gaps = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(next) = taken.iter_mut().min_by_key(|vcpu| vcpu.next) else {
            break;
        };
        std::thread::sleep(next.next.saturating_duration_since(Instant::now()));
        let alive = if next.away {
            give_back(next.tid)?
        } else {
            gaps += 1;
            is_alive(ptrace::interrupt(next.tid))?
        };
        // From now, not from when it was due: a host that is late must not
        // shorten what follows.
        next.next = Instant::now() + if next.away { sharing.on } else { sharing.off };
        next.away = !next.away;
        let tid = next.tid;
        if !alive {
            taken.retain(|vcpu| vcpu.tid != tid);
        }
        for vcpu in &taken {
            if !vcpu.away {
                forward_signals(vcpu.tid)?;
            }
        }
    }
    Ok(gaps)
}

/// Lets a thread go on that was told to stop; false if it has ended.
fn give_back(tid: Pid) -> io::Result<bool> {
    match waitpid(tid, Some(WaitPidFlag::__WALL)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(nix::Error::ECHILD) => {
            Ok(false)
        }
        Ok(WaitStatus::Stopped(_, signal)) => is_alive(ptrace::cont(tid, signal)),
        Ok(_) => is_alive(ptrace::cont(tid, None)),
        Err(error) => Err(error.into()),
    }
}

/// A traced thread stops for each signal, and we have to hand it on. A thread
/// that has ended stays until its tracer has looked.
fn forward_signals(tid: Pid) -> io::Result<()> {
    match waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Stopped(_, signal)) => is_alive(ptrace::cont(tid, signal)).map(drop),
        Ok(WaitStatus::PtraceEvent(..)) => is_alive(ptrace::cont(tid, None)).map(drop),
        Ok(_) | Err(nix::Error::ECHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn is_alive(result: nix::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(nix::Error::ESRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_vcpu_is_told_by_its_threads_name() {
        assert_eq!(vcpu_of("CPU 0/TCG\n"), Some(0));
        assert_eq!(vcpu_of("CPU 12/TCG"), Some(12));
        for other in [
            "CPU 0/KVM",
            "qemu-system-x86",
            "CPU x/TCG",
            "IO mon_iothread",
        ] {
            assert_eq!(vcpu_of(other), None, "{other}");
        }
    }

    /// CPU time of a process so far, in ticks.
    fn cpu_ticks(pid: u32) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<_> = rest.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    #[test]
    fn what_is_away_does_not_run_and_goes_on_afterwards() {
        let mut busy = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let tid = Pid::from_raw(busy.id().cast_signed());
        let stop = AtomicBool::new(false);
        let sharing = Sharing {
            on: Duration::from_millis(5),
            off: Duration::from_millis(95),
        };
        let (gaps, ran) = std::thread::scope(|scope| {
            let sharer = scope.spawn(|| share(sharing, &[tid], &stop).unwrap());
            std::thread::sleep(Duration::from_secs(1));
            let ran = cpu_ticks(busy.id());
            stop.store(true, Ordering::Relaxed);
            (sharer.join().unwrap(), ran)
        });
        // Of 100 ticks it had 5, and what its start took.
        assert!(ran < 40, "{ran} ticks");
        assert!((5..=10).contains(&gaps), "{gaps}");
        let end = Instant::now() + Duration::from_secs(20);
        while cpu_ticks(busy.id()) < ran + 20 {
            assert!(Instant::now() < end, "it does not go on");
            std::thread::sleep(POLL);
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
    }

    #[test]
    fn a_thread_that_ends_ends_the_sharing() {
        let mut short = Command::new("sleep").arg("0.2").spawn().unwrap();
        let tid = Pid::from_raw(short.id().cast_signed());
        let sharing = Sharing {
            on: Duration::from_millis(5),
            off: Duration::from_millis(5),
        };
        share(sharing, &[tid], &AtomicBool::new(false)).unwrap();
        let _ = short.wait();
    }
}
