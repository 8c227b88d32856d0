// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds for every view. The words "at hand" and "better" of the module
//! documentation are written down here a second time, straight from the view,
//! so that the implementation is not its own judge.

use proptest::prelude::*;
use units::CpuSet;
use units::Permille;
use units::TaskKey;
use units::Tid;

use super::*;
use crate::guest::view::Window;

const NOW: Time = Time(1_000_000_000);

fn time_left(now: Time, vcpu: &VcpuView, settings: &Settings) -> Option<(Time, Window)> {
    match vcpu.state {
        VcpuState::Running {
            since,
            ends: Some(ends),
            ..
        } => {
            let void = settings
                .overdue_after
                .is_some_and(|after| now > ends.latest + after);
            (!void).then_some((since, ends))
        }
        _ => None,
    }
}

fn at_hand(now: Time, vcpu: &VcpuView, task: &TaskView, settings: &Settings) -> bool {
    match vcpu.state {
        VcpuState::Idle => true,
        VcpuState::Running { .. } => match time_left(now, vcpu, settings) {
            None => true,
            Some((since, ends)) => {
                let needed = settings.margin.of(task.io_latency, since, &ends) + settings.min_stay;
                ends.expected > now + needed
            }
        },
        _ => false,
    }
}

/// The instant from which a vCPU that is gone or about to go can be used again.
/// Outer `None`: it is neither. Inner: it is, but that instant is not known.
fn usable_again(
    now: Time,
    vcpu: &VcpuView,
    task: &TaskView,
    settings: &Settings,
) -> Option<Option<Time>> {
    match vcpu.state {
        VcpuState::Descheduled { back, .. } => Some(back.map(|back| back.expected.max(now))),
        VcpuState::Running { gap, .. } => {
            let (since, ends) = time_left(now, vcpu, settings)?;
            let margin = settings.margin.of(task.io_latency, since, &ends);
            (ends.expected.since(now) < margin).then(|| gap.map(|gap| ends.expected.max(now) + gap))
        }
        _ => None,
    }
}

/// Is a vCPU that is gone waited for although another is at hand?
fn back_soon(now: Time, vcpu: &VcpuView, settings: &Settings) -> bool {
    let VcpuState::Descheduled {
        back: Some(back), ..
    } = vcpu.state
    else {
        return false;
    };
    let overdue = settings
        .back_overdue_after
        .is_some_and(|after| now > back.latest + after);
    !overdue && back.expected.since(now) <= settings.pull_unless_back_within
}

/// Is `b` better than `a` for this task?
fn better(now: Time, b: &VcpuView, a: &VcpuView, task: &TaskView, settings: &Settings) -> bool {
    let Some(a_again) = usable_again(now, a, task, settings) else {
        return false;
    };
    if at_hand(now, b, task, settings) {
        return true;
    }
    let a_runs = matches!(a.state, VcpuState::Running { .. });
    let b_gone = matches!(b.state, VcpuState::Descheduled { .. });
    let b_again = usable_again(now, b, task, settings).flatten();
    match (a_again, b_again) {
        (Some(a), Some(b)) => a_runs && b_gone && b + settings.soon_lead < a,
        _ => false,
    }
}

/// Instants within 15 ms of now, often near it.
fn near() -> impl Strategy<Value = i64> {
    prop_oneof![-15_000_000i64..15_000_000, -1_000_000i64..1_000_000]
}

fn window() -> impl Strategy<Value = Window> {
    (near(), 0u64..2_000_000, 0u64..2_000_000).prop_map(|(expected, early, late)| {
        let expected = Time(NOW.0.saturating_add_signed(expected));
        Window {
            earliest: expected - Ns(early),
            expected,
            latest: expected + Ns(late),
        }
    })
}

fn state() -> impl Strategy<Value = VcpuState> {
    let length = 0u64..30_000_000;
    prop_oneof![
        5 => (length.clone(), proptest::option::weighted(0.8, window()), proptest::option::of(length.clone()))
            .prop_map(|(since, ends, gap)| VcpuState::Running {
                since: NOW - Ns(since), ends, gap: gap.map(Ns),
            }),
        4 => (length, proptest::option::weighted(0.8, window())).prop_map(|(since, back)| {
            VcpuState::Descheduled { since: NOW - Ns(since), back }
        }),
        1 => Just(VcpuState::Idle),
        1 => Just(VcpuState::Unknown),
    ]
}

