// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules one by one, each on the smallest view that shows it.

use units::CpuSet;
use units::Permille;
use units::TaskKey;
use units::Tid;

use super::*;
use crate::guest::view::Window;

const NOW: Time = Time(1_000_000_000);
const SLICE: Ns = Ns::from_ms(11);
const US: fn(u64) -> Ns = Ns::from_us;
const MS: fn(u64) -> Ns = Ns::from_ms;

fn vcpu(id: u32, state: VcpuState) -> VcpuView {
    VcpuView {
        id: VcpuId(id),
        state,
        share: None,
        preferred: true,
    }
}

fn exactly(at: Time) -> Window {
    Window {
        earliest: at,
        expected: at,
        latest: at,
    }
}

/// Runs for this much longer, of a slice of 11 ms; its gap will be 11 ms.
fn running(id: u32, remaining: Ns) -> VcpuView {
    let ends = NOW + remaining;
    vcpu(
        id,
        VcpuState::Running {
            since: ends - SLICE,
            ends: Some(exactly(ends)),
            gap: Some(SLICE),
        },
    )
}

fn open_ended(id: u32) -> VcpuView {
    vcpu(
        id,
        VcpuState::Running {
            since: NOW - MS(1),
            ends: None,
            gap: None,
        },
    )
}

fn gone(id: u32, back_in: Ns) -> VcpuView {
    let back = Some(exactly(NOW + back_in));
    vcpu(
        id,
        VcpuState::Descheduled {
            since: NOW - MS(1),
            back,
        },
    )
}

/// A task that waits in the queue of its vCPU, with a device of 100 us.
fn task(tid: u32, on: u32) -> TaskView {
    TaskView {
        key: TaskKey {
            tid: Tid(tid),
            start_ticks: 1,
        },
        vcpu: VcpuId(on),
        activity: Activity::Queued(NOW - US(10)),
        load: Permille::new(500),
        cpu_share: Permille::new(200),
        priority: 0,
        allowed: CpuSet::first(64),
        io_latency: US(100),
        completion: Completion::Unknown,
    }
}

fn loaded(tid: u32, on: u32, load: u16) -> TaskView {
    TaskView {
        load: Permille::new(load),
        ..task(tid, on)
    }
}

fn homed(tid: u32, on: u32, home: u32) -> TaskView {
    TaskView {
        completion: Completion::On(VcpuId(home)),
        ..task(tid, on)
    }
}

fn blocked(task: TaskView) -> TaskView {
    TaskView {
        activity: Activity::Blocked(NOW - US(10)),
        ..task
    }
}

/// Our rules with thresholds of the tests' own: defaults follow measurements,
/// and the worked numbers below must not move with them.
fn ours() -> Settings {
    Settings {
        margin: Margin::Adaptive {
            base: US(150),
            min: US(200),
            max: MS(3),
            max_of_slice: Permille::new(250),
        },
        completion_cpu_max: Permille::new(700),
        ..Settings::default()
    }
}

/// (task, to, why) of each move.
fn moves(vcpus: &[VcpuView], tasks: &[TaskView], settings: &Settings) -> Vec<(u32, u32, Why)> {
    place(NOW, vcpus, tasks, settings)
        .moves
        .iter()
        .map(|m| (m.task.tid.0, m.to.0, m.why))
        .collect()
}

fn skips(vcpus: &[VcpuView], tasks: &[TaskView], settings: &Settings) -> Vec<Skip> {
    let plan = place(NOW, vcpus, tasks, settings);
    assert_eq!(plan.moves, []);
    plan.skipped.into_iter().map(|(_, skip)| skip).collect()
}

#[test]
fn published_pairs_heaviest_with_longest() {
    let vcpus = [
        running(0, US(599)),
        running(1, MS(3)),
        running(2, MS(9)),
        running(3, MS(5)),
    ];
    let tasks = [loaded(10, 0, 400), loaded(11, 0, 900), loaded(12, 0, 600)];
    assert_eq!(
        moves(&vcpus, &tasks, &Settings::published()),
        [(11, 2, Why::Push), (12, 3, Why::Push), (10, 1, Why::Push)]
    );
}

