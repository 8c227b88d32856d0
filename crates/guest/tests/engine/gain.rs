// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the engine does for I/O-bound threads: they leave before their vCPU does,
//! or soon after, and share the vCPUs that run.

use freezer::Event;
use units::Ns;
use units::Time;

use crate::Bed;
use crate::Done;
use crate::SECOND;
use crate::Subject;
use crate::bed::eventually;
use crate::bed::moving;
use crate::bed::now;
use crate::host::Host;
use crate::in_three_tries;
use crate::io_bound;
use crate::io_bound_for_the_engine;
use crate::subject::DEVICE_US;

/// The gaps of a time that begin while the other CPU is on and stays on for at
/// least `rest`.
fn gaps_with_a_refuge(log: &[Event], from: Time, to: Time, rest: Ns) -> Vec<Event> {
    log.iter()
        .filter(|gap| from <= gap.out && gap.back < to)
        .filter(|gap| {
            !log.iter().any(|other| {
                other.cpu != gap.cpu && other.out < gap.out + rest && other.back > gap.out
            })
        })
        .copied()
        .collect()
}

/// Thousandths of the gaps in whose first `rest` nothing was completed.
fn stalls(gaps: &[Event], done: &[Done], rest: Ns) -> u64 {
    let stalled = gaps.iter().filter(|gap| {
        let next = done.partition_point(|done| done.at < gap.out);
        done.get(next).is_none_or(|done| done.at > gap.out + rest)
    });
    stalled.count() as u64 * 1000 / gaps.len().max(1) as u64
}

/// Thousandths of the gaps that begin on the CPU of the last request.
fn at_its_cpu(gaps: &[Event], done: &[Done]) -> u64 {
    let there = gaps.iter().filter(|gap| {
        let next = done.partition_point(|done| done.at < gap.out);
        next > 0 && done[next - 1].cpu == gap.cpu
    });
    there.count() as u64 * 1000 / gaps.len().max(1) as u64
}

/// From the instant at which its vCPU is frozen: the published heartbeat (V7), after
/// which a thread shall be elsewhere, and the device time of the request that shows it.
const ELSEWHERE: Ns = Ns::from_us(300 + DEVICE_US);

/// Thousandths of the gaps that begin without the thread, or from which it is away
/// within [`ELSEWHERE`], as the CPU of the next completed request tells.
fn elsewhere(gaps: &[Event], done: &[Done]) -> u64 {
    let elsewhere = gaps.iter().filter(|gap| {
        let next = done.partition_point(|done| done.at < gap.out);
        let was_there = next > 0 && done[next - 1].cpu == gap.cpu;
        let soon = |done: &Done| done.cpu != gap.cpu && done.at <= gap.out + ELSEWHERE;
        !was_there || done.get(next).is_some_and(soon)
    });
    elsewhere.count() as u64 * 1000 / gaps.len().max(1) as u64
}

/// Lets the subjects work for three seconds.
fn window() -> (Time, Time) {
    let from = now();
    let to = from + Ns::from_secs(3);
    eventually(5 * SECOND, "three seconds are over", || now() >= to);
    (from, to)
}

/// What a subject got in a window: requests, and how often it stalled.
#[derive(Debug)]
struct Got {
    requests: usize,
    stalls: u64,
    /// Of the gaps, those of the CPU of its last request, stalled or not.
    at_its_cpu: u64,
    /// Of the gaps, those that it left before or soon after they began.
    elsewhere: u64,
}

/// For so long after a gap's beginning the other CPU is on.
const REST: Ns = Ns::from_ms(4);

fn got(bed: &Bed, subject: &Subject, (from, to): (Time, Time)) -> Got {
    let rest = REST;
    let gaps = gaps_with_a_refuge(&bed.freezer.log(), from, to, rest);
    assert!(gaps.len() > 50, "{} gaps", gaps.len());
    let done = subject.between(from, to + rest);
    Got {
        requests: done.iter().filter(|done| done.at < to).count(),
        stalls: stalls(&gaps, &done, rest),
        at_its_cpu: at_its_cpu(&gaps, &done),
        elsewhere: elsewhere(&gaps, &done),
    }
}

#[test]
fn root_an_io_bound_thread_leaves_before_or_soon_after_its_vcpu_is_frozen() {
    in_three_tries(one_task);
}

/// Of the gaps around which the host left this machine alone: see [`elsewhere`].
fn leaves(host: Host, bed: &Bed, subject: &Subject, (from, to): (Time, Time)) -> u64 {
    // A move is decided when the end of the slice is near, and made a little later.
    let log = bed.freezer.log();
    let gaps = gaps_with_a_refuge(&log, from, to, REST);
    let gaps = host.quiet(&log, &gaps, Ns::from_ms(2), ELSEWHERE);
    assert!(gaps.len() > 50, "{} quiet gaps", gaps.len());
    elsewhere(&gaps, &subject.between(from, to + REST))
}

