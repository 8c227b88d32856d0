// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices as data, for the simulator: on a real machine they are there.

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

/// One `[[device]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Loads name it so.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Requests and completions go through the driver domain (6.1), not straight to
    /// the device (vhost).
    pub behind_driver: bool,
    /// The vCPU of each VM on which all its completions arrive; `None`: where they were
    /// submitted.
    pub completion_vcpu: Option<u32>,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A solid-state disk.
    Ssd {
        /// Median time to the first byte.
        latency: Ns,
        /// Its spread: sigma of the logarithm in thousandths.
        spread_permille: u32,
        /// Requests that it works on at once.
        parallelism: u32,
        /// 10^6 bytes per second.
        mb_per_s: f64,
        /// Lost when a request is not of the stream of the one before.
        turn: Ns,
    },
    /// A hard disk.
    Hdd {
        /// Mean seek and rotation, for a request that is not right behind the last one.
        seek: Ns,
        /// 10^6 bytes per second under the head.
        mb_per_s: f64,
        /// The I/O scheduler.
        scheduler: Elevator,
    },
    /// A network with the clients at its other end.
    Network {
        /// 10^6 bytes per second of the wire.
        mb_per_s: f64,
        /// Median time under way in one direction.
        under_way: Ns,
        /// Its spread: sigma of the logarithm in thousandths.
        spread_permille: u32,
        /// From one message of a client to its next one.
        interval: Ns,
    },
}

/// The scheduler of a hard disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheduler", rename_all = "kebab-case")]
pub enum Elevator {
    /// The oldest request is next.
    WorkConserving,
    /// Waits for the next request of the task that had the last one (C13 to C15).
    NonWorkConserving {
        /// At most so long: 8 ms (C15).
        wait: Ns,
        /// After so long another task has its turn.
        turn: Ns,
    },
}

/// The median of log-normal times, from their mean and from sigma of their logarithm in
/// thousandths: `mean * exp(-sigma^2 / 2)`.
#[must_use]
pub fn median_of_mean(mean: Ns, spread_permille: u32) -> Ns {
    let sigma = f64::from(spread_permille) / 1000.0;
    Ns((mean.as_ns() as f64 * (-sigma * sigma / 2.0).exp()) as u64)
}
