// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each VM got done in a window, where a scenario names its VMs.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

/// What one VM got done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VmWork {
    /// Its name; with several alike, `name.n`.
    pub vm: String,
    /// pCPUs that it had, in the mean over the window; on real VMs, which have a window each,
    /// over the time from the first one's opening to the last one's close.
    pub cpus: f64,
    /// Work of its pinned compute threads, in CPUs at full speed. On real VMs full speed is
    /// that beside the load without sharing; zero where that was not measured.
    pub compute: f64,
    /// Its loads, in the order of the scenario.
    pub loads: Vec<LoadWork>,
}

/// What one load of a VM got done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadWork {
    /// [`crate::scenario::Load::name`].
    pub load: String,
    /// Its threads.
    pub threads: u32,
    /// Requests, messages, rounds of a thread or milliseconds of work, per second, all
    /// threads together.
    pub ops_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean from a request's submission until the thread saw its completion, on real VMs
    /// the median; zero where there are no requests.
    pub latency: Ns,
    /// Mean round trip that the clients of this VM saw, all its loads together; zero
    /// without clients.
    pub trip: Ns,
    /// Their longest.
    pub trip_max: Ns,
}
