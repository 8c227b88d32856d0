// SPDX-License-Identifier: Apache-2.0 OR MIT
use proptest::prelude::*;
use units::CpuSet;
use units::TaskKey;
use units::Tid;
use units::VcpuId;

use super::*;
use crate::guest::view::Activity;
use crate::guest::view::Completion;

fn settings(enter: u16, leave: u16, leave_windows: u32) -> Settings {
    Settings {
        enter: Permille::new(enter),
        leave: Permille::new(leave),
        leave_windows,
        ..Settings::default()
    }
}

#[test]
fn load_is_the_blocked_share_of_the_accounted_time() {
    let load = |blocked, ran| load(Ns::from_us(blocked), Ns::from_us(ran)).get();
    assert_eq!(load(0, 0), 0);
    assert_eq!(load(0, 5000), 0);
    assert_eq!(load(5000, 0), 1000);
    assert_eq!(load(2000, 3000), 400);
    // A window of 5 ms of which 4 ms were stolen: judged by the rest.
    assert_eq!(load(700, 300), 700);
    assert_eq!(load(2, 1), 666, "rounded down");
}

#[test]
fn a_window_ends_when_it_is_long_enough_and_enough_of_it_is_known() {
    let settings = Settings::default();
    let complete = |now_us, accounted_us| {
        settings.window_complete(
            Time(1_000_000),
            Time(1_000_000) + Ns::from_us(now_us),
            Ns::from_us(accounted_us),
        )
    };
    assert!(!complete(4_999, 4_999));
    assert!(complete(5_000, 4_000));
    assert!(!complete(5_000, 499), "stolen nearly all of it");
    assert!(complete(60_000, 500), "goes on until enough is known");
    assert!(
        !settings.window_complete(Time(9), Time(8), Ns::MAX),
        "swapped stamps"
    );
}

#[test]
fn a_window_is_judged_when_nothing_can_change_the_verdict() {
    let settings = Settings::default();
    let certain = |now_us, blocked_us, on_cpu_us| {
        settings.certain(
            Time(1_000_000),
            Time(1_000_000) + Ns::from_us(now_us),
            Ns::from_us(blocked_us),
            Ns::from_us(on_cpu_us),
        )
    };
    // 300 of 1000 over 5 ms: 1.5 ms of waiting are enough, and not less.
    assert!(!certain(1_499, 1_499, 0));
    assert!(certain(1_500, 1_500, 0));
    // Computing counts against it, stolen time does not.
    assert!(!certain(3_000, 1_499, 1_501));
    assert!(certain(3_000, 1_500, 1_500));
    assert!(certain(4_999, 700, 300));
    assert!(certain(4_999, 200, 100), "400 of 1000 even if the rest ran");
    assert!(!certain(4_999, 100, 100), "the rest may be on the CPU");
    assert!(!certain(5_000, 5_000, 0), "complete: `next` decides");
    assert!(!certain(0, 0, 0));
}

#[test]
fn a_burst_enters_at_once_and_leaves_after_some_windows() {
    let settings = settings(300, 150, 4);
    let mut class = Class::default();
    let mut seen = Vec::new();
    for load in [
        100, 299, 300, 900, 100, 100, 100, 150, 100, 100, 100, 100, 200, 299,
    ] {
        class = settings.next(class, Permille::new(load));
        seen.push(class.is_io_bound());
    }
    let out = [false; 2];
    let inside = [true; 9];
    assert_eq!(seen, [&out[..], &inside, &[false; 3]].concat());
}

#[test]
fn a_long_sleep_off_io_ends_the_phase() {
    let settings = Settings::default();
    assert!(!settings.phase_over(Ns::from_ms(199)));
    assert!(settings.phase_over(Ns::from_ms(200)));
    assert!(!Settings::published().phase_over(Ns::MAX));
}

#[test]
fn published_has_no_memory() {
    let settings = Settings::published();
    for before in [Class::default(), Class(1)] {
        assert!(settings.next(before, Permille::new(501)).is_io_bound());
        assert_eq!(settings.next(before, Permille::new(500)), Class::default());
    }
}

#[test]
fn priority_comes_before_load_and_ties_are_broken() {
    let task = |tid, priority, load| TaskView {
        key: TaskKey {
            tid: Tid(tid),
            start_ticks: 0,
        },
        vcpu: VcpuId(0),
        activity: Activity::Running,
        load: Permille::new(load),
        cpu_share: Permille::ZERO,
        priority,
        allowed: CpuSet::EMPTY,
        io_latency: Ns::ZERO,
        completion: Completion::Unknown,
    };
    let mut tasks = [
        task(4, 0, 500),
        task(3, 0, 500),
        task(2, -1, 1000),
        task(1, 0, 900),
        task(5, 7, 10),
    ];
    tasks.sort_unstable_by(rank);
    assert_eq!(tasks.map(|task| task.key.tid.0), [5, 1, 3, 4, 2]);
}

