// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon without its command line: threads that sense, decide and act.
//!
//! | thread | bound to | waits for | does |
//! |---|---|---|---|
//! | `vmg-mon/N` | vCPU N | bells, its slice timer | decides for vCPU N |
//! | `vmg-mov/N` | vCPU N | orders of `vmg-mon/N` | system calls on tasks |
//! | `vmg-bal/N`, `vmg-census` | vCPU N, - | slices, a clock | mode xballoon only, see `balloon` |
//! | `vmg-ctl` | - | the control ring | switches all this on and off |
//!
//! No thread waits for another vCPU's thread, since that may be descheduled.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use thiserror::Error;

use crate::act;
use crate::act::Actor;
use crate::act::restore::Summary;
use crate::report::Report;
use crate::sense::Mode;
use crate::sense::Sense;
use crate::sense::SenseError;
use crate::sense::accuracy;
use crate::settings::ModeChoice;
use crate::settings::Settings;

mod balloon;
mod bells;
mod control;
mod core;
mod count;
mod heartbeat;
mod monitor;
mod mover;
mod online;
mod phase;
mod preferred;
mod priors;
mod seat;
mod snapshot;
pub(crate) mod steal_stat;
mod thread;
mod trials;
mod view;

use self::balloon::Balloons;
use self::core::Core;
use self::monitor::Monitor;

/// Orders that may wait for a mover. More means that it is stuck in the kernel.
const ORDERS: usize = 256;

/// Files that the engine uses.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The journal of everything that must be undone.
    pub journal: PathBuf,
}

/// Why the engine cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Sensing is not possible here.
    #[error(transparent)]
    Sense(#[from] SenseError),
    /// Acting is not possible here.
    #[error(transparent)]
    Act(#[from] act::hold::StartError),
    /// The mode xballoon is not possible here.
    #[error(transparent)]
    Balloon(#[from] act::balloon::BalloonError),
    /// A thread, a timer or a descriptor could not be made.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A running engine. Dropping it stops it and undoes everything.
pub struct Engine {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
    left_before: Summary,
    last_look: Mutex<snapshot::LastLook>,
}

impl Engine {
    /// Undoes what a killed predecessor left, loads the programs and starts the
    /// threads. Nothing ticks until vCPUs are seen to be taken away.
    ///
    /// # Errors
    /// If this machine lacks what is needed, see [`StartError`]; then nothing of
    /// it is left behind.
    pub fn start(settings: Settings, paths: Paths) -> Result<Self, StartError> {
        let sense = Sense::load(&settings)?;
        let accuracy = accuracy(&sense, &settings);
        let (actor, left_before) = Actor::start(act::Settings {
            journal: paths.journal,
            ..act::Settings::default()
        })?;
        let support = actor.probe().levers;
        let settings = settings.in_force(support);
        let balloons = match settings.mode {
            ModeChoice::Vmigrater => None,
            ModeChoice::Xballoon => Some(Balloons::open(sense.nr_vcpus())?),
        };
        let core = Core::new(settings, sense, actor, support, accuracy, balloons)
            .map(Arc::new)
            .map_err(StartError::Thread)?;
        let mut engine = Self {
            core,
            threads: Vec::new(),
            left_before,
            last_look: Mutex::new(snapshot::LastLook::new()),
        };
        // A failure below drops the engine, which ends the threads made so far.
        engine.start_threads().map_err(StartError::Thread)?;
        engine.core.sense.attach()?;
        // Whoever does I/O now has no need to show himself first, and mostly no
        // vCPU is away yet. Without anybody it is over after `calm_after`.
        if engine.core.sense.has_tick() {
            engine.core.sense.arm()?;
        }
        Ok(engine)
    }

    fn start_threads(&mut self) -> io::Result<()> {
        for vcpu in self.core.vcpus() {
            let (orders, inbox) = mpsc::sync_channel(ORDERS);
            let (outcomes, done) = mpsc::channel();
            let core = Arc::clone(&self.core);
            self.threads.push(thread::on_vcpu(
                &self.core,
                format!("vmg-mov/{vcpu}"),
                vcpu,
                thread::MOVER,
                move || {
                    mover::run(&core, vcpu, &inbox, &outcomes);
                },
            )?);
            let core = Arc::clone(&self.core);
            self.threads.push(thread::on_vcpu(
                &self.core,
                format!("vmg-mon/{vcpu}"),
                vcpu,
                thread::MONITOR,
                move || match Monitor::new(Arc::clone(&core), vcpu, orders, done) {
                    Ok(monitor) => monitor.run(),
                    Err(error) => core.fail(format!("no monitor for vCPU {vcpu}: {error}")),
                },
            )?);
        }
        self.threads.extend(balloon::start(&self.core)?);
        let core = Arc::clone(&self.core);
        let control = move || control::run(&core);
        self.threads
            .push(thread::spawn(&self.core, "vmg-ctl".into(), control)?);
        Ok(())
    }

    /// What a predecessor that was killed had left, undone at the start.
    #[must_use]
    pub const fn left_before(&self) -> &Summary {
        &self.left_before
    }

    /// Why the engine cannot go on, if so.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.core
            .failed
            .lock()
            .ok()
            .and_then(|failed| failed.clone())
    }

    /// Becomes readable, and stays so, when [`Engine::failed`] has something to
    /// say: whoever owns the engine can poll it beside its other descriptors.
    #[must_use]
    pub fn failure_fd(&self) -> BorrowedFd<'_> {
        self.core.failed_poke.as_fd()
    }

    /// Has the control thread come round since this was last asked? For a watchdog,
    /// which has to ask less often than that takes: it sleeps, is woken by the
    /// question, and looks after the holds first, milliseconds. True the first time.
    #[must_use]
    pub fn gets_on(&self) -> bool {
        self.core.gets_on()
    }

    /// A snapshot of everything. Costs some system calls, wakes no thread.
    #[must_use]
    pub fn report(&self) -> Report {
        snapshot::report(&self.core, &self.last_look, Instant::now())
    }

    /// Stops all threads and gives every task back as it was.
    pub fn stop(mut self) -> Summary {
        self.halt();
        self.release_all()
    }

    fn release_all(&self) -> Summary {
        let mut summary = self.core.actor.release_all();
        if let Some(balloons) = &self.core.balloons {
            let left = balloons.dissolve();
            summary.restored += left.restored;
            summary.failed += left.failed;
        }
        summary
    }

    fn halt(&mut self) {
        self.core.stop.store(true, Ordering::Release);
        for poke in &self.core.pokes {
            poke.poke();
        }
        self.core.control_poke.poke();
        self.core.wake_balloons();
        for thread in self.threads.drain(..) {
            // A panic does not get here: `thread::spawn` has made a failure of it.
            let _ = thread.join();
        }
        self.core.sense.shared().set_mode(Mode::Asleep);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.halt();
            self.release_all();
        }
    }
}

#[cfg(test)]
mod tests;
