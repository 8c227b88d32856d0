// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Subjects for the tests of this module.

use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
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
pub(crate) struct Sleeper(pub(super) Child);

impl Sleeper {
    pub(crate) fn new() -> Self {
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// With this process id, which must be free.
    pub(super) fn with_tid(tid: Tid) -> Self {
        let end = Instant::now() + DEADLINE;
        loop {
            // Other processes start meanwhile, so it may take a few attempts.
            std::fs::write("/proc/sys/kernel/ns_last_pid", (tid.0 - 1).to_string()).unwrap();
            let sleeper = Self::new();
            if sleeper.tid() == tid {
                return sleeper;
            }
            assert!(Instant::now() < end, "process id {tid} was never given out");
        }
    }

    pub(super) fn tid(&self) -> Tid {
        Tid(self.0.id())
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

    pub(super) fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.stop();
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