#[test]
fn published_leaves_below_two_heartbeats_and_not_before() {
    for (remaining, leaves) in [(US(599), true), (US(600), false)] {
        let vcpus = [running(0, remaining), running(1, MS(9))];
        let plan = place(NOW, &vcpus, &[task(1, 0)], &Settings::published());
        assert_eq!(!plan.moves.is_empty(), leaves);
    }
}

#[test]
fn the_users_priority_goes_before_the_load() {
    let vcpus = [running(0, US(100)), running(1, MS(3)), running(2, MS(9))];
    let urgent = TaskView {
        priority: 1,
        ..loaded(10, 0, 100)
    };
    let tasks = [loaded(11, 0, 900), urgent];
    assert_eq!(
        moves(&vcpus, &tasks, &ours()),
        [(10, 2, Why::Push), (11, 1, Why::Push)]
    );
}

#[test]
fn the_margin_covers_latency_and_spread_within_its_bounds() {
    let ends = |early| Window {
        earliest: NOW + MS(8) - early,
        expected: NOW + MS(8),
        latest: NOW + MS(9),
    };
    let since = NOW - MS(3);
    let margin = |latency, early| ours().margin.of(latency, since, &ends(early));
    assert_eq!(margin(US(100), US(300)), US(150 + 100 + 300));
    assert_eq!(margin(US(5), US(0)), US(200), "min");
    assert_eq!(margin(MS(8), US(0)), US(2750), "a quarter of the slice");
    let slow = ours().margin.of(MS(8), NOW - MS(100), &ends(Ns::ZERO));
    assert_eq!(slow, MS(3), "max");
    assert_eq!(
        Settings::published().margin.of(MS(8), since, &ends(MS(4))),
        US(600)
    );
}

#[test]
fn a_target_must_offer_more_than_the_margin_and_a_stay() {
    for (remaining, taken) in [(US(751), true), (US(750), false)] {
        let vcpus = [running(0, US(50)), running(1, remaining)];
        let plan = place(NOW, &vcpus, &[task(1, 0)], &ours());
        assert_eq!(!plan.moves.is_empty(), taken, "margin 250 us, stay 500 us");
    }
}

#[test]
fn more_tasks_than_targets_go_round_and_the_loaded_one_gets_fewer() {
    let vcpus = [running(0, US(100)), running(1, MS(8)), running(2, MS(8))];
    let mut tasks: Vec<TaskView> = (10..15).map(|tid| task(tid, 0)).collect();
    // Two are there already on vCPU 1.
    tasks.extend([task(1, 1), task(2, 1)]);
    let to: Vec<u32> = moves(&vcpus, &tasks, &ours()).iter().map(|m| m.1).collect();
    assert_eq!(
        to,
        [2, 1, 2, 2, 1],
        "first round one each, then where fewer are: 3 and 3 in the end"
    );
}

#[test]
fn a_resident_task_counts_against_a_longer_slice() {
    let vcpus = [running(0, US(100)), running(1, MS(9)), running(2, MS(6))];
    let tasks = [task(1, 1), task(2, 0)];
    assert_eq!(moves(&vcpus, &tasks, &ours()), [(2, 2, Why::Push)]);
    let published = Settings::published();
    assert_eq!(moves(&vcpus, &tasks, &published), [(2, 1, Why::Push)]);
}

