// SPDX-License-Identifier: Apache-2.0 OR MIT

use proptest::prelude::*;
use units::Time;

use super::*;

const CYCLE: Ns = Ns::from_ms(22);

/// A program that does this many requests a second on either side; `noise` scales
/// the rate of each leg.
fn run(trial: &mut Trial, held: f64, free: f64, until: Ns, mut noise: impl FnMut() -> f64) -> Ns {
    let mut at = Ns::ZERO;
    let mut free_time = Ns::ZERO;
    while at < until {
        let length = trial.length(Some(CYCLE));
        let side = trial.side();
        let rate = match side {
            Side::Held => held,
            Side::Free => free,
        };
        let seconds = length.as_ns() as f64 / 1e9;
        if side == Side::Free {
            free_time += length;
        }
        trial.over(Leg {
            requests: (rate * noise() * seconds) as u64,
            task_time: length,
        });
        at += length;
    }
    free_time
}

#[test]
fn who_gains_is_let_go_for_a_thousandth_of_the_time() {
    let mut trial = Trial::new(&Settings::default());
    let free = run(&mut trial, 1500.0, 1000.0, Ns::from_secs(600), || 1.0);
    assert_eq!(trial.believed(), Side::Held);
    assert!((trial.free_to_held().unwrap() - 2.0 / 3.0).abs() < 0.02);
    assert!(free < Ns::from_ms(1200), "{free}");
}

#[test]
fn who_loses_is_let_go_within_two_seconds() {
    let mut trial = Trial::new(&Settings::default());
    let until = Ns::from_ms(2100);
    run(&mut trial, 740.0, 1000.0, until, || 1.0);
    assert_eq!(trial.side(), Side::Free);
    assert!(trial.free_to_held().unwrap() > 1.3);
}

#[test]
fn who_changes_its_mind_is_held_again() {
    let mut trial = Trial::new(&Settings::default());
    run(&mut trial, 500.0, 1000.0, Ns::from_secs(3), || 1.0);
    assert_eq!(trial.believed(), Side::Free);
    run(&mut trial, 1500.0, 1000.0, Ns::from_secs(20), || 1.0);
    assert_eq!(trial.believed(), Side::Held);
}

#[test]
fn a_drift_decides_nothing() {
    // The load falls by a fifth from leg to leg, whatever is done.
    let mut trial = Trial::new(&Settings::default());
    let mut rate = 1e9;
    run(&mut trial, 1.0, 1.0, Ns::from_secs(3), || {
        rate *= 0.8;
        rate
    });
    assert_eq!(trial.believed(), Side::Held);
}

#[test]
fn too_few_requests_say_nothing() {
    let mut trial = Trial::new(&Settings::default());
    run(&mut trial, 1.0, 60.0, Ns::from_secs(100), || 1.0);
    assert_eq!(trial.believed(), Side::Held);
    assert_eq!(trial.free_to_held(), None);
    assert!(trial.trials() > 3);
}

#[test]
fn legs_follow_the_cycle_and_rests_double() {
    let settings = Settings::default();
    let mut trial = Trial::new(&settings);
    assert_eq!(trial.length(None), Ns::from_secs(1));
    // Legs of six cycles, and at least eight of them.
    assert_eq!(trial.length(Some(CYCLE)), Ns::from_ms(8 * 132));
    assert_eq!(trial.length(Some(Ns::from_ms(88))), Ns::from_ms(8 * 528));
    assert!(trial.is_at_rest());
    let leg = Leg {
        requests: 100,
        task_time: Ns::from_ms(100),
    };
    let mut rests = Vec::new();
    for _ in 0..7 {
        trial.over(Leg::default());
        assert_eq!(trial.length(Some(Ns::from_ms(88))), Ns::from_ms(528));
        assert_eq!(trial.length(None), settings.min_leg);
        for side in [Side::Held, Side::Free, Side::Held] {
            assert_eq!(trial.side(), side);
            trial.over(leg);
        }
        assert!(trial.is_at_rest());
        rests.push(trial.length(None));
    }
    let seconds = [4, 8, 16, 32, 64, 120, 120].map(Ns::from_secs);
    assert_eq!(rests, seconds);
}

/// Legs of 100 ms. Of two tasks the one goes on, the other one is taken in the middle of
/// the leg: 60 of its requests count, and 50 ms.
#[test]
fn a_leg_counts_from_its_beginning_or_from_when_a_task_was_taken() {
    let at = |ms| Time::ZERO + Ns::from_ms(ms);
    let seen = |tid, taken, requests| Seen {
        tid,
        taken: at(taken),
        requests,
    };
    let mut program = Program::new(&Settings::default(), at(0));
    assert_eq!(program.due(), at(1000));
    assert_eq!(program.look(at(999), None, &[seen(1, 5, 900)]), None);
    // A cycle of 22 ms is known by now: eight legs of 132 ms.
    assert_eq!(
        program.look(at(1000), Some(CYCLE), &[seen(1, 5, 900)]),
        None
    );
    assert_eq!(program.due(), at(1056));
    assert!(program.look(at(1056), None, &[seen(1, 5, 1000)]).is_some());
    assert!(!program.trial().is_at_rest());
    assert_eq!(program.due(), at(1156));
    let leg = program.look(at(1156), None, &[seen(1, 5, 1100), seen(2, 1106, 60)]);
    let expected = Leg {
        requests: 160,
        task_time: Ns::from_ms(150),
    };
    assert_eq!(leg, Some(expected));
    assert_eq!(program.trial().side(), Side::Free);
    // Thread 2 began anew within the leg: what it did before is not known.
    let leg = program.look(at(1256), None, &[seen(1, 5, 1200), seen(2, 1236, 20)]);
    let expected = Leg {
        requests: 120,
        task_time: Ns::from_ms(120),
    };
    assert_eq!(leg, Some(expected));
}

proptest! {
    // Legs that scatter by a quarter must not cost a program its gain of a half.
    #[test]
    fn a_gain_survives_noise(seed in proptest::collection::vec(0.75f64..1.25, 2000)) {
        let mut noise = seed.into_iter().cycle();
        let mut trial = Trial::new(&Settings::default());
        let free = run(&mut trial, 15_000.0, 10_000.0, Ns::from_secs(120), || noise.next().unwrap());
        prop_assert_eq!(trial.believed(), Side::Held);
        prop_assert!(free < Ns::from_secs(2), "{}", free);
    }

    // Whatever comes: a leg has a length, and rates never make it stop trying.
    #[test]
    fn it_goes_on_whatever_comes(
        legs in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..200)
    ) {
        let settings = Settings::default();
        let mut trial = Trial::new(&settings);
        for (requests, task_time) in legs {
            trial.over(Leg { requests: u64::from(requests), task_time: Ns(u64::from(task_time)) });
            let length = trial.length(None);
            prop_assert!(length >= settings.min_leg && length <= settings.rest_max);
        }
    }
}
