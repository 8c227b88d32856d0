// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hand-worked schedules of EEVDF with three tasks in a queue: slices of 1.4 ms, ticks
//! of 4 ms. Times are virtual, in us after [`ORIGIN`].

use policy::guest::wakeup::Lever;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use super::ORIGIN;
use crate::guest::Class;
use crate::guest::Guest;
use crate::guest::KernelSettings;
use crate::guest::NewTask;
use crate::guest::TaskState;
use crate::ids::TaskId;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::program::Compute;

const A: TaskId = TaskId(0);
const B: TaskId = TaskId(1);
const R: TaskId = TaskId(2);

fn at(us: u64) -> u64 {
    ORIGIN + us * 1000
}

/// Three tasks with these run times and deadlines a slice later; the first of
/// `order` is current, the others are queued.
fn queue(vruntimes: [u64; 3], order: &[TaskId]) -> Guest {
    let mut guest = Guest::new(VmId(0), Vcpu(0), 1, KernelSettings::eevdf(2), 1);
    for _ in vruntimes {
        guest.add(NewTask {
            name: String::new(),
            group: 0,
            class: Class::Fair(1024),
            mask: CpuSet::first(1),
            vcpu: VcpuId(0),
            program: Box::new(Compute::new(Ns::from_ms(1))),
        });
    }
    for (task, us) in guest.tasks.iter_mut().zip(vruntimes) {
        task.vruntime = at(us);
        task.deadline = at(us + 1400);
    }
    guest.cpus[0].queue = order[1..].into();
    guest.cpus[0].current = Some(order[0]);
    guest.cpus[0].min_vruntime = at(0);
    guest.protect(0, order[0]);
    guest
}

/// `task` falls asleep and comes back, while nobody runs.
fn sleep_and_wake(guest: &mut Guest, task: TaskId) {
    guest.leave_queue(0, task, TaskState::BlockedIo);
    guest.cpus[0].current = None;
    guest.place_by_lag(0, task);
    guest.cpus[0].queue.push(task);
}

#[test]
fn a_new_task_has_half_a_slice() {
    let mut guest = queue([0, 0, 0], &[A, B, R]);
    let new = guest.add(NewTask {
        name: String::new(),
        group: 0,
        class: Class::Fair(2048),
        mask: CpuSet::first(1),
        vcpu: VcpuId(0),
        program: Box::new(Compute::new(Ns::from_ms(1))),
    });
    // 1.4 ms at twice the weight are 0.7 ms of virtual time.
    assert_eq!(guest.tasks[new.index()].deadline, at(350));
}

/// A, B and R have had 6, 3 and 0 ms: the average is 3 ms and R 3 ms behind. A and B
/// alone have an average of 4.5 ms, and R comes back 3 x 3/2 = 4.5 ms before that:
/// where it was, and behind by 3 ms as before.
#[test]
fn a_lag_is_the_same_after_a_sleep() {
    let mut guest = queue([6000, 3000, 0], &[R, A, B]);
    sleep_and_wake(&mut guest, R);
    let r = &guest.tasks[R.index()];
    assert_eq!((r.lag, r.vruntime), (3_000_000, at(0)));
    assert_eq!(r.deadline, at(1400));
    assert_eq!(guest.average(0, None).0, at(3000));
}

/// They have had 20, 10 and 0 ms: R is 10 ms behind and may keep 1.4 + 4 = 5.4 ms of
/// it. 5.4 x 3/2 = 8.1 ms before the average of A and B, 15 ms.
#[test]
fn a_lag_is_no_more_than_a_slice_and_a_tick() {
    let mut guest = queue([20_000, 10_000, 0], &[R, A, B]);
    sleep_and_wake(&mut guest, R);
    let r = &guest.tasks[R.index()];
    assert_eq!((r.lag, r.vruntime), (5_400_000, at(6900)));
    assert_eq!(guest.average(0, None).0, at(12_300));
}

/// The longest slice of the queue counts, not one's own.
#[test]
fn a_long_slice_beside_it_allows_more_lag() {
    let mut guest = queue([20_000, 10_000, 0], &[R, A, B]);
    guest.tasks[A.index()].lever = Some(Lever::EevdfSlice(Ns::from_ms(5)));
    guest.tasks[R.index()].lever = Some(Lever::EevdfSlice(Ns::from_us(100)));
    sleep_and_wake(&mut guest, R);
    assert_eq!(guest.tasks[R.index()].lag, 9_000_000);
}