/// V20 on two vCPUs: at a push there is one place to go, so both tasks end up on
/// one vCPU; the other takes one of them when it is back, for a fresh slice ends
/// later than the one that is under way.
#[test]
fn two_tasks_do_not_stay_on_one_vcpu_when_the_other_is_back() {
    let vcpus = [running(0, MS(3)), running(1, MS(11))];
    let tasks = [blocked(loaded(1, 0, 500)), blocked(loaded(2, 0, 900))];
    let spread = [(2, 1, Why::Spread)];
    assert_eq!(moves(&vcpus, &tasks, &ours()), spread, "the heavier one");
    // The other way round neither: it would have to leave sooner.
    let back = [running(0, MS(11)), running(1, MS(3))];
    assert_eq!(moves(&back, &tasks, &ours()), []);
    // One each is even; so are one and two.
    let even = [blocked(loaded(1, 0, 500)), blocked(loaded(2, 1, 900))];
    assert_eq!(moves(&vcpus, &even, &ours()), []);
    let three = [even[0], even[1], blocked(loaded(3, 0, 400))];
    assert_eq!(moves(&vcpus, &three, &ours()), []);
    // Whoever runs at this moment is not disturbed.
    let busy = [
        blocked(loaded(1, 0, 500)),
        TaskView {
            activity: Activity::Running,
            ..loaded(2, 0, 900)
        },
    ];
    assert_eq!(moves(&vcpus, &busy, &ours()), [(1, 1, Why::Spread)]);
    assert_eq!(moves(&vcpus, &tasks, &Settings::published()), []);
}

#[test]
fn with_no_target_at_hand_it_goes_to_the_vcpu_that_is_back_first() {
    let vcpus = [running(0, US(100)), gone(1, MS(8)), gone(2, MS(5))];
    assert_eq!(
        moves(&vcpus, &[task(1, 0)], &ours()),
        [(1, 2, Why::SoonActive)]
    );
    let off = Settings {
        soon_active: false,
        ..ours()
    };
    assert_eq!(skips(&vcpus, &[task(1, 0)], &off), [Skip::NoBetterVcpu]);
    // Two tasks: not both on the same one.
    let to: Vec<u32> = moves(&vcpus, &[task(1, 0), task(2, 0)], &ours())
        .iter()
        .map(|m| m.1)
        .collect();
    assert_eq!(to, [2, 1]);
}

#[test]
fn soon_active_must_beat_its_own_return_by_the_lead() {
    // Its own vCPU is back in 100 us + 11 ms.
    for (back_in, goes) in [(US(10_099), true), (US(10_100), false), (MS(20), false)] {
        let vcpus = [running(0, US(100)), gone(1, back_in)];
        let plan = place(NOW, &vcpus, &[task(1, 0)], &ours());
        assert_eq!(!plan.moves.is_empty(), goes, "{back_in}");
    }
    let unknown = vcpu(
        1,
        VcpuState::Descheduled {
            since: NOW,
            back: None,
        },
    );
    let vcpus = [running(0, US(100)), unknown];
    assert_eq!(skips(&vcpus, &[task(1, 0)], &ours()), [Skip::NoBetterVcpu]);
}

/// V12: a whole slice that is about to begin is better than what is left of one, if that
/// is short; who goes there is not pulled back.
#[test]
fn a_vcpu_that_is_about_to_run_is_better_than_one_that_has_little_left() {
    let settings = Settings {
        soon_below: MS(8),
        pull_unless_back_within: US(600),
        ..Settings::published()
    };
    let one = [task(1, 0)];
    let with = |left, back| [running(0, US(100)), running(1, left), gone(2, back)];
    let soon = [(1, 2, Why::SoonActive)];
    assert_eq!(moves(&with(MS(7), US(600)), &one, &settings), soon);
    let push = [(1, 1, Why::Push)];
    assert_eq!(moves(&with(MS(8), US(600)), &one, &settings), push, "long");
    assert_eq!(moves(&with(MS(7), US(601)), &one, &settings), push, "late");
    let off = Settings {
        soon_active: false,
        ..settings.clone()
    };
    assert_eq!(moves(&with(MS(7), US(600)), &one, &off), push);
    let here = [task(1, 2)];
    let after = with(MS(7), US(500));
    assert_eq!(skips(&after, &here, &settings), [Skip::BackSoon]);
}

