// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pure decisions.
//!
//! Nothing here reads a clock, a file or a map: every function gets what it
//! needs to know as arguments and returns what should be done. The daemon, the
//! host scheduler and the simulator call the same functions, so what is
//! simulated is what runs.
//!
//! Paragraph ids (V9, K3, I16, ..) in the documentation name the rules of the
//! published systems as collected in `docs/sources.md`.

pub mod guest;
pub mod host;
