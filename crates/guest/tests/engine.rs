// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine on this machine, under the freezer: what it does for a task, and
//! what it leaves alone. As root, `--test-threads=1`.

#![allow(clippy::unwrap_used, reason = "the helpers are tests too")]

#[path = "engine/bed.rs"]
mod bed;
#[path = "engine/subject.rs"]
mod subject;

use std::time::Duration;

use bed::Bed;
use bed::CPUS;
use bed::SLICE;
use bed::becomes;
use bed::eventually;
use bed::moves;
use bed::moving;
use bed::now;
use bed::throughout;
use freezer::Event;
use guest::engine::Engine;
use guest::report::Mode;
use guest::report::Program;
use guest::report::Report;
use guest::settings::Settings;
use guest::settings::SourceChoice;
use policy::guest::trial;
use subject::Done;
use subject::Order;
use subject::STORM;
use subject::Subject;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

const SECOND: Duration = Duration::from_secs(1);

/// Not a test: the program that the engine moves.
#[test]
#[ignore = "started by the tests"]
fn subject_program() {
    subject::run();
}

/// A subject that does I/O.
fn io_bound() -> Subject {
    let subject = Subject::start();
    subject.order(Order::Io);
    subject
}

fn io_bound_for_the_engine(report: &Report, subject: &Subject) -> bool {
    report.tasks.iter().any(|task| task.tid == subject.tid())
}

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
}

fn got(bed: &Bed, subject: &Subject, (from, to): (Time, Time)) -> Got {
    let rest = Ns::from_ms(4);
    let gaps = gaps_with_a_refuge(&bed.freezer.log(), from, to, rest);
    assert!(gaps.len() > 50, "{} gaps", gaps.len());
    let done = subject.between(from, to + rest);
    Got {
        requests: done.iter().filter(|done| done.at < to).count(),
        stalls: stalls(&gaps, &done, rest),
        at_its_cpu: at_its_cpu(&gaps, &done),
    }
}

/// For claims about a gain: a hypervisor below this machine may take CPU away at
/// any time, which can hide a gain and never feigns one. So one good try of three
/// proves it, and each that failed is printed.
fn in_three_tries(attempt: impl Fn()) {
    for left in [2, 1] {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&attempt)) {
            Ok(()) => return,
            Err(_) => println!("failed, {left} tries left"),
        }
    }
    attempt();
}