#[test]
fn idle_ranks_after_running_and_before_open_ended_and_soon_active() {
    let task = [task(1, 0)];
    let idle = vcpu(1, VcpuState::Idle);
    let mut vcpus = vec![
        running(0, US(100)),
        idle,
        running(2, MS(2)),
        open_ended(3),
        gone(4, US(1)),
    ];
    for expected in [2, 1, 3, 4] {
        let found = moves(&vcpus, &task, &ours());
        assert_eq!(found.first().map(|m| m.1), Some(expected));
        vcpus.retain(|vcpu| vcpu.id.0 != expected);
    }
    assert_eq!(skips(&vcpus, &task, &ours()), [Skip::NoBetterVcpu]);
}

#[test]
fn a_task_on_a_gone_vcpu_is_pulled_unless_current_or_back_soon() {
    let vcpus = [gone(0, MS(5)), running(1, MS(8))];
    assert_eq!(moves(&vcpus, &[task(1, 0)], &ours()), [(1, 1, Why::Pull)]);
    let current = TaskView {
        activity: Activity::Running,
        ..task(1, 0)
    };
    assert_eq!(
        skips(&vcpus, &[current], &ours()),
        [Skip::CurrentOnDescheduled]
    );
    let soon = [gone(0, US(500)), running(1, MS(8))];
    assert_eq!(skips(&soon, &[task(1, 0)], &ours()), [Skip::BackSoon]);
    let unsure = [gone(0, MS(5)), open_ended(1)];
    assert_eq!(moves(&unsure, &[task(1, 0)], &ours()), [(1, 1, Why::Pull)]);
    let off = Settings {
        pull: false,
        ..ours()
    };
    assert_eq!(skips(&vcpus, &[task(1, 0)], &off), []);
}

#[test]
fn a_request_that_completes_on_the_gone_vcpu_is_not_pulled() {
    let vcpus = [gone(0, MS(5)), running(1, MS(8))];
    let follows = TaskView {
        completion: Completion::FollowsTask,
        ..task(1, 0)
    };
    assert_eq!(
        skips(&vcpus, &[blocked(follows)], &ours()),
        [Skip::AtCompletion]
    );
    assert_eq!(
        moves(&vcpus, &[follows], &ours()),
        [(1, 1, Why::Pull)],
        "runnable"
    );
    let published = moves(&vcpus, &[blocked(follows)], &Settings::published());
    assert_eq!(published, [(1, 1, Why::Pull)]);
}

#[test]
fn unstable_sources_are_not_pushed_and_no_data_means_no_action() {
    let target = running(1, MS(8));
    assert_eq!(
        skips(&[open_ended(0), target], &[task(1, 0)], &ours()),
        [Skip::Unstable]
    );
    let unknown = vcpu(0, VcpuState::Unknown);
    assert_eq!(skips(&[unknown, target], &[task(1, 0)], &ours()), []);
    assert_eq!(
        skips(
            &[running(0, US(1)), vcpu(1, VcpuState::Unknown)],
            &[task(1, 0)],
            &ours()
        ),
        [Skip::NoBetterVcpu]
    );
    assert_eq!(
        skips(&[target], &[task(1, 0)], &ours()),
        [],
        "on a vCPU without a view"
    );
}

#[test]
fn an_overdue_slice_makes_its_vcpu_open_ended_except_as_published() {
    let overdue = |late| {
        let ends = NOW - late;
        vcpu(
            0,
            VcpuState::Running {
                since: ends - SLICE,
                ends: Some(exactly(ends)),
                gap: Some(SLICE),
            },
        )
    };
    let target = running(1, MS(8));
    let late = [overdue(US(601)), target];
    assert_eq!(skips(&late, &[task(1, 0)], &ours()), [Skip::Unstable]);
    assert_eq!(
        moves(&late, &[task(1, 0)], &Settings::published()),
        [(1, 1, Why::Push)]
    );
    assert_eq!(
        moves(&[overdue(US(600)), target], &[task(1, 0)], &ours()),
        [(1, 1, Why::Push)]
    );
}

