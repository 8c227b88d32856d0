// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which task should be elsewhere, where, and when (V17..V23, V12)?
//!
//! Seen by one task, a vCPU is in one of these conditions ([`Outlook`]):
//!
//! | outlook | what it means |
//! |---|---|
//! | `Stays` | runs, and longer than the task's margin plus `min_stay` |
//! | `Idle` | halted by the guest: at hand, for the price of a wake-up |
//! | `OpenEnded` | runs, but nobody can say how long |
//! | `Brief` | runs, too short to go there, too long to leave |
//! | `Leaving` | runs, its end is nearer than the task's margin |
//! | `Gone` | descheduled |
//! | `Unknown` | no data |
//!
//! The first three are *at hand*. For each `Leaving` and `Gone` vCPU there is
//! an instant from which it can be used again: the end of its gap, as expected.
//!
//! **Better.** For a task, vCPU `b` is better than vCPU `a` iff `a` is `Leaving`
//! or `Gone` and either
//!
//! 1. `b` is at hand, or
//! 2. `a` is `Leaving`, `b` is `Gone`, both return instants are known, and `b`
//!    returns more than `soon_lead` before `a` does (V12).
//!
//! Every PUSH, PULL and soon-active move goes to a better vCPU. Since these never
//! leave a vCPU at hand, and rule 2 is used only where nothing is at hand, no
//! move can be undone by the next evaluation of the same view: PUSH and PULL
//! cannot play ping-pong.
//!
//! **Spread.** Where one vCPU has at least two I/O-bound tasks more than another
//! that runs longer, the other takes one (V20): see `spread.rs`.
//!
//! **Completion.** A task whose completions all arrive on one vCPU lives there,
//! whatever the outlook: while that vCPU is away nothing completes anywhere, and
//! any other place only adds a delay after it is back (measured: 7 800..9 900
//! reads/s there against 4 200..4 400 elsewhere). Two exceptions: where those
//! tasks would use more together than there is room for (`completion.rs`), only the heaviest
//! are admitted; and while that vCPU is away, a task that is runnable elsewhere
//! first finishes what it is at, and is moved once it is blocked.
//!
//! Costs: one pass over the tasks, and one over the vCPUs for each task that has
//! to move; two small allocations.

use units::Ns;
use units::Time;
use units::VcpuId;

use crate::guest::iobound::rank;
use crate::guest::view::Activity;
use crate::guest::view::Completion;
use crate::guest::view::Move;
use crate::guest::view::Plan;
use crate::guest::view::Skip;
use crate::guest::view::TaskView;
use crate::guest::view::VcpuState;
use crate::guest::view::VcpuView;
use crate::guest::view::Why;

mod completion;
mod look;
mod outlook;
mod settings;
mod spread;
mod target;

pub use look::Looks;
pub use look::look_point;
pub use outlook::Back;
pub use outlook::Outlook;
pub use outlook::outlook;
pub use settings::Margin;
pub use settings::Settings;

use completion::Homes;
use target::Targets;

/// Decides where the tasks should be. `tasks` are the I/O-bound ones; nothing
/// else is ever moved.
#[must_use]
pub fn place(now: Time, vcpus: &[VcpuView], tasks: &[TaskView], settings: &Settings) -> Plan {
    let mut plan = Plan::default();
    place_into(now, vcpus, tasks, settings, &mut plan);
    plan
}

/// [`place`] into a plan whose memory is used again.
pub fn place_into(
    now: Time,
    vcpus: &[VcpuView],
    tasks: &[TaskView],
    settings: &Settings,
    plan: &mut Plan,
) {
    plan.moves.clear();
    plan.skipped.clear();

    let homes = Homes::of(tasks, vcpus, settings);
    let mut movers: Vec<(&TaskView, &VcpuView, Why)> = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        let Some(source) = find(vcpus, task.vcpu) else {
            continue;
        };
        if let Some(home) = homes.home(index) {
            match completion::at_home(now, vcpus, task, source, home, settings) {
                completion::Verdict::Stay(None) => continue,
                completion::Verdict::Stay(Some(skip)) => {
                    plan.skipped.push((task.key, skip));
                    continue;
                }
                completion::Verdict::Move => {
                    plan.moves.push(Move {
                        task: task.key,
                        from: task.vcpu,
                        to: home,
                        why: Why::Completion,
                    });
                    continue;
                }
                completion::Verdict::Elsewhere => {}
            }
        }
        match must_leave(now, source, task, settings) {
            Ok(None) => {}
            Ok(Some(why)) => movers.push((task, source, why)),
            Err(skip) => plan.skipped.push((task.key, skip)),
        }
    }
    if !movers.is_empty() {
        movers.sort_unstable_by(|a, b| rank(a.0, b.0));
        let mut targets = Targets::new(now, vcpus, tasks, &plan.moves, settings);
        for (task, source, why) in movers {
            match targets.choose(task, source, why) {
                Ok((to, why)) => plan.moves.push(Move {
                    task: task.key,
                    from: task.vcpu,
                    to,
                    why,
                }),
                Err(skip) => plan.skipped.push((task.key, skip)),
            }
        }
    }
    if settings.spread && tasks.len() > 1 {
        spread::spread(now, vcpus, tasks, &homes, settings, plan);
    }
}