#[test]
fn root_an_io_bound_thread_leaves_before_or_soon_after_its_vcpu_is_frozen() {
    in_three_tries(one_task);
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
    let moved = window();
    let report = engine.report();
    engine.stop();

    let vanilla = got(&bed, &subject, vanilla);
    let moved = got(&bed, &subject, moved);
    println!(
        "without {vanilla:?}, with {moved:?}, C_avg {}",
        report.c_avg_ns
    );
    // The bed itself: without help the thread is caught now and then.
    assert!(
        vanilla.stalls >= 250 && vanilla.at_its_cpu >= 250,
        "without: {vanilla:?}"
    );
    assert!(moved.stalls * 2 <= vanilla.stalls, "{moved:?}: {report:#?}");
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

#[test]
fn root_the_end_of_a_burst_releases_the_task() {
    let bed = Bed::new();
    let subject = Subject::start();
    let original = subject.mask();
    let engine = bed.engine(bed.settings());
    for end in [Order::Compute, Order::Sleep] {
        subject.order(Order::Io);
        moving(&engine, 10);
        eventually(SECOND, "moved", || subject.mask().len() == 1);
        subject.order(end);
        eventually(SECOND, "released", || {
            subject.mask() == original && !io_bound_for_the_engine(&engine.report(), &subject)
        });
        let moved = moves(&engine.report());
        throughout(SECOND / 2, || {
            assert_eq!(subject.mask(), original, "after {end:?}");
        });
        assert_eq!(moves(&engine.report()), moved, "after {end:?}");
    }
    engine.stop();
}

/// The settings with trials, which begin early.
fn with_trials(bed: &Bed) -> Settings {
    let trial = trial::Settings {
        first: Ns::from_ms(300),
        rest: Ns::from_ms(1500),
        ..trial::Settings::default()
    };
    Settings {
        trial,
        ..bed.settings()
    }
}

/// What is known of the only program.
fn program(engine: &Engine) -> Option<Program> {
    engine.report().programs.into_iter().next()
}

/// Do no harm: a program that does better without us is let go, and stays so until
/// it does not any more.
#[test]
fn root_a_program_that_does_better_alone_is_left_alone() {
    let bed = Bed::new();
    let subject = Subject::start();
    let original = subject.mask();
    subject.order(Order::Wary);
    let engine = bed.engine(with_trials(&bed));
    moving(&engine, 5);
    let believes = |what: &str| program(&engine).is_some_and(|p| p.believed == what);
    eventually(12 * SECOND, "it is known to do better alone", || {
        believes("free")
    });
    let free = program(&engine).unwrap();
    assert!(!free.held && free.trials == 1, "{free:?}");
    assert!(free.free_to_held.unwrap() > 1.5, "{free:?}");
    let moved = moves(&engine.report());
    throughout(SECOND, || assert_eq!(subject.mask(), original));
    assert_eq!(moves(&engine.report()), moved);
    assert!(bed.journal_is_empty());

    subject.order(Order::Io);
    eventually(15 * SECOND, "it is held again", || believes("held"));
    let summary = engine.stop();
    assert_eq!(subject.mask(), original);
    assert_eq!((summary.failed, summary.foreign), (0, 0), "{summary}");
}

#[test]
fn root_a_program_that_gains_is_let_go_for_a_moment() {
    in_three_tries(|| {
        let bed = Bed::new();
        let subject = io_bound();
        let original = subject.mask();
        let engine = bed.engine(with_trials(&bed));
        eventually(8 * SECOND, "it is let go", || {
            program(&engine).is_some_and(|program| !program.held)
        });
        eventually(SECOND, "as its owner made it", || {
            subject.mask() == original
        });
        eventually(5 * SECOND, "it has been compared", || {
            program(&engine).is_some_and(|program| program.trials > 0)
        });
        let held = program(&engine).unwrap();
        assert!(held.held && held.believed == "held", "{held:?}");
        assert!(held.free_to_held.unwrap() < 1.0, "{held:?}");
        eventually(SECOND, "it is moved again", || subject.mask().len() == 1);
        engine.stop();
        assert_eq!(subject.mask(), original);
    });
}

#[test]
fn root_masks_and_policies_are_back_after_stop() {
    let bed = Bed::new();
    let subjects = [io_bound(), io_bound()];
    let state = || {
        subjects
            .each_ref()
            .map(|subject| (subject.mask(), subject.scheduling()))
    };
    let before = state();
    assert_eq!(before[0].0, CpuSet::first(CPUS));
    let engine = bed.engine(bed.settings());
    moving(&engine, 20);
    eventually(2 * SECOND, "both are held", || {
        subjects.iter().all(|subject| subject.mask().len() == 1)
    });
    assert!(!bed.journal_is_empty());
    let summary = engine.stop();
    assert_eq!(state(), before);
    assert!(bed.journal_is_empty());
    assert_eq!((summary.failed, summary.foreign), (0, 0), "{summary}");
    assert!(summary.restored >= 2, "{summary}");
}

#[test]
fn root_a_task_pinned_by_its_owner_never_moves() {
    let bed = Bed::new();
    let pinned = Subject::start();
    let here = CpuSet::only(VcpuId(0));
    pinned.set_mask(&here);
    pinned.order(Order::Io);
    // Another one shows that the engine is at work.
    let free = io_bound();
    let engine = bed.engine(bed.settings());
    moving(&engine, 10);
    let (moved, done) = (moves(&engine.report()), pinned.done());
    throughout(2 * SECOND, || assert_eq!(pinned.mask(), here));
    let report = engine.report();
    assert!(io_bound_for_the_engine(&report, &free));
    assert!(!io_bound_for_the_engine(&report, &pinned));
    assert!(moves(&report) > moved, "{report:#?}");
    assert!(pinned.done() > done + 500, "it was I/O-bound all along");
    engine.stop();
    assert_eq!(pinned.mask(), here);
}

/// Wake-ups between two reports of the causes named.
fn wakeups(before: &Report, after: &Report, causes: &[&str]) -> u64 {
    causes
        .iter()
        .map(|cause| after.wakeups[*cause] - before.wakeups[*cause])
        .sum()
}

#[test]
fn root_nothing_is_armed_without_io_bound_tasks() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    eventually(5 * SECOND, "watching", || {
        engine.report().mode == Mode::Watching
    });
    // Whatever else lives on this machine may do some I/O: the mover then wakes
    // up once to see that it must leave it alone. So one silent second of five.
    let mut seen = Vec::new();
    let silent = (0..5).any(|_| {
        let before = engine.report();
        throughout(SECOND, || {
            let report = engine.report();
            assert_eq!(report.mode, Mode::Watching);
            assert_eq!(report.timers_armed, 0);
        });
        let after = engine.report();
        assert_eq!(wakeups(&before, &after, &["slice-timer", "heartbeat"]), 0);
        seen.push(after.wakeups.clone());
        wakeups(&before, &after, &["mover", "bell"]) == 0
    });
    assert!(silent, "{seen:#?}");
    // And it was awake: a task that needs it is served.
    let subject = io_bound();
    moving(&engine, 10);
    assert!(
        engine.report().timers_armed > 0 || becomes(SECOND, || engine.report().timers_armed > 0)
    );
    drop(subject);
    eventually(2 * SECOND, "nothing is armed again", || {
        let report = engine.report();
        report.mode == Mode::Watching && report.timers_armed == 0
    });
    engine.stop();
}

