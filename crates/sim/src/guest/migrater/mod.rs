// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vMigrater in a simulated guest: the same decisions as the daemon.
//!
//! Everything that is decided is decided by `policy::guest`; here is what the
//! daemon's engine does around it: one monitor per vCPU that looks when its vCPU
//! is back, when a task arrives, when a class changes or when its timer goes off;
//! orders that take their time; a mask that is narrowed and widened again.
//!
//! What the daemon's programs in the kernel tell of a task `detector` does: windows, how
//! long it sleeps and who wakes it, what it needs.
//!
//! Idealised: where completions arrive is known from the first one; a vCPU's gap is known exactly where the steal page is the source,
//! and all monitors see the same history at the same time.

mod bell;
mod detector;
mod moves;
mod settings;
mod think;
mod trials;

use std::collections::BTreeMap;

use policy::guest::budget::Budget;
use policy::guest::placement;
use policy::guest::slice::Distribution;
use policy::guest::slice::LastValue;
use policy::guest::slice::SliceEstimator;
use policy::guest::slice::Timeline;
use policy::guest::trial::Program;
use policy::guest::view::Move;
use policy::guest::view::Plan;
use policy::guest::view::Why;
use policy::guest::wakeup::Decider;
use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::Ns;
use units::TaskKey;
use units::Tid;
use units::Time;
use units::VcpuId;

pub use settings::DaemonCosts;
pub use settings::Estimator;
pub use settings::MigraterSettings;
pub use settings::Source;

use super::Guest;
use crate::ids::TaskId;
pub(crate) use detector::Window;

/// What the daemon has done in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaemonCounts {
    /// PUSH moves.
    pub push: u64,
    /// PULL moves.
    pub pull: u64,
    /// Soon-active moves (V12).
    pub soon_active: u64,
    /// Moves to a completion vCPU.
    pub completion: u64,
    /// Moves away from a vCPU that several tasks share (V20).
    pub spread: u64,
    /// Orders that could not be carried out: the task was current on a vCPU that
    /// is away.
    pub failed: u64,
    /// Moves that the budget refused.
    pub refused: u64,
    /// Looks.
    pub wakeups: u64,
    /// CPU time of looks and beats.
    pub cpu: Ns,
    /// N_min of equation (2).
    pub n_min: u64,
}

impl DaemonCounts {
    /// N_migrate of equation (2).
    #[must_use]
    pub const fn n_migrate(&self) -> u64 {
        self.push + self.pull + self.soon_active + self.completion + self.spread
    }
}

/// A guest's daemon.
#[derive(Debug)]
pub struct Migrater {
    pub(crate) settings: MigraterSettings,
    pub(crate) seats: Vec<Seat>,
    pub(crate) monitors: Vec<Monitor>,
    /// Where the completions of the guest's disk arrive, if on one vCPU only.
    pub(crate) fixed_path: Option<VcpuId>,
    pub(crate) counts: DaemonCounts,
    /// By group of tasks: is it better off in our hands?
    programs: BTreeMap<u32, Program>,
    plan: Plan,
}

/// What the daemon knows of one task.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) window: Window,
    /// Held: its mask is ours.
    pub(crate) held: bool,
    /// When its phase began, and its requests since then.
    taken: Time,
    requests: u64,
    claimed_until: Time,
    moved_at: Time,
    decider: Decider,
    lever: Lever,
    lever_seen: (u64, Ns, Ns, Time),
}

/// One vCPU's monitor.
pub(crate) struct Monitor {
    pub(crate) timeline: Timeline,
    /// Start of the gap that is not over, as the source knows it.
    gone: Option<Time>,
    budget: Budget,
    placement: placement::Settings,
    /// Makes timers that are out of date void.
    alarm_epoch: u32,
    alarm_at: Option<Time>,
    bell_epoch: u32,
    bell_at: Option<Time>,
    /// The CPU time of the look to come has been charged.
    paid: bool,
    orders: Vec<Order>,
    left_in_slice: u32,
    beat: Time,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor")
            .field("timeline", &self.timeline)
            .field("orders", &self.orders)
            .finish_non_exhaustive()
    }
}

