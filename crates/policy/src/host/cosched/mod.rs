// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coscheduling before JUPITER (O1..O8): threads of one VM wait for each other,
//! so it matters which of its vCPUs run at the same time.
//!
//! * [`balance`]: siblings on different cores, nothing more (O2).
//! * [`gang`]: all ready vCPUs of a VM together or not at all (conventional, O3);
//!   with a relax level a part of them is enough (O5).
//! * [`demand`]: who sends or receives IPIs is preferred (O4).
//! * [`bucket`]: unused slice may be saved up to a limit (O6).
//!
//! Slices, preemption and priorities of these are not stated (O7): they are
//! fields of the settings.

pub mod balance;
pub mod bucket;
pub mod demand;
pub mod gang;

#[cfg(test)]
mod example;
