// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O inactivity that the engine reports, against the truth: what the kernel's
//! scheduler did with the task, joined with the freezer's log of when each CPU was off.

use experiment::decompose;
use experiment::decompose::Gaps;
use experiment::result::IoTime;
use freezer::Event;
use freezer::tasks::TaskEvent;
use freezer::tasks::TaskRecorder;
use freezer::tasks::What;
use guest::report::Report;
use guest::settings::Settings;
use guest::settings::SourceChoice;
use units::Ns;
use units::Time;

use crate::Bed;
use crate::SECOND;
use crate::Subject;
use crate::bed::CPUS;
use crate::bed::becomes;
use crate::bed::eventually;
use crate::bed::moves;
use crate::bed::now;
use crate::in_three_tries;
use crate::io_bound;
use crate::io_bound_for_the_engine;

/// Long enough for the gap at either end to matter little.
const WINDOW: Ns = Ns::from_secs(6);
/// Room in the log of each CPU: some thousand requests a second of five events each.
const EVENTS: u32 = 1 << 19;
/// The least time lost in the window that says anything.
const LEAST: Ns = Ns::from_ms(600);

/// Moves that take a task to a vCPU that is away, or from one.
const AWAY: [&str; 2] = ["soon-active", "pull"];

/// What the engine said of the task, of all of its tasks, and how it moved it, in a window;
/// and what was so.
struct Compared {
    of_task: Ns,
    of_all: Ns,
    saved: Ns,
    moves: u64,
    away: u64,
    truth: Ns,
}

fn event(event: TaskEvent) -> decompose::TaskEvent {
    decompose::TaskEvent {
        at: event.at,
        cpu: event.cpu.0,
        what: match event.what {
            What::In => decompose::What::In,
            What::Ready => decompose::What::Ready,
            What::Io => decompose::What::Io,
            What::Sleep => decompose::What::Sleep,
            What::Waking => decompose::What::Waking,
            What::Moved => decompose::What::Moved,
        },
    }
}

/// Where the time of the recorded task went.
fn truth(recorder: &TaskRecorder, log: &[Event], from: Time, to: Time) -> IoTime {
    assert_eq!(recorder.dropped(), 0, "the recorder's log was too small");
    let gaps = (0..CPUS as usize).map(|cpu| {
        let of_cpu = log.iter().filter(|gap| gap.cpu.index() == cpu);
        of_cpu.map(|gap| (gap.out, gap.back)).collect()
    });
    let threads: Vec<Vec<_>> = recorder
        .events()
        .into_values()
        .map(|events| events.into_iter().map(event).collect())
        .collect();
    let spells = decompose::spells(&threads, &Gaps(gaps.collect()), from, to);
    decompose::sum(spells.iter().flatten())
}

fn of_task(report: &Report, subject: &Subject) -> Ns {
    let task = report.tasks.iter().find(|task| task.tid == subject.tid());
    task.expect("it is I/O-bound").inactivity_ns
}

fn compare(vms: u32, settings: impl Fn(&Bed) -> Settings) -> Compared {
    let bed = Bed::shared_by(vms);
    let subject = io_bound();
    let mut recorder = TaskRecorder::load(&[subject.tid().0], EVENTS).unwrap();
    let engine = bed.engine(settings(&bed));
    // Also that it has learnt the slices: it moves, or would.
    let ready = becomes(15 * SECOND, || {
        let report = engine.report();
        moves(&report) >= 10 && io_bound_for_the_engine(&report, &subject)
    });
    assert!(ready, "{:#?}, {:?}", engine.report(), engine.failed());
    recorder.start();
    let (from, before) = (now(), engine.report());
    eventually(2 * WINDOW.to_std(), "the window is over", || {
        now().since(from) >= WINDOW
    });
    let (after, to) = (engine.report(), now());
    recorder.stop();
    engine.stop();
    let time = truth(&recorder, &bed.freezer.log(), from, to);
    let away = |report: &Report| AWAY.iter().map(|why| report.moves[*why]).sum::<u64>();
    let compared = Compared {
        of_task: of_task(&after, &subject) - of_task(&before, &subject),
        of_all: after.io_inactivity_ns - before.io_inactivity_ns,
        saved: after.would_have_saved_ns,
        moves: moves(&after) - moves(&before),
        away: away(&after) - away(&before),
        truth: time.pending + time.queued_off + time.current_off,
    };
    println!(
        "{} VMs, {}: task {}, all {}, truth {} ({} pending, {} queued, {} current), {:?}",
        vms,
        after.source,
        compared.of_task,
        compared.of_all,
        compared.truth,
        time.pending,
        time.queued_off,
        time.current_off,
        after.moves
    );
    assert!(compared.saved <= after.io_inactivity_ns, "{after:#?}");
    compared
}

fn assert_is_true(compared: &Compared) {
    let truth = compared.truth;
    assert!(truth >= LEAST, "only {truth} was lost");
    for (whose, seen) in [("task", compared.of_task), ("all", compared.of_all)] {
        let off = seen.abs_diff(truth);
        assert!(off <= truth.scaled(15, 100), "{whose}: {seen} of {truth}");
    }
}

fn heartbeat(bed: &Bed) -> Settings {
    Settings {
        source: SourceChoice::Heartbeat,
        steal_map_id: None,
        ..bed.settings()
    }
}

/// Where one of two vCPUs is nearly always back soon, and the task waits there for that.
#[test]
fn root_inactivity_is_what_a_moved_task_has_lost() {
    for vms in [2, 4] {
        in_three_tries(|| {
            let compared = compare(vms, Bed::settings);
            assert!(compared.away >= 10, "{} moves", compared.away);
            assert_is_true(&compared);
        });
    }
}

#[test]
fn root_inactivity_is_what_a_moved_task_has_lost_by_heartbeat() {
    for vms in [2, 4] {
        in_three_tries(|| {
            let compared = compare(vms, heartbeat);
            assert!(compared.moves >= 10, "{} moves", compared.moves);
            assert_is_true(&compared);
        });
    }
}

#[test]
fn root_inactivity_is_what_a_task_at_home_has_lost() {
    for settings in [Bed::settings, heartbeat] {
        in_three_tries(|| {
            let compared = compare(2, |bed| Settings {
                dry_run: true,
                ..settings(bed)
            });
            assert!(compared.saved > Ns::ZERO);
            assert_is_true(&compared);
        });
    }
}
