// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One experiment, whatever runs it: the scenario file, the result file, the
//! statistics and the text report.
//!
//! * [`scenario`]: what is to be measured, read from TOML. Nothing in it names
//!   a backend: the same file is meant for this machine under the freezer, for
//!   real VMs and for the simulator.
//! * [`result`]: what was measured, one versioned JSON document. Facts only;
//!   ratios and verdicts are derived from it and never stored.
//! * [`lab`]: what is known of a run on real VMs beyond that.
//! * [`stats`]: medians, spreads, bootstrap intervals, verdicts. Pure.
//! * [`decompose`]: where the time of an I/O-bound thread went. Pure.
//! * [`bound`]: how much any placement of tasks could gain at most. Pure.
//! * [`analysis`]: a result turned into the rows of a report. Pure.
//! * [`report`]: those rows as text or as a page.
//! * [`compare`]: two results against each other. Pure.
//! * [`reproduction`]: the papers' experiments beside what was published.
//! * [`chrome`]: what was recorded, as a trace for ui.perfetto.dev. Pure.

pub mod analysis;
pub mod bound;
pub mod chrome;
pub mod compare;
pub mod decompose;
pub mod lab;
pub mod recovery;
pub mod report;
pub mod reproduction;
pub mod result;
pub mod scenario;
pub mod stats;
