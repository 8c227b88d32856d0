// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest daemon's decisions, one module per question.
//!
//! * [`heartbeat`]: how often may a vCPU's monitor wake to see whether it was away?
//! * [`view`]: what a decision is taken on and what comes out of it.
//! * [`mod@slice`]: how long will a vCPU run on, and when will one be back?
//! * [`iobound`]: which threads live on I/O?
//! * [`path`]: where do a device's completions arrive?
//! * [`placement`]: which of them should be elsewhere, where, and when?
//! * [`wakeup`]: should a thread that waits behind compute get a lever?
//! * [`budget`]: is a migration worth what it costs?
//! * [`trial`]: is a program better off in our hands at all?
//! * [`xballoon`]: the system that the daemon is compared with: how much of its
//!   slice may a vCPU spend on computation?
//!
//! Every module has a `Settings` whose `Default` is ours and whose `published`
//! is the published system as far as its text goes.

pub mod budget;
pub mod heartbeat;
pub mod iobound;
pub mod path;
pub mod placement;
pub mod slice;
pub mod trial;
pub mod view;
pub mod wakeup;
pub mod xballoon;
