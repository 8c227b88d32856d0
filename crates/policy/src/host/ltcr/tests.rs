// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;

use super::*;

/// A synthetic core: two CPU-bound and two I/O-bound vCPUs whose speed depends on
/// the timeout as a parabola around `best`.
fn core(timeout: Ns, best_cpu: Ns, best_io: Ns) -> Vec<Option<Progress>> {
    let speed = |best: Ns| {
        let off = timeout.abs_diff(best).as_ns() / 1000;
        1_000_000_u64.saturating_sub(off * off / 100)
    };
    vec![
        Some(Progress::Cpu(speed(best_cpu))),
        Some(Progress::Cpu(2 * speed(best_cpu))),
        Some(Progress::Io(speed(best_io))),
        None,
        Some(Progress::Io(speed(best_io) / 3)),
    ]
}

fn settle(ltcr: &mut Ltcr, periods: u32, best_cpu: Ns, best_io: Ns) {
    for _ in 0..periods {
        let measured = core(ltcr.effective(), best_cpu, best_io);
        ltcr.on_period(&measured);
    }
}

/// M10 step by step from 1 ms, where more is better for both.
#[test]
fn the_first_periods_by_hand() {
    let mut ltcr = Ltcr::new(&Settings::default());
    let best = Ns::from_ms(3);
    let mut used = Vec::new();
    for _ in 0..6 {
        used.push(ltcr.effective().as_ns() / 1000);
        settle(&mut ltcr, 1, best, best);
    }
    // Baseline, 1.1: passes; baseline with it, 1.1 times that; and so on.
    assert_eq!(used, [1000, 1100, 1100, 1210, 1210, 1331]);
    assert_eq!(ltcr.desired(), Ns(1_331_000));
}

/// Too long from the start: up fails, a fresh baseline, down passes.
#[test]
fn a_failed_test_up_is_followed_by_one_down() {
    let mut ltcr = Ltcr::new(&Settings::default());
    let best = Ns::from_us(300);
    let mut used = Vec::new();
    for _ in 0..5 {
        used.push(ltcr.effective().as_ns() / 1000);
        settle(&mut ltcr, 1, best, best);
    }
    assert_eq!(used, [1000, 1100, 1000, 900, 900]);
    assert_eq!(ltcr.desired(), Ns::from_us(900));
}

#[test]
fn it_settles_within_a_step_of_the_best_value() {
    for best_us in [200, 1000, 2500, 4000] {
        let mut ltcr = Ltcr::new(&Settings::default());
        let best = Ns::from_us(best_us);
        settle(&mut ltcr, 400, best, best);
        let settled = ltcr.desired();
        assert!(
            settled.abs_diff(best) <= best / 9,
            "{settled} instead of {best}"
        );
    }
}

/// M11: both averages must exceed 1. CPU is best at 1 ms, I/O at 3: nothing that
/// helps one and hurts the other passes, so it stays where it is.
#[test]
fn what_helps_only_one_group_is_refused() {
    let mut ltcr = Ltcr::new(&Settings::default());
    settle(&mut ltcr, 100, Ns::from_ms(1), Ns::from_ms(3));
    assert_eq!(ltcr.desired(), Ns::from_ms(1));
}

#[test]
fn it_follows_a_change_of_load() {
    let mut ltcr = Ltcr::new(&Settings::default());
    settle(&mut ltcr, 300, Ns::from_ms(3), Ns::from_ms(3));
    assert!(ltcr.desired() > Ns::from_us(2600));
    settle(&mut ltcr, 300, Ns::from_us(500), Ns::from_us(500));
    assert!(ltcr.desired() < Ns::from_us(600), "{}", ltcr.desired());
}

/// M12: a core that only does I/O.
#[test]
fn an_empty_group_is_ignored_or_fails() {
    let run = |empty| {
        let mut ltcr = Ltcr::new(&Settings {
            empty,
            ..Settings::default()
        });
        for _ in 0..100 {
            let mut measured = core(ltcr.effective(), Ns::ZERO, Ns::from_ms(2));
            measured[0] = None;
            measured[1] = None;
            ltcr.on_period(&measured);
        }
        ltcr.desired()
    };
    assert!(run(EmptyGroup::Ignored) > Ns::from_us(1700));
    assert_eq!(run(EmptyGroup::Fails), Ns::from_ms(1));
    // Nobody at all.
    let mut ltcr = Ltcr::new(&Settings::default());
    for _ in 0..50 {
        ltcr.on_period(&[]);
    }
    assert_eq!(ltcr.desired(), Ns::from_ms(1));
}

/// A vCPU that changed its class between baseline and test has no speed-up.
#[test]
fn a_change_of_class_is_no_speed_up() {
    let mut ltcr = Ltcr::new(&Settings::default());
    ltcr.on_period(&[Some(Progress::Cpu(1)), Some(Progress::Io(0))]);
    ltcr.on_period(&[Some(Progress::Io(1_000_000)), Some(Progress::Io(5))]);
    assert_eq!(ltcr.desired(), Ns::from_ms(1));
}

#[test]
fn hysteresis_refuses_small_gains() {
    let picky = Settings {
        pass_ppm: 1_500_000,
        ..Settings::default()
    };
    let mut ltcr = Ltcr::new(&picky);
    settle(&mut ltcr, 100, Ns::from_ms(3), Ns::from_ms(3));
    assert_eq!(ltcr.desired(), Ns::from_ms(1));
}

proptest! {
    /// Whatever is measured, the timeout stays within its bounds (M9) and never
    /// jumps by more than a step.
    #[test]
    fn the_timeout_stays_within_its_bounds(
        measured in proptest::collection::vec(
            proptest::collection::vec(proptest::option::of((any::<bool>(), any::<u64>())), 0..6),
            0..200),
    ) {
        let settings = Settings::default();
        let mut ltcr = Ltcr::new(&settings);
        for period in measured {
            let period: Vec<Option<Progress>> = period.into_iter().map(|p| {
                p.map(|(io, n)| if io { Progress::Io(n) } else { Progress::Cpu(n) })
            }).collect();
            let before = ltcr.desired();
            for t in [ltcr.effective(), before] {
                prop_assert!(t >= settings.min && t <= settings.max);
            }
            ltcr.on_period(&period);
            prop_assert!(ltcr.desired().abs_diff(before) <= before / 10 + Ns(1));
        }
    }
}