fn views() -> impl Strategy<Value = Vec<VcpuView>> {
    let share = proptest::option::of((0u16..=1000).prop_map(Permille::new));
    proptest::collection::vec((state(), share, prop::bool::weighted(0.8)), 1..7).prop_map(
        |states| {
            let ids = (0..).map(VcpuId);
            ids.zip(states)
                .map(|(id, (state, share, preferred))| VcpuView {
                    id,
                    state,
                    share,
                    preferred,
                })
                .collect()
        },
    )
}

fn activity() -> impl Strategy<Value = Activity> {
    prop_oneof![
        Just(Activity::Running),
        Just(Activity::Queued(NOW - Ns(50_000))),
        Just(Activity::Blocked(NOW - Ns(50_000))),
    ]
}

fn completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        Just(Completion::FollowsTask),
        Just(Completion::Unknown),
        (0u32..7).prop_map(|vcpu| Completion::On(VcpuId(vcpu))),
    ]
}

fn tasks() -> impl Strategy<Value = Vec<TaskView>> {
    let task = (
        (0u32..7, activity(), completion()),
        (0u16..=1000, 0u16..=1000, -1i32..=1),
        prop_oneof![Just(0b111_1111u64), any::<u64>()],
        0u64..4_000_000,
    );
    proptest::collection::vec(task, 0..12).prop_map(|tasks| {
        let tids = (100..).map(Tid);
        tids.zip(tasks)
            .map(
                |(tid, ((on, activity, completion), (load, share, priority), allowed, latency))| {
                    TaskView {
                        key: TaskKey {
                            tid,
                            start_ticks: 5,
                        },
                        vcpu: VcpuId(on),
                        activity,
                        load: Permille::new(load),
                        cpu_share: Permille::new(share),
                        priority,
                        allowed: CpuSet::from_words(&[allowed]),
                        io_latency: Ns(latency),
                        completion,
                    }
                },
            )
            .collect()
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let any_length = || 0u64..2_000_000;
    let short = prop_oneof![Just(0), 0u64..20_000_000];
    let mixed = (any::<[bool; 7]>(), any_length(), any_length(), short).prop_map(
        |(
            [
                push,
                pull,
                soon_active,
                spread,
                completion,
                pull_in_flight,
                fixed,
            ],
            stay,
            lead,
            short,
        )| Settings {
            push,
            pull,
            soon_active,
            spread,
            completion,
            pull_in_flight,
            min_stay: Ns(stay),
            soon_lead: Ns(lead),
            soon_below: Ns(short),
            margin: if fixed {
                Settings::published()
            } else {
                Settings::default()
            }
            .margin,
            ..Settings::default()
        },
    );
    prop_oneof![
        3 => Just(Settings::default()),
        1 => Just(Settings::published()),
        2 => mixed,
    ]
}

/// The tasks as they are after the moves.
fn moved(tasks: &[TaskView], plan: &Plan) -> Vec<TaskView> {
    let mut tasks = tasks.to_vec();
    for m in &plan.moves {
        for task in tasks.iter_mut().filter(|task| task.key == m.task) {
            assert_eq!(task.vcpu, m.from);
            task.vcpu = m.to;
        }
    }
    tasks
}

fn of<'a>(tasks: &'a [TaskView], m: &Move) -> &'a TaskView {
    tasks.iter().find(|task| task.key == m.task).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Never outside the owner's mask, never to where it is, never twice, never
    /// with a vCPU of which nothing is known, never a task that cannot be moved.
    #[test]
    fn moves_are_allowed_and_possible(vcpus in views(), tasks in tasks(), settings in settings()) {
        let plan = place(NOW, &vcpus, &tasks, &settings);
        let mut seen = std::collections::BTreeSet::new();
        for m in &plan.moves {
            let task = of(&tasks, m);
            let (from, to) = (find(&vcpus, m.from).unwrap(), find(&vcpus, m.to).unwrap());
            prop_assert!(task.allowed.contains(m.to));
            prop_assert!(m.from == task.vcpu && m.to != m.from);
            prop_assert!(from.state != VcpuState::Unknown && to.state != VcpuState::Unknown);
            let source_gone = matches!(from.state, VcpuState::Descheduled { .. });
            prop_assert!(!(source_gone && task.activity == Activity::Running));
            prop_assert!(seen.insert(m.task));
        }
        for (task, _) in &plan.skipped {
            prop_assert!(seen.insert(*task), "moved and skipped, or skipped twice");
        }
    }

    /// Every PUSH, PULL and soon-active move leaves a worse vCPU for a better
    /// one, by the rule it names and only if that rule is on; every completion
    /// move goes to the completion vCPU, and nothing that lives there leaves it.
    #[test]
    fn every_move_goes_to_a_better_vcpu(
        vcpus in views(), tasks in tasks(), settings in settings(),
    ) {
        for m in &place(NOW, &vcpus, &tasks, &settings).moves {
            let task = of(&tasks, m);
            let (from, to) = (find(&vcpus, m.from).unwrap(), find(&vcpus, m.to).unwrap());
            let gone = matches!(from.state, VcpuState::Descheduled { .. });
            match m.why {
                Why::Completion => {
                    prop_assert!(settings.completion);
                    prop_assert_eq!(task.completion, Completion::On(m.to));
                    // One end can make the move.
                    let to_gone = matches!(to.state, VcpuState::Descheduled { .. });
                    prop_assert!(!gone || !to_gone);
                    // Into a gap only what is blocked.
                    let into_gap = usable_again(NOW, to, task, &settings).is_some();
                    prop_assert!(!into_gap || matches!(task.activity, Activity::Blocked(_)));
                    continue;
                }
                Why::Push => prop_assert!(settings.push && !gone),
                Why::Pull => prop_assert!(settings.pull && gone),
                Why::SoonActive => prop_assert!(settings.push && settings.soon_active && !gone),
                Why::Spread => continue,
            }
            prop_assert!(better(NOW, to, from, task, &settings), "{:?}", m);
            prop_assert!(!better(NOW, from, to, task, &settings), "better is one-way");
            prop_assert_eq!(m.why == Why::SoonActive, !at_hand(NOW, to, task, &settings));
        }
    }

    /// No ping-pong: with the moves made, the same instant asks for no other but
    /// spreading, and nobody comes back to where he was.
    #[test]
    fn a_second_evaluation_finds_nothing_to_do(
        vcpus in views(), tasks in tasks(), settings in settings(),
    ) {
        let mut now_at = tasks.clone();
        let mut was_at: Vec<Vec<VcpuId>> = tasks.iter().map(|task| vec![task.vcpu]).collect();
        for round in 0..=vcpus.len() {
            let plan = place(NOW, &vcpus, &now_at, &settings);
            if plan.moves.is_empty() {
                break;
            }
            prop_assert!(round < vcpus.len(), "no end");
            prop_assert!(round == 0 || plan.moves.iter().all(|m| m.why == Why::Spread));
            now_at = moved(&now_at, &plan);
            for (was_at, task) in was_at.iter_mut().zip(&now_at) {
                if was_at.last() != Some(&task.vcpu) {
                    prop_assert!(!was_at.contains(&task.vcpu), "{} is back", task.key);
                    was_at.push(task.vcpu);
                }
            }
        }
    }

    /// Whoever is spread goes from a crowded vCPU that runs to a less crowded one
    /// that runs longer; afterwards the difference is still not the other way
    /// round. Nobody who runs, or lives at a completion vCPU, is spread.
    #[test]
    fn spreading_goes_to_a_less_crowded_vcpu_that_runs_longer(
        vcpus in views(), tasks in tasks(), settings in settings(),
    ) {
        let plan = place(NOW, &vcpus, &tasks, &settings);
        let ends = |id| match find(&vcpus, id).unwrap().state {
            VcpuState::Running { ends: Some(ends), .. } => ends.expected,
            other => panic!("{other:?}"),
        };
        let after = moved(&tasks, &plan);
        let crowd = |id| after.iter().filter(|task| task.vcpu == id).count();
        for m in plan.moves.iter().filter(|m| m.why == Why::Spread) {
            let task = of(&tasks, m);
            prop_assert!(settings.spread && task.activity != Activity::Running);
            prop_assert!(ends(m.to) > ends(m.from) + settings.min_stay);
            prop_assert!(at_hand(NOW, find(&vcpus, m.to).unwrap(), task, &settings));
            prop_assert!(crowd(m.to) <= crowd(m.from) + 1, "too many: {:?}", plan.moves);
            prop_assert!(usable_again(NOW, find(&vcpus, m.from).unwrap(), task, &settings).is_none());
            if settings.completion {
                let lives = task.completion == Completion::On(m.from)
                    && task.allowed.contains(m.from) && task.cpu_share <= settings.completion_cpu_max;
                prop_assert!(!lives || tasks.iter().filter(|t| t.completion == task.completion).count() > 1);
            }
        }
    }

    /// And where it can be done it is done: no vCPU keeps two more than another
    /// that runs longer, unless those there run at this moment or may not go.
    #[test]
    fn what_can_be_spread_is_spread(vcpus in views(), tasks in tasks()) {
        let settings = Settings { completion: false, ..Settings::default() };
        let plan = place(NOW, &vcpus, &tasks, &settings);
        let after = moved(&tasks, &plan);
        let crowd = |id| after.iter().filter(|task| task.vcpu == id).count();
        for task in after.iter().filter(|task| task.activity != Activity::Running) {
            if plan.moves.iter().any(|m| m.task == task.key) {
                continue;
            }
            let Some(from) = find(&vcpus, task.vcpu) else { continue };
            let Some((_, left)) = time_left(NOW, from, &settings) else { continue };
            if usable_again(NOW, from, task, &settings).is_some() {
                continue;
            }
            for to in vcpus.iter().filter(|to| to.preferred && task.allowed.contains(to.id)) {
                let Some((_, stay)) = time_left(NOW, to, &settings) else { continue };
                let longer = stay.expected > left.expected + settings.min_stay
                    && at_hand(NOW, to, task, &settings);
                prop_assert!(
                    !longer || crowd(to.id) + 2 > crowd(from.id),
                    "{} stays on {} beside {}", task.key, from.id, to.id
                );
            }
        }
    }

    /// A vCPU gets a second task only after every other vCPU that would do for
    /// that task has one from this plan (V20).
    #[test]
    fn one_task_each_before_the_second_round(
        vcpus in views(), tasks in tasks(), settings in settings(),
    ) {
        let plan = place(NOW, &vcpus, &tasks, &settings);
        for (n, m) in plan.moves.iter().enumerate() {
            let given = |id: VcpuId| plan.moves[..n].iter().any(|m| m.to == id);
            if matches!(m.why, Why::Completion | Why::Spread) || !given(m.to) {
                continue;
            }
            let task = of(&tasks, m);
            let (from, to) = (find(&vcpus, m.from).unwrap(), find(&vcpus, m.to).unwrap());
            // Past one that is at hand only to who is back soon.
            let past_one = m.why == Why::SoonActive && vcpus.iter().any(|vcpu| {
                task.allowed.contains(vcpu.id) && at_hand(NOW, vcpu, task, &settings)
            });
            for other in &vcpus {
                let same_kind = other.preferred == to.preferred
                    && at_hand(NOW, other, task, &settings) == at_hand(NOW, to, task, &settings);
                if same_kind && task.allowed.contains(other.id)
                    && better(NOW, other, from, task, &settings)
                    && (!past_one || back_soon(NOW, other, &settings))
                {
                    prop_assert!(given(other.id), "{:?} before {}", m, other.id);
                }
            }
        }
    }

    /// Nobody is forgotten: an ordinary task whose vCPU is gone or about to go,
    /// with a vCPU at hand, is moved, unless a stated reason keeps it.
    #[test]
    fn who_can_be_helped_is_helped(vcpus in views(), tasks in tasks()) {
        let settings = Settings::default();
        let plan = place(NOW, &vcpus, &tasks, &settings);
        for task in &tasks {
            let Some(from) = find(&vcpus, task.vcpu) else { continue };
            let helper = vcpus.iter().any(|vcpu| {
                task.allowed.contains(vcpu.id) && at_hand(NOW, vcpu, task, &settings)
            });
            let away = usable_again(NOW, from, task, &settings);
            if away.is_none() || !helper || matches!(task.completion, Completion::On(_)) {
                continue;
            }
            if plan.moves.iter().any(|m| m.task == task.key) {
                continue;
            }
            let skip = plan.skipped.iter().find(|(key, _)| *key == task.key).map(|(_, skip)| *skip);
            let gone = matches!(from.state, VcpuState::Descheduled { .. });
            match skip {
                Some(Skip::CurrentOnDescheduled) => {
                    prop_assert!(gone && task.activity == Activity::Running);
                }
                Some(Skip::BackSoon) => {
                    let back = away.flatten().unwrap();
                    prop_assert!(gone && back.since(NOW) <= settings.pull_unless_back_within);
                }
                Some(Skip::AtCompletion) => {
                    prop_assert!(gone && task.completion == Completion::FollowsTask);
                    prop_assert!(matches!(task.activity, Activity::Blocked(_)));
                }
                other => prop_assert!(false, "{:?} for {:?}", other, task),
            }
        }
    }

    /// Moves by push, pull and soon-active come in the order of the ranking, and
    /// the order in which the tasks are listed changes nothing.
    #[test]
    fn the_plan_depends_on_the_tasks_not_on_their_order(
        vcpus in views(), tasks in tasks(), settings in settings(),
    ) {
        let plan = place(NOW, &vcpus, &tasks, &settings);
        let ranked: Vec<&TaskView> = plan.moves.iter()
            .filter(|m| !matches!(m.why, Why::Completion | Why::Spread))
            .map(|m| of(&tasks, m))
            .collect();
        prop_assert!(ranked.is_sorted_by(|a, b| rank(a, b).is_lt()));

        let mut other = tasks.clone();
        other.reverse();
        let mut dirty = plan.clone();
        place_into(NOW, &vcpus, &other, &settings, &mut dirty);
        let sorted = |mut plan: Plan| {
            plan.moves.sort_unstable_by_key(|m| m.task.tid);
            plan.skipped.sort_unstable_by_key(|(key, _)| key.tid);
            plan
        };
        prop_assert_eq!(sorted(dirty), sorted(plan));
    }

    /// The push point is the next instant at which the answer for a task on that
    /// vCPU changes to "about to go", and there is none that it misses.
    #[test]
    fn the_push_point_misses_nothing(
        vcpus in views(), tasks in tasks(), settings in settings(), later in 0u64..20_000_000,
    ) {
        for vcpu in &vcpus {
            let here: Vec<TaskView> = tasks.iter().copied()
                .filter(|task| task.vcpu == vcpu.id && !matches!(task.completion, Completion::On(_)))
                .collect();
            let leaving = |at: Time| here.iter()
                .filter(|task| matches!(vcpu.state, VcpuState::Running { ends: Some(ends), .. }
                    // Not yet overdue, and less left than the margin.
                    if ends.expected > at
                        && usable_again(at, vcpu, task, &Settings { overdue_after: None, ..settings.clone() }).is_some()))
                .count();
            match push_point(NOW, vcpu, &here, &settings) {
                Some(point) => {
                    prop_assert!(point > NOW);
                    prop_assert!(leaving(point) > leaving(point - Ns(1)));
                    let before = NOW + Ns(later % point.since(NOW).0);
                    prop_assert_eq!(leaving(before), leaving(NOW));
                }
                None if settings.push => {
                    prop_assert!(leaving(NOW + Ns(later)) <= leaving(NOW));
                }
                None => {}
            }
        }
    }
}
