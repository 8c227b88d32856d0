// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sensing and acting inside a VM.
//!
//! Data flow: BPF programs and slice timers (`sense`) feed the pure rules of
//! `policy::guest`; what those decide is carried out by `act`; `engine` owns
//! the threads and joins the three; [`disks`] reads what Linux says of the disks;
//! [`report`] is what the outside may see.

pub mod act;
pub mod disks;
pub mod engine;
pub mod report;
pub mod sense;
pub mod settings;