#[test]
fn root_asleep_without_sharing() {
    let mut bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(Settings {
        quiet_after: Ns::from_secs(1),
        ..bed.settings()
    });
    moving(&engine, 10);
    bed.freezer.stop();
    eventually(4 * SECOND, "asleep", || {
        engine.report().mode == Mode::Asleep
    });
    eventually(SECOND, "released", || subject.mask() == CpuSet::first(CPUS));
    // It goes on with its I/O, and nobody cares. The threads need a moment to
    // lie down.
    let (mut before, mut done) = (engine.report(), subject.done());
    let silent = becomes(6 * SECOND, || {
        let report = engine.report();
        if report.wakeups == before.wakeups {
            return report.uptime_ns - before.uptime_ns >= Ns::from_secs(2);
        }
        (before, done) = (report, subject.done());
        false
    });
    let after = engine.report();
    assert!(silent, "{:?}", after.wakeups);
    assert_eq!((after.mode, after.timers_armed), (Mode::Asleep, 0));
    assert!(subject.done() > done + 2000, "it did its I/O meanwhile");
    engine.stop();
}

#[test]
fn root_the_steal_source_agrees_with_the_freezer() {
    let bed = Bed::new();
    // What was stolen before the engine's time is none of its gaps.
    eventually(4 * SECOND, "gaps before the engine", || {
        bed.freezer.counters().iter().all(|cpu| cpu.gaps >= 30)
    });
    let first = bed.freezer.counters();
    let engine = bed.engine(bed.settings());
    eventually(5 * SECOND, "watching", || {
        engine.report().mode == Mode::Watching
    });
    // Each number of the engine lies between two looks at the truth. A gap that
    // has just ended may not have been noticed yet, at either look.
    let sandwich = || {
        let before = bed.freezer.counters();
        let seen = engine.report().vcpus;
        (before, seen, bed.freezer.counters())
    };
    let (low0, seen0, high0) = sandwich();
    let one_gap = SLICE * 2;
    for round in 1..=10 {
        eventually(2 * SECOND, "ten more gaps", || {
            let now = bed.freezer.counters();
            now.iter()
                .zip(&high0)
                .all(|(now, then)| now.gaps >= then.gaps + 10 * round)
        });
        let (low, seen, high) = sandwich();
        for cpu in 0..CPUS as usize {
            let gaps = seen[cpu].gaps - seen0[cpu].gaps;
            let least = low[cpu].gaps - high0[cpu].gaps;
            let most = high[cpu].gaps - low0[cpu].gaps;
            assert!(
                least <= gaps + 1 && gaps <= most + 1,
                "{least} <= {gaps} <= {most}"
            );
            let in_all = seen[cpu].stolen_ns;
            let most = high[cpu].frozen - first[cpu].frozen;
            assert!(
                in_all <= most + one_gap,
                "{in_all} <= {most}, since the start"
            );
            let stolen = seen[cpu].stolen_ns - seen0[cpu].stolen_ns;
            let least = low[cpu].frozen - high0[cpu].frozen;
            let most = high[cpu].frozen - low0[cpu].frozen;
            assert!(
                least <= stolen + one_gap && stolen <= most + one_gap,
                "{least} <= {stolen} <= {most}"
            );
        }
    }
    for vcpu in engine.report().vcpus.iter().take(CPUS as usize) {
        let slice = vcpu.slice_ns.unwrap();
        assert!(slice.abs_diff(SLICE) < SLICE.scaled(1, 5), "{vcpu:?}");
    }
    engine.stop();
}

