// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stops the CPUs of this machine for the other VMs' slices, as a host would.
//!
//! A vCPU that its host takes away stops altogether: no task, no timer, no
//! interrupt, and the current task stays current. The freezer does that to the
//! CPUs of the machine it runs on, from inside, with a BPF program that spins in
//! the timer interrupt (`src/bpf/freezer.bpf.c` says how). It is the native test
//! bed: exact slices, real kernel, real disk, no virtual machine.
//!
//! ```no_run
//! use freezer::{Freezer, Options, Plan};
//! use units::{CpuSet, Ns};
//!
//! // Every CPU is shared by 4 VMs: 11 ms on, 33 ms off, phases sweeping.
//! let plan = Plan::shared(4, Ns::from_ms(11), &CpuSet::first(2))?;
//! let mut freezer = Freezer::start(&plan, &Options::new(Ns::from_secs(10)))?;
//! // ... the experiment ...
//! freezer.stop();
//! let both = CpuSet::first(2);
//! let trace = freezer::trace::Trace::new(freezer.log(), freezer.span());
//! println!("at least one CPU was on for {} of the time", trace.any_on(&both));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Safety of the machine
//! A CPU that is off answers to nobody, so the program gives it back by itself:
//! at the end of the gap, when [`Freezer::stop`] is called or the [`Freezer`] is
//! dropped, at the deadline (mandatory, at most [`MAX_RUN`]), after [`MAX_GAP`] in
//! any case, and when all CPUs of the plan have been off at once for longer than a
//! limit. When the owning process dies, also by SIGKILL, the kernel detaches the
//! program.
//!
//! # The steal page
//! Per CPU, the 64 bytes of KVM's `struct kvm_steal_time`, in a BPF array map that
//! other processes open by [`Freezer::steal_map_id`]: the `preempted` flag is set
//! while the CPU is off, the steal counter grows by the exact gap at the return.
//! A BPF program on `local_timer_entry` that was attached *after* the freezer runs
//! after the gap, in the same interrupt, and sees the page of the return; one
//! attached *before* sees it at the next interrupt only. So attach the freezer
//! first, or do not depend on the interrupt of the return.
//!
//! # Modules
//! * [`plan`]: what is asked: lengths, phases, recorded slices.
//! * [`trace`]: pure arithmetic on a log: shares, unions, lateness.
//! * [`tasks`]: what a few threads do meanwhile.
//! * [`probe()`]: whether this machine can do it, and if not, why.

mod exclusive;
mod load;
mod options;
pub mod plan;
mod probe;
mod run;
mod shared;
mod steal;
pub mod tasks;
pub mod trace;

/// The types that BPF and user space share, generated from the compiled object.
#[allow(
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    unused
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/freezer.skel.rs"));
}

pub use options::Options;
pub use options::StartError;
pub use plan::Plan;
pub use plan::PlanError;
pub use probe::Support;
pub use probe::Unsupported;
pub use probe::online_cpus;
pub use probe::probe;
pub use run::Counters;
pub use run::Freezer;
pub use run::Ready;
pub use steal::StealEntry;
pub use trace::Event;

use units::Ns;

/// The longest run: a deadline further away is refused. Ten minutes.
pub const MAX_RUN: Ns = Ns::from_secs(600);

/// No single gap is longer, whatever the plan says; also the upper end of the
/// limit for all CPUs at once. Far below the kernel's own alarms (soft lockup
/// 20 s, RCU stall 21 s) and long enough for 16 VMs of 30 ms.
pub const MAX_GAP: Ns = Ns::from_ms(500);
