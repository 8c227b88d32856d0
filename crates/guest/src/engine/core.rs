// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all threads of the engine share.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arc_swap::ArcSwap;
use policy::guest::wakeup;
use units::Ns;
use units::VcpuId;

use super::balloon::Balloons;
use super::count::Counters;
use super::heartbeat::Pulse;
use super::online::Online;
use super::phase::Phase;
use super::preferred::Preferred;
use super::priors::Priors;
use super::seat::Seat;
use super::thread::Poke;
use super::trials::Trials;
use crate::act;
use crate::act::Actor;
use crate::act::Held;
use crate::report::Mode as ReportMode;
use crate::sense::MAX_TASKS;
use crate::sense::Mode;
use crate::sense::Sense;
use crate::sense::SlotState;
use crate::sense::now;
use crate::settings::Settings;

/// The engine's shared state. Everything on the path of a decision is an atomic
/// or a copy; see `sense::shared` for why nothing waits.
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) sense: Sense,
    pub(super) actor: Actor,
    pub(super) support: wakeup::Support,
    pub(super) seats: Vec<Seat>,
    pub(super) counters: Vec<Counters>,
    pub(super) preferred: Preferred,
    pub(super) online: Online,
    pub(super) priors: Priors,
    pub(super) trials: Trials,
    /// One per vCPU: wakes its monitor without a bell.
    pub(super) pokes: Vec<Poke>,
    /// The heartbeat of each vCPU, for that source.
    pub(super) pulses: Vec<Pulse>,
    pub(super) control_poke: Poke,
    pub(super) stop: AtomicBool,
    /// How often the control thread was asked whether it gets on, see
    /// [`Core::gets_on`], and the last question that it has answered.
    asked: AtomicU64,
    answered: AtomicU64,
    pub(super) failed: Mutex<Option<String>>,
    /// Readable once `failed` says something.
    pub(super) failed_poke: Poke,
    pub(super) accuracy: Ns,
    pub(super) started: Instant,
    /// Inactivity and moves of tasks that have left their slot.
    pub(super) past_inactivity_ns: AtomicU64,
    /// Of the mode xballoon; none in the other.
    pub(super) balloons: Option<Balloons>,
    /// Fork events may have been lost: somebody has to look for children that
    /// have inherited a mask.
    sweep_due: AtomicBool,
    /// A mover could not let go of a task without waiting for another vCPU's.
    put_off: AtomicBool,
    /// Such tasks that their seat does not name any more.
    left_over: ArcSwap<Vec<Held>>,
    phase: Phase,
}

impl Core {
    pub(super) fn new(
        settings: Settings,
        sense: Sense,
        actor: Actor,
        support: wakeup::Support,
        accuracy: Ns,
        balloons: Option<Balloons>,
    ) -> std::io::Result<Self> {
        let n = sense.nr_vcpus();
        Ok(Self {
            priors: Priors::new(settings.completion_prior),
            settings,
            actor,
            support,
            seats: (0..MAX_TASKS).map(|_| Seat::default()).collect(),
            counters: (0..n).map(|_| Counters::default()).collect(),
            preferred: Preferred::new(&act::task::Roots::default().sys),
            online: Online::new(act::task::Roots::default()),
            trials: Trials::default(),
            pokes: (0..n).map(|_| Poke::new()).collect::<Result<_, _>>()?,
            pulses: (0..n).map(|_| Pulse::default()).collect(),
            control_poke: Poke::new()?,
            stop: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: Mutex::new(None),
            failed_poke: Poke::new()?,
            accuracy,
            started: Instant::now(),
            past_inactivity_ns: AtomicU64::new(0),
            balloons,
            sweep_due: AtomicBool::new(false),
            put_off: AtomicBool::new(false),
            left_over: ArcSwap::default(),
            phase: Phase::default(),
            sense,
        })
    }

    /// Has the control thread come round since this was last asked? Asks again if so.
    pub(super) fn gets_on(&self) -> bool {
        let asked = self.asked.load(Ordering::Acquire);
        let answered = self.answered.load(Ordering::Acquire) == asked;
        if answered {
            self.asked.store(asked + 1, Ordering::Release);
            self.control_poke.poke();
        }
        answered
    }