#[test]
fn the_owners_mask_and_the_preferred_mask_are_obeyed() {
    let mut vcpus = [running(0, US(100)), running(1, MS(9)), running(2, MS(3))];
    let bound = TaskView {
        allowed: "0,2".parse().unwrap(),
        ..task(1, 0)
    };
    assert_eq!(moves(&vcpus, &[bound], &ours()), [(1, 2, Why::Push)]);
    let pinned = TaskView {
        allowed: "0".parse().unwrap(),
        ..task(1, 0)
    };
    assert_eq!(skips(&vcpus, &[pinned], &ours()), [Skip::NotAllowed]);

    vcpus[1].preferred = false;
    let both = [task(1, 0), task(2, 0)];
    let to = |vcpus: &[VcpuView]| {
        moves(vcpus, &both, &ours())
            .iter()
            .map(|m| m.1)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        to(&vcpus),
        [2, 2],
        "a bad target only where there is no other"
    );
    assert_eq!(to(&vcpus[..2]), [1, 1]);
}

#[test]
fn a_task_lives_at_its_completion_vcpu() {
    let vcpus = [running(0, US(100)), running(1, MS(9))];
    assert_eq!(
        skips(&vcpus, &[homed(1, 0, 0)], &ours()),
        [Skip::AtCompletion]
    );
    assert_eq!(
        skips(&[gone(0, MS(5)), vcpus[1]], &[homed(1, 0, 0)], &ours()),
        [Skip::AtCompletion]
    );
    let stays = [running(0, MS(5)), running(1, MS(9))];
    assert_eq!(
        moves(&stays, &[homed(1, 1, 0)], &ours()),
        [(1, 0, Why::Completion)]
    );
    // Not where its owner does not want it.
    let bound = TaskView {
        allowed: "1".parse().unwrap(),
        ..homed(1, 1, 0)
    };
    assert_eq!(skips(&stays, &[bound], &ours()), []);
    let off = Settings {
        completion: false,
        ..ours()
    };
    assert_eq!(moves(&vcpus, &[homed(1, 0, 0)], &off), [(1, 1, Why::Push)]);
}

#[test]
fn a_runnable_task_is_not_moved_into_a_gap_at_its_completion_vcpu() {
    let vcpus = [
        gone(0, MS(5)),
        running(1, MS(9)),
        running(2, US(100)),
        gone(3, MS(5)),
    ];
    assert_eq!(skips(&vcpus, &[homed(1, 1, 0)], &ours()), []);
    assert_eq!(
        moves(&vcpus, &[blocked(homed(1, 1, 0))], &ours()),
        [(1, 0, Why::Completion)]
    );
    assert_eq!(
        moves(&vcpus, &[homed(1, 2, 0)], &ours()),
        [(1, 1, Why::Push)],
        "its vCPU goes"
    );
    assert_eq!(
        moves(&vcpus, &[homed(1, 3, 0)], &ours()),
        [(1, 1, Why::Pull)],
        "its vCPU is gone"
    );
    let waits = blocked(homed(1, 3, 0));
    assert_eq!(
        skips(&vcpus, &[waits], &ours()),
        [Skip::NoBetterVcpu],
        "nobody could move it"
    );
    let current = TaskView {
        activity: Activity::Running,
        ..homed(1, 3, 2)
    };
    assert_eq!(
        skips(&vcpus, &[current], &ours()),
        [Skip::CurrentOnDescheduled]
    );
}

