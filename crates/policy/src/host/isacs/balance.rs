// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Algorithm 2: I/O load balancing.

use units::Ns;

use super::Choice;
use super::Settings;

/// What algorithm 2 looks at of one run queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLoad {
    /// IOload: sum of the IVCredits given in its last reallocation.
    pub io_load: Ns,
    /// IOevent: response events of its vCPUs.
    pub io_events: u64,
}

/// One vCPU to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Position in the table.
    pub vcpu: usize,
    /// Index of the queue it goes to.
    pub to: usize,
}

/// After `source` has reallocated: the vCPU that goes elsewhere, if any; at most
/// one (A7). `members` are the source's vCPUs with their IVCredits.
///
/// As published the last queue with fewer events and the last vCPU that fits win.
#[must_use]
pub fn balance(
    source: usize,
    queues: &[QueueLoad],
    members: &[(usize, Ns)],
    settings: &Settings,
) -> Option<Balance> {
    let from = queues.get(source)?;
    let mut candidates =
        (0..queues.len()).filter(|&q| q != source && queues[q].io_events < from.io_events);
    let to = match settings.choice {
        Choice::Last => candidates.next_back(),
        Choice::Best => candidates.min_by_key(|&q| (queues[q].io_events, q)),
    }?;
    let target = queues[to].io_load;
    // Without saturation: an IVCredit is part of the source's load, so the
    // subtraction cannot go below zero.
    let mut fitting = members
        .iter()
        .filter(|&&(_, iv)| target + iv < from.io_load - iv);
    let left_over = |iv: Ns| (target + iv).abs_diff(from.io_load - iv);
    let vcpu = match settings.choice {
        Choice::Last => fitting.next_back(),
        Choice::Best => fitting.min_by_key(|&&(vcpu, iv)| (left_over(iv), vcpu)),
    }?;
    Some(Balance { vcpu: vcpu.0, to })
}
