// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published policies: schedules worked by hand, golden traces of small
//! mixes, and what holds for each of them.

mod all;
mod bed;
mod caps;
mod cfs;
mod gaming;
mod golden;
mod groups;
mod schedules;
pub(super) mod staged;
mod xen;