/// Must this task leave its vCPU now, and by which rule? `Err` tells why one
/// stays whose vCPU is gone, about to go, or unpredictable.
fn must_leave(
    now: Time,
    source: &VcpuView,
    task: &TaskView,
    settings: &Settings,
) -> Result<Option<Why>, Skip> {
    match outlook(now, source, task, settings) {
        Outlook::Leaving { .. } if settings.push => Ok(Some(Why::Push)),
        Outlook::OpenEnded if settings.push => Err(Skip::Unstable),
        Outlook::Gone { back } if settings.pull => {
            if task.activity == Activity::Running {
                return Err(Skip::CurrentOnDescheduled);
            }
            if let Back::At(back) = back
                && back.since(now) <= settings.pull_unless_back_within
            {
                return Err(Skip::BackSoon);
            }
            let in_flight = matches!(task.activity, Activity::Blocked(_))
                && task.completion == Completion::FollowsTask;
            if in_flight && !settings.pull_in_flight {
                return Err(Skip::AtCompletion);
            }
            Ok(Some(Why::Pull))
        }
        _ => Ok(None),
    }
}

/// The next instant after `now` at which a task on this vCPU will have to leave
/// it: the nearest push point (end of the slice minus the task's margin).
/// `None`: nothing to arm, because no task is there, the slice's end is unknown,
/// the tasks live at their completion vCPU, or every push point has passed
/// (then [`place`] has had its say, and the next one is a resume).
#[must_use]
pub fn push_point(
    now: Time,
    vcpu: &VcpuView,
    tasks_on_it: &[TaskView],
    settings: &Settings,
) -> Option<Time> {
    if !settings.push {
        return None;
    }
    let VcpuState::Running {
        since,
        ends: Some(ends),
        ..
    } = vcpu.state
    else {
        return None;
    };
    let homes = Homes::of(tasks_on_it, std::slice::from_ref(vcpu), settings);
    tasks_on_it
        .iter()
        .enumerate()
        .filter(|(index, task)| task.vcpu == vcpu.id && homes.home(*index) != Some(vcpu.id))
        .map(|(_, task)| {
            let margin = settings.margin.of(task.io_latency, since, &ends);
            // One past, because leaving means: less than the margin is left.
            ends.expected - margin + Ns(1)
        })
        .filter(|point| *point > now)
        .min()
}

/// The next instant after `now` from which on nobody waits for this vCPU any more, which is
/// overdue ([`Settings::back_overdue_after`]): tasks that were left there because it was to be
/// back soon have to leave. `None`: nothing to arm.
#[must_use]
pub fn pull_point(now: Time, vcpu: &VcpuView, settings: &Settings) -> Option<Time> {
    let VcpuState::Descheduled {
        back: Some(back), ..
    } = vcpu.state
    else {
        return None;
    };
    let point = outlook::overdue_from(&back, settings)?;
    (settings.pull && point > now).then_some(point)
}

/// How long the task would have been without a vCPU if it had stayed: what a
/// move gains, before its cost. `None` where that is not known (a completion
/// move, an unpredictable gap, one that has outlived what was expected).
#[must_use]
pub fn gain(now: Time, why: Why, from: &VcpuView, to: &VcpuView) -> Option<Ns> {
    match (why, from.state) {
        (Why::Push, VcpuState::Running { gap, .. }) => gap,
        (Why::Pull, VcpuState::Descheduled { back, .. }) => {
            let back = back.filter(|back| now <= back.latest)?;
            Some(back.expected.since(now))
        }
        (
            Why::SoonActive,
            VcpuState::Running {
                ends: Some(ends),
                gap: Some(gap),
                ..
            },
        ) => match to.state {
            VcpuState::Descheduled {
                back: Some(back), ..
            } => Some((ends.expected + gap).since(back.expected)),
            _ => None,
        },
        _ => None,
    }
}

/// The view of one vCPU; views usually are in the order of the numbers.
fn find(vcpus: &[VcpuView], id: VcpuId) -> Option<&VcpuView> {
    index_of(vcpus, id).map(|index| &vcpus[index])
}

/// Where the view of one vCPU is.
fn index_of(vcpus: &[VcpuView], id: VcpuId) -> Option<usize> {
    match vcpus.get(id.index()) {
        Some(vcpu) if vcpu.id == id => Some(id.index()),
        _ => vcpus.iter().position(|vcpu| vcpu.id == id),
    }
}

#[cfg(test)]
mod closed_loop;
#[cfg(test)]
mod in_time;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
