// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments on this machine under the freezer, and on real VMs.

pub mod freeze;
pub mod vm;
