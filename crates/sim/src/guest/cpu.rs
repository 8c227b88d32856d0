// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One vCPU as its guest's kernel sees it.

use policy::host::rass::Cycles;
use smallvec::SmallVec;
use units::Ns;
use units::Time;

use crate::ids::TaskId;
use crate::ids::Vcpu;
use crate::machine::Pace;

/// An interrupt that a vCPU has to handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Irq {
    /// A request of a task has completed.
    Complete { task: TaskId, request: u64 },
    /// A task's sleep is over.
    Timer { task: TaskId, epoch: u32 },
    /// Another vCPU has queued something here.
    Reschedule,
    /// A timer of the daemon.
    Daemon { epoch: u32 },
    /// A message for a task: an entry in the ring that it serves.
    Message { task: TaskId, bytes: u32 },
    /// A timer of a balloon.
    Balloon { epoch: u32 },
}

/// One vCPU. Laid out as written, a line of the cache for each paragraph: what each request
/// changes comes first. With thousands of vCPUs a line that is touched costs more than what
/// is done with it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// The host runs it.
    pub(crate) on: bool,
    /// It has told the host that it has nothing to run.
    pub(crate) idle: bool,
    /// The current task should make way.
    pub(crate) resched: bool,
    /// It was taken away and did not leave: idle or not, it sees a gap.
    pub(crate) taken: bool,
    /// EEVDF: somebody has been woken who takes the CPU, and the kernel's clock stands until
    /// then (`rq_clock_skip_update()`).
    pub(crate) stands: bool,
    /// Makes work events that are out of date void.
    pub(crate) epoch: u32,
    /// What the host calls it.
    pub(crate) host: Vcpu,
    /// How its pCPU gets on.
    pub(crate) pace: Pace,
    /// The current task; stays current while the vCPU is away.
    pub(crate) current: Option<TaskId>,
    /// Accounted up to here.
    pub(crate) from: Time,
    /// Kernel work that goes before the current task's step.
    pub(crate) overhead: Ns,
    /// Work done at full speed, kernel work included.
    pub(crate) work: Ns,
    /// Least virtual run time here; under EEVDF the average when it was last
    /// written down.
    pub(crate) min_vruntime: u64,

    /// Runnable tasks that wait.
    pub(crate) queue: SmallVec<[TaskId; 4]>,
    /// Interrupts that wait for the vCPU, the oldest first.
    pub(crate) pending: SmallVec<[Irq; 1]>,
    /// Next look for more work.
    pub(crate) balance_at: Time,
    /// Of `overhead`, what no task of the simulation is charged for (EEVDF only).
    pub(crate) foreign: Ns,

    /// When it began to run, or was taken away.
    pub(crate) turned: Time,
    /// Time away with something to run or to wait for, gaps that are over.
    pub(crate) gaps: Ns,
    /// It sleeps, and since then something waits for it.
    pub(crate) called: Option<Time>,
    /// EEVDF: up to this virtual run time nobody of the same slice takes the
    /// current task's place (`RUN_TO_PARITY`).
    pub(crate) protected: u64,
    /// EEVDF: the current task's virtual run time when the kernel counted it last
    /// (`update_curr()`): at a tick, when somebody comes or goes, when it became current.
    pub(crate) known: u64,
    /// EEVDF: for how long the clock has stood: at the cost of whoever is next.
    pub(crate) stood: Ns,
    /// EEVDF: who sleeps and still counts here, because it is ahead
    /// (`DELAY_DEQUEUE`).
    pub(crate) delayed: Vec<TaskId>,
    /// What of `work` was measured beside a sibling that retained its context (M18).
    pub(crate) cycles: Cycles,
}

impl Cpu {
    pub(crate) fn new(host: Vcpu) -> Self {
        Self {
            host,
            on: false,
            turned: Time::ZERO,
            gaps: Ns::ZERO,
            called: None,
            idle: false,
            taken: false,
            pace: Pace {
                speed: 1000,
                sibling_retains: false,
            },
            current: None,
            queue: SmallVec::new(),
            min_vruntime: 0,
            delayed: Vec::new(),
            protected: 0,
            known: 0,
            from: Time::ZERO,
            overhead: Ns::ZERO,
            foreign: Ns::ZERO,
            stands: false,
            stood: Ns::ZERO,
            pending: SmallVec::new(),
            epoch: 0,
            resched: false,
            work: Ns::ZERO,
            cycles: Cycles::default(),
            balance_at: Time::ZERO,
        }
    }

    /// Time away up to `now`; of a sleep only what followed its end.
    pub(crate) fn away(&self, now: Time) -> Ns {
        let since = match self.called {
            _ if self.on => None,
            None if self.idle => None,
            Some(called) if self.idle => Some(called),
            _ => Some(self.turned),
        };
        self.gaps + since.map_or(Ns::ZERO, |since| now.since(since))
    }

    /// Real time that `work` at full speed takes here, rounded up.
    pub(crate) fn time_for(&self, work: Ns) -> Ns {
        if self.pace.speed == 1000 {
            return work;
        }
        let speed = u128::from(self.pace.speed.max(1));
        Ns((u128::from(work.0) * 1000).div_ceil(speed) as u64)
    }
}
