// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do no harm: programs are compared with themselves, held and let go.

use guest::engine::Engine;
use guest::report::Program;
use guest::settings::Settings;
use policy::guest::trial;
use units::Ns;

use crate::Bed;
use crate::Order;
use crate::SECOND;
use crate::Subject;
use crate::bed::eventually;
use crate::bed::moves;
use crate::bed::moving;
use crate::bed::throughout;
use crate::in_three_tries;
use crate::io_bound;

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
