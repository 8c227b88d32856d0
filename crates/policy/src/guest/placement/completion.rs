// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks whose completions all arrive on one vCPU live there.
//!
//! Two limits. They may not crowd it: the heaviest are admitted while their CPU
//! shares fit into its room, the others are treated like any task. Which ones is
//! decided from the tasks alone, not from where they are, so that a move never
//! changes the answer.
//!
//! The room grows with the time that the vCPU is away. Elsewhere a task can use what
//! other vCPUs have to give, but its completions arrive at the instant at which its
//! home is back, and wake it towards the vCPU where it is: another one runs at that
//! instant with a chance that is its share of time, one half with 2 VMs and one eighth
//! with 8. Where it does not, the task stands in the queue of a vCPU that is
//! away, from which nobody can take it, while its home runs. So `completion_cpu_max` is for a
//! home that has half of its time, and more is admitted as that share gets smaller.
//!
//! And a task that can do something now is not moved into a gap. While its
//! completion vCPU is away or about to go, a task that is runnable elsewhere may
//! finish what it is at and issue its next request; it then blocks, and a
//! blocked task loses nothing by a move. The rejected alternative, to move it at
//! once, would make it wait for a whole gap before that request is even issued.

use units::Permille;
use units::Time;
use units::VcpuId;

use super::Settings;
use super::find;
use super::outlook;
use super::outlook::Outlook;
use crate::guest::iobound::rank;
use crate::guest::view::Activity;
use crate::guest::view::Completion;
use crate::guest::view::Skip;
use crate::guest::view::TaskView;
use crate::guest::view::VcpuState;
use crate::guest::view::VcpuView;

/// Which tasks live on a completion vCPU.
pub(super) struct Homes {
    /// Same order as the tasks; empty if no task has a home.
    homes: Vec<Option<VcpuId>>,
}

impl Homes {
    /// Admits tasks to their completion vCPUs.
    pub(super) fn of(tasks: &[TaskView], vcpus: &[VcpuView], settings: &Settings) -> Self {
        let wants = |task: &TaskView| match task.completion {
            Completion::On(vcpu) if task.allowed.contains(vcpu) => Some(vcpu),
            _ => None,
        };
        if !settings.completion || !tasks.iter().any(|task| wants(task).is_some()) {
            return Self { homes: Vec::new() };
        }
        let mut order: Vec<(VcpuId, usize)> = tasks
            .iter()
            .enumerate()
            .filter_map(|(index, task)| wants(task).map(|home| (home, index)))
            .collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| rank(&tasks[a.1], &tasks[b.1])));

        let mut homes = vec![None; tasks.len()];
        let mut present = None;
        let (mut used, mut most) = (0u32, 0u32);
        for (home, index) in order {
            if present != Some(home) {
                present = Some(home);
                used = 0;
                most = room(find(vcpus, home), settings);
            }
            let share = u32::from(tasks[index].cpu_share.get());
            if used + share <= most {
                used += share;
                homes[index] = Some(home);
            }
        }
        Self { homes }
    }

    /// Where this task lives, if anywhere.
    pub(super) fn home(&self, index: usize) -> Option<VcpuId> {
        self.homes.get(index).copied().flatten()
    }
}

/// How much CPU the tasks that live on this vCPU may need together, in thousandths.
fn room(home: Option<&VcpuView>, settings: &Settings) -> u32 {
    /// Of the vCPU for which `completion_cpu_max` is meant.
    const HALF: u32 = 500;
    let base = u32::from(settings.completion_cpu_max.get());
    let share = home.and_then(|home| home.share);
    share.map_or(base, |share| {
        let room = base * HALF / u32::from(share.get()).max(1);
        room.clamp(base, u32::from(Permille::ONE.get()).max(base))
    })
}

/// What becomes of a task that has a home.
pub(super) enum Verdict {
    /// It stays where it is; with a reason if its vCPU is gone or about to go.
    Stay(Option<Skip>),
    /// It moves home.
    Move,
    /// It cannot go home now: the rules for any task apply.
    Elsewhere,
}

/// Decides about a task that lives on `home` and is on `source`.
pub(super) fn at_home(
    now: Time,
    vcpus: &[VcpuView],
    task: &TaskView,
    source: &VcpuView,
    home: VcpuId,
    settings: &Settings,
) -> Verdict {
    let away = |vcpu: &VcpuView| {
        matches!(
            outlook(now, vcpu, task, settings),
            Outlook::Leaving { .. } | Outlook::Gone { .. }
        )
    };
    if task.vcpu == home {
        return Verdict::Stay(away(source).then_some(Skip::AtCompletion));
    }
    let Some(target) = find(vcpus, home) else {
        return Verdict::Elsewhere;
    };
    if target.state == VcpuState::Unknown || source.state == VcpuState::Unknown {
        return Verdict::Stay(None);
    }
    let source_gone = matches!(source.state, VcpuState::Descheduled { .. });
    if source_gone && task.activity == Activity::Running {
        return Verdict::Stay(Some(Skip::CurrentOnDescheduled));
    }
    let blocked = matches!(task.activity, Activity::Blocked(_));
    if !away(target) {
        return Verdict::Move;
    }
    match (blocked, source_gone) {
        (false, _) => Verdict::Elsewhere,
        (true, false) => Verdict::Move,
        // Its completion waits for its home and nothing else: no third vCPU can
        // help, and there is nobody to make the move. It is made at the return
        // of either.
        (true, true) if matches!(target.state, VcpuState::Descheduled { .. }) => {
            Verdict::Stay(Some(Skip::NoBetterVcpu))
        }
        (true, true) => Verdict::Move,
    }
}
