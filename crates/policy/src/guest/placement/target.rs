// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a task goes: pairing, round by round (V19..V21, V12).
//!
//! Tasks come in the order of their rank. Among the vCPUs that are at hand and
//! allowed, the preferred ones if there are any, a task takes
//!
//! 1. one that this plan has given no task yet, before any other (first round:
//!    V20 rejects all tasks on one vCPU);
//! 2. in later rounds, the one with the fewest I/O-bound tasks, those it had
//!    and those it was given (V21);
//! 3. then one that stays before an idle one before an open-ended one;
//! 4. then the longest remaining slice (V19), divided by the tasks already
//!    there as `resident_penalty` says (V21);
//! 5. then the lowest number, so that equal views give equal plans.
//!
//! If none is at hand, a task that is to be pushed goes to the vCPU that is back
//! first (V12), with the same rounds; and so it does if the one that it would take goes
//! on for less than `soon_below`, and the other is back within `pull_unless_back_within`:
//! the whole slice that is about to begin saves a move.

use std::cmp::Reverse;

use units::Ns;
use units::Time;
use units::VcpuId;

use super::Settings;
use super::index_of;
use super::outlook;
use super::outlook::Back;
use super::outlook::Outlook;
use crate::guest::view::Move;
use crate::guest::view::Skip;
use crate::guest::view::TaskView;
use crate::guest::view::VcpuView;
use crate::guest::view::Why;

/// The vCPUs with what this plan has done to them so far.
pub(super) struct Targets<'a> {
    now: Time,
    vcpus: &'a [VcpuView],
    settings: &'a Settings,
    crowd: Vec<Crowd>,
}

/// How many I/O-bound tasks a vCPU has.
#[derive(Clone, Copy, Default)]
struct Crowd {
    /// When the plan began.
    residents: u32,
    /// Given to it by this plan.
    given: u32,
}

impl Crowd {
    /// The round in which it would get its next task: zero for the first one,
    /// whoever is there.
    const fn round(self) -> u32 {
        if self.given == 0 {
            0
        } else {
            self.given + self.residents
        }
    }
}

/// How long a task waits for a vCPU that is gone.
#[derive(Clone, Copy)]
enum Wait {
    /// Nothing is at hand.
    AsLongAsItTakes,
    /// Another vCPU is at hand.
    Until(Time),
}

/// Lower is chosen first: round, condition, shared remaining slice, number.
type Order = (u32, u8, Reverse<Ns>, VcpuId);

impl<'a> Targets<'a> {
    /// `moves` are those already planned (to completion vCPUs).
    pub(super) fn new(
        now: Time,
        vcpus: &'a [VcpuView],
        tasks: &[TaskView],
        moves: &[Move],
        settings: &'a Settings,
    ) -> Self {
        let mut crowd = vec![Crowd::default(); vcpus.len()];
        let mut count = |id: VcpuId, add: fn(&mut Crowd)| {
            if let Some(index) = index_of(vcpus, id) {
                add(&mut crowd[index]);
            }
        };
        for task in tasks {
            count(task.vcpu, |crowd| crowd.residents += 1);
        }
        for planned in moves {
            count(planned.from, |crowd| crowd.residents -= 1);
            count(planned.to, |crowd| crowd.given += 1);
        }
        Self {
            now,
            vcpus,
            settings,
            crowd,
        }
    }

    /// The target of one task and the rule that it moves by.
    pub(super) fn choose(
        &mut self,
        task: &TaskView,
        source: &VcpuView,
        why: Why,
    ) -> Result<(VcpuId, Why), Skip> {
        let mut forbidden = false;
        let mut best: Option<((bool, Order), usize)> = None;
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let Some(order) = self.order_at_hand(index, vcpu, task) else {
                continue;
            };
            if !task.allowed.contains(vcpu.id) {
                forbidden = true;
                continue;
            }
            let key = (!vcpu.preferred, order);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, index));
            }
        }
        let best = best.map(|(_, index)| index);
        if why == Why::Push
            && let Some(wait) = self.waits_until(best, task)
            && let Some(index) = self.soon_active(task, source, wait, &mut forbidden)
        {
            return Ok((self.give(index), Why::SoonActive));
        }
        if let Some(index) = best {
            return Ok((self.give(index), why));
        }
        Err(if forbidden {
            Skip::NotAllowed
        } else {
            Skip::NoBetterVcpu
        })
    }

    /// For which vCPUs a task waits (V12) instead of going to the best that is at hand;
    /// none: it goes to that.
    fn waits_until(&self, best: Option<usize>, task: &TaskView) -> Option<Wait> {
        if !self.settings.soon_active {
            return None;
        }
        let Some(best) = best else {
            return Some(Wait::AsLongAsItTakes);
        };
        match outlook(self.now, &self.vcpus[best], task, self.settings) {
            Outlook::Stays(remaining) if remaining < self.settings.soon_below => Some(Wait::Until(
                self.now + self.settings.pull_unless_back_within,
            )),
            _ => None,
        }
    }

    /// Of the vCPUs that are gone and back before a task's own and soon enough, the first.
    fn soon_active(
        &self,
        task: &TaskView,
        source: &VcpuView,
        wait: Wait,
        forbidden: &mut bool,
    ) -> Option<usize> {
        let Outlook::Leaving { back: Some(own) } = outlook(self.now, source, task, self.settings)
        else {
            return None;
        };
        let mut best: Option<((bool, u32, Time, VcpuId), usize)> = None;
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let Outlook::Gone { back } = outlook(self.now, vcpu, task, self.settings) else {
                continue;
            };
            let back = match (back, wait) {
                (Back::At(back), Wait::Until(limit)) if back <= limit => back,
                (Back::At(back), Wait::AsLongAsItTakes) => back,
                (Back::Overdue, Wait::AsLongAsItTakes) => self.now,
                _ => continue,
            };
            if back + self.settings.soon_lead >= own {
                continue;
            }
            if !task.allowed.contains(vcpu.id) {
                *forbidden = true;
                continue;
            }
            let key = (!vcpu.preferred, self.crowd[index].round(), back, vcpu.id);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// The place of a vCPU in the order of targets; `None` if it is not at hand.
    fn order_at_hand(&self, index: usize, vcpu: &VcpuView, task: &TaskView) -> Option<Order> {
        let crowd = self.crowd[index];
        let (condition, remaining) = match outlook(self.now, vcpu, task, self.settings) {
            Outlook::Stays(remaining) => (0, remaining),
            Outlook::Idle => (1, Ns::ZERO),
            Outlook::OpenEnded => (2, Ns::ZERO),
            _ => return None,
        };
        let there = u64::from(crowd.residents + crowd.given);
        let penalty = u64::from(self.settings.resident_penalty).saturating_mul(there);
        let share = remaining.scaled(1000, penalty.saturating_add(1000));
        Some((crowd.round(), condition, Reverse(share), vcpu.id))
    }

    fn give(&mut self, index: usize) -> VcpuId {
        self.crowd[index].given += 1;
        self.vcpus[index].id
    }
}
