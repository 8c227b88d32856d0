// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs wake, idle and are interrupted.

use units::Ns;

use super::Sim;
use crate::event::Event;
use crate::guest::Irq;
use crate::hypervisor::Idle;
use crate::hypervisor::Wake;
use crate::hypervisor::Why;
use crate::ids::Vcpu;
use crate::machine::Activity;
use crate::machine::State;

impl Sim {
    /// A halted vCPU wants to run.
    pub(super) fn wake(&mut self, vcpu: Vcpu, why: Why) {
        debug_assert_eq!(self.state(vcpu), State::Halted);
        let now = self.now();
        self.machine.set_state(now, vcpu, State::Queued);
        if why != Why::Start {
            self.machine.vcpus[vcpu.index()].wakeups += 1;
            self.machine.vcpus[vcpu.index()].woken = true;
        }
        self.with_policy(|policy, host| policy.enqueue(host, vcpu, why));
    }

    /// An interrupt for a vCPU: handled now if it runs, else when it does; wakes
    /// it if it is halted.
    pub(super) fn interrupt(&mut self, vcpu: Vcpu, irq: Irq, wake: Wake) {
        if let State::Waiting(_) = self.state(vcpu) {
            self.resume(vcpu);
        }
        let mut waits = false;
        self.in_guest(vcpu, |guest, id, world| {
            waits = guest.interrupt(id, irq, world)
        });
        if waits && self.state(vcpu) == State::Halted {
            self.wake(vcpu, Why::Woken(wake));
        }
    }

    /// An I/O completion is counted for a vCPU.
    pub(super) fn io_event(&mut self, vcpu: Vcpu) {
        self.machine.vcpus[vcpu.index()].io_events += 1;
        self.with_policy(|policy, host| policy.io_event(host, vcpu));
    }

    /// One vCPU interrupts another of its VM.
    pub(super) fn ipi(&mut self, from: Vcpu, to: Vcpu) {
        self.machine.vcpus[from.index()].ipis_sent += 1;
        self.with_policy(|policy, host| policy.ipi(host, from, to));
        self.interrupt(to, Irq::Reschedule, Wake::Ipi { from });
    }

    /// A guest has nothing to run on a vCPU.
    pub(super) fn idles(&mut self, vcpu: Vcpu) {
        let State::Running(pcpu) = self.state(vcpu) else {
            return;
        };
        let facts = &self.machine.vcpus[vcpu.index()];
        let (vm, id) = (facts.vm, facts.id);
        if !self.guests[vm.index()].cpus[id.index()].idle {
            // An interrupt of the same instant has brought work.
            return;
        }
        self.charge(vcpu, pcpu);
        let now = self.now();
        let idle = self.with_policy(|policy, host| policy.idle(host, vcpu, pcpu));
        let (activity, limit) = match idle {
            Idle::Halt => {
                self.halt(vcpu);
                return;
            }
            Idle::Poll(limit) => (Activity::Polling, limit),
            Idle::Retain(limit) => (Activity::Retaining, limit),
        };
        self.machine.set_state(now, vcpu, State::Waiting(pcpu));
        let v = &mut self.machine.vcpus[vcpu.index()];
        v.waits += 1;
        v.waits_in_guest = idle.in_guest();
        v.epoch += 1;
        v.wait_began = now;
        if let Some(limit) = limit {
            let epoch = v.epoch;
            self.agenda.at(now + limit, Event::WaitEnd { vcpu, epoch });
        }
        self.change_activity(pcpu, activity);
    }

    /// The event has come for which a vCPU waited on its pCPU.
    fn resume(&mut self, vcpu: Vcpu) {
        let State::Waiting(pcpu) = self.state(vcpu) else {
            return;
        };
        self.charge(vcpu, pcpu);
        let now = self.now();
        self.machine.set_state(now, vcpu, State::Running(pcpu));
        let v = &mut self.machine.vcpus[vcpu.index()];
        v.waits_paid += 1;
        v.epoch += 1;
        let waited = now.since(v.wait_began);
        self.with_policy(|policy, host| policy.waited(host, vcpu, waited, true));
        self.change_activity(pcpu, Activity::Running);
        let (cost, pace) = (self.machine.costs.resume, self.machine.pace(pcpu));
        let facts = &self.machine.vcpus[vcpu.index()];
        let guest = &mut self.guests[facts.vm.index()];
        guest.resume(facts.id, pace, cost, now);
    }

    /// The time limit of a poll or retention is up.
    pub(super) fn wait_end(&mut self, vcpu: Vcpu, epoch: u32) {
        let v = &self.machine.vcpus[vcpu.index()];
        let State::Waiting(pcpu) = v.state else {
            return;
        };
        if v.epoch != epoch {
            return;
        }
        let waited: Ns = self.now().since(v.wait_began);
        self.charge(vcpu, pcpu);
        self.with_policy(|policy, host| policy.waited(host, vcpu, waited, false));
        self.halt(vcpu);
    }

    /// A vCPU gives its pCPU back.
    fn halt(&mut self, vcpu: Vcpu) {
        let (State::Running(pcpu) | State::Waiting(pcpu)) = self.state(vcpu) else {
            return;
        };
        let now = self.now();
        let p = &mut self.machine.pcpus[pcpu.index()];
        p.vcpu = None;
        p.slice_end = None;
        p.epoch += 1;
        self.machine.set_state(now, vcpu, State::Halted);
        self.guest_off(vcpu, now);
        self.choosing = Some(pcpu);
        self.with_policy(|policy, host| policy.halt(host, vcpu, pcpu));
        self.dispatch(pcpu, None);
    }
}
