// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing tasks, and undoing it.
//!
//! * [`task`]: what `/proc` says about a thread.
//! * [`journal`]: the record of what was changed; it survives a kill.
//! * [`hold`]: [`Actor`] and [`Held`]: adopt a thread, move it, let it go.
//! * [`lever`]: a short EEVDF slice or `SCHED_FIFO` beside a move.
//! * [`balloon`]: threads that are held still for others (mode xballoon).
//! * [`inherit`]: children that got a narrowed mask from their parent.
//! * `debt`: CPUs that were offline when a thread was given back.
//! * [`restore`]: undoing what a dead daemon has left.
//! * [`supervise`]: the process that survives the daemon and does so at once.
//!
//! The rule behind all of it: what an owner has set wins over what we set, and
//! what we set is known to the journal before it is set.

pub mod balloon;
pub mod counters;
mod debt;
pub mod hold;
pub mod inherit;
pub mod journal;
pub mod lever;
mod mask;
pub mod restore;
mod sched;
pub mod supervise;
pub mod task;
#[cfg(test)]
pub(crate) mod testing;

pub use self::hold::Actor;
pub use self::hold::Held;
pub use self::hold::MoveError;
pub use self::hold::Refusal;
pub use self::hold::Settings;
pub use self::hold::StartError;
pub use self::restore::Summary;
pub use self::restore::restore_all;
