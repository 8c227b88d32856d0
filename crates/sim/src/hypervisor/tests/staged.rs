// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine whose state is set by hand, to ask a policy one question.

use units::CpuId;
use units::Ns;
use units::Time;

use super::bed::FREE;
use crate::hypervisor::Host;
use crate::hypervisor::Requests;
use crate::ids::Vcpu;
use crate::machine::Machine;
use crate::machine::NORMAL_WEIGHT;
use crate::machine::Smt;
use crate::machine::State;

/// So many VMs of one vCPU each, all asleep, none pinned.
pub(in crate::hypervisor) fn machine(pcpus: u32, vms: u32) -> Machine {
    let mut machine = Machine::new(pcpus, false, FREE, Smt::default());
    for n in 0..vms {
        machine.add_vm(&format!("vm{n}"), NORMAL_WEIGHT, &[Vec::new()]);
    }
    machine
}

/// It as a policy sees it after so many milliseconds.
pub(in crate::hypervisor) fn host<'a>(
    machine: &'a Machine,
    requests: &'a mut Requests,
    ms: u64,
) -> Host<'a> {
    Host {
        now: Time::ZERO + Ns::from_ms(ms),
        machine,
        part: 0..machine.pcpus.len() as u32,
        requests,
    }
}

/// A vCPU runs from this millisecond on.
pub(in crate::hypervisor) fn run(machine: &mut Machine, vcpu: Vcpu, pcpu: CpuId, ms: u64) {
    let now = Time::ZERO + Ns::from_ms(ms);
    machine.set_activity(now, pcpu, crate::machine::Activity::Running);
    machine.pcpus[pcpu.index()].vcpu = Some(vcpu);
    machine.set_state(now, vcpu, State::Running(pcpu));
}

/// A vCPU wants to run from this millisecond on.
pub(in crate::hypervisor) fn wait(machine: &mut Machine, vcpu: Vcpu, ms: u64) {
    machine.set_state(Time::ZERO + Ns::from_ms(ms), vcpu, State::Queued);
}
