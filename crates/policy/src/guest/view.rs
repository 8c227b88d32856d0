// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a decision is taken on: the state of the vCPUs and of the I/O-bound
//! tasks at one instant, and the moves that come out.

use units::CpuSet;
use units::Ns;
use units::Permille;
use units::TaskKey;
use units::Time;
use units::VcpuId;

/// An estimated length of time with its spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The most likely value.
    pub value: Ns,
    /// Few observations were shorter than this (a tenth of them).
    pub low: Ns,
    /// Few observations were longer than this (a tenth of them).
    pub high: Ns,
    /// How much of the recent past agrees with `value`.
    pub confidence: Permille,
}

/// What a vCPU is doing, as far as the guest can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuState {
    /// The host runs it.
    Running {
        /// Start of the present slice (t6 of V9).
        since: Time,
        /// Expected end of the slice; `None` if the estimator abstains.
        ends: Option<Window>,
        /// Expected length of the gap that will follow; `None` if unknown.
        gap: Option<Ns>,
    },
    /// The host has taken it away.
    Descheduled {
        /// When it was taken away, as exactly as the source allows.
        since: Time,
        /// When it will be back (V12); `None` if the estimator abstains.
        back: Option<Window>,
    },
    /// The guest itself halted it: not descheduled, but to use it costs a wake-up
    /// through the hypervisor.
    Idle,
    /// No data. Neither a source nor a target: no data means no action.
    Unknown,
}

/// An expected instant and the span in which it nearly always falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rarely before this.
    pub earliest: Time,
    /// Most likely here.
    pub expected: Time,
    /// Rarely after this.
    pub latest: Time,
}

/// One vCPU at the instant of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuView {
    /// Which one.
    pub id: VcpuId,
    /// What it is doing.
    pub state: VcpuState,
    /// The share of its time that the host lets it run: slice of slice and gap, as
    /// estimated ([`Timeline::share`](crate::guest::slice::Timeline::share)). `None`
    /// where the estimator abstains.
    pub share: Option<Permille>,
    /// False if the kernel's preferred-CPU mask advises against it (Linux 7.4);
    /// true where there is no such mask.
    pub preferred: bool,
}

/// What an I/O-bound task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It is the current task of its vCPU.
    Running,
    /// It is runnable and waits in its vCPU's queue since then.
    Queued(Time),
    /// It sleeps since then, on I/O or otherwise.
    Blocked(Time),
}

/// Which vCPU handles the completions of a task's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The vCPU that submitted (one queue per vCPU): completions follow the task.
    FollowsTask,
    /// Always this one (single queue, managed interrupt).
    On(VcpuId),
    /// A kernel thread waits for the device and then wakes the task (fsync on a
    /// journal, a network file system): wherever that thread is.
    ByKthread,
    /// Not enough events seen yet.
    Unknown,
}

/// One I/O-bound task at the instant of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Which one.
    pub key: TaskKey,
    /// The vCPU it runs or is queued on, or last ran on.
    pub vcpu: VcpuId,
    /// What it is doing.
    pub activity: Activity,
    /// I/O load level: the fraction f of V15.
    pub load: Permille,
    /// The share of a CPU that it would use if it never had to queue for one: [`need`].
    pub cpu_share: Permille,
    /// User-defined priority (V18); higher goes first, 0 for everyone by default.
    pub priority: i32,
    /// Where its owner allows it to run: its original mask within its cpuset.
    pub allowed: CpuSet,
    /// Usual time from issue to completion of one of its requests (90th percentile).
    pub io_latency: Ns,
    /// Where its completions arrive.
    pub completion: Completion,
}

/// The share of a CPU that a task would use if it never had to queue for one, from the
/// time for which it ran, waited for I/O, and slept for another reason: in its pauses it
/// needs none. Time in the queue is left out: half a CPU, because compute takes the other
/// half, is no small demand. Zero until it has run and waited for `enough`: the first
/// requests of a phase say little, and a task that is sent away from where its
/// completions arrive does not find back by itself.
#[must_use]
pub fn need(ran: Ns, waited: Ns, slept: Ns, enough: Ns) -> Permille {
    if ran + waited < enough {
        return Permille::ZERO;
    }
    Permille::of(ran, ran + waited + slept)
}

/// Why a task moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Its vCPU is about to be descheduled and another runs on (V17, V19).
    Push,
    /// Its vCPU is gone already and the destination runs (V22).
    Pull,
    /// No vCPU will run on; this one is back first (V12).
    SoonActive,
    /// Its completions arrive on that vCPU and nowhere else.
    Completion,
    /// It shares its vCPU with others, and that one runs longer with fewer (V20).
    Spread,
}

/// One move to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The task to move.
    pub task: TaskKey,
    /// Where it is.
    pub from: VcpuId,
    /// Where it should be.
    pub to: VcpuId,
    /// The rule that says so.
    pub why: Why,
}

impl Move {
    /// The vCPU whose thread makes the move: the source pushes, the destination
    /// pulls (V22), and takes what is spread, since it is the one that has just come
    /// back and looks. A completion move is made by whichever end runs: the source
    /// if it does, else the destination.
    #[must_use]
    pub const fn performer(&self, source_runs: bool) -> VcpuId {
        match self.why {
            Why::Push | Why::SoonActive => self.from,
            Why::Pull | Why::Spread => self.to,
            Why::Completion => {
                if source_runs {
                    self.from
                } else {
                    self.to
                }
            }
        }
    }
}

/// Why a task that might have moved stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    /// It is the current task of a descheduled vCPU: the kernel could not move
    /// it, and `sched_setaffinity` would block until that vCPU is back.
    CurrentOnDescheduled,
    /// Its owner's mask allows no better vCPU.
    NotAllowed,
    /// No other vCPU runs on or is back earlier than its own.
    NoBetterVcpu,
    /// Its vCPU will be back too soon for a move to pay.
    BackSoon,
    /// The estimator abstains: slices are unstable.
    Unstable,
    /// It sits on its completion vCPU: any move would only add a delay.
    AtCompletion,
    /// The migration budget is spent (equation 2).
    Budget,
}

/// What one evaluation says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Moves, in the order of the ranking (V19).
    pub moves: Vec<Move>,
    /// Tasks that stay although their vCPU is gone or about to go, and why.
    pub skipped: Vec<(TaskKey, Skip)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_needs_is_what_it_runs_outside_the_queue() {
        let ms = Ns::from_ms;
        let enough = ms(5);
        assert_eq!(need(ms(4), ms(6), Ns::ZERO, enough), Permille::new(400));
        // A burst of 10 ms and a pause of 30: a quarter of the time.
        assert_eq!(need(ms(4), ms(6), ms(30), enough), Permille::new(100));
        // Pauses alone say nothing about what it does when it is awake.
        assert_eq!(need(ms(2), ms(2), ms(300), enough), Permille::ZERO);
        assert_eq!(need(ms(3), ms(2), Ns::ZERO, enough), Permille::new(600));
    }
}
