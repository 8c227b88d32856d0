// SPDX-License-Identifier: Apache-2.0 OR MIT
//! xBalloon: how much of its slice may a vCPU spend on computation? (XB1..XB7)
//!
//! # Problem
//! Compute beside an I/O-bound task uses the slice up while the task waits for
//! its request, and then there is none left when the request completes. xBalloon
//! preserves CPU time of the vCPU's slice for the I/O-bound tasks on it (XB1): a
//! balloon in the guest takes that time away from computation. It moves nothing
//! to other vCPUs (XB5).
//!
//! # Approach
//! Per vCPU, while an I/O-bound task lives on it:
//!
//! ```text
//! reserve   = clamp(demand x headroom, reserve_min, reserve_max)
//! allowance = slice x (1 - reserve)        deflated: computation runs
//! pause     = slice - allowance + gap      inflated: it is held
//! ```
//!
//! from the start of each slice on; a pause is at most `max_pause` long. While the
//! balloon is inflated only the I/O-bound tasks run there, and the vCPU halts
//! between their requests: the host sees a VM that pauses (XB3) and takes the
//! rest of the slice for granted later. The slice is used up all the same in the
//! end (XB2); the next one begins deflated.
//!
//! # Readings, where the sources are silent (XB7)
//! * *What decides how much is preserved*: not stated. Twice what the I/O-bound
//!   tasks would use if they never waited, so that a burst fits in.
//! * *How long a pause lasts*: not stated. To the end of the slice and as long
//!   again as the other VMs would have run. A vCPU that halts is not taken away, so
//!   no end of a slice might ever be seen; the expected end of the gap, at which
//!   it would have been back, ends the pause then, and the same begins anew.
//! * *When not to act*: not stated. Where no slices are seen (nothing is shared),
//!   where no I/O-bound task is, and where the estimate abstains: computation runs
//!   on. The system's own paper (Suo et al., SoCC 2017) speaks of a guest that
//!   suspends itself only when the CPU is contended.
//! * *Priority* (XB1): its own system changes where the guest's scheduler places
//!   a thread that wakes, so that it runs at once. The nearest to that without
//!   another kernel is a short EEVDF slice for the I/O-bound tasks (Linux 6.12);
//!   before, `SCHED_FIFO` under the CPU-use guard of [`wakeup`](super::wakeup).
//! * *What is held*: threads that use a large share of their vCPU and are not
//!   I/O-bound ([`is_compute`]).
//!
//! # Limits
//! Under a host whose slices end by the clock (the freezer) a pause preserves
//! nothing: what is left is the priority and the loss of computation.
//!
//! Pure: no clock, no I/O.

use units::Ns;
use units::Permille;
use units::Time;

/// The knobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Preserved at least, while an I/O-bound task is there: 1..=900 permille.
    pub reserve_min: Permille,
    /// Preserved at most: `reserve_min`..=900 permille. Computation keeps the
    /// rest, so it never stands still.
    pub reserve_max: Permille,
    /// Preserved per demand of the I/O-bound tasks, in thousandths: 2000 is twice.
    pub headroom: u32,
    /// A shorter pause than this is not made: to hold and release threads takes
    /// some 0.2 ms.
    pub min_pause: Ns,
    /// A pause ends after this, whatever was expected.
    pub max_pause: Ns,
    /// A thread that uses this share of what its vCPU gives to all is computing.
    pub compute_min: Permille,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reserve_min: Permille::new(100),
            reserve_max: Permille::new(500),
            headroom: 2000,
            min_pause: Ns::from_ms(1),
            max_pause: Ns::from_ms(100),
            compute_min: Permille::new(200),
        }
    }
}

/// One vCPU, as far as its balloon has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Start of the present slice.
    pub since: Time,
    /// Expected length of a slice; `None` if the estimator abstains.
    pub slice: Option<Ns>,
    /// Expected length of the gap after it; `None` likewise.
    pub gap: Option<Ns>,
    /// I/O-bound tasks on this vCPU.
    pub io_tasks: u32,
    /// The share of a CPU that they would use together if they never waited for
    /// one; may be above one.
    pub demand: u32,
}

/// What the balloon of a vCPU should be, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balloon {
    /// Computation runs; look again then, if there is a time to.
    Deflated(Option<Time>),
    /// Computation is held until then.
    Inflated(Time),
}

impl Balloon {
    /// Is computation held?
    #[must_use]
    pub const fn is_inflated(self) -> bool {
        matches!(self, Self::Inflated(_))
    }

    /// When to look again.
    #[must_use]
    pub const fn next(self) -> Option<Time> {
        match self {
            Self::Deflated(next) => next,
            Self::Inflated(until) => Some(until),
        }
    }
}

/// The share of a slice that is preserved for tasks with this demand, given in
/// thousandths of a CPU.
#[must_use]
pub fn reserve(demand: u32, settings: &Settings) -> Permille {
    let wanted = u64::from(demand) * u64::from(settings.headroom) / 1000;
    let most = settings.reserve_max.max(settings.reserve_min).get();
    let least = settings.reserve_min.get();
    Permille::new(u16::try_from(wanted).unwrap_or(u16::MAX).clamp(least, most))
}

/// What the balloon of this vCPU should be now. The vCPU runs, or this could not
/// be asked.
#[must_use]
pub fn decide(now: Time, view: &View, settings: &Settings) -> Balloon {
    let (Some(slice), Some(gap)) = (view.slice, view.gap) else {
        return Balloon::Deflated(None);
    };
    if view.io_tasks == 0 {
        return Balloon::Deflated(None);
    }
    let kept = u64::from(1000 - reserve(view.demand, settings).get());
    let allowance = slice.scaled(kept, 1000);
    let pause = (slice - allowance + gap).min(settings.max_pause);
    // Of the pause only what is within the slice takes time from computation.
    if (slice - allowance).min(pause) < settings.min_pause {
        return Balloon::Deflated(None);
    }
    let period = allowance + pause;
    let within = Ns(now.since(view.since).0 % period.0.max(1));
    let began = now - within;
    if within < allowance {
        Balloon::Deflated(Some(began + allowance))
    } else {
        Balloon::Inflated(began + period)
    }
}

/// Does a thread compute? It used `used` of the `given` that its vCPU gave to all
/// threads on it; `holds` if its balloon holds it already, which lowers the
/// threshold by half so that a thread at the edge does not come and go.
#[must_use]
pub fn is_compute(used: Ns, given: Ns, holds: bool, settings: &Settings) -> bool {
    let least = u64::from(settings.compute_min.get()) / if holds { 2 } else { 1 };
    given > Ns::ZERO && used >= given.scaled(least, 1000)
}

#[cfg(test)]
mod tests;