    /// The control thread has come round.
    pub(super) fn came_round(&self) {
        let asked = self.asked.load(Ordering::Acquire);
        self.answered.store(asked, Ordering::Release);
    }

    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn mode(&self) -> ReportMode {
        match self.sense.shared().mode() {
            Mode::Asleep => ReportMode::Asleep,
            Mode::Watching => ReportMode::Watching,
            Mode::Active => ReportMode::Active,
        }
    }

    /// Slots that the programs have ever used.
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.sense.shared().slots_used()
    }

    /// A task was seated: from now on timers may run.
    pub(super) fn phase_begins(&self) {
        self.phase.begin(now);
        let woken = self
            .sense
            .shared()
            .change_mode(Mode::Watching, Mode::Active);
        if woken {
            // From now on it looks after the holds.
            self.control_poke.poke();
        }
        if woken && !self.sense.source().reads_steal() {
            // Every vCPU's heart has to beat from now on. Only the one where the task
            // was found has had a bell; a task that is moved to another one in its sleep
            // would find nobody there to move it on.
            for poke in &self.pokes {
                poke.poke();
            }
        }
        self.wake_balloons();
    }

    /// Tasks have come or gone, or the mode has changed.
    pub(super) fn wake_balloons(&self) {
        if let Some(balloons) = &self.balloons {
            balloons.wake_all();
        }
    }

    /// A task was let go: if it was the last, nothing may tick any more.
    pub(super) fn phase_may_end(&self) {
        if self.is_busy() {
            return;
        }
        self.sense
            .shared()
            .change_mode(Mode::Active, Mode::Watching);
        self.phase.end(now);
        if self.is_busy() {
            // Somebody was seated on another vCPU between the look and the end.
            self.phase_begins();
            return;
        }
        for poke in &self.pokes {
            poke.poke();
        }
        self.wake_balloons();
        // Children that inherited a mask unnoticed: now is time to look.
        self.actor.sweep_inherited();
    }

    /// Does some seat hold a task that does I/O?
    fn is_busy(&self) -> bool {
        let shared = self.sense.shared();
        self.slots()
            .any(|i| shared.slot_state(i) == SlotState::Live && self.seats[i].anyone().is_some())
    }

    /// A mover does not wait: the control thread lets go of what it could not.
    pub(super) fn put_off(&self) {
        self.put_off.store(true, Ordering::Release);
        self.control_poke.poke();
    }

    pub(super) fn has_put_off(&self) -> bool {
        self.put_off.load(Ordering::Acquire)
    }

    /// Was anything put off since this was last asked?
    pub(super) fn took_put_off(&self) -> bool {
        self.put_off.swap(false, Ordering::AcqRel)
    }

    /// The same for a task whose seat is another's by now.
    pub(super) fn put_off_unseated(&self, held: &Held) {
        self.left_over.rcu(|left| {
            let mut left = Vec::clone(left);
            left.push(held.clone());
            left
        });
        // After it: who was told before that has not seen it.
        self.put_off();
    }

    /// Those of [`Core::put_off_unseated`] since this was last asked.
    pub(super) fn take_left_over(&self) -> Arc<Vec<Held>> {
        self.left_over.swap(Arc::default())
    }

    /// Events were lost, perhaps those of children: has the control thread look
    /// for them, for a phase may never end.
    pub(super) fn want_sweep(&self) {
        self.sweep_due.store(true, Ordering::Release);
        self.control_poke.poke();
    }

    pub(super) fn sweep_is_due(&self) -> bool {
        self.sweep_due.load(Ordering::Acquire)
    }

    /// Looks for children that still have our mask; milliseconds.
    pub(super) fn sweep(&self) {
        self.sweep_due.store(false, Ordering::Release);
        let sweep = self.actor.sweep_inherited();
        tracing::debug!(?sweep, "events were lost: looked for children");
    }

    pub(super) fn io_phase(&self) -> Ns {
        self.phase.total(now)
    }

    /// The daemon cannot go on; whoever waits for it is woken and told.
    pub(super) fn fail(&self, reason: String) {
        tracing::error!("{reason}");
        if let Ok(mut failed) = self.failed.lock() {
            failed.get_or_insert(reason);
        }
        self.failed_poke.poke();
    }

    pub(super) fn vcpus(&self) -> impl Iterator<Item = VcpuId> + use<> {
        (0..self.sense.nr_vcpus() as u32).map(VcpuId)
    }
}
