// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test bed: this machine's CPUs frozen as by a host, compute on each of
//! them (an idle vCPU has no slices to speak of), and an engine that knows the
//! freezer's steal pages.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use freezer::Freezer;
use freezer::Options;
use freezer::Plan;
use freezer::plan::Lane;
use guest::act::journal::Journal;
use guest::act::task::Roots;
use guest::engine::Engine;
use guest::engine::Paths;
use guest::report::Mode;
use guest::report::Report;
use guest::settings::PriorityRule;
use guest::settings::Settings;
use policy::guest::trial;
use units::CpuSet;
use units::Ns;
use units::Time;

/// The name of the threads that the engine may touch.
pub(crate) const COMM: &std::ffi::CStr = c"engine-subject";
/// Slices asked for.
pub(crate) const SLICE: Ns = Ns::from_ms(11);
/// The CPUs.
pub(crate) const CPUS: u32 = 2;

static ALONE: Mutex<()> = Mutex::new(());

/// The bed. Dropping it gives the machine back.
pub(crate) struct Bed {
    pub(crate) freezer: Freezer,
    stop: Arc<AtomicBool>,
    compute: Vec<JoinHandle<()>>,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Bed {
    /// Two VMs on each CPU.
    pub(crate) fn new() -> Self {
        Self::shared_by(2)
    }

    /// So many VMs on each CPU.
    pub(crate) fn shared_by(vms: u32) -> Self {
        Self::start(&shared(vms), &CpuSet::first(CPUS))
    }

    /// Two VMs on each CPU, with compute on some of the CPUs only.
    pub(crate) fn computing_on(cpus: &CpuSet) -> Self {
        Self::start(&shared(2), cpus)
    }

    /// Slices and gaps that are not alike, for all CPUs.
    pub(crate) fn planned(lanes: Vec<Lane>) -> Self {
        Self::start(&Plan::new(lanes).unwrap(), &CpuSet::first(CPUS))
    }

    fn start(plan: &Plan, cpus: &CpuSet) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = Arc::new(AtomicBool::new(false));
        let compute = cpus
            .iter()
            .map(|cpu| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    let mut set = rustix::thread::CpuSet::new();
                    set.set(cpu.index());
                    rustix::thread::sched_setaffinity(None, &set).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let mut options = Options::new(Ns::from_secs(40));
        options.wait = Ns::from_secs(60);
        Self {
            freezer: Freezer::start(plan, &options).unwrap(),
            stop,
            compute,
            dir: tempfile::tempdir().unwrap(),
            _alone: alone,
        }
    }

    /// Our settings, for the subjects only: whatever else does I/O on this
    /// machine is left alone.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            steal_map_id: Some(self.freezer.steal_map_id().unwrap()),
            priorities: vec![
                PriorityRule {
                    comm_prefix: COMM.to_str().unwrap().into(),
                    priority: Some(0),
                },
                PriorityRule {
                    comm_prefix: String::new(),
                    priority: None,
                },
            ],
            // A task that is let go for a moment is no surprise, but what it gets
            // meanwhile is not what these tests ask for.
            trial: trial::Settings::published(),
            ..Settings::default()
        }
    }

    pub(crate) fn engine(&self, settings: Settings) -> Engine {
        let paths = Paths {
            journal: self.journal(),
        };
        Engine::start(settings, paths).unwrap()
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// Does the journal, if there is one, name nothing that must be undone?
    pub(crate) fn journal_is_empty(&self) -> bool {
        !self.journal().exists()
            || Journal::list(&self.journal(), &Roots::default())
                .unwrap()
                .is_empty()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.freezer.stop();
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.compute.drain(..) {
            let _ = thread.join();
        }
    }
}

fn shared(vms: u32) -> Plan {
    Plan::shared(vms, SLICE, &CpuSet::first(CPUS)).unwrap()
}

/// Now, on the clock of the freezer's log.
pub(crate) fn now() -> Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}

/// Waits until something is so; fails the test at the deadline.
pub(crate) fn eventually(within: Duration, what: &str, is_so: impl FnMut() -> bool) {
    assert!(becomes(within, is_so), "not within {within:?}: {what}");
}

/// Waits until something is so; false at the deadline.
pub(crate) fn becomes(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Watches something for so long, as often as the machine allows.
pub(crate) fn throughout(length: Duration, mut look: impl FnMut()) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        look();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Moves made so far.
pub(crate) fn moves(report: &Report) -> u64 {
    report.moves.values().sum()
}

/// Waits until the engine is active and has made so many moves since now.
pub(crate) fn moving(engine: &Engine, wanted: u64) {
    let before = moves(&engine.report());
    let good = becomes(Duration::from_secs(8), || {
        let report = engine.report();
        report.mode == Mode::Active && moves(&report) >= before + wanted
    });
    assert!(
        good,
        "no {wanted} moves within 8 s: {:#?}, failed: {:?}",
        engine.report(),
        engine.failed()
    );
}
