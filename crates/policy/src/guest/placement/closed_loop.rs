// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimator and placement together, on generated slices: how many requests
//! does a task get done, against the best that is possible?
//!
//! The task issues a request, sleeps, is woken where the request was issued (a
//! device with one queue per vCPU) if that vCPU runs, and issues the next one
//! when its own vCPU runs. Moves cost nothing and are made at once by their
//! performer, if that one runs. What is left is the quality of the decisions.

use units::CpuSet;
use units::Permille;
use units::TaskKey;
use units::Tid;

use super::*;
use crate::guest::slice;
use crate::guest::slice::Distribution;
use crate::guest::slice::LastValue;
use crate::guest::slice::SliceEstimator;
use crate::guest::slice::Timeline;

const STEP: Ns = Ns::from_us(20);
const TOTAL: Ns = Ns::from_secs(8);
/// Left out of the figures: the estimators know nothing yet.
const WARM_UP: Ns = Ns::from_secs(1);

/// One vCPU's host: `on`, then `off`, for ever, from `phase` on.
struct Host {
    on: Ns,
    off: Ns,
    phase: Ns,
    /// Every second slice is longer by this.
    more: Ns,
    /// Every sixth gap is longer by this.
    late: Ns,
}

impl Host {
    fn runs(&self, now: Time) -> bool {
        let short = self.on + self.off;
        let cycle = short * 2 + self.more;
        let round = cycle * 3 + self.late;
        let at = (now + self.phase).as_ns() % round.as_ns();
        if at >= (cycle * 3).as_ns() {
            return false;
        }
        let at = Ns(at % cycle.as_ns());
        at < self.on || (at >= short && at < short + self.on + self.more)
    }
}

/// A device time; the task needs no CPU time of its own.
const LATENCY: Ns = Ns::from_us(100);

#[derive(Debug)]
struct Outcome {
    /// Requests done.
    done: u64,
    /// As many as fit into the time in which any vCPU ran.
    bound: u64,
    /// As many as fit into the share of one vCPU.
    share: u64,
    moves: u64,
    /// N_min: the time that the requests took, in slices.
    slices: u64,
}

/// What the task waits for.
#[derive(Clone, Copy)]
enum Waits {
    /// Its vCPU.
    Queued(Time),
    /// A request issued then on that vCPU.
    Blocked(Time, VcpuId),
}

fn play(
    hosts: &[Host],
    settings: &Settings,
    estimator: fn() -> Box<dyn SliceEstimator>,
) -> Outcome {
    let ids = (0..hosts.len() as u32).map(VcpuId);
    let mut lines: Vec<Timeline> = hosts
        .iter()
        .map(|_| Timeline::new(estimator(), &slice::Settings::default(), Time::ZERO))
        .collect();
    let mut gone: Vec<Option<Time>> = vec![None; hosts.len()];
    let mut task = TaskView {
        key: TaskKey {
            tid: Tid(1),
            start_ticks: 0,
        },
        vcpu: VcpuId(0),
        activity: Activity::Running,
        load: Permille::new(800),
        cpu_share: Permille::new(200),
        priority: 0,
        allowed: CpuSet::first(hosts.len() as u32),
        io_latency: LATENCY,
        completion: Completion::FollowsTask,
    };
    let mut waits = Waits::Queued(Time::ZERO);
    let mut armed = None;
    let (mut done, mut any, mut moves) = (0u64, Ns::ZERO, 0u64);
    let mut now = Time::ZERO;
    while now < Time::ZERO + TOTAL {
        let counts = now >= Time::ZERO + WARM_UP;
        // A resume is seen when it happens, a deschedule in the steal page.
        let mut event = false;
        for (n, host) in hosts.iter().enumerate() {
            match (host.runs(now), gone[n]) {
                (false, None) => gone[n] = Some(now),
                (true, Some(out)) => {
                    lines[n].gap(out, now);
                    gone[n] = None;
                    event = true;
                }
                _ => {}
            }
        }
        let runs = |id: VcpuId| gone[id.index()].is_none();

        if let Waits::Blocked(issued, on) = waits
            && now >= issued + LATENCY
            && runs(on)
        {
            waits = Waits::Queued(now);
            done += u64::from(counts);
        }
        event |= armed.is_some_and(|at| now >= at) && runs(task.vcpu);
        if event {
            task.activity = match waits {
                Waits::Queued(since) => Activity::Queued(since),
                Waits::Blocked(since, _) => Activity::Blocked(since),
            };
            let vcpus: Vec<VcpuView> = ids
                .clone()
                .map(|id| VcpuView {
                    id,
                    preferred: true,
                    state: match gone[id.index()] {
                        Some(out) => lines[id.index()].state_descheduled(out, now),
                        None => lines[id.index()].state_running(now),
                    },
                    share: lines[id.index()].share(),
                })
                .collect();
            for m in place(now, &vcpus, &[task], settings).moves {
                if runs(m.performer(runs(m.from))) {
                    task.vcpu = m.to;
                    moves += u64::from(counts);
                }
            }
            let push = push_point(now, &vcpus[task.vcpu.index()], &[task], settings);
            let longer = lines[task.vcpu.index()].longer_from(now);
            armed = push.into_iter().chain(longer).min();
        }
        if matches!(waits, Waits::Queued(_)) && runs(task.vcpu) {
            waits = Waits::Blocked(now, task.vcpu);
        }
        if counts && gone.iter().any(Option::is_none) {
            any += STEP;
        }
        now = now + STEP;
    }
    let host = &hosts[0];
    Outcome {
        done,
        bound: any.as_ns() / LATENCY.as_ns(),
        share: (TOTAL - WARM_UP)
            .scaled(host.on.as_ns(), (host.on + host.off).as_ns())
            .as_ns()
            / LATENCY.as_ns(),
        moves,
        slices: (LATENCY * done).as_ns() / host.on.as_ns(),
    }
}

