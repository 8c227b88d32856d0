// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One task's lever, window by window.

use units::Ns;

use super::Lever;
use super::MAX_SLICE;
use super::MIN_SLICE;
use super::Mode;
use super::Settings;
use super::Support;
use super::WakeStats;
use super::tally::Tally;

/// Most doublings of the hold time.
const MAX_DOUBLINGS: u32 = 4;

/// Which lever is on, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Off,
    Slice,
    Fifo,
}

/// One task's lever. Feed it each complete window; drop it (or call
/// [`Decider::phase_ended`]) when the I/O phase ends.
#[derive(Clone, Debug)]
pub struct Decider {
    settings: Settings,
    support: Support,
    step: Step,
    /// Windows in a row that ask for a lever while there is none.
    waiting: u32,
    /// Without a lever the recent windows, with one those since it was pulled or
    /// judged last.
    tally: Tally,
    /// Windows with too few wake-ups, until together they have enough: whoever waits
    /// longest for a CPU wakes least often.
    pending: WakeStats,
    /// What was measured before the first lever.
    before: Tally,
    /// Windows since the present step was taken.
    held: u32,
    /// Windows to wait before a lever may go on again after one was given up.
    wait: u32,
    /// Doublings of the hold time so far.
    doublings: u32,
    /// Off for a moment to see whether the lever is still needed.
    probing: Option<Step>,
    /// Windows until the CPU-use guard lets the task have FIFO (again).
    fifo_barred: u32,
}

impl Decider {
    /// No lever yet.
    #[must_use]
    pub fn new(settings: &Settings, support: Support) -> Self {
        Self {
            settings: settings.clone(),
            support,
            step: Step::Off,
            waiting: 0,
            tally: Tally::default(),
            pending: WakeStats::default(),
            before: Tally::default(),
            held: 0,
            wait: 0,
            doublings: 0,
            probing: None,
            fifo_barred: 0,
        }
    }

    /// The lever that should be on now.
    #[must_use]
    pub fn lever(&self) -> Lever {
        match self.step {
            Step::Off => Lever::Off,
            Step::Slice => Lever::EevdfSlice(self.settings.slice.clamp(MIN_SLICE, MAX_SLICE)),
            Step::Fifo => Lever::Fifo,
        }
    }

    /// The I/O phase is over: every lever is off and nothing is remembered.
    pub fn phase_ended(&mut self) {
        *self = Self::new(&self.settings, self.support);
    }

    /// One complete window of an I/O-bound task, and the lever from now on.
    pub fn observe(&mut self, stats: &WakeStats, io_latency: Ns) -> Lever {
        let too_much_cpu = stats.cpu_use() > self.settings.fifo_max_cpu;
        // Before anything else, and in every mode: a task that computes must
        // not keep SCHED_FIFO for one window longer.
        if too_much_cpu {
            self.bar_fifo();
        } else {
            self.fifo_barred = self.fifo_barred.saturating_sub(1);
        }
        match self.settings.mode {
            Mode::Off => self.step = Step::Off,
            Mode::EevdfSlice => {
                self.step = if self.support.eevdf_slice {
                    Step::Slice
                } else {
                    Step::Off
                };
            }
            Mode::Fifo => self.forced_fifo(),
            Mode::Auto => self.auto(stats, io_latency),
        }
        self.lever()
    }

    fn bar_fifo(&mut self) {
        if self.step == Step::Fifo || self.probing == Some(Step::Fifo) {
            self.go(Step::Off);
        }
        self.fifo_barred = self.hold();
    }

    /// FIFO for every I/O-bound task, except while the guard bars it.
    fn forced_fifo(&mut self) {
        let step = if self.fifo_allowed() {
            Step::Fifo
        } else {
            Step::Off
        };
        if step != self.step {
            self.go(step);
        }
    }

    const fn fifo_allowed(&self) -> bool {
        self.support.fifo && self.fifo_barred == 0
    }

    fn auto(&mut self, stats: &WakeStats, io_latency: Ns) {
        self.held = self.held.saturating_add(1);
        self.wait = self.wait.saturating_sub(1);
        self.pending.add(stats);
        if self.pending.wakes < self.settings.min_wakes {
            return;
        }
        let stats = &std::mem::take(&mut self.pending);
        let share = stats.queued_share(io_latency);
        if let Some(step) = self.probing.take() {
            if share >= self.settings.on {
                // Still needed: back on, and look again later than last time.
                self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
                self.go(step);
            } else {
                self.doublings = 0;
            }
            return;
        }
        match self.step {
            Step::Off => {
                self.tally
                    .add_fading(stats, io_latency, self.settings.trial);
                if self.wait == 0 && share >= self.settings.on {
                    self.waiting = self.waiting.saturating_add(1);
                } else {
                    self.waiting = 0;
                }
                // Without a measure of before, nothing could be said of after.
                if self.waiting >= self.settings.windows
                    && (self.tally.windows() >= self.settings.trial || self.is_urgent())
                    && let Some(step) = self.next_step(Step::Off)
                {
                    self.before = self.tally;
                    self.go(step);
                }
            }
            Step::Slice | Step::Fifo => {
                self.tally.add(stats, io_latency);
                // One that only waits less than before is not kept while there is another.
                if self.is_urgent()
                    && let Some(step) = self.next_step(self.step)
                {
                    self.go(step);
                    return;
                }
                if self.tally.windows() >= self.settings.trial.max(1) {
                    if !self.works() {
                        match self.next_step(self.step) {
                            Some(step) => self.go(step),
                            None => self.give_up(),
                        }
                        return;
                    }
                    self.tally = Tally::default();
                }
                if self.held >= self.hold() {
                    self.probing = Some(self.step);
                    self.pending = WakeStats::default();
                    self.step = Step::Off;
                    self.held = 0;
                }
            }
        }
    }

    /// Does it wait for most of its time, as far as `windows` windows can tell?
    fn is_urgent(&self) -> bool {
        self.tally.windows() >= self.settings.windows.max(1)
            && self.tally.share() >= self.settings.urgent
    }

    /// Is the share low with the lever, or at least a good deal lower than it was, and
    /// does the task wake about as often as before or more often?
    fn works(&self) -> bool {
        let left = 1000 - u64::from(self.settings.relief.get().min(1000));
        let enough = u64::from(self.before.share().get()) * left / 1000;
        let share = self.tally.share();
        let waits_less = share < self.settings.on || u64::from(share.get()) <= enough;
        let does_less = match (self.before.interval(), self.tally.interval()) {
            (Some(before), Some(now)) => now.scaled(left, 1000) > before,
            _ => false,
        };
        waits_less && !does_less
    }

    /// The next lever to try after `step`; `None` if there is none.
    fn next_step(&self, step: Step) -> Option<Step> {
        match step {
            Step::Off if self.support.eevdf_slice => Some(Step::Slice),
            // Without the EEVDF slice on this kernel there is nothing gentler
            // to try first.
            Step::Off | Step::Slice => self.fifo_allowed().then_some(Step::Fifo),
            Step::Fifo => None,
        }
    }

    /// No lever brought the share down: leave the task alone for a while.
    fn give_up(&mut self) {
        self.go(Step::Off);
        self.wait = self.hold();
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
    }

    fn go(&mut self, step: Step) {
        self.step = step;
        self.waiting = 0;
        self.tally = Tally::default();
        self.pending = WakeStats::default();
        self.held = 0;
        self.probing = None;
    }

    /// Windows to hold a decision, with the doublings so far.
    fn hold(&self) -> u32 {
        self.settings
            .hold
            .max(1)
            .saturating_mul(1 << self.doublings)
    }
}
