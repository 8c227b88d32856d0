// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a policy sees and may ask for.

use std::ops::Range;

use units::CpuId;
use units::Ns;
use units::Time;

use crate::ids::Vcpu;
use crate::machine::Machine;
use crate::machine::Pcpu;
use crate::machine::State;
use crate::machine::VcpuFacts;
use crate::machine::VmFacts;

/// What a policy has asked for during one call; the engine carries it out when
/// the call has returned.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) kicks: Vec<(Time, CpuId)>,
    pub(crate) timers: Vec<(Time, u64)>,
    pub(crate) weights: Vec<(Vcpu, u32)>,
    pub(crate) slices: Vec<(CpuId, Option<Time>)>,
}

impl Requests {
    /// Has it asked for nothing? So it is most of the time.
    pub(crate) fn is_empty(&self) -> bool {
        self.kicks.is_empty()
            && self.slices.is_empty()
            && self.timers.is_empty()
            && self.weights.is_empty()
    }
}

/// The host as a policy sees it, for the length of one call.
#[derive(Debug)]
pub struct Host<'a> {
    pub(crate) now: Time,
    pub(crate) machine: &'a Machine,
    /// The pCPUs of the part in which something happens.
    pub(crate) part: Range<u32>,
    pub(crate) requests: &'a mut Requests,
}

impl<'a> Host<'a> {
    /// The present instant of the host's clock.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// All facts: topology, states, times, counters, costs.
    #[must_use]
    pub const fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// How many pCPUs there are.
    #[must_use]
    pub fn pcpu_count(&self) -> u32 {
        self.machine.pcpus.len() as u32
    }

    /// All pCPUs, in order; of a machine of several parts those of the part in which
    /// something happens ([`super::Hypervisor::is_local`]).
    pub fn pcpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        self.part.clone().map(CpuId)
    }

    /// All vCPUs, in order.
    pub fn vcpus(&self) -> impl Iterator<Item = Vcpu> + use<> {
        (0..self.machine.vcpus.len() as u32).map(Vcpu)
    }

    /// The facts of one pCPU.
    #[must_use]
    pub fn pcpu(&self, pcpu: CpuId) -> &'a Pcpu {
        &self.machine.pcpus[pcpu.index()]
    }

    /// The facts of one vCPU.
    #[must_use]
    pub fn vcpu(&self, vcpu: Vcpu) -> &'a VcpuFacts {
        &self.machine.vcpus[vcpu.index()]
    }

    /// The facts of the VM of one vCPU.
    #[must_use]
    pub fn vm_of(&self, vcpu: Vcpu) -> &'a VmFacts {
        &self.machine.vms[self.vcpu(vcpu).vm.index()]
    }

    /// The weight of a whole VM: the shares of its control group, or its vCPUs'
    /// weights at the start.
    #[must_use]
    pub fn vm_weight(&self, vm: &VmFacts) -> u64 {
        let all = u64::from(vm.weight.max(1)) * vm.vcpus.len() as u64;
        vm.shares.map_or(all, u64::from)
    }

    /// The vCPU that has this pCPU: it runs there or waits there.
    #[must_use]
    pub fn on(&self, pcpu: CpuId) -> Option<Vcpu> {
        self.pcpu(pcpu).vcpu
    }

    /// Does nobody have this pCPU?
    #[must_use]
    pub fn is_idle(&self, pcpu: CpuId) -> bool {
        self.pcpu(pcpu).vcpu.is_none()
    }

    /// May this vCPU run there?
    #[must_use]
    pub fn allows(&self, vcpu: Vcpu, pcpu: CpuId) -> bool {
        self.machine.allows(vcpu, pcpu)
    }

    /// Where a vCPU has its pCPU, if it has one.
    #[must_use]
    pub fn where_is(&self, vcpu: Vcpu) -> Option<CpuId> {
        match self.vcpu(vcpu).state {
            State::Running(pcpu) | State::Waiting(pcpu) => Some(pcpu),
            State::Halted | State::Queued => None,
        }
    }

    /// Lets a pCPU choose anew now: whoever has it is charged and enqueued
    /// ([`super::Why::Preempted`]; one that the hypervisor polls for is halted
    /// instead), then `pick`
    /// is called. Counts once per instant and pCPU. If `pick` gives the pCPU back to the
    /// same vCPU nothing was lost.
    pub fn kick(&mut self, pcpu: CpuId) {
        self.requests.kicks.push((self.now, pcpu));
    }

    /// As [`Host::kick`], through an IPI: later by the machine's IPI cost.
    pub fn kick_remote(&mut self, pcpu: CpuId) {
        let at = self.now + self.machine.costs.ipi;
        self.requests.kicks.push((at, pcpu));
    }

    /// As [`Host::kick`], at an instant to come. An earlier kick of the same pCPU
    /// does not cancel it.
    pub fn kick_at(&mut self, at: Time, pcpu: CpuId) {
        self.requests.kicks.push((at, pcpu));
    }

    /// Changes when the slice of the vCPU on this pCPU ends; `None`: it does not
    /// end. Nothing happens on a pCPU that nobody has.
    pub fn set_slice_end(&mut self, pcpu: CpuId, at: Option<Time>) {
        self.requests.slices.push((pcpu, at));
    }

    /// How long a vCPU has had its pCPU without being charged for it yet.
    #[must_use]
    pub fn uncharged(&self, vcpu: Vcpu) -> Ns {
        let facts = self.vcpu(vcpu);
        match facts.state {
            State::Running(_) | State::Waiting(_) => facts.owed + self.now.since(facts.since),
            State::Halted | State::Queued => Ns::ZERO,
        }
    }

    /// The sum of all that a vCPU has been charged for.
    #[must_use]
    pub fn charged(&self, vcpu: Vcpu) -> Ns {
        let facts = self.vcpu(vcpu);
        facts.ran - facts.owed
    }

    /// Calls [`super::Hypervisor::timer`] with this token after `delay`. Cannot be
    /// cancelled: give each its own token and ignore what is out of date.
    pub fn timer(&mut self, delay: Ns, token: u64) {
        self.requests.timers.push((self.now + delay, token));
    }

    /// Changes a vCPU's weight in the facts, for reports and for whoever reads
    /// it there (J7); the policy's own queues are its own business.
    pub fn set_weight(&mut self, vcpu: Vcpu, weight: u32) {
        self.requests.weights.push((vcpu, weight));
    }
}