#[test]
fn root_a_fork_storm_leaks_nothing() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(bed.settings());
    moving(&engine, 20);
    let before = moves(&engine.report());
    subject.order(Order::Storm);
    eventually(15 * SECOND, "the storm is over", || {
        subject.storm().0 >= STORM
    });
    let moved = moves(&engine.report()) - before;
    let (_, inherited) = subject.storm();
    println!("{inherited} of {STORM} threads inherited a narrowed mask, {moved} moves");
    // Few or none, if children are widened before they run: what was inherited
    // shows only in what is left behind.
    assert!(moved > 0, "the task was not moved meanwhile");
    // Children are widened while the phase goes on, for it may never end.
    let all = CpuSet::first(CPUS);
    let others_are_wide = || {
        let mut others = subject.threads();
        others.retain(|tid| *tid != subject.tid());
        others
            .into_iter()
            .all(|tid| subject::mask(tid).is_none_or(|mask| mask == all))
    };
    eventually(
        3 * SECOND,
        "all children have the owner's mask",
        others_are_wide,
    );
    assert!(io_bound_for_the_engine(&engine.report(), &subject));
    // And the rest, also what nobody has noticed, when it ends.
    subject.order(Order::Sleep);
    eventually(2 * SECOND, "all threads have their masks back", || {
        subject
            .threads()
            .into_iter()
            .all(|tid| subject::mask(tid).is_none_or(|mask| mask == all))
    });
    assert!(subject.threads().len() > 10, "some stay");
    let report = engine.report();
    let summary = engine.stop();
    assert_eq!(summary.failed, 0, "{summary}");
    assert!(bed.journal_is_empty());
    assert_eq!(report.failed["foreign"], 0, "{report:#?}");
}

#[test]
fn root_a_foreign_mask_wins() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(bed.settings());
    moving(&engine, 10);
    eventually(SECOND, "moved", || subject.mask().len() == 1);
    // No mask that the engine ever sets, so that there is no mistaking it.
    let wanted = CpuSet::first(CPUS);
    subject.set_mask(&wanted);
    eventually(2 * SECOND, "the engine has noticed", || {
        !io_bound_for_the_engine(&engine.report(), &subject)
    });
    assert_eq!(subject.mask(), wanted);
    let moved = moves(&engine.report());
    throughout(SECOND, || assert_eq!(subject.mask(), wanted));
    let report = engine.report();
    assert_eq!(moves(&report), moved);
    assert!(report.failed["foreign"] >= 1, "{report:#?}");
    engine.stop();
    assert_eq!(subject.mask(), wanted);
    assert!(bed.journal_is_empty());
}

#[test]
fn root_the_heartbeat_source_finds_the_slices() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(Settings {
        source: SourceChoice::Heartbeat,
        steal_map_id: None,
        ..bed.settings()
    });
    assert_eq!(engine.report().source, "heartbeat");
    let good = becomes(10 * SECOND, || {
        let report = engine.report();
        moves(&report) >= 20
            && report.vcpus.iter().take(CPUS as usize).all(|vcpu| {
                vcpu.slice_ns
                    .is_some_and(|slice| slice.abs_diff(SLICE) < SLICE.scaled(1, 5))
            })
    });
    assert!(
        good,
        "{:#?}, failed: {:?}",
        engine.report(),
        engine.failed()
    );
    assert!(subject.done() > 0);
    engine.stop();
}
