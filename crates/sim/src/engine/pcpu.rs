// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs get pCPUs and lose them.

use units::CpuId;
use units::Ns;
use units::Time;

use super::Sim;
use crate::event::Event;
use crate::hypervisor::Why;
use crate::ids::Vcpu;
use crate::machine::Activity;
use crate::machine::State;

impl Sim {
    /// A pCPU chooses anew. Whoever has it competes with the others; if it wins it
    /// does not notice.
    pub(super) fn resched(&mut self, pcpu: CpuId, why: Why) {
        let Some(vcpu) = self.machine.pcpus[pcpu.index()].vcpu else {
            self.dispatch(pcpu, None);
            return;
        };
        self.charge(vcpu, pcpu);
        let now = self.now();
        self.machine.pcpus[pcpu.index()].vcpu = None;
        self.machine.pcpus[pcpu.index()].slice_end = None;
        self.machine.pcpus[pcpu.index()].epoch += 1;
        self.choosing = Some(pcpu);
        match self.state(vcpu) {
            State::Waiting(_) if !self.machine.vcpus[vcpu.index()].waits_in_guest => {
                self.machine.vcpus[vcpu.index()].epoch += 1;
                self.machine.set_state(now, vcpu, State::Halted);
                self.guest_off(vcpu, now);
                self.with_policy(|policy, host| policy.halt(host, vcpu, pcpu));
                self.dispatch(pcpu, None);
            }
            _ => {
                self.machine.set_state(now, vcpu, State::Queued);
                self.with_policy(|policy, host| policy.enqueue(host, vcpu, why));
                self.dispatch(pcpu, Some(vcpu));
            }
        }
    }

    /// Gives a pCPU that nobody has to whom the policy picks. `before` has been
    /// there until now and its guest does not know yet that it is not any more.
    pub(super) fn dispatch(&mut self, pcpu: CpuId, before: Option<Vcpu>) {
        let now = self.now();
        self.choosing = Some(pcpu);
        let pick = self.with_policy(|policy, host| policy.pick(host, pcpu));
        self.choosing = None;
        if let Some(pick) = pick {
            let state = self.state(pick.vcpu);
            assert!(
                state == State::Queued && self.machine.allows(pick.vcpu, pcpu),
                "{} picked vCPU {} for pCPU {pcpu}, which is {state:?}",
                self.hypervisor.name(),
                pick.vcpu
            );
        }
        let stays = pick.is_some_and(|pick| Some(pick.vcpu) == before);
        if let Some(before) = before.filter(|_| !stays) {
            self.machine.vcpus[before.index()].preempted += 1;
            self.guest_off(before, now);
        }
        let Some(pick) = pick else {
            if self.machine.pcpus[pcpu.index()].activity != Activity::Idle {
                self.machine.pcpus[pcpu.index()].turns += 1;
            }
            self.change_activity(pcpu, Activity::Idle);
            return;
        };
        let vcpu = pick.vcpu;
        let waits = stays && self.machine.pcpus[pcpu.index()].activity.is_wait();
        let state = if waits {
            State::Waiting(pcpu)
        } else {
            State::Running(pcpu)
        };
        self.machine.set_state(now, vcpu, state);
        let costs = self.machine.costs;
        let cache = costs.cache(self.machine.pcpus.len() as u32);
        let p = &mut self.machine.pcpus[pcpu.index()];
        p.vcpu = Some(vcpu);
        p.epoch += 1;
        let epoch = p.epoch;
        p.slice_end = pick.slice.map(|slice| now + slice.max(Ns(1)));
        if let Some(at) = p.slice_end {
            self.agenda.at(at, Event::SliceEnd { pcpu, epoch });
        }
        if stays {
            // Still switching, or running or waiting on as if nothing had been.
            return;
        }
        let mut cost = Ns::ZERO;
        let mut others = Ns::ZERO;
        p.turns += 1;
        if p.last != Some(vcpu) {
            p.switches += 1;
            p.last = Some(vcpu);
            cost += costs.vcpu_switch;
            let away = now.since(self.machine.vcpus[vcpu.index()].left);
            let after = costs.cache_after.max(Ns(1));
            let cold = away.min(after).as_ns();
            cost += cache.scaled(cold, after.as_ns());
            let v = &self.machine.vcpus[vcpu.index()];
            let stayed = v.last_pcpu == Some(pcpu);
            let idle = if stayed {
                p.idled(now) - v.left_idle
            } else {
                Ns::ZERO
            };
            others = away - idle;
            self.machine.vcpus[vcpu.index()].switched_in += 1;
        }
        if self.machine.vcpus[vcpu.index()].last_pcpu != Some(pcpu) {
            self.machine.book_here(vcpu);
        }
        let v = &mut self.machine.vcpus[vcpu.index()];
        if std::mem::take(&mut v.woken) {
            cost += costs.vcpu_wake;
            let cold = others.min(costs.wake_cold_after);
            cost += cold.scaled(u64::from(costs.vcpu_wake_cold), 1000);
        }
        if v.last_pcpu.is_some_and(|last| last != pcpu) {
            v.migrations += 1;
            cost += costs.vcpu_migration;
        }
        v.last_pcpu = Some(pcpu);
        v.epoch += 1;
        if cost > Ns::ZERO {
            self.change_activity(pcpu, Activity::Switching);
            let epoch = self.machine.vcpus[vcpu.index()].epoch;
            let event = Event::Enter { pcpu, vcpu, epoch };
            self.agenda.at(now + cost, event);
        } else {
            self.enter(pcpu, vcpu);
        }
    }

    /// A switch is over. An epoch speaks of its own vCPU alone: another that has
    /// the pCPU by now may have the same number.
    pub(super) fn entered(&mut self, pcpu: CpuId, vcpu: Vcpu, epoch: u32) {
        if self.machine.pcpus[pcpu.index()].vcpu == Some(vcpu)
            && self.machine.vcpus[vcpu.index()].epoch == epoch
        {
            self.enter(pcpu, vcpu);
        }
    }

    fn enter(&mut self, pcpu: CpuId, vcpu: Vcpu) {
        self.change_activity(pcpu, Activity::Running);
        let pace = self.machine.pace(pcpu);
        self.in_guest(vcpu, |guest, id, world| guest.enter(id, pace, world));
    }

    /// The guest of a vCPU that has lost its pCPU stops there, if it ran at all.
    pub(super) fn guest_off(&mut self, vcpu: Vcpu, now: Time) {
        self.machine.vcpus[vcpu.index()].epoch += 1;
        let facts = &self.machine.vcpus[vcpu.index()];
        let (vm, id) = (facts.vm, facts.id);
        let taken = facts.state == State::Queued;
        let guest = &mut self.guests[vm.index()];
        if guest.cpus[id.index()].on {
            guest.leave(id, taken, now);
            self.tell_work(vcpu);
        }
    }

    /// Changes what a pCPU does, and with that the speed of its sibling.
    pub(super) fn change_activity(&mut self, pcpu: CpuId, activity: Activity) {
        if self.machine.pcpus[pcpu.index()].activity == activity {
            return;
        }
        let now = self.now();
        self.machine.set_activity(now, pcpu, activity);
        let Some(sibling) = self.machine.pcpus[pcpu.index()].sibling else {
            return;
        };
        if self.machine.pcpus[sibling.index()].activity == Activity::Running
            && let Some(vcpu) = self.machine.pcpus[sibling.index()].vcpu
        {
            let pace = self.machine.pace(sibling);
            self.in_guest(vcpu, |guest, id, world| guest.set_pace(id, pace, world));
        }
    }
}