/// A move that has been decided and not made yet.
#[derive(Clone, Copy, Debug)]
struct Order {
    at: Time,
    decided: Time,
    task: TaskId,
    to: VcpuId,
    why: Why,
}

/// What a daemon interrupt is for: the kinds share one event.
const KIND_ALARM: u32 = 0;
const KIND_BELL: u32 = 1;
const KIND_MOVE: u32 = 2;

/// Kind and epoch in one number.
const fn code(kind: u32, epoch: u32) -> u32 {
    kind << 30 | (epoch & 0x3fff_ffff)
}

impl Migrater {
    /// A daemon for a guest of so many vCPUs. `fixed_path`: the vCPU on which all
    /// completions of its disk arrive, if they do.
    #[must_use]
    pub fn new(settings: MigraterSettings, vcpus: u32, fixed_path: Option<VcpuId>) -> Self {
        let monitors = (0..vcpus)
            .map(|_| {
                let estimator: Box<dyn SliceEstimator> = match settings.estimator {
                    Estimator::LastValue => Box::new(LastValue::new()),
                    Estimator::Distribution => Box::new(Distribution::new(&settings.slice)),
                };
                Monitor {
                    timeline: Timeline::new(estimator, &settings.slice, Time::ZERO),
                    gone: None,
                    budget: Budget::new(&settings.budget),
                    placement: settings.placement.clone(),
                    alarm_epoch: 0,
                    alarm_at: None,
                    bell_epoch: 0,
                    bell_at: None,
                    paid: false,
                    orders: Vec::new(),
                    left_in_slice: 0,
                    beat: Time::ZERO,
                }
            })
            .collect();
        Self {
            settings,
            seats: Vec::new(),
            monitors,
            fixed_path,
            counts: DaemonCounts::default(),
            programs: BTreeMap::new(),
            plan: Plan::default(),
        }
    }

    /// What it has done since the window opened.
    #[must_use]
    pub const fn counts(&self) -> DaemonCounts {
        self.counts
    }

    fn seat(&mut self, task: TaskId) -> &mut Seat {
        while self.seats.len() <= task.index() {
            self.seats.push(Seat {
                window: Window::default(),
                held: false,
                taken: Time::ZERO,
                requests: 0,
                claimed_until: Time::ZERO,
                moved_at: Time::ZERO,
                decider: decider(&self.settings),
                lever: Lever::Off,
                lever_seen: (0, Ns::ZERO, Ns::ZERO, Time::ZERO),
            });
        }
        &mut self.seats[task.index()]
    }
}

fn decider(settings: &MigraterSettings) -> Decider {
    let support = policy::guest::wakeup::Support {
        eevdf_slice: true,
        fifo: true,
    };
    Decider::new(&settings.wakeup, support)
}

/// The policy's name of a task.
fn key(task: TaskId) -> TaskKey {
    TaskKey {
        tid: Tid(task.0 + 1),
        start_ticks: 0,
    }
}

impl Guest {
    /// Starts the daemon.
    pub fn set_migrater(&mut self, migrater: Migrater) {
        self.migrater = Some(Box::new(migrater));
    }

    /// The daemon, if there is one.
    #[must_use]
    pub fn migrater(&self) -> Option<&Migrater> {
        self.migrater.as_deref()
    }

    /// The set in which the daemon may move a task.
    fn owned(&self, task: TaskId) -> CpuSet {
        self.tasks[task.index()].owned_mask.set()
    }

    /// Tells the policy's words for a move apart.
    fn count_move(counts: &mut DaemonCounts, m: &Move) {
        match m.why {
            Why::Push => counts.push += 1,
            Why::Pull => counts.pull += 1,
            Why::SoonActive => counts.soon_active += 1,
            Why::Completion => counts.completion += 1,
            Why::Spread => counts.spread += 1,
        }
    }
}
