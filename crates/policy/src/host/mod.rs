// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host scheduler's decisions: every published policy, one module each.
//!
//! | module | system | paragraphs |
//! |---|---|---|
//! | [`credit`] | Xen Credit1 and Credit2 | K1..K15 |
//! | [`isacs`] | ISACS, on Credit2 | I1..I19, A1..A8 |
//! | [`ische`] | iSche: I/O cores and general cores | S1..S9 |
//! | [`vslicer`] | vSlicer: short slices for latency | SL1..SL7 |
//! | [`halt`] | Blocking, Polling, HaltPoll, enhanced HaltPoll | B1..B7 |
//! | [`ltcr`], [`rass`], [`monitor`], [`adjuster`] | vSMT-IO | M1..M28 |
//! | [`cosched`] | balance, conventional, demand-based, relaxed; leaky bucket | O1..O8 |
//! | [`jupiter`] | JUPITER: DATS, DASL, RCR, ELB, auto-disable | J1..J18 |
//!
//! # How they are called
//!
//! There are two callers. The simulator runs everything; the real host scheduler
//! takes the fast rules in BPF (through `include/credit*.h`, the same arithmetic)
//! and runs the slow ones in user space on counters that it reads from maps. So:
//!
//! * State is small plain structs, one per vCPU (`Vcpu`) or per run queue or
//!   core. The caller keeps them in one table (a slice) and names a vCPU by its
//!   **position in that table**; nothing here allocates ids or owns threads.
//! * Fast rules are functions of that state: `on_wake`, `on_charge`, `pick`,
//!   `slice`. Slow rules take a table of counters for one period and return
//!   what to change (swaps, weights, labels); they change nothing themselves.
//! * Instants and durations are arguments ([`units::Time`], [`units::Ns`]).
//!   Where chance is part of the rule (S2) so is the seed.
//! * Each module has a `Settings`, whose `Default` is the published system. What
//!   the sources leave open is a field, and so is each ambiguous reading; a fix
//!   of ours for a weakness is a field too, off by default. The documentation of
//!   the field says which of the three it is.

pub mod adjuster;
pub mod cosched;
pub mod credit;
pub mod halt;
pub mod isacs;
pub mod ische;
pub mod jupiter;
pub mod ltcr;
pub mod monitor;
pub mod rass;
pub mod vslicer;

#[cfg(test)]
mod gaming;
