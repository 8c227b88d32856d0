// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads live on I/O (V14..V16), and in which order they are served
//! (V18).
//!
//! The arithmetic is in `include/iobound.h`, because it runs inside the BPF
//! Task Detector; this module calls the very same C functions. The header says
//! how time is accounted and why.

use std::cmp::Ordering;

use units::Ns;
use units::Permille;
use units::Time;

use crate::guest::view::TaskView;

/// The C side: scalars in, scalars out, no state.
mod ffi {
    // SAFETY: the signatures are those of shim.c; the functions take integers
    // by value, touch no memory and accept every value.
    unsafe extern "C" {
        pub(super) safe fn policy_iob_load_permille(io_blocked_ns: u64, on_cpu_ns: u64) -> u32;
        pub(super) safe fn policy_iob_window_complete(
            start_ns: u64,
            now_ns: u64,
            accounted_ns: u64,
            window_ns: u64,
            min_accounted_ns: u64,
        ) -> u32;
        pub(super) safe fn policy_iob_certain(
            start_ns: u64,
            now_ns: u64,
            io_blocked_ns: u64,
            on_cpu_ns: u64,
            window_ns: u64,
            min_accounted_ns: u64,
            enter: u32,
        ) -> u32;
        pub(super) safe fn policy_iob_next(
            state: u32,
            load: u32,
            enter: u32,
            leave: u32,
            leave_windows: u32,
        ) -> u32;
        pub(super) safe fn policy_iob_phase_over(asleep_ns: u64, idle_ns: u64) -> u32;
        pub(super) safe fn policy_iob_long_sleep(asleep_ns: u64, stay_ns: u64) -> u32;
        pub(super) safe fn policy_iob_woken_here(mean: u32, here: u32) -> u32;
    }
}

/// Task Detector settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shortest window over which a load is computed: T_det of V15, 5 ms as
    /// published. Shorter finds a phase sooner and takes a single request for
    /// one.
    pub window: Ns,
    /// A window with less accounted time than this (on the CPU or blocked on
    /// I/O) goes on. 500 us: a tenth of the published window, so that a window
    /// spent on a stolen vCPU is not judged by a remainder. Published: none.
    pub min_accounted: Ns,
    /// I/O-bound from this load on. The published threshold is not stated. 300:
    /// a buffered reader on a fast disk spends two thirds of its time copying
    /// and still gains, while threads that compute and read now and then stay
    /// below a tenth.
    pub enter: Permille,
    /// A window below this counts towards leaving; half of `enter`, so that a
    /// thread whose load wavers around the threshold stays in.
    pub leave: Permille,
    /// Windows in a row below `leave` that end the phase. 4, that is 20 ms:
    /// about one slice, so a pause between two bursts within one slice does not
    /// release and take the thread again. Published: 1.
    pub leave_windows: u32,
    /// Asleep this long for a reason that is not I/O, and the phase is over.
    /// 200 ms: longer than the pauses of a bursty application. With 50 ms each burst
    /// after a longer pause began anew, with a task that nothing was known of, and such
    /// readers lost (docs/findings.md, Bursts). Zero: never, as published, where a
    /// period without I/O says the same.
    pub idle: Ns,
    /// Asleep this long for a reason that is not I/O, a task stays where it is if those who
    /// wake it run there, as its own timers do. 5 ms, a window: shorter sleeps are part of
    /// what it does with a request. Zero: it is moved in its sleep, as published.
    pub stay: Ns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: Ns::from_ms(5),
            min_accounted: Ns::from_us(500),
            enter: Permille::new(300),
            leave: Permille::new(150),
            leave_windows: 4,
            idle: Ns::from_ms(200),
            stay: Ns::from_ms(5),
        }
    }
}

impl Settings {
    /// As published: 5 ms, one threshold, no memory. The threshold itself is
    /// not stated; more than one half is our reading of "I/O-bound".
    #[must_use]
    pub fn published() -> Self {
        Self {
            window: Ns::from_ms(5),
            min_accounted: Ns::ZERO,
            enter: Permille::new(501),
            leave: Permille::new(501),
            leave_windows: 1,
            idle: Ns::ZERO,
            stay: Ns::ZERO,
        }
    }

