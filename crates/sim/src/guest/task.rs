// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task of a guest.

use policy::guest::wakeup::Lever;
use policy::host::rass::Cycles;
use smallvec::SmallVec;
use units::CpuSet;
use units::Ns;
use units::Permille;
use units::Time;
use units::VcpuId;

use crate::program::Done;
use crate::program::Program;
use crate::random::Random;
#[cfg(doc)]
use crate::record::Does;

/// How a task is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// By fair shares, with this weight (1024 is nice 0).
    Fair(u32),
    /// Before every fair task, until it sleeps (`SCHED_FIFO`).
    Fifo,
}

/// What a task's cycles go into with a core to itself, M18's B and M: for the rest, W, it
/// waits for units of the core. Nothing of both: not known, and nothing is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Cycles in which it issues.
    pub base: Permille,
    /// Cycles in which it waits for memory.
    pub miss: Permille,
}

impl Profile {
    pub(crate) fn is_known(self) -> bool {
        self != Self::default()
    }

    /// Counts so much work.
    pub(crate) fn spend(self, work: Ns, cycles: &mut Cycles) {
        let part = |of: Permille| work.scaled(u64::from(of.get()), 1000).as_ns();
        cycles.total += work.as_ns();
        cycles.base += part(self.base);
        cycles.miss += part(self.miss);
    }
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The current task of its vCPU.
    Current,
    /// In its vCPU's queue.
    Queued,
    /// Waits for a request.
    BlockedIo,
    /// Sleeps for another reason.
    Blocked,
    /// Has ended.
    Exited,
}

/// What a task's current step still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing: its program is asked for the next step.
    Ready,
    /// CPU time at full speed.
    Computing(Ns),
    /// Spins for at most so much CPU time at full speed.
    Spinning(Ns),
    /// It has been let go at this barrier, and lets the next go.
    Leaving(u32),
}

/// A task. Laid out as written, a line of the cache for each paragraph: what each step
/// changes comes first, then what each request does.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Task {
    /// What it is doing.
    pub state: TaskState,
    /// It has just come from another vCPU and waits for what it left behind.
    pub(crate) in_transit: bool,
    /// What its cycles go into.
    pub profile: Profile,
    /// The vCPU on which it runs or is queued, or last was.
    pub vcpu: VcpuId,
    /// Where it ran last; a run elsewhere costs a migration.
    pub(crate) ran_on: VcpuId,
    pub(crate) doing: Doing,
    /// How it is scheduled.
    pub class: Class,
    /// Since when it is in its state.
    pub since: Time,
    /// Booked there up to here.
    pub(crate) booked: Time,
    pub(crate) vruntime: u64,

    /// Run time in its present slice.
    pub(crate) slice_ran: Ns,
    /// Time on the CPU, without stolen time.
    pub on_cpu: Ns,
    /// Submission times of its requests in flight, oldest first, by number.
    pub(crate) in_flight: SmallVec<[(u64, Time); 1]>,
    /// The time that its vCPU has been away, as of when it was settled last.
    pub(crate) away_seen: Ns,
    pub(crate) program: Box<dyn Program>,

    /// Where its time went, in the order of [`Does::ALL`]; together all of it.
    pub spent: [Ns; 7],
    /// Times it was put on a CPU.
    pub switches: u64,

    /// Time queued while its vCPU ran.
    pub queued: Ns,
    /// Time queued, current or waiting for I/O on a vCPU that was away: none of it
    /// can issue a request (C2).
    pub inactive: Ns,
    /// When it last left a vCPU for another.
    pub(crate) left_at: Time,
    /// The barrier or lock it spins or is blocked at.
    pub(crate) awaits: Awaits,
    /// Submission times of completed requests that it has not taken yet, oldest first.
    pub(crate) completed: SmallVec<[Time; 2]>,
    /// What its next step is told: see `Cx::since`.
    pub(crate) told: Time,

    /// What it has got done.
    pub done: Done,
    /// Of `on_cpu`, time with requests of its own in flight.
    pub io_on_cpu: Ns,
    /// What the daemon does for it at wake-up.
    pub(crate) lever: Option<Lever>,
    pub(crate) random: Random,

    /// Time blocked on I/O.
    pub blocked_io: Ns,
    /// Where it may run now: within `owned_mask`, narrowed by the daemon.
    pub mask: Mask,
    /// Its requests that are done, with the vCPU that is off and has to be told.
    pub(crate) arrived: SmallVec<[(u64, VcpuId); 1]>,
    /// Data of the message that it received last.
    pub(crate) received: u32,
    pub(crate) sleep_epoch: u32,
    /// Which measured group it belongs to.
    pub group: u32,

    /// Times it ran on another vCPU than before.
    pub moved: u64,
    /// Time that its moves have held it up while its vCPU ran (C_avg of equation (1)):
    /// it issues no request then either.
    pub held_up: Ns,
    /// EEVDF: its virtual deadline.
    pub(crate) deadline: u64,
    /// EEVDF: how far it was behind the average when it fell asleep.
    pub(crate) lag: i64,
    /// What it has not received yet.
    pub(crate) mailbox: std::collections::VecDeque<Message>,
    /// Where its owner allows it to run.
    pub owned_mask: Mask,
    /// Its name in reports.
    pub name: String,
}

