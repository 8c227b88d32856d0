// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the vCPUs and some tasks of one VM do, instant by instant, for a picture of
//! it. Sums over a window are in the books of `machine` and of `guest::Task`.

use policy::guest::view::Why;
use units::Ns;
use units::Time;
use units::VcpuId;

use crate::ids::TaskId;
use crate::ids::VmId;
use crate::machine::State;

/// What a task does, in the order of a request's life. On and off is what the guest
/// sees: while the host still switches to a vCPU, that vCPU is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Current on a vCPU that is on.
    Running,
    /// Waits for a request that the device works on.
    Device,
    /// Its request is done, and the vCPU that has to be told of it is off.
    Pending,
    /// Ready, on a vCPU that is on.
    Queued,
    /// Ready, on a vCPU that is off.
    QueuedOff,
    /// Current on a vCPU that is off.
    CurrentOff,
    /// Sleeps for another reason than a request, or has ended.
    Asleep,
}

impl Does {
    /// All of them, in the order of [`crate::guest::Task::spent`].
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Device,
        Self::Pending,
        Self::Queued,
        Self::QueuedOff,
        Self::CurrentOff,
        Self::Asleep,
    ];
}

/// A stretch of a task's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpell {
    /// Whose.
    pub task: TaskId,
    /// What it did.
    pub does: Does,
    /// On which vCPU it was, or last had been; of [`Does::Pending`] the one that has
    /// to be told.
    pub vcpu: VcpuId,
    /// From when.
    pub from: Time,
    /// Until when.
    pub to: Time,
}

/// A stretch of a vCPU's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuSpell {
    /// What the host did with it.
    pub state: State,
    /// From when.
    pub from: Time,
    /// Until when.
    pub to: Time,
}

/// A move of a task by the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// When it had been carried out.
    pub at: Time,
    /// How long that took, from the decision.
    pub took: Ns,
    /// Which task.
    pub task: TaskId,
    /// Where to.
    pub to: VcpuId,
    /// The rule.
    pub why: Why,
}

/// What was kept. Every list is in the order of time; its last entry may end after the
/// end of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// By vCPU of the VM, without a hole.
    pub vcpus: Vec<Vec<VcpuSpell>>,
    /// Those of each task without a hole.
    pub tasks: Vec<TaskSpell>,
    /// What the daemon did.
    pub moves: Vec<Moved>,
}

/// The machine's part of a recording.
#[derive(Clone, Debug)]
pub(crate) struct VcpuLog {
    pub(crate) vm: VmId,
    pub(crate) until: Time,
    pub(crate) vcpus: Vec<Vec<VcpuSpell>>,
}

impl VcpuLog {
    pub(crate) fn push(&mut self, vcpu: VcpuId, spell: VcpuSpell) {
        if spell.from >= self.until || spell.from == spell.to {
            return;
        }
        let Some(list) = self.vcpus.get_mut(vcpu.index()) else {
            return;
        };
        match list.last_mut() {
            Some(last) if last.state == spell.state && last.to == spell.from => {
                last.to = spell.to;
            }
            _ => list.push(spell),
        }
    }
}

/// A guest's part of a recording.
#[derive(Debug)]
pub(crate) struct TaskLog {
    pub(crate) group: u32,
    pub(crate) until: Time,
    pub(crate) tasks: Vec<TaskSpell>,
    pub(crate) moves: Vec<Moved>,
}