/// Slices of 11 ms for `vms` VMs on each of `count` pCPUs; the phases sweep.
fn hosts(count: u64, vms: u64) -> Vec<Host> {
    (0..count)
        .map(|n| Host {
            on: Ns::from_ms(11),
            off: Ns::from_ms(11) * (vms - 1) + Ns::from_us(137) * n,
            phase: Ns::from_us(4700) * n,
            more: Ns::ZERO,
            late: Ns::ZERO,
        })
        .collect()
}

fn distribution() -> Box<dyn SliceEstimator> {
    Box::new(Distribution::new(&slice::Settings::default()))
}

fn last_value() -> Box<dyn SliceEstimator> {
    Box::new(LastValue::new())
}

#[test]
fn two_vcpus_come_close_to_the_bound() {
    for vms in [2, 4, 8] {
        let outcome = play(&hosts(2, vms), &Settings::default(), distribution);
        println!("2 vCPUs, {vms} VMs: {outcome:?}");
        assert!(outcome.done * 100 >= outcome.bound * 97, "{outcome:?}");
    }
}

#[test]
fn more_vcpus_come_closer_within_the_default_budget() {
    for (count, vms) in [(4, 2), (8, 4), (12, 8)] {
        let outcome = play(&hosts(count, vms), &Settings::default(), distribution);
        println!("{count} vCPUs, {vms} VMs: {outcome:?}");
        assert!(outcome.done * 100 >= outcome.bound * 98, "{outcome:?}");
        assert!(outcome.moves <= outcome.slices * 2, "{outcome:?}");
    }
}

#[test]
fn with_two_vcpus_the_soon_active_rule_carries_the_gain() {
    let without = Settings {
        soon_active: false,
        ..Settings::default()
    };
    for vms in [4, 8] {
        let [with, without] = [Settings::default(), without.clone()].map(|settings| {
            let outcome = play(&hosts(2, vms), &settings, distribution);
            println!(
                "{vms} VMs, soon-active {}: {outcome:?}",
                settings.soon_active
            );
            outcome.done
        });
        assert!(with * 100 >= without * 120, "{with} against {without}");
    }
}

/// What knows of one length alone.
struct OneLength(Distribution);

impl SliceEstimator for OneLength {
    fn observe(&mut self, on: Ns, off: Ns) {
        self.0.observe(on, off);
    }

    fn slice(&self) -> Option<crate::guest::view::Estimate> {
        self.0.slice()
    }

    fn gap(&self) -> Option<crate::guest::view::Estimate> {
        self.0.gap()
    }
}

