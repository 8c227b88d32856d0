// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When does a task that waits behind compute get a lever?
//!
//! An I/O-bound task on a running vCPU may still wait, after each completion,
//! until the compute task there has used up its own slice: a migration gains
//! nothing then. Two levers shorten that wait without giving the task more CPU:
//! a short EEVDF slice (Linux 6.12; the scheduler then prefers it at wake-up)
//! and SCHED_FIFO, which is dangerous on a task that computes.
//!
//! The measure is the share of its own cycle that the task spends queued on a
//! running vCPU:
//!
//! ```text
//! share = queued / (queued + wakes * io_latency + on_cpu)
//! ```
//!
//! Time on a descheduled vCPU is in none of the terms (that is migration's
//! business), so the share does not depend on the number of VMs.
//!
//! [`Decider`] keeps one task's state: off, EEVDF slice tried, FIFO as the last
//! resort. A lever that works makes the share small, or at least smaller than it
//! was, so a small share cannot be the reason to take it away; instead the lever
//! is dropped for one window now and then (seldom, and ever more seldom), and
//! comes back if the share does. A lever that does not work is taken away: no
//! measurable gain, no change to the task. Who waits for most of his time is not
//! kept waiting for a measurement ([`Settings::urgent`]).

use units::Ns;
use units::Permille;

/// Shortest slice that the kernel accepts for a task (`sched_setattr`).
pub const MIN_SLICE: Ns = Ns::from_us(100);

/// Longest slice that the kernel accepts for a task.
pub const MAX_SLICE: Ns = Ns::from_ms(100);

/// What is done for a task at wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lever {
    /// Nothing.
    #[default]
    Off,
    /// A per-task EEVDF slice of this length, within the kernel's range.
    EevdfSlice(Ns),
    /// SCHED_FIFO at the lowest priority.
    Fifo,
}

/// Which levers may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Off,
    /// By measurement, the EEVDF slice first.
    Auto,
    /// The EEVDF slice for every I/O-bound task.
    EevdfSlice,
    /// SCHED_FIFO for every I/O-bound task below the CPU-use guard.
    Fifo,
}

/// What this machine can do, as probed at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// Per-task EEVDF slices.
    pub eevdf_slice: bool,
    /// SCHED_FIFO (capability and RT bandwidth of the task's group).
    pub fifo: bool,
}

/// The wake-up lever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which levers may be used. Auto; published: off, it has no such lever.
    pub mode: Mode,
    /// The EEVDF slice. 0.1 ms, the kernel's minimum: an I/O-bound task rarely
    /// runs longer than that between two requests.
    pub slice: Ns,
    /// A task that uses more of a CPU than this never has SCHED_FIFO, and loses
    /// it at once. 300: above, it would keep compute off a vCPU for longer than
    /// a host slice takes.
    pub fifo_max_cpu: Permille,
    /// A lever goes on when the queued share reaches this, and works if it brings
    /// the share below. 100: the most that can be gained is this share, and a
    /// tenth is what a measurement can show.
    pub on: Permille,
    /// A lever also works if it takes at least this much of the share away, by the
    /// mean over `trial` windows before and with it. 250: with a fast disk part of
    /// the share is the switch to the task itself, some 10 us of each cycle, and
    /// no lever shortens that; a quarter of a tenth is as little as can be told.
    ///
    /// No lever works with which the task wakes less often by as much: SCHED_FIFO
    /// keeps a writer out of the queue and the kernel's threads that it waits for
    /// off the CPU (docs/decisions/0011).
    pub relief: Permille,
    /// A task that queues for this much of its cycle has waited long enough to be
    /// measured: the first lever comes after `windows` windows, not after `trial`, and the
    /// next one as soon as `windows` windows with the first are no better. 500: it waits
    /// for longer than all else takes together. Beside two compute threads on each vCPU,
    /// 4 VMs, a reader had 0.04 of the bound; 16 windows for each step, of one slice
    /// each, were most of a second (docs/findings.md, Co-runners).
    pub urgent: Permille,
    /// Windows over which a lever is judged. 16: most of the waiting is in few
    /// windows, those after a gap.
    pub trial: u32,
    /// Wake-ups that a window needs to count; shorter ones are put together. 8: fewer say
    /// nothing.
    pub min_wakes: u64,
    /// Windows in a row at or above `on` that switch a lever on. 3: one burst of
    /// compute is not a pattern.
    pub windows: u32,
    /// Windows until a lever is tried again without, or again at all after it
    /// was given up; doubled each time up to 16 times. 200: 1 s of 5 ms windows.
    pub hold: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            slice: MIN_SLICE,
            fifo_max_cpu: Permille::new(300),
            on: Permille::new(100),
            relief: Permille::new(250),
            urgent: Permille::new(500),
            trial: 16,
            min_wakes: 8,
            windows: 3,
            hold: 200,
        }
    }
}

impl Settings {
    /// As published: no lever.
    #[must_use]
    pub fn published() -> Self {
        Self {
            mode: Mode::Off,
            ..Self::default()
        }
    }
}

/// One task over one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeStats {
    /// Wake-ups.
    pub wakes: u64,
    /// Time runnable but not running while its vCPU ran.
    pub queued_ns: Ns,
    /// Time on the CPU.
    pub on_cpu_ns: Ns,
    /// Length of the window (wall time).
    pub window: Ns,
}

impl WakeStats {
    /// The share of its I/O cycle that the task spent queued.
    #[must_use]
    pub fn queued_share(&self, io_latency: Ns) -> Permille {
        Permille::of(self.queued_ns, self.cycle(io_latency))
    }

    /// Another window after this one.
    fn add(&mut self, next: &Self) {
        self.wakes += next.wakes;
        self.queued_ns += next.queued_ns;
        self.on_cpu_ns += next.on_cpu_ns;
        self.window += next.window;
    }

    /// The sum of its I/O cycles: the denominator above.
    fn cycle(&self, io_latency: Ns) -> Ns {
        self.queued_ns + io_latency * self.wakes + self.on_cpu_ns
    }

    /// The share of a CPU that the task used.
    #[must_use]
    pub fn cpu_use(&self) -> Permille {
        Permille::of(self.on_cpu_ns, self.window)
    }
}

mod decider;
mod tally;

pub use decider::Decider;

#[cfg(test)]
mod tests;
