// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that can happen.

use units::CpuId;
use units::VcpuId;

use crate::ids::DeviceId;
use crate::ids::TaskId;
use crate::ids::Vcpu;
use crate::ids::VmId;

/// What goes first at one instant. The order is deliberate: the outside world
/// before the CPUs, a CPU's own work before the scheduler that may take it away,
/// and a rescheduling after everything that can ask for one, so that it happens
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// A device or a client.
    Device,
    /// An interrupt arrives at a vCPU.
    Interrupt,
    /// A vCPU's own work: a task's step ends, its guest slice ends.
    Work,
    /// The daemon in a guest.
    Daemon,
    /// A vCPU begins to run after a switch.
    Enter,
    /// The hypervisor's ticks, timers and slow loop.
    Host,
    /// A pCPU picks its next vCPU.
    Resched,
}

/// One event. Small and closed: no allocation, no virtual call.
///
/// An `epoch` makes an event void when what it speaks of has changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A device's own clock.
    Device {
        /// Which device.
        device: DeviceId,
        /// What the device makes of it.
        token: u64,
    },
    /// A client or another outside source of a VM acts.
    Client {
        /// Whose.
        vm: VmId,
        /// Which.
        token: u64,
    },
    /// A request completes: its interrupt goes to a vCPU.
    Complete {
        /// The vCPU whose interrupt it is.
        vcpu: Vcpu,
        /// Who waits for it.
        task: TaskId,
        /// The request's number in its VM.
        request: u64,
    },
    /// A sleeping task's timer expires on a vCPU.
    Timer {
        /// The vCPU on which the timer was set.
        vcpu: Vcpu,
        /// Who sleeps.
        task: TaskId,
        /// Which of its sleeps.
        epoch: u32,
    },
    /// A message for a task of a driver domain: its ring has an entry (6.1 b, d).
    Message {
        /// The vCPU that is told.
        vcpu: Vcpu,
        /// The task.
        task: TaskId,
        /// Data that it has to copy.
        bytes: u32,
    },
    /// A balloon of a guest may change.
    Balloon {
        /// Where.
        vcpu: Vcpu,
        /// Void if it has changed.
        epoch: u32,
    },
    /// The next thing on a vCPU that runs: a task's step or guest slice ends.
    Work {
        /// Which vCPU.
        vcpu: Vcpu,
        /// Void if it has changed.
        epoch: u32,
    },
    /// The daemon of a guest wakes on one of its vCPUs.
    Daemon {
        /// Whose.
        vm: VmId,
        /// Where.
        vcpu: VcpuId,
        /// Void if it has changed.
        epoch: u32,
    },
    /// A VM's vCPU comes up ([`crate::engine::Sim::spread_starts`]).
    Start {
        /// Which.
        vcpu: Vcpu,
    },
    /// A vCPU begins to run: the switch is over.
    Enter {
        /// Where.
        pcpu: CpuId,
        /// Who.
        vcpu: Vcpu,
        /// The vCPU's; void if it has changed.
        epoch: u32,
    },
    /// The time limit of a poll or a retention is up.
    WaitEnd {
        /// Whose.
        vcpu: Vcpu,
        /// Void if it has changed.
        epoch: u32,
    },
    /// The slice of the vCPU on this pCPU is used up.
    SliceEnd {
        /// Where.
        pcpu: CpuId,
        /// Void if it has changed.
        epoch: u32,
    },
    /// The hypervisor's tick.
    HostTick,
    /// The hypervisor's slow loop.
    HostSlow,
    /// A timer that the policy set.
    HostTimer {
        /// The policy's own name for it.
        token: u64,
    },
    /// A pCPU picks its next vCPU.
    Resched {
        /// Which.
        pcpu: CpuId,
    },
}

impl Event {
    /// Events that void their predecessor, of which the agenda keeps the newest
    /// alone: a kind (below [`Event::SLOTS`]), and a number for each vCPU's work, end of
    /// wait, and each pCPU's slice.
    #[must_use]
    pub const fn slot(&self) -> Option<(usize, usize)> {
        match self {
            Self::Work { vcpu, .. } => Some((0, vcpu.index())),
            Self::WaitEnd { vcpu, .. } => Some((1, vcpu.index())),
            Self::SliceEnd { pcpu, .. } => Some((2, pcpu.index())),
            _ => None,
        }
    }

    /// Kinds of slots.
    pub const SLOTS: usize = 3;

    /// Its place among the events of one instant.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        match self {
            Self::Device { .. } | Self::Client { .. } => Rank::Device,
            Self::Complete { .. }
            | Self::Timer { .. }
            | Self::Message { .. }
            | Self::Balloon { .. } => Rank::Interrupt,
            Self::Work { .. } => Rank::Work,
            Self::Daemon { .. } => Rank::Daemon,
            Self::Start { .. } | Self::Enter { .. } => Rank::Enter,
            Self::WaitEnd { .. } | Self::SliceEnd { .. } => Rank::Host,
            Self::HostTick | Self::HostSlow | Self::HostTimer { .. } => Rank::Host,
            Self::Resched { .. } => Rank::Resched,
        }
    }
}
