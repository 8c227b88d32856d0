// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls into policy, guests and devices, and what comes of them: requests of the
//! policy, effects of a guest, completions of a device are carried out when the call
//! has returned.

use units::VcpuId;

use super::Sim;
use crate::device::Device;
use crate::device::DeviceCx;
use crate::device::Io;
use crate::device::Path;
use crate::event::Event;
use crate::guest::Effect;
use crate::guest::Guest;
use crate::guest::World;
use crate::hypervisor::Host;
use crate::hypervisor::Hypervisor;
use crate::ids::DeviceId;
use crate::ids::Vcpu;
use crate::machine::State;

impl Sim {
    /// Calls the policy and carries out what it asks for.
    pub(super) fn with_policy<R>(
        &mut self,
        call: impl FnOnce(&mut dyn Hypervisor, &mut Host<'_>) -> R,
    ) -> R {
        let mut host = Host {
            now: self.agenda.now(),
            machine: &self.machine,
            part: self.parts[self.part].clone(),
            requests: &mut self.requests,
        };
        let result = call(&mut *self.hypervisor, &mut host);
        self.carry_out();
        result
    }

    fn carry_out(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        for (at, pcpu) in self.requests.kicks.drain(..) {
            let at = at.max(self.agenda.now());
            if at == self.agenda.now() && self.choosing == Some(pcpu) {
                continue;
            }
            let kicks = &mut self.machine.pcpus[pcpu.index()].kicks;
            if !kicks.contains(&at) {
                kicks.push(at);
                self.agenda.at(at, Event::Resched { pcpu });
            }
        }
        for (at, token) in self.requests.timers.drain(..) {
            self.agenda.at(at, Event::HostTimer { token });
        }
        for (vcpu, weight) in self.requests.weights.drain(..) {
            self.machine.vcpus[vcpu.index()].weight = weight;
        }
        for (pcpu, at) in self.requests.slices.drain(..) {
            let p = &mut self.machine.pcpus[pcpu.index()];
            if p.vcpu.is_some() {
                p.epoch += 1;
                p.slice_end = at;
                if let Some(at) = at {
                    let epoch = p.epoch;
                    self.agenda.at(at, Event::SliceEnd { pcpu, epoch });
                }
            }
        }
    }

    /// Lets a guest act on one of its vCPUs and carries out its effects.
    pub(super) fn in_guest(
        &mut self,
        vcpu: Vcpu,
        act: impl FnOnce(&mut Guest, VcpuId, &mut World<'_>),
    ) {
        let facts = &self.machine.vcpus[vcpu.index()];
        let (vm, id) = (facts.vm, facts.id);
        let mut world = World {
            agenda: &mut self.agenda,
            effects: &mut self.effects,
        };
        act(&mut self.guests[vm.index()], id, &mut world);
        self.take_effects();
    }

    /// Carries out effects until there are none; they can cause others.
    fn take_effects(&mut self) {
        let mut next = 0;
        while let Some(effect) = self.effects.get(next).copied() {
            next += 1;
            match effect {
                Effect::Submit {
                    vcpu,
                    vm,
                    task,
                    number,
                    request,
                } => {
                    let io = Io {
                        vm,
                        vcpu,
                        task,
                        number,
                        request,
                    };
                    self.submit(io);
                }
                Effect::Serve { vm, task } => self.serve(vm, task),
                Effect::Ipi { .. } | Effect::Idle(_) => self.later.push_back(effect),
            }
        }
        self.effects.clear();
        while let Some(effect) = self.later.pop_front() {
            match effect {
                Effect::Ipi { from, to } => self.ipi(from, to),
                Effect::Idle(vcpu) => self.idles(vcpu),
                Effect::Submit { .. } | Effect::Serve { .. } => {}
            }
        }
    }

    pub(super) fn with_device(
        &mut self,
        id: DeviceId,
        act: impl FnOnce(&mut dyn Device, &mut DeviceCx<'_>),
    ) {
        let Some(attached) = self.devices.get_mut(id.index()) else {
            debug_assert!(false, "device {id} does not exist");
            return;
        };
        let mut cx = DeviceCx {
            id,
            agenda: &mut self.agenda,
            random: &mut attached.random,
            completed: &mut self.completed,
        };
        act(&mut *attached.device, &mut cx);
        let mut completed = std::mem::take(&mut self.completed);
        for io in completed.drain(..) {
            self.device_done(id, io);
        }
        self.completed = completed;
    }

    /// A completion reaches the guest: an interrupt for the vCPU of its path, or for one
    /// that runs ([`crate::guest::KernelSettings::completes_where_it_runs`]).
    pub(super) fn respond(&mut self, id: DeviceId, io: Io) {
        let mut vcpu = match self.devices[id.index()].path {
            Path::Submitter => io.vcpu,
            Path::Fixed(id) => self.machine.vcpu(io.vm, id),
        };
        let moves = self.guests[io.vm.index()].kernel.completes_where_it_runs;
        if moves && self.state(vcpu) == State::Queued {
            vcpu = self.next_that_runs(vcpu).unwrap_or(vcpu);
        }
        let event = Event::Complete {
            vcpu,
            task: io.task,
            request: io.number,
        };
        self.completing += 1;
        self.agenda.at(self.agenda.now(), event);
    }

    /// The next vCPU of the same VM, in the order of their numbers, that has a pCPU.
    fn next_that_runs(&self, vcpu: Vcpu) -> Option<Vcpu> {
        let vm = self.machine.vcpus[vcpu.index()].vm;
        let all = self.machine.vms[vm.index()].vcpus.clone();
        let mut after = (vcpu.0 + 1..all.end).chain(all.start..vcpu.0).map(Vcpu);
        let has_pcpu = |v: &Vcpu| matches!(self.state(*v), State::Running(_) | State::Waiting(_));
        after.find(has_pcpu)
    }
}