/// Where the completion vCPU has less of its time there is room for more, and where it
/// has more, or nobody knows, there is what the setting says.
#[test]
fn the_longer_its_home_is_away_the_more_live_there() {
    let settings = Settings {
        completion_cpu_max: Permille::new(300),
        ..ours()
    };
    let shares = [None, Some(900), Some(500), Some(250), Some(125)];
    let lives = |need: u16| {
        shares.map(|share| {
            let task = TaskView {
                cpu_share: Permille::new(need),
                ..homed(1, 0, 0)
            };
            let home = VcpuView {
                share: share.map(Permille::new),
                ..running(0, US(100))
            };
            let vcpus = [home, running(1, MS(9))];
            assert_eq!(
                push_point(NOW - MS(5), &home, &[task], &settings).is_none(),
                moves(&vcpus, &[task], &settings).is_empty(),
                "no timer for who stays"
            );
            moves(&vcpus, &[task], &settings).is_empty()
        })
    };
    assert_eq!(lives(300), [true; 5]);
    assert_eq!(lives(400), [false, false, false, true, true]);
    assert_eq!(lives(700), [false, false, false, false, true]);
    assert_eq!(lives(1000), [false, false, false, false, true]);
}

#[test]
fn a_crowded_completion_vcpu_takes_the_heaviest() {
    let vcpus = [running(0, MS(5)), running(1, MS(9))];
    let heavy = |tid, load, share| TaskView {
        load: Permille::new(load),
        cpu_share: Permille::new(share),
        ..homed(tid, 1, 0)
    };
    let tasks = [
        heavy(1, 400, 200),
        heavy(2, 900, 500),
        heavy(3, 600, 300),
        heavy(4, 300, 1),
    ];
    let found = moves(&vcpus, &tasks, &ours());
    assert_eq!(
        found.iter().map(|m| m.0).collect::<Vec<_>>(),
        [1, 2],
        "500 + 200 of 700"
    );
}

#[test]
fn the_push_point_is_where_place_begins_to_move() {
    let settings = ours();
    let source = running(0, MS(5));
    let slow = TaskView {
        io_latency: US(900),
        ..task(2, 0)
    };
    let point = push_point(NOW, &source, &[task(1, 0), slow], &settings).unwrap();
    assert_eq!(point, NOW + MS(5) - US(1050) + Ns(1));
    let target = open_ended(1);
    assert!(
        place(point, &[source, target], &[slow], &settings)
            .moves
            .len()
            == 1
    );
    assert!(
        place(point - Ns(1), &[source, target], &[slow], &settings)
            .moves
            .is_empty()
    );
    let next = push_point(point, &source, &[task(1, 0), slow], &settings);
    assert_eq!(
        next,
        Some(NOW + MS(5) - US(250) + Ns(1)),
        "the other task's"
    );
}

#[test]
fn nothing_is_armed_without_a_reason() {
    let settings = ours();
    let none = |vcpu: VcpuView, tasks: &[TaskView], settings: &Settings| {
        assert_eq!(push_point(NOW, &vcpu, tasks, settings), None);
    };
    none(running(0, MS(5)), &[], &settings);
    none(running(0, MS(5)), &[homed(1, 0, 0)], &settings);
    none(running(0, US(100)), &[task(1, 0)], &settings);
    none(running(0, MS(5)), &[task(1, 3)], &settings);
    none(open_ended(0), &[task(1, 0)], &settings);
    none(gone(0, MS(1)), &[task(1, 0)], &settings);
    none(vcpu(0, VcpuState::Idle), &[task(1, 0)], &settings);
    none(
        running(0, MS(5)),
        &[task(1, 0)],
        &Settings {
            push: false,
            ..ours()
        },
    );
}

#[test]
fn the_gain_is_the_time_without_a_vcpu() {
    let (source, away) = (running(0, US(100)), gone(1, MS(4)));
    assert_eq!(
        gain(NOW, Why::Push, &source, &running(1, MS(5))),
        Some(MS(11))
    );
    assert_eq!(gain(NOW, Why::Pull, &away, &source), Some(MS(4)));
    assert_eq!(
        gain(NOW, Why::SoonActive, &source, &away),
        Some(US(100) + MS(7))
    );
    assert_eq!(gain(NOW, Why::Completion, &source, &away), None);
    assert_eq!(gain(NOW, Why::Push, &open_ended(0), &away), None);
}

mod look;
mod overdue;
