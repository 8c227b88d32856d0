// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that share a vCPU while another has room (V20, V21).
//!
//! At a push there may be one place to go, and then all tasks of a vCPU go there
//! together. V20 rejects a policy that leaves them there: they serialise each
//! other and overload that vCPU while the others, back meanwhile, have none. So
//! where one vCPU has at least two I/O-bound tasks more than another that runs
//! longer, the other takes one.
//!
//! "Longer" is what makes it cheap: the task would have to leave its vCPU at the
//! end of that slice anyway, and now leaves once, earlier. It also rules out
//! ping-pong, since what is left of the slice grows with each such move, and a
//! vCPU that stays is left by no other rule. We deliberately do NOT even out
//! loads below a difference of two, or towards an earlier end: that would be a
//! move for nothing.

use std::cmp::Reverse;

use units::Ns;
use units::Time;

use super::Outlook;
use super::Settings;
use super::completion::Homes;
use super::index_of;
use super::outlook;
use crate::guest::iobound::rank;
use crate::guest::view::Activity;
use crate::guest::view::Move;
use crate::guest::view::Plan;
use crate::guest::view::TaskView;
use crate::guest::view::VcpuState;
use crate::guest::view::VcpuView;
use crate::guest::view::Why;

/// Adds to the plan the moves that spread tasks. Those that move already, live at
/// their completion vCPU or run at this moment are left alone.
pub(super) fn spread(
    now: Time,
    vcpus: &[VcpuView],
    tasks: &[TaskView],
    homes: &Homes,
    settings: &Settings,
    plan: &mut Plan,
) {
    let mut count = vec![0u32; vcpus.len()];
    for task in tasks {
        let planned = plan.moves.iter().find(|m| m.task == task.key);
        let place = planned.map_or(task.vcpu, |m| m.to);
        if let Some(index) = index_of(vcpus, place) {
            count[index] += 1;
        }
    }
    if count.iter().all(|count| *count < 2) {
        return;
    }
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_unstable_by(|a, b| rank(&tasks[*a], &tasks[*b]));
    // A vCPU that has given one may take one: until nobody moves any more. Each
    // task moves once at most, so this ends.
    loop {
        let before = plan.moves.len();
        for index in &order {
            let task = &tasks[*index];
            if homes.home(*index).is_some()
                || task.activity == Activity::Running
                || plan.moves.iter().any(|m| m.task == task.key)
            {
                continue;
            }
            let Some(from) = index_of(vcpus, task.vcpu) else {
                continue;
            };
            let Some(to) = target(now, vcpus, task, from, &count, settings) else {
                continue;
            };
            count[from] -= 1;
            count[to] += 1;
            plan.moves.push(Move {
                task: task.key,
                from: task.vcpu,
                to: vcpus[to].id,
                why: Why::Spread,
            });
        }
        if plan.moves.len() == before {
            return;
        }
    }
}

/// The vCPU that takes this task: the least crowded, then the one that runs
/// longest, then the lowest number.
fn target(
    now: Time,
    vcpus: &[VcpuView],
    task: &TaskView,
    from: usize,
    count: &[u32],
    settings: &Settings,
) -> Option<usize> {
    let left = remaining(now, &vcpus[from], task, settings)?;
    vcpus
        .iter()
        .enumerate()
        .filter(|(to, vcpu)| {
            count[*to] + 2 <= count[from] && vcpu.preferred && task.allowed.contains(vcpu.id)
        })
        .filter_map(|(to, vcpu)| match outlook(now, vcpu, task, settings) {
            Outlook::Stays(stay) if stay > left + settings.min_stay => {
                Some((count[to], Reverse(stay), vcpu.id, to))
            }
            _ => None,
        })
        .min()
        .map(|(.., to)| to)
}

/// What is left of the slice of a vCPU that runs and that the task need not leave
/// yet; `None` where another rule applies, or nothing is known.
fn remaining(now: Time, vcpu: &VcpuView, task: &TaskView, settings: &Settings) -> Option<Ns> {
    match (outlook(now, vcpu, task, settings), vcpu.state) {
        (
            Outlook::Stays(_) | Outlook::Brief,
            VcpuState::Running {
                ends: Some(ends), ..
            },
        ) => Some(ends.expected.since(now)),
        _ => None,
    }
}