/// Weights of 60 and 40 under Credit2: slices of 10 ms for the lighter VM, of 10 and 20 in turn
/// for the other one.
#[test]
fn slices_of_two_lengths_gain_more_than_abstaining() {
    let one_length = || -> Box<dyn SliceEstimator> {
        Box::new(OneLength(Distribution::new(&slice::Settings::default())))
    };
    for count in [2, 4] {
        let hosts: Vec<Host> = (0..count)
            .map(|n| Host {
                on: Ns::from_ms(10),
                off: Ns::from_ms(10) + Ns::from_us(137) * n,
                phase: Ns::from_us(4700) * n,
                more: Ns::from_ms(10),
                late: Ns::ZERO,
            })
            .collect();
        let several = play(&hosts, &Settings::default(), distribution);
        let one = play(&hosts, &Settings::default(), one_length);
        println!("{count} vCPUs: {several:?}, with one length {one:?}");
        assert!(several.done * 100 >= one.done * 110, "{several:?} {one:?}");
    }
}

/// A gap in six is twice as long as the others: a vCPU that was to be back any moment is not.
#[test]
fn a_task_is_not_left_on_a_vcpu_that_is_overdue() {
    let ours = (
        Settings::default(),
        distribution as fn() -> Box<dyn SliceEstimator>,
    );
    let published = (Settings::published(), last_value as _);
    for (settings, estimator) in [ours, published] {
        for (vms, least) in [(2, 104), (4, 101)] {
            let mut hosts = hosts(4, vms);
            for host in &mut hosts {
                host.late = host.off;
            }
            let for_ever = Settings {
                back_overdue_after: None,
                ..settings.clone()
            };
            let pulled = play(&hosts, &settings, estimator);
            let left = play(&hosts, &for_ever, estimator);
            println!("{vms} VMs: {pulled:?}, left there {left:?}");
            assert!(pulled.done * 100 >= pulled.bound * 94, "{pulled:?}");
            assert!(
                pulled.done * 100 >= left.done * least,
                "{pulled:?} {left:?}"
            );
        }
    }
}

#[test]
fn the_published_rules_gain_too() {
    let outcome = play(&hosts(12, 2), &Settings::published(), last_value);
    println!("{outcome:?}");
    assert!(outcome.done * 10 >= outcome.share * 18, "{outcome:?}");
}

#[test]
fn a_large_view_is_decided_quickly_enough_to_be_counted() {
    // 64 vCPUs, 128 tasks, all of them to be moved at once: the worst plan.
    // Counted, not timed: each task moves, spread over the targets.
    let vcpus: Vec<VcpuView> = (0..64)
        .map(|n| {
            let ends = Time(1_000_000_000) + Ns::from_ms(n / 2 % 8 + 1);
            let window = crate::guest::view::Window {
                earliest: ends,
                expected: ends,
                latest: ends,
            };
            let state = if n % 2 == 0 {
                VcpuState::Descheduled {
                    since: Time(999_000_000),
                    back: Some(window),
                }
            } else {
                VcpuState::Running {
                    since: Time(999_000_000),
                    ends: Some(window),
                    gap: None,
                }
            };
            VcpuView {
                id: VcpuId(n as u32),
                preferred: true,
                state,
                share: None,
            }
        })
        .collect();
    let tasks: Vec<TaskView> = (0..128)
        .map(|n| TaskView {
            key: TaskKey {
                tid: Tid(n),
                start_ticks: 0,
            },
            vcpu: VcpuId(n % 32 * 2),
            activity: Activity::Queued(Time(999_500_000)),
            load: Permille::new(n as u16),
            cpu_share: Permille::new(100),
            priority: 0,
            allowed: CpuSet::first(64),
            io_latency: Ns::from_us(100),
            completion: Completion::Unknown,
        })
        .collect();
    let mut plan = Plan::default();
    let started = std::time::Instant::now();
    for _ in 0..100 {
        place_into(
            Time(1_000_000_000),
            &vcpus,
            &tasks,
            &Settings::default(),
            &mut plan,
        );
    }
    println!("worst plan: {:?}", started.elapsed() / 100);
    assert_eq!(plan.moves.len(), 128);
    let most = vcpus
        .iter()
        .map(|vcpu| plan.moves.iter().filter(|m| m.to == vcpu.id).count())
        .max();
    assert_eq!(most, Some(4), "128 tasks on 32 running vCPUs");
}
