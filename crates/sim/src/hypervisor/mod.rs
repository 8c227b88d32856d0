// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host scheduling policies: which vCPU runs where, and for how long.
//!
//! # The contract
//! The engine owns the state of every pCPU and vCPU ([`crate::machine`]); a
//! policy owns its run queues and whatever it counts. A policy learns what
//! happens through the calls of [`Hypervisor`] and acts in two ways only: by
//! what it returns, and by asking a pCPU to choose anew ([`Host::kick`]).
//!
//! The life of a vCPU, with the calls that the engine makes:
//!
//! ```text
//!            enqueue(Start, Woken)              pick
//!   Halted ─────────────────────────► Queued ─────────► Running
//!     ▲                                 ▲                │  │
//!     │                                 └────────────────┘  │
//!     │        charge, enqueue(SliceEnd, Preempted)         │ idle() -> Halt,
//!     │                                                     │ Poll or Retain
//!     ├── charge, halt ──────────── Waiting ◄───────────────┤
//!     └──────────────────────────── charge, halt ◄──────────┘
//! ```
//! A vCPU that retains its context, or whose guest polls for ever, runs as far as
//! the host can tell: if its slice ends or it is preempted it becomes queued, and
//! waits on when it is picked again, unless its event has come.
//!
//! Rules on which a policy can rely:
//! * `charge` comes before the call that changes a vCPU's state (`enqueue`,
//!   `halt`, `dequeue`), and before `pick`, `tick` and `slow`, so that what was
//!   charged is up to date whenever something is decided. The sum of all
//!   `ran` is exactly the time that the vCPU had a pCPU, switch costs included.
//! * `pick(pcpu)` is called when that pCPU has nobody: whoever had it has been
//!   enqueued or halted before. It must take the vCPU that it returns off the
//!   policy's queues. `None` leaves the pCPU idle until the next kick.
//! * A vCPU is in the policy's queues exactly while its state is `Queued`.
//! * `enqueue` puts the vCPU somewhere and decides whether a pCPU should choose
//!   anew now: nothing is preempted without a kick, and an idle pCPU stays idle.
//! * Kicks of one instant on one pCPU count once, and are carried out after all
//!   other events of that instant. While a pCPU is about to pick (during the
//!   `enqueue` or `halt` of whoever had it, and during `pick`) it looks idle, and
//!   a kick of it for now is ignored.
//!
//! Rules that it has to keep (the engine checks them in every build): a picked
//! vCPU is `Queued` and allowed on that pCPU; slices are not zero.
//!
//! # A policy from the `policy` crate
//! Keep the decision itself in `policy::host::<name>` and only translate here:
//! facts in, order out. One file per policy, named like it, its name in [`NAMES`] and
//! [`named`](named()), and what can be set of it in `settings`.

mod cfs;
mod checks;
mod cosched;
mod credit1;
mod credit2;
mod eevdf;
mod fair;
mod fixed;
mod host;
mod isacs;
mod ische;
mod jupiter;
mod named;
mod ordered;
mod pools;
mod registry;
mod settings;
mod tree;
mod turns;
mod vslicer;
mod vsmtio;
mod waits;

#[cfg(test)]
mod tests;

use std::fmt::Debug;

use units::CpuId;
use units::Ns;

pub use cfs::Cfs;
pub use cfs::CfsSettings;
pub use cosched::Cosched;
pub use cosched::CoschedSettings;
pub use cosched::Mode;
pub use credit1::Credit1;
pub use credit2::Credit2;
pub use credit2::Credit2Settings;
pub use eevdf::Eevdf;
pub use eevdf::EevdfSettings;
pub use fixed::Fixed;
pub use fixed::FixedSettings;
pub use host::Host;
pub use isacs::Isacs;
pub use isacs::IsacsSettings;
pub use ische::ische;
pub use jupiter::Jupiter;
pub use jupiter::JupiterSettings;
pub use registry::NAMES;
pub use registry::Sharing;
pub use registry::by_name;
pub use registry::named;
pub use settings::Key;
pub use settings::Kind;
pub use settings::Policy;
pub use settings::SettingError;
pub use settings::Settings;
pub use settings::Value;
pub use settings::Values;
pub use vslicer::Vslicer;
pub use vsmtio::Vsmtio;
pub use vsmtio::VsmtioSettings;
pub use waits::Waits;

use crate::ids::Vcpu;
pub(crate) use host::Requests;

/// Why a vCPU is (again) in want of a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The VM starts.
    Start,
    /// It was halted and an event woke it.
    Woken(Wake),
    /// It was running and has used up the slice that `pick` gave it.
    SliceEnd,
    /// It was running and a kick made its pCPU choose anew.
    Preempted,
}

/// What woke a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// An I/O completion (the response event of K4, I2).
    Io,
    /// A wake-up IPI of another vCPU of its VM (J11, O4).
    Ipi {
        /// The one that sent it.
        from: Vcpu,
    },
    /// One of its own timers.
    Timer,
}

