// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments on this machine under the freezer, and on real VMs.
//!
//! * [`run`]: `vlab run`, a scenario measured from start to end.
//! * [`report`]: `vlab report` and `vlab compare`; [`trace`]: `vlab trace`.
//! * [`sim`]: `vlab sim`, the same scenario simulated.
//! * [`reproduce`]: `vlab reproduce`, the papers' experiments simulated.
//! * [`load`]: `vlab load`, loads that record every step.
//! * [`freeze`]: `vlab freeze`, the freezer by hand.
//! * [`kvm`]: the same scenario on real VMs.
//! * [`vm`]: virtual machines with stock kernels, for tests.

mod child;
pub mod freeze;
pub mod kvm;
pub mod load;
pub mod part;
pub mod report;
pub mod reproduce;
pub mod run;
mod scratch;
pub mod selftest;
pub mod sim;
pub mod trace;
pub mod vm;
