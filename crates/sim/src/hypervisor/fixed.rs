// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed slices in turn, whether they are used or not: what the freezer does.
//!
//! Each pCPU has one slot per VM and goes round them. A vCPU runs in its VM's
//! slots and never outside; a slot that its VM does not use passes by. With slots
//! for VMs that do not exist, one simulated VM sees exactly what a machine under
//! the freezer sees.
//!
//! Phases sweep as in the freezer's plans: the period of the last pCPU is longer
//! than that of the first by `sweep_permille`, the others lie between, and the
//! first slots are spread over a period. Equal periods would lock the phases, and
//! the time in which at least one vCPU of a VM runs would be an accident.

use std::collections::VecDeque;

use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Idle;
use super::Pick;
use super::Why;
use super::checks::ensure;
use super::checks::ready_once;
use crate::ids::Vcpu;

/// Settings of [`Fixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSettings {
    /// Slots per round: VMs per pCPU, whether all of them are simulated or not.
    /// VM n has slot n modulo this.
    pub slots: u32,
    /// Length of a slot on the first pCPU. 11 ms in the papers (13.1).
    pub slice: Ns,
    /// How much longer the last pCPU's period is, in thousandths: 0..=500.
    pub sweep_permille: u32,
    /// A vCPU has its pCPU for the whole of its slot and loses it at the end, whether it
    /// has something to run or not. So the freezer stops a CPU: one that sleeps sees the
    /// gap as any other, in its clock and in its steal page. False: one that sleeps gives
    /// the rest of its slot away and does not notice when that would have ended.
    pub keeps_idle: bool,
}

/// Fixed slices in turn.
#[derive(Debug)]
pub struct Fixed {
    settings: FixedSettings,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    /// Length of slot 0.
    on: Ns,
    /// Length of all other slots together.
    off: Ns,
    /// End of the first slot 0.
    first_on: Ns,
    /// Queued vCPUs by slot.
    queues: Vec<VecDeque<Vcpu>>,
}

impl Fixed {
    /// Slots as these settings say.
    #[must_use]
    pub const fn new(settings: FixedSettings) -> Self {
        Self {
            settings,
            lanes: Vec::new(),
        }
    }

    /// Where a vCPU lives: on the first pCPU that it may use, else by its number.
    fn home(host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let facts = host.vcpu(vcpu);
        let count = host.pcpu_count();
        facts
            .allowed
            .first()
            .copied()
            .unwrap_or(CpuId(facts.id.0 % count.max(1)))
    }

    fn slot_of(&self, host: &Host<'_>, vcpu: Vcpu) -> usize {
        (host.vcpu(vcpu).vm.0 % self.settings.slots.max(1)) as usize
    }
}

impl Lane {
    /// Whose slot it is at `now`, and when it ends.
    fn slot(&self, now: Time, slots: u32) -> (usize, Time) {
        let first = Time::ZERO + self.first_on;
        if slots <= 1 {
            return (0, Time(u64::MAX));
        }
        if now < first {
            return (0, first);
        }
        let others = u64::from(slots - 1);
        let period = self.on + self.off;
        let into = Ns(now.since(first).0 % period.0.max(1));
        let round = now - into;
        if into >= self.off {
            return (0, round + period);
        }
        let nth = (u128::from(into.0) * u128::from(others) / u128::from(self.off.0.max(1))) as u64;
        // The slot that holds `into`: rounding may have put its end at or before.
        let mut nth = nth;
        while nth < others && self.off.scaled(nth + 1, others) <= into {
            nth += 1;
        }
        (nth as usize + 1, round + self.off.scaled(nth + 1, others))
    }
}

impl Hypervisor for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let count = u64::from(host.pcpu_count());
        let steps = 1000 * count.saturating_sub(1).max(1);
        let others = u64::from(self.settings.slots.max(1) - 1);
        self.lanes = (0..count)
            .map(|nth| {
                let longer = steps + nth * u64::from(self.settings.sweep_permille);
                let on = self.settings.slice.scaled(longer, steps);
                let off = (self.settings.slice * others).scaled(longer, steps);
                Lane {
                    on,
                    off,
                    first_on: on + (on + off).scaled(nth, count),
                    queues: vec![VecDeque::new(); self.settings.slots.max(1) as usize],
                }
            })
            .collect();
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        let home = Self::home(host, vcpu);
        let slot = self.slot_of(host, vcpu);
        let lane = &mut self.lanes[home.index()];
        lane.queues[slot].push_back(vcpu);
        let woken = matches!(why, Why::Start | Why::Woken(_));
        if woken && host.is_idle(home) && lane.slot(host.now(), self.settings.slots).0 == slot {
            host.kick(home);
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let lane = self.lanes.get_mut(pcpu.index())?;
        let (slot, end) = lane.slot(host.now(), self.settings.slots);
        let Some(vcpu) = lane.queues[slot].pop_front() else {
            if self.settings.slots > 1 {
                host.kick_at(end, pcpu);
            }
            return None;
        };
        Some(Pick {
            vcpu,
            slice: (self.settings.slots > 1).then(|| end.since(host.now())),
        })
    }

    fn charge(&mut self, _: &mut Host<'_>, _: Vcpu, _: CpuId, _: Ns, _: Ns) {}

    fn is_local(&self) -> bool {
        true
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        for (lane, pcpu) in self.lanes.iter().zip(host.pcpus()) {
            for (slot, queue) in lane.queues.iter().enumerate() {
                let own = |v: Vcpu| (Self::home(host, v), self.slot_of(host, v));
                ensure(queue.iter().all(|&v| own(v) == (pcpu, slot)), || {
                    format!("{queue:?} are in slot {slot} of pCPU {pcpu}, one is not of it")
                })?;
            }
        }
        let queues = self.lanes.iter().flat_map(|lane| &lane.queues);
        ready_once(host, queues.flatten().copied())
    }

    fn idle(&mut self, _: &mut Host<'_>, _: Vcpu, _: CpuId) -> Idle {
        if self.settings.keeps_idle {
            Idle::Retain(None)
        } else {
            Idle::Halt
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(slots: u32, nth: u64) -> Lane {
        let (on, off) = (Ns::from_ms(11), Ns::from_ms(11) * u64::from(slots - 1));
        Lane {
            on,
            off,
            first_on: on + (on + off).scaled(nth, 2),
            queues: Vec::new(),
        }
    }

    #[test]
    fn slots_follow_each_other_without_gap_or_overlap() {
        for slots in [2, 3, 4, 8] {
            let lane = lane(slots, 1);
            let mut now = Time::ZERO;
            let mut order = Vec::new();
            for _ in 0..40 {
                let (slot, end) = lane.slot(now, slots);
                assert!(end > now);
                assert_eq!(lane.slot(end - Ns(1), slots).0, slot);
                order.push(slot);
                now = end;
            }
            for pair in order.windows(2) {
                assert_eq!(
                    pair[1],
                    (pair[0] + 1) % slots as usize,
                    "{slots}: {order:?}"
                );
            }
        }
    }

    #[test]
    fn each_vm_has_its_share() {
        let lane = lane(4, 0);
        let mut had = [Ns::ZERO; 4];
        let (mut now, end) = (
            Time::ZERO + lane.first_on,
            Time(44_000_000 * 25 + 11_000_000),
        );
        while now < end {
            let (slot, until) = lane.slot(now, 4);
            had[slot] += until.since(now);
            now = until;
        }
        assert_eq!(had, [Ns::from_ms(275); 4]);
    }
}