fn one_task() {
    let bed = Bed::new();
    let subject = io_bound();
    eventually(4 * SECOND, "requests are completed", || {
        subject.done() > 500
    });
    let vanilla = window();
    let engine = bed.engine(bed.settings());
    moving(&engine, 60);
    let host = Host::watch();
    let moved = window();
    let leaves = leaves(host, &bed, &subject, moved);
    let report = engine.report();
    engine.stop();

    let vanilla = got(&bed, &subject, vanilla);
    let moved = got(&bed, &subject, moved);
    println!(
        "without {vanilla:?}, with {moved:?}, leaves {leaves}, C_avg {}",
        report.c_avg_ns
    );
    // The bed itself: without help the thread is caught now and then.
    assert!(
        vanilla.stalls >= 250 && vanilla.at_its_cpu >= 250,
        "without: {vanilla:?}"
    );
    assert!(moved.stalls * 2 <= vanilla.stalls, "{moved:?}: {report:#?}");
    // Not all: a timer is late now and then, and a move waits for its turn.
    let left_behind = |elsewhere: u64| 1000 - elsewhere;
    assert!(
        leaves >= 900 && left_behind(leaves) * 2 <= left_behind(vanilla.elsewhere),
        "without {vanilla:?}, with {moved:?}, leaves {leaves}: {report:#?}"
    );
    // 1.5 is the bound: half the time is on one CPU, three quarters on either.
    assert!(
        moved.requests * 100 >= vanilla.requests * 115,
        "without {vanilla:?}, with {moved:?}: {report:#?}"
    );
}

/// On two CPUs there is one place to go to: at a push both go there. None may be
/// forgotten for the other.
#[test]
fn root_both_of_two_tasks_leave() {
    in_three_tries(two_tasks);
}

fn two_tasks() {
    let bed = Bed::new();
    let subjects = [io_bound(), io_bound()];
    eventually(4 * SECOND, "requests are completed", || {
        subjects.iter().all(|subject| subject.done() > 500)
    });
    let vanilla = window();
    let engine = bed.engine(bed.settings());
    eventually(8 * SECOND, "both are found", || {
        let report = engine.report();
        subjects.iter().all(|s| io_bound_for_the_engine(&report, s))
    });
    moving(&engine, 60);
    let moved = window();
    let report = engine.report();
    engine.stop();

    let vanilla = subjects.each_ref().map(|s| got(&bed, s, vanilla));
    let moved = subjects.each_ref().map(|s| got(&bed, s, moved));
    println!(
        "without {vanilla:?}, with {moved:?}, C_avg {}",
        report.c_avg_ns
    );
    let stalls = vanilla[0].stalls + vanilla[1].stalls;
    assert!(stalls >= 500, "without: {vanilla:?}");
    for one in &moved {
        assert!(one.stalls * 4 <= stalls, "{moved:?}: {report:#?}");
    }
    let [slow, fast] = [vanilla, moved].map(|both| both[0].requests + both[1].requests);
    assert!(fast * 100 >= slow * 110, "{slow} and {fast}: {report:#?}");
}

/// Thousandths of the instants at which both CPUs have been on for `settled` and
/// both tasks completed their last request on the same one.
fn together(bed: &Bed, subjects: &[Subject; 2], (from, to): (Time, Time)) -> u64 {
    let settled = Ns::from_ms(2);
    let log = bed.freezer.log();
    let done = subjects.each_ref().map(|s| s.between(from, to));
    let (mut seen, mut same) = (0, 0);
    let mut at = from + settled;
    while at < to {
        let on = !log
            .iter()
            .any(|gap| gap.out <= at && gap.back > at - settled);
        let last = done.each_ref().map(|done| {
            let next = done.partition_point(|done| done.at < at);
            (next > 0).then(|| done[next - 1].cpu)
        });
        if on && let [Some(a), Some(b)] = last {
            seen += 1;
            same += u64::from(a == b);
        }
        at = at + Ns::from_us(500);
    }
    assert!(seen > 200, "{seen} instants with both CPUs on");
    same * 1000 / seen
}

/// V20: two tasks do not stay on one vCPU when the other is back.
#[test]
fn root_two_tasks_spread_when_both_vcpus_run() {
    in_three_tries(|| {
        let shares = [false, true].map(|spread| {
            let bed = Bed::new();
            let subjects = [io_bound(), io_bound()];
            let mut settings = bed.settings();
            settings.placement.spread = spread;
            let engine = bed.engine(settings);
            eventually(8 * SECOND, "both are found", || {
                let report = engine.report();
                subjects.iter().all(|s| io_bound_for_the_engine(&report, s))
            });
            moving(&engine, 60);
            let share = together(&bed, &subjects, window());
            let report = engine.report();
            println!(
                "spread {spread}: {share} permille together, {:?}, P {:?}",
                report.moves, report.p
            );
            engine.stop();
            share
        });
        assert!(shares[0] >= 600, "the bed itself: {shares:?}");
        assert!(shares[1] * 2 <= shares[0], "{shares:?}");
    });
}
