// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures that follow from the facts of a result, for programs that read the file and
//! do not want to know how. Written, never read back.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Phase;
use super::RunResult;

/// A result with them.
#[derive(Debug, Serialize)]
pub(super) struct Written<'a> {
    #[serde(flatten)]
    facts: &'a RunResult,
    /// By phase, in the same order; phases of which nothing follows are left out.
    derived: Vec<Derived<'a>>,
}

/// What follows from the facts of one phase.
#[derive(Debug, Serialize)]
struct Derived<'a> {
    load: &'a str,
    arm: &'a str,
    vms_per_pcpu: u32,
    round: u32,
    /// N_migrate / N_min; absent without a daemon or slices.
    #[serde(rename = "P", skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    /// Seconds of I/O inactivity time per second; absent where nobody counted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    io_inactivity_share: Option<f64>,
    /// [`super::Books::shares`], by VM.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cpu_share: BTreeMap<&'a str, f64>,
    /// [`super::Books::fairness`].
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness_jain: Option<f64>,
}

impl<'a> Written<'a> {
    pub(super) fn new(facts: &'a RunResult) -> Self {
        Self {
            facts,
            derived: facts.phases.iter().filter_map(Derived::of).collect(),
        }
    }
}

impl<'a> Derived<'a> {
    fn of(phase: &'a Phase) -> Option<Self> {
        let (books, daemon) = (phase.books.as_ref(), phase.daemon.as_ref());
        if books.is_none() && daemon.is_none() {
            return None;
        }
        let seconds = phase.window.as_secs_f64();
        let inactive = books.map(|books| books.io_inactivity);
        let inactive = inactive.or_else(|| daemon.map(|daemon| daemon.io_inactivity));
        let shares = books.map(|books| books.shares(phase.window));
        let names = books.map_or(&[][..], |books| &books.vms);
        Some(Self {
            load: &phase.load,
            arm: &phase.arm,
            vms_per_pcpu: phase.vms_per_pcpu,
            round: phase.round,
            p: daemon
                .filter(|daemon| daemon.n_min > 0)
                .map(|daemon| daemon.n_migrate as f64 / daemon.n_min as f64),
            io_inactivity_share: inactive
                .filter(|_| seconds > 0.0)
                .map(|time| time.as_secs_f64() / seconds),
            cpu_share: names
                .iter()
                .map(|vm| vm.name.as_str())
                .zip(shares.unwrap_or_default())
                .collect(),
            fairness_jain: books.and_then(super::Books::fairness),
        })
    }
}
