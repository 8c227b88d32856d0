// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds from one instant to the next, while vCPUs go and come back: no task is
//! sent to and fro within one slice.
//!
//! The vCPUs do what their estimates say, early and late within the window; tasks run,
//! queue and block by chance, and each decision is carried out by its performer if that
//! one runs.

use proptest::prelude::*;
use units::CpuSet;
use units::Permille;
use units::TaskKey;
use units::Tid;

use super::*;
use crate::guest::view::Window;

const START: Time = Time(1_000_000_000);

/// A vCPU's future: slices and gaps in turn, the first one having begun already.
#[derive(Clone, Debug)]
struct Host {
    /// Usual length of a slice, and of the gap after it.
    on: Ns,
    off: Ns,
    /// Half of the window in which an end falls.
    spread: Ns,
    /// When the present slice began, before the start.
    ago: Ns,
    /// How far from the expected instant each end is, in thousandths of the spread.
    errors: Vec<i64>,
}

/// What a vCPU does at one instant.
struct Now {
    state: VcpuState,
    /// Slices begun so far.
    slice: usize,
}

impl Host {
    fn at(&self, now: Time) -> Now {
        let window = |expected: Time| Window {
            earliest: expected - self.spread,
            expected,
            latest: expected + self.spread,
        };
        let mut since = START - self.ago;
        for (slice, errors) in self.errors.chunks_exact(2).enumerate() {
            let end = |expected: Time, error: i64| {
                let off = self.spread.as_ns().cast_signed() * error / 1000;
                Time(expected.as_ns().saturating_add_signed(off))
            };
            let out = end(since + self.on, errors[0]);
            if now < out {
                let state = VcpuState::Running {
                    since,
                    ends: Some(window(since + self.on)),
                    gap: Some(self.off),
                };
                return Now { state, slice };
            }
            let back = end(out + self.off, errors[1]);
            if now < back {
                let state = VcpuState::Descheduled {
                    since: out,
                    back: Some(window(out + self.off)),
                };
                return Now { state, slice };
            }
            since = back;
        }
        let state = VcpuState::Unknown;
        let slice = self.errors.len();
        Now { state, slice }
    }
}

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    let host = (
        2_000_000u64..30_000_000,
        2_000_000u64..80_000_000,
        0u64..400_000,
        0u64..1000,
        proptest::collection::vec(-1000i64..=1000, 16),
    );
    let host = host.prop_map(|(on, off, spread, ago, errors)| Host {
        on: Ns(on),
        off: Ns(off),
        spread: Ns(spread),
        ago: Ns(on / 1000 * ago),
        errors,
    });
    proptest::collection::vec(host, 2..6)
}

/// A task, and what it does at each instant.
#[derive(Clone, Debug)]
struct Life {
    vcpu: u32,
    load: u16,
    latency: Ns,
    doing: Vec<u8>,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let life = (
        0u32..6,
        0u16..=1000,
        0u64..1_000_000,
        proptest::collection::vec(0u8..3, 32),
    );
    let life = life.prop_map(|(vcpu, load, latency, doing)| Life {
        vcpu,
        load,
        latency: Ns(latency),
        doing,
    });
    proptest::collection::vec(life, 1..6)
}

/// A move, with the number of the slice that its source was in.
#[derive(Clone, Copy, Debug)]
struct Made {
    m: Move,
    from_slice: usize,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Who has left a vCPU by push, pull or spread is not sent there again by any of
    /// these before that vCPU has been away and is back.
    #[test]
    fn nobody_is_sent_to_and_fro_within_a_slice(
        hosts in hosts(), lives in lives(),
        steps in proptest::collection::vec(1_000u64..1_500_000, 32),
    ) {
        let settings = Settings::default();
        let n = hosts.len() as u32;
        let mut tasks: Vec<TaskView> = (100..).map(Tid).zip(&lives).map(|(tid, life)| TaskView {
            key: TaskKey { tid, start_ticks: 5 },
            vcpu: VcpuId(life.vcpu % n),
            activity: Activity::Running,
            load: Permille::new(life.load),
            cpu_share: Permille::new(100),
            priority: 0,
            allowed: CpuSet::first(n),
            io_latency: life.latency,
            completion: Completion::FollowsTask,
        }).collect();
        let mut made: Vec<Made> = Vec::new();
        let mut now = START;
        for (step, doing) in steps.iter().zip(0usize..) {
            let seen: Vec<Now> = hosts.iter().map(|host| host.at(now)).collect();
            let vcpus: Vec<VcpuView> = (0..).map(VcpuId).zip(&seen).map(|(id, seen)| VcpuView {
                id,
                state: seen.state,
                share: None,
                preferred: true,
            }).collect();
            for (task, life) in tasks.iter_mut().zip(&lives) {
                task.activity = match life.doing[doing] {
                    0 => Activity::Running,
                    1 => Activity::Queued(now - Ns(50_000)),
                    _ => Activity::Blocked(now - Ns(50_000)),
                };
            }
            let runs = |id: VcpuId| matches!(vcpus[id.index()].state, VcpuState::Running { .. });
            for m in place(now, &vcpus, &tasks, &settings).moves {
                if !runs(m.performer(runs(m.from))) {
                    continue;
                }
                let back_again = made.iter().find(|before| {
                    before.m.task == m.task
                        && before.m.from == m.to
                        && before.from_slice == seen[m.to.index()].slice
                        && m.why != Why::SoonActive
                });
                prop_assert!(back_again.is_none(), "{m:?} at {now:?} after {back_again:?}");
                for task in tasks.iter_mut().filter(|task| task.key == m.task) {
                    task.vcpu = m.to;
                }
                made.push(Made { m, from_slice: seen[m.from.index()].slice });
            }
            now = now + Ns(*step);
        }
    }
}
