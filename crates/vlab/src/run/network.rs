// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads on a network: programs that began as the simulator's, and that real VMs can run.

use experiment::scenario::DeviceKind;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use experiment::scenario::Program;
use experiment::scenario::Scenario;
use units::Ns;

/// What a real VM runs for a load on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnNetwork {
    /// Answers messages: [`crate::load::echo`].
    Echo {
        /// Work before an answer.
        work: Ns,
        /// Threads, each with a client.
        threads: u16,
    },
    /// Sends all that the network takes: [`crate::load::stream`].
    Stream {
        /// Bytes of one block.
        block_bytes: u32,
        /// Threads, each with a connection.
        threads: u32,
    },
}

/// What a VM of so many vCPUs runs for this load, if that uses a network.
pub(crate) fn on_network(kind: &LoadKind, vcpus: u32) -> Option<OnNetwork> {
    let LoadKind::Simulated { program } = kind else {
        return None;
    };
    let threads = program.threads().count.unwrap_or(vcpus);
    match *program {
        Program::Echo { work, .. } => Some(OnNetwork::Echo {
            work,
            threads: u16::try_from(threads).unwrap_or(u16::MAX),
        }),
        // One that writes to a disk is not among what real VMs run.
        Program::Reader {
            write: true,
            block_bytes,
            ..
        } => Some(OnNetwork::Stream {
            block_bytes,
            threads,
        }),
        _ => None,
    }
}

/// Does any load use a network?
pub(crate) fn is_needed(scenario: &Scenario) -> bool {
    let mut loads = scenario.all_loads();
    loads.any(|load| on_network(&load.kind, 1).is_some())
}

/// From one message of a client to its next one.
pub(crate) fn interval(scenario: &Scenario, load: &Load) -> Option<Ns> {
    let of = |name: &String| scenario.devices.iter().find(|device| device.name == *name);
    match load.device.as_ref().and_then(of)?.kind {
        DeviceKind::Network { interval, .. } => Some(interval),
        DeviceKind::Ssd { .. } | DeviceKind::Hdd { .. } => None,
    }
}
