// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A discrete-event simulator of virtual machines that share a machine.
//!
//! * [`machine`]: pCPUs, hyperthreads, what switching costs, and the books.
//! * [`hypervisor`]: host policies behind one trait.
//! * [`guest`]: a kernel with run queues per vCPU, and the daemon in it.
//! * [`device`]: disks and whatever else completes requests.
//! * [`program`]: what tasks do.
//! * [`engine`]: the loop that connects them.
//! * [`record`]: what vCPUs and tasks did, instant by instant.
//! * [`queue`], [`event`], [`random`]: time, order and chance.
//!
//! # Rules
//! Time is integer nanoseconds. Events are totally ordered. One seed, child
//! generators by name. No hash maps. So one configuration and one seed give one
//! run, to the last bit, on every machine.
//!
//! Policy is not here: the daemon's decisions are those of `policy::guest`, the
//! host policies those of `policy::host`, called with simulated facts.

pub mod device;
pub mod engine;
pub mod event;
pub mod guest;
pub mod hypervisor;
pub mod ids;
pub mod machine;
pub mod program;
pub mod queue;
pub mod random;
pub mod record;