/// B is current at 1 ms, A at 5 ms, R is queued at 0: the average is 2 ms and B,
/// eligible, is safe until its deadline of 2.4 ms, whatever R's deadline is. So it is
/// with A out of the way, when the average is 0.5 ms: B has had more and makes way.
#[test]
fn a_third_task_that_is_ahead_keeps_the_current_one_safe() {
    let mut guest = queue([5000, 1000, 0], &[B, A, R]);
    assert!(!guest.is_due_before(0, R, B));
    guest.cpus[0].queue.retain(|task| *task != A);
    assert!(guest.is_due_before(0, R, B));
}

/// R has a slice of 0.1 ms and has had 3 ms, more than the average: it does not
/// preempt, but from now on B is safe for 0.1 ms only and not for 1.4 ms.
#[test]
fn a_short_slice_that_does_not_preempt_shortens_the_protection() {
    let mut guest = queue([1000, 1000, 3000], &[B, A, R]);
    assert_eq!(guest.cpus[0].protected, at(2400));
    guest.tasks[R.index()].lever = Some(Lever::EevdfSlice(Ns::from_us(100)));
    assert!(!guest.is_due_before(0, R, B));
    assert_eq!(guest.cpus[0].protected, at(1100));
    // At the average it would have.
    guest.tasks[R.index()].vruntime = at(1000);
    guest.tasks[R.index()].deadline = at(1100);
    assert!(guest.is_due_before(0, R, B));
    assert_eq!(guest.cpus[0].protected, 0);
}

/// R falls asleep at 3 ms, ahead of the average of 2 ms: it stays. When B has run
/// from 0 to 4.5 ms the average is 3.5 ms, R owes nothing and B, past its deadline, is
/// asked to make way. R, with the earliest deadline of those that may run, is taken
/// out instead of being run; then A at 3 ms is first.
#[test]
fn who_sleeps_ahead_stays_until_it_would_run() {
    let mut guest = queue([3000, 0, 3000], &[R, A, B]);
    guest.leave_queue(0, R, TaskState::BlockedIo);
    assert_eq!(guest.cpus[0].delayed, [R]);
    guest.cpus[0].queue.retain(|task| *task != B);
    guest.cpus[0].current = Some(B);
    guest.protect(0, B);
    guest.release_before(0, B);
    assert_eq!(guest.cpus[0].delayed, [R], "B is safe");
    guest.tasks[R.index()].deadline = at(4000);
    guest.tasks[B.index()].vruntime = at(4500);
    guest.look_at_current(0);
    guest.release_before(0, B);
    assert!(guest.cpus[0].delayed.is_empty());
    assert_eq!(guest.tasks[R.index()].lag, 0);
    let next = guest.first_eligible(0).map(|n| guest.cpus[0].queue[n]);
    assert_eq!(next, Some(A));
}

/// A, B and R have had 0, 2 and 1.5 ms: R is ahead of the average, 1.17 ms, and falls
/// asleep in the queue. A, which runs, is charged for a gap of 11 ms. What wakes R then
/// is handled before the tick, and the kernel does not count what A has run when it
/// takes R back: R is where it was, and with the gap counted 3.3 ms behind. Had a tick
/// come first, R would owe nothing and be owed nothing: at the average of A and B.
#[test]
fn who_sleeps_ahead_through_a_gap_is_behind_afterwards() {
    for tick_first in [false, true] {
        let mut guest = queue([0, 2000, 1500], &[R, A, B]);
        guest.leave_queue(0, R, TaskState::BlockedIo);
        assert_eq!(guest.cpus[0].delayed, [R]);
        guest.cpus[0].queue.retain(|task| *task != A);
        guest.cpus[0].current = Some(A);
        guest.protect(0, A);
        guest.charge(0, A, Ns::from_ms(11));
        if tick_first {
            guest.note_current(0);
        }
        guest.place_by_lag(0, R);
        let r = &guest.tasks[R.index()];
        let expected = if tick_first { 6500 } else { 1500 };
        assert_eq!(
            (r.vruntime, r.deadline),
            (at(expected), at(expected + 1400))
        );
        assert_eq!(guest.tasks[A.index()].vruntime, at(11_000));
        assert!(guest.cpus[0].delayed.is_empty());
    }
}