proptest! {
    /// The integer arithmetic against the same in 128 bits.
    #[test]
    fn load_never_overflows(blocked in any::<u64>(), ran in any::<u64>()) {
        let exact = u128::from(blocked) * 1000 / (u128::from(blocked) + u128::from(ran)).max(1);
        let load = u128::from(load(Ns(blocked), Ns(ran)).get());
        prop_assert!(load.abs_diff(exact) <= 1, "{} not {}", load, exact);
    }

    /// A verdict before the end is the verdict at the end, however the rest of
    /// the window goes; and it comes as early as it can: a step before, some
    /// continuation would have led to the other one.
    #[test]
    fn an_early_verdict_is_the_final_one(
        window_us in 1u64..20_000, min_us in 0u64..5_000, enter in 0u16..=1000,
        past in 0u64..1000, split in (0u64..=1000, 0u64..=1000), rest in (0u64..=1000, 0u64..=1000),
    ) {
        let settings = Settings {
            window: Ns::from_us(window_us),
            min_accounted: Ns::from_us(min_us),
            enter: Permille::new(enter),
            ..Settings::default()
        };
        let window = settings.window.as_ns();
        let start = Time(7_000_000);
        // Some part of what is past is accounted, and of that some was I/O.
        let past = window * past / 1000;
        let accounted = past * split.0 / 1000;
        let blocked = accounted * split.1 / 1000;
        let on_cpu = accounted - blocked;
        let certain = settings.certain(start, start + Ns(past), Ns(blocked), Ns(on_cpu));

        // Until the window is complete by the clock and by what is accounted.
        let missing = settings.min_accounted.as_ns().saturating_sub(accounted);
        let left = (window - past).max(missing);
        let more = (left * rest.0 / 1000).max(missing);
        let more_blocked = more * rest.1 / 1000;
        let end = load(Ns(blocked + more_blocked), Ns(on_cpu + more - more_blocked));
        if certain {
            prop_assert!(end.get() >= enter, "{} at the end, {} wanted", end, enter);
            prop_assert!(settings.next(Class::default(), end).is_io_bound());
        } else {
            let worst = load(Ns(blocked), Ns(on_cpu + left));
            prop_assert!(worst.get() < enter, "known at {} and not said", worst);
        }
    }

    /// Any numbers, as a torn map entry might hold, are survived.
    #[test]
    fn no_sum_is_too_large_for_an_early_verdict(
        start in any::<u64>(), now in any::<u64>(), blocked in any::<u64>(), ran in any::<u64>(),
    ) {
        let settings = Settings::default();
        if settings.certain(Time(start), Time(now), Ns(blocked), Ns(ran)) {
            prop_assert!(blocked <= settings.window.as_ns() && now < start.saturating_add(settings.window.as_ns()));
        }
    }

    /// The class changes as the words of `Settings` say: told by a model that
    /// looks at the history of loads instead of a packed word.
    #[test]
    fn the_packed_state_follows_the_rules(
        enter in 0u16..=1000, leave in 0u16..=1000, leave_windows in 0u32..6,
        loads in proptest::collection::vec(0u16..=1000, 0..80),
    ) {
        let settings = settings(enter, leave, leave_windows);
        let mut class = Class::default();
        let mut history: Vec<u16> = Vec::new();
        let mut inside = false;
        for load in loads {
            history.push(load);
            let tail = history.len() - (leave_windows.max(1) as usize).min(history.len());
            let all_low = history[tail..].iter().all(|load| *load < leave.min(enter));
            if inside && all_low && history.len() - tail == leave_windows.max(1) as usize {
                inside = false;
                history.clear();
            } else if !inside && load >= enter {
                inside = true;
                history.clear();
            }
            class = settings.next(class, Permille::new(load));
            prop_assert_eq!(class.is_io_bound(), inside);
        }
    }

    /// No flapping: a load that stays between the thresholds changes nothing,
    /// and between two changes of class lies at least the number of windows
    /// that leaving takes.
    #[test]
    fn hysteresis_does_not_flap(
        leave in 0u16..=500, width in 0u16..=500, leave_windows in 1u32..6,
        start in 0u32..2, loads in proptest::collection::vec(0u16..=1000, 0..80),
    ) {
        let enter = leave + width;
        let settings = settings(enter, leave, leave_windows);
        let mut class = Class(start);
        for load in &loads {
            let between = leave + load.checked_rem(width).unwrap_or(0);
            let next = settings.next(class, Permille::new(between));
            if between < enter {
                prop_assert_eq!(next.is_io_bound(), class.is_io_bound());
            }
            class = next;
        }

        let mut entered_at = None;
        for (window, load) in loads.iter().enumerate() {
            let next = settings.next(class, Permille::new(*load));
            if next.is_io_bound() && !class.is_io_bound() {
                entered_at = Some(window);
            }
            if class.is_io_bound() && !next.is_io_bound()
                && let Some(entered_at) = entered_at
            {
                prop_assert!(window - entered_at >= leave_windows as usize);
            }
            class = next;
        }
    }

    /// A state that no window could have left, as a torn or zeroed map entry
    /// might hold, is survived.
    #[test]
    fn any_state_is_accepted(state in any::<u32>(), load in 0u16..=1000) {
        let settings = Settings::default();
        let next = settings.next(Class(state), Permille::new(load));
        prop_assert!(next.low_windows() < settings.leave_windows);
    }
}

/// A running mean of four: three sleeps that were ended from elsewhere outweigh what was
/// taken for granted, 1000, 750, 563, 423; one from here brings it back, 567.
#[test]
fn who_is_woken_from_where_it_sleeps_stays() {
    let settings = Settings::default();
    let (short, long) = (Ns::from_us(4_999), Ns::from_ms(5));
    let mut woken = WokenHere::default();
    assert!(settings.stays(long, woken) && !settings.stays(short, woken));
    for (mean, stays) in [(750, true), (563, true), (423, false)] {
        woken = woken.after(false);
        assert_eq!((woken.0, settings.stays(long, woken)), (mean, stays));
    }
    woken = woken.after(true);
    assert_eq!(woken, WokenHere(567));
    assert!(settings.stays(long, woken));
    assert!(!Settings::published().stays(Ns::from_secs(1), WokenHere::default()));
}
