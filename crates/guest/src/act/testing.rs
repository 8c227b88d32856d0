// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Subjects for the tests of this module.

use std::path::Path;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use tempfile::TempDir;
use units::CpuSet;
use units::TaskKey;
use units::Tid;
use units::VcpuId;

use super::hold::Actor;
use super::hold::Settings;
use super::sched;
use super::task::Roots;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn this_tid() -> Tid {
    Tid(rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned())
}

/// Waits for a condition; panics with the text if it does not come.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Two CPUs that every test may use.
pub(crate) fn cpus() -> (VcpuId, VcpuId) {
    let online = Roots::default().online().unwrap();
    let mut cpus = online.iter();
    (
        cpus.next().unwrap(),
        cpus.next().expect("these tests need two CPUs"),
    )
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does what it is told and ends when dropped.
pub(super) struct Subject {
    pub(super) tid: Tid,
    pub(super) key: TaskKey,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Subject {
    pub(super) fn new() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(this_tid()).unwrap();
            todo.iter().for_each(|job| job());
        });
        let tid = told.recv().unwrap();
        let key = Roots::default().key(tid).unwrap();
        Self {
            tid,
            key,
            jobs: Some(jobs),
            thread: Some(thread),
        }
    }

    /// Runs something on the thread and returns what it returns.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let job: Job = Box::new(move || tell.send(job()).unwrap());
        self.jobs.as_ref().unwrap().send(job).unwrap();
        told.recv().unwrap()
    }

    pub(super) fn mask(&self) -> CpuSet {
        sched::affinity(self.tid).unwrap()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.jobs = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A process that sleeps until it is dropped.
pub(crate) struct Sleeper(Tid);

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self::start(&[])
    }

    /// With this process id, which must be free. To have the kernel count up to it
    /// (`ns_last_pid`) would be a race with whoever else starts a process.
    pub(super) fn with_tid(tid: Tid) -> Self {
        let sleeper = Self::start(&[tid.0.cast_signed()]);
        assert_eq!(sleeper.0, tid);
        sleeper
    }

    /// With the id in `ids`, if there is one.
    fn start(ids: &[i32]) -> Self {
        let wanted = libc::clone_args {
            flags: 0,
            pidfd: 0,
            child_tid: 0,
            parent_tid: 0,
            exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
            stack: 0,
            stack_size: 0,
            tls: 0,
            set_tid: if ids.is_empty() {
                0
            } else {
                ids.as_ptr().addr() as u64
            },
            set_tid_size: ids.len() as u64,
            cgroup: 0,
        };
        let words = [c"sleep".as_ptr(), c"600".as_ptr(), std::ptr::null()];
        // SAFETY: as fork(2): no stack is given, so the child has a copy of this one. The
        // structure and what it points to outlive the call.
        let pid =
            unsafe { libc::syscall(libc::SYS_clone3, &raw const wanted, size_of_val(&wanted)) };
        if pid == 0 {
            // SAFETY: in the child of a process with several threads, where only what is safe
            // in a signal handler may be called: both are (signal-safety(7)). The words are
            // C strings and end with a null.
            unsafe {
                libc::execv(c"/bin/sleep".as_ptr(), words.as_ptr());
                libc::_exit(127);
            }
        }
        let error = std::io::Error::last_os_error();
        assert!(pid > 0, "no process {ids:?}: {error}");
        let sleeper = Self(Tid(u32::try_from(pid).unwrap()));
        let comm = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        wait_for("exec", || comm().trim() == "sleep");
        sleeper
    }

    pub(super) fn tid(&self) -> Tid {
        self.0
    }

    pub(crate) fn mask(&self) -> CpuSet {
        sched::affinity(self.tid()).unwrap()
    }

    /// Somebody gives it another mask.
    pub(crate) fn choose(&self, mask: &CpuSet) {
        sched::set_affinity(self.tid(), mask).unwrap();
    }

    pub(crate) fn attr(&self) -> sched::Attr {
        sched::attr(self.tid()).unwrap()
    }

    pub(crate) fn key(&self) -> TaskKey {
        Roots::default().key(self.tid()).unwrap()
    }

    /// Returns when nobody has its id any more.
    pub(super) fn end(self) {
        drop(self);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0.0.cast_signed());
        let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
    }
}

/// An actor with a journal of its own that may hold threads of this process.
///
/// One at a time: a sweep looks at all threads of a process, so it would see
/// the pinned threads of other tests as children of its own subject.
pub(super) struct Stage {
    pub(super) actor: Actor,
    pub(super) dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(Roots::default())
    }

    /// On a machine whose `/sys` is this directory.
    pub(super) fn with_sys(sys: &Path) -> Self {
        Self::with(Roots {
            sys: sys.to_owned(),
            ..Roots::default()
        })
    }

    fn with(roots: Roots) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            roots,
            journal: dir.path().join("journal"),
            capacity: 16,
            ..Settings::default()
        };
        let (mut actor, left) = Actor::start(settings).unwrap();
        assert!(left.is_empty());
        actor.allow_own_threads();
        Self {
            actor,
            dir,
            _turn: turn,
        }
    }

    pub(super) fn entries(&self) -> usize {
        let journal = &self.actor.settings.journal;
        super::journal::Journal::list(journal, &self.actor.settings.roots)
            .unwrap()
            .len()
    }
}