/// The vCPUs of its VM on which a task may run: as [`CpuSet`], of which a guest of up to 64
/// vCPUs needs a sixteenth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// vCPUs 0 to 63.
    low: u64,
    /// Where there are others: all.
    all: Option<Box<CpuSet>>,
}

impl Mask {
    /// Is this vCPU in it?
    #[must_use]
    pub fn contains(&self, vcpu: VcpuId) -> bool {
        match &self.all {
            Some(all) => all.contains(vcpu),
            None => vcpu.0 < 64 && self.low & (1 << vcpu.0) != 0,
        }
    }

    /// As a set.
    #[must_use]
    pub fn set(&self) -> CpuSet {
        let low = || CpuSet::from_words(&[self.low]);
        self.all.as_deref().copied().unwrap_or_else(low)
    }
}

impl From<CpuSet> for Mask {
    fn from(set: CpuSet) -> Self {
        let [low, others @ ..] = set.words();
        let more = others.iter().any(|word| *word != 0);
        Self {
            low: *low,
            all: more.then(|| Box::new(set)),
        }
    }
}

/// In a task's mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) sent: Time,
    /// Data that comes with it.
    pub(crate) bytes: u32,
}

impl Task {
    /// It receives this.
    pub(crate) const fn take(&mut self, message: Message) {
        self.told = message.sent;
        self.received = message.bytes;
    }
}

/// What a spinning or blocked task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    Nothing,
    Request,
    Message,
    Timer,
    Barrier(u32),
    Lock(u32),
}

impl Task {
    /// Weight for virtual time.
    pub(crate) const fn weight(&self) -> u32 {
        match self.class {
            Class::Fair(weight) => {
                if weight == 0 {
                    1
                } else {
                    weight
                }
            }
            Class::Fifo => 1024,
        }
    }

    pub(crate) fn runnable(&self) -> bool {
        matches!(self.state, TaskState::Current | TaskState::Queued)
    }

    /// CPU time at full speed until its step is done; `None`: it has to be asked.
    pub(crate) const fn left(&self) -> Option<Ns> {
        match self.doing {
            Doing::Ready | Doing::Leaving(_) => None,
            Doing::Computing(left) | Doing::Spinning(left) => Some(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_sets() {
        for set in [
            CpuSet::EMPTY,
            CpuSet::first(12),
            CpuSet::first(64),
            CpuSet::first(65),
            CpuSet::only(VcpuId(1023)),
        ] {
            let mask = Mask::from(set);
            assert_eq!(mask.set(), set);
            for vcpu in (0..1030).map(VcpuId) {
                assert_eq!(mask.contains(vcpu), set.contains(vcpu), "{vcpu} {set}");
            }
        }
    }

    /// The paragraphs of the structs are lines of the cache.
    #[test]
    fn a_paragraph_is_a_line() {
        use std::mem::offset_of;
        for (at, line) in [
            (offset_of!(Task, slice_ran), 1),
            (offset_of!(Task, spent), 2),
            (offset_of!(Task, queued), 3),
            (offset_of!(Task, done), 4),
            (offset_of!(Task, blocked_io), 6),
            (offset_of!(Task, moved), 7),
            (offset_of!(crate::guest::Cpu, queue), 1),
            (offset_of!(crate::guest::Cpu, turned), 2),
        ] {
            assert_eq!(at, line * 64);
        }
    }
}
