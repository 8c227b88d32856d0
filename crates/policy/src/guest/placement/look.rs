// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a vCPU's monitor has to look at the *other* vCPUs again.
//!
//! Whose vCPU is gone cannot say so, and nothing rings on the others when it goes: one
//! of those that run has to look at the right instant. Only the one that will run
//! longest does, so that each vCPU with tasks on it is watched once.

use units::Ns;
use units::Time;
use units::VcpuId;

use super::Settings;
use super::find;
use super::pull_point;
use crate::guest::view::Completion;
use crate::guest::view::TaskView;
use crate::guest::view::VcpuState;
use crate::guest::view::VcpuView;
use crate::guest::view::Window;

/// How often a vCPU with tasks on it is looked at that may have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// So long after the latest instant at which its slice should have ended; if it still
    /// runs, again after as long as it is overdue. More than zero. 50 us.
    pub after: Ns,
    /// At most this long until the next look at one that is overdue or whose end is not
    /// known. More than zero. 1.2 ms.
    pub again: Ns,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            after: Ns::from_us(50),
            again: Ns::from_us(1200),
        }
    }
}

impl Looks {
    /// When to look again whether a vCPU whose slice ends then has gone.
    fn next(&self, now: Time, ends: Option<&Window>) -> Time {
        let Some(ends) = ends else {
            return now + self.again;
        };
        let first = ends.latest + self.after;
        if now < first {
            first
        } else {
            now + now.since(ends.latest).min(self.again)
        }
    }
}

/// The next instant after `now` at which `me` has to see whether another vCPU has gone with
/// tasks on it, or is overdue ([`pull_point`]). Tasks that live at their completions' vCPU
/// need no look. `None`: nothing to watch, or another vCPU that runs longer watches.
#[must_use]
pub fn look_point(
    now: Time,
    me: VcpuId,
    vcpus: &[VcpuView],
    tasks: &[TaskView],
    settings: &Settings,
    looks: &Looks,
) -> Option<Time> {
    if !settings.pull {
        return None;
    }
    let mine = end_of(now, find(vcpus, me)?);
    let has_tasks = |vcpu: VcpuId| {
        tasks
            .iter()
            .any(|task| task.vcpu == vcpu && task.completion != Completion::On(vcpu))
    };
    let longest = |watched: VcpuId| {
        vcpus
            .iter()
            .all(|other| other.id == watched || end_of(now, other) <= mine)
    };
    vcpus
        .iter()
        .filter(|vcpu| vcpu.id != me)
        .filter_map(|vcpu| {
            let at = match vcpu.state {
                VcpuState::Running { ends, .. } => looks.next(now, ends.as_ref()),
                VcpuState::Descheduled { .. } => pull_point(now, vcpu, settings)?,
                _ => return None,
            };
            Some((vcpu.id, at))
        })
        .filter(|(vcpu, _)| has_tasks(*vcpu) && longest(*vcpu))
        .map(|(_, at)| at)
        .min()
}

/// Expected end of a running vCPU's slice; the start of time for others.
fn end_of(now: Time, vcpu: &VcpuView) -> Time {
    match vcpu.state {
        VcpuState::Running {
            ends: Some(ends), ..
        } => ends.expected,
        VcpuState::Running { ends: None, .. } => now,
        _ => Time::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_vcpu_is_looked_at_ever_more_seldom() {
        let latest = Time(50_000_000);
        let ends = Window {
            earliest: latest - Ns::from_ms(1),
            expected: latest - Ns::from_us(500),
            latest,
        };
        let looks_at = Looks::default();
        let mut now = Time(40_000_000);
        let mut looks = Vec::new();
        while looks.len() < 8 {
            let next = looks_at.next(now, Some(&ends));
            assert!(next > now);
            looks.push(next.since(latest));
            now = next;
        }
        let us = [50, 100, 200, 400, 800, 1600, 2800, 4000].map(Ns::from_us);
        assert_eq!(looks, us);
        assert_eq!(looks_at.next(now, None), now + looks_at.again);
    }
}