/// What to run next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The vCPU, until now queued.
    pub vcpu: Vcpu,
    /// For how long at most, switch cost included; `None`: until it halts or a
    /// kick.
    pub slice: Option<Ns>,
}

/// What becomes of a vCPU whose guest has nothing to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It gives its pCPU back at once (B2).
    Halt,
    /// It keeps its pCPU and polls for at most so long (B4), in the hypervisor, which
    /// stops when the pCPU is wanted; `None`: for ever, and that is the guest (B3).
    Poll(Option<Ns>),
    /// It keeps its pCPU and retains its context there, leaving the core to the
    /// sibling, for at most so long (M1, M8); `None`: for ever.
    Retain(Option<Ns>),
}

impl Idle {
    /// Does the guest wait, and not the hypervisor for it? Retention is a loop in the
    /// guest's idle task (M6, M7) and so is `idle=poll` (B3): to the host that vCPU
    /// runs, and one that is preempted there is ready, not waiting (M28).
    pub(crate) const fn in_guest(self) -> bool {
        matches!(self, Self::Retain(_) | Self::Poll(None))
    }
}

/// A host scheduling policy. See the module's documentation for the contract.
pub trait Hypervisor: Send + Debug {
    /// Its name in scenarios and results.
    fn name(&self) -> &'static str;

    /// Once, before anything else: the machine and its VMs are complete, every
    /// vCPU is halted.
    fn start(&mut self, host: &mut Host<'_>) {
        let _ = host;
    }

    /// A vCPU wants a pCPU.
    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why);

    /// `pcpu` has nobody: who gets it, for how long?
    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick>;

    /// `vcpu` has had `pcpu` for `ran` since the last call for it, of which it
    /// waited (polled or retained its context) for `waited`: by M3 both count as
    /// CPU time.
    fn charge(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, waited: Ns);

    /// The guest has nothing to run on `vcpu`.
    fn idle(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) -> Idle {
        let _ = (host, vcpu, pcpu);
        Idle::Halt
    }

    /// A poll or a retention is over: `event` tells whether by its event, and the
    /// vCPU runs on, or by its timeout, and [`Hypervisor::halt`] follows. It
    /// lasted `waited`. Not called when a kick ended it.
    fn waited(&mut self, host: &mut Host<'_>, vcpu: Vcpu, waited: Ns, event: bool) {
        let _ = (host, vcpu, waited, event);
    }

    /// `vcpu` gives its pCPU back to wait for an event. `pick` for that pCPU
    /// follows at once.
    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        let _ = (host, vcpu, pcpu);
    }

    /// An I/O completion arrived for `vcpu` (I2), whatever its state. Comes
    /// before the wake-up that it may cause.
    fn io_event(&mut self, host: &mut Host<'_>, vcpu: Vcpu) {
        let _ = (host, vcpu);
    }

    /// `from` sends a wake-up IPI to `to`, a vCPU of the same VM, whatever the
    /// state of `to` (J11, O4). Comes before the wake-up that it may cause.
    fn ipi(&mut self, host: &mut Host<'_>, from: Vcpu, to: Vcpu) {
        let _ = (host, from, to);
    }

    /// Does it decide about a pCPU by what may run there alone, and by nothing that it
    /// counts for all? Then parts of a machine that share neither VMs nor devices are run
    /// one after the other, [`Host::pcpus`] are those of the part, and there is a tick for
    /// each. Asked once, after [`Hypervisor::start`], which must have asked for nothing.
    fn is_local(&self) -> bool {
        false
    }

    /// How often [`Hypervisor::tick`] is called; `None`: never.
    fn tick_period(&self) -> Option<Ns> {
        None
    }

    /// The scheduler's tick. One call for the whole machine (or part); every running vCPU
    /// has been charged just before.
    fn tick(&mut self, host: &mut Host<'_>) {
        let _ = host;
    }

    /// How often [`Hypervisor::slow`] is called; `None`: never.
    fn slow_period(&self) -> Option<Ns> {
        None
    }

    /// The slow loop: periodic accounting and adjustment. Every running vCPU has
    /// been charged just before.
    fn slow(&mut self, host: &mut Host<'_>) {
        let _ = host;
    }

    /// A timer set by [`Host::timer`] is due.
    fn timer(&mut self, host: &mut Host<'_>, token: u64) {
        let _ = (host, token);
    }

    /// Are its queues and sums in order? Asked between events: everybody in a queue is
    /// ready, and who is ready is in one queue, once (`checks::ready_once`); and what
    /// the policy promises to keep is kept, such as the sum of all credits. Only
    /// [`Host::charged`] of the running time is known to it.
    ///
    /// # Errors
    /// A text that says what is wrong: a bug.
    fn check(&self, host: &Host<'_>) -> Result<(), String>;

    /// Counters that a report may show, by name, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