    /// Is the window that began at `start` and has `accounted` time in it
    /// complete?
    #[must_use]
    pub fn window_complete(&self, start: Time, now: Time, accounted: Ns) -> bool {
        ffi::policy_iob_window_complete(
            start.as_ns(),
            now.as_ns(),
            accounted.as_ns(),
            self.window.as_ns(),
            self.min_accounted.as_ns(),
        ) != 0
    }

    /// Is it certain before the end of the window that began at `start` that its
    /// load will reach `enter`, whatever the thread does for the rest of it? Then
    /// the thread is I/O-bound now (V15, the same threshold over the same
    /// window). False once the window is as long as it has to be: then
    /// [`Self::window_complete`] and [`Self::next`] decide.
    #[must_use]
    pub fn certain(&self, start: Time, now: Time, io_blocked: Ns, on_cpu: Ns) -> bool {
        ffi::policy_iob_certain(
            start.as_ns(),
            now.as_ns(),
            io_blocked.as_ns(),
            on_cpu.as_ns(),
            self.window.as_ns(),
            self.min_accounted.as_ns(),
            u32::from(self.enter.get()),
        ) != 0
    }

    /// The class after one more complete window with this load.
    #[must_use]
    pub fn next(&self, class: Class, load: Permille) -> Class {
        Class(ffi::policy_iob_next(
            class.0,
            u32::from(load.get()),
            u32::from(self.enter.get()),
            u32::from(self.leave.get()),
            self.leave_windows,
        ))
    }

    /// Has a sleep that is not on I/O lasted so long that the phase is over?
    #[must_use]
    pub fn phase_over(&self, asleep: Ns) -> bool {
        ffi::policy_iob_phase_over(asleep.as_ns(), self.idle.as_ns()) != 0
    }

    /// Is a sleep that is not on I/O a long one, whose end says where the waker is?
    #[must_use]
    pub fn is_long_sleep(&self, asleep: Ns) -> bool {
        ffi::policy_iob_long_sleep(asleep.as_ns(), self.stay.as_ns()) != 0
    }

    /// Is a task left where it is, after so long a sleep that is not on I/O? Half of its
    /// wakers decide: of two vCPUs one that may be anywhere is on this one as often.
    #[must_use]
    pub fn stays(&self, asleep: Ns, woken: WokenHere) -> bool {
        self.is_long_sleep(asleep) && woken.0 >= 500
    }
}

/// A thread's class between two windows, packed as the BPF program stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class(pub u32);

impl Class {
    /// Is the thread I/O-bound?
    #[must_use]
    pub const fn is_io_bound(self) -> bool {
        self.0 & 1 != 0
    }

    /// How many windows in a row have been below the leave threshold.
    #[must_use]
    pub const fn low_windows(self) -> u32 {
        self.0 >> 1
    }
}

/// Of a thousand long sleeps of a task, those that were ended from the vCPU on which it
/// slept, as its own timers end them: when it is woken that vCPU runs. Moved meanwhile, it
/// would be woken towards one that may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WokenHere(pub u32);

impl Default for WokenHere {
    /// Nothing has been seen yet: taken for all.
    fn default() -> Self {
        Self(1000)
    }
}

impl WokenHere {
    /// After one more long sleep; was it ended from there?
    #[must_use]
    pub fn after(self, here: bool) -> Self {
        Self(ffi::policy_iob_woken_here(self.0, u32::from(here)))
    }
}

/// Load level of a window: the time blocked on I/O over that time plus the time
/// on the CPU. Time in which the thread was runnable but not running, or its
/// vCPU was stolen, is in neither (see the header for the reason).
#[must_use]
pub fn load(io_blocked: Ns, on_cpu: Ns) -> Permille {
    let load = ffi::policy_iob_load_permille(io_blocked.as_ns(), on_cpu.as_ns());
    Permille::new(u16::try_from(load).unwrap_or(u16::MAX))
}

/// The order in which tasks are served: the user's priority first (V18), then
/// the heavier I/O load (V19). The key comes last, so that equal tasks are
/// always served in the same order and two calls give the same plan.
#[must_use]
pub fn rank(a: &TaskView, b: &TaskView) -> Ordering {
    b.priority
        .cmp(&a.priority)
        .then_with(|| b.load.cmp(&a.load))
        .then_with(|| a.key.tid.cmp(&b.key.tid))
        .then_with(|| a.key.start_ticks.cmp(&b.key.start_ticks))
}

#[cfg(test)]
mod tests;
