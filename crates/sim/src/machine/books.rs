// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The books: whose time goes where, and the proof that none is lost.

use units::CpuId;
use units::Ns;
use units::Time;

use super::Activity;
use super::Machine;
use super::State;
use crate::ids::Vcpu;
use crate::record::VcpuSpell;

impl Machine {
    /// Books the time of a pCPU up to now and changes what it does.
    pub(crate) fn set_activity(&mut self, now: Time, pcpu: CpuId, activity: Activity) {
        let p = &mut self.pcpus[pcpu.index()];
        p.spent[p.activity as usize] += now.since(p.since);
        p.since = now;
        p.activity = activity;
    }

    /// Books the time of a vCPU up to now and changes its state. The time that it had
    /// its pCPU is owed to the policy.
    pub(crate) fn set_state(&mut self, now: Time, vcpu: Vcpu, state: State) {
        let v = &mut self.vcpus[vcpu.index()];
        let length = now.since(v.since);
        let had = matches!(v.state, State::Running(_) | State::Waiting(_));
        let has = matches!(state, State::Running(_) | State::Waiting(_));
        if had && !has {
            v.left = now;
            if let State::Running(pcpu) | State::Waiting(pcpu) = v.state {
                v.left_idle = self.pcpus[pcpu.index()].idled(now);
            }
        }
        let mut ran = Ns::ZERO;
        match v.state {
            State::Halted => v.halted += length,
            State::Queued => v.ready += length,
            State::Running(pcpu) => {
                ran = length;
                if v.last_pcpu == Some(pcpu) {
                    v.here += length;
                } else {
                    self.pcpus[pcpu.index()].add_for_vm(v.vm, length);
                }
            }
            State::Waiting(_) => {
                ran = length;
                v.waited_on_pcpu += length;
            }
        }
        v.ran += ran;
        v.owed += ran;
        if let Some(log) = self.log.as_mut().filter(|log| log.vm == v.vm) {
            log.push(
                v.id,
                VcpuSpell {
                    state: v.state,
                    from: v.since,
                    to: now,
                },
            );
        }
        v.since = now;
        v.state = state;
    }

    /// Tells the pCPU where a vCPU ran last for whom that was: before it runs elsewhere.
    pub(crate) fn book_here(&mut self, vcpu: Vcpu) {
        let v = &mut self.vcpus[vcpu.index()];
        if let Some(pcpu) = v.last_pcpu {
            let here = std::mem::take(&mut v.here);
            self.pcpus[pcpu.index()].add_for_vm(v.vm, here);
        }
    }

    /// Books everything up to now; nothing else changes.
    pub(crate) fn settle(&mut self, now: Time) {
        for n in 0..self.pcpus.len() {
            self.set_activity(now, CpuId(n as u32), self.pcpus[n].activity);
        }
        for n in 0..self.vcpus.len() {
            self.set_state(now, Vcpu(n as u32), self.vcpus[n].state);
            self.book_here(Vcpu(n as u32));
        }
    }

    /// Are all books in balance at `now`? Every pCPU and vCPU has had exactly
    /// the time since the start, the vCPUs together exactly the time that the
    /// pCPUs gave, no vCPU is in two places, and nobody has left a pCPU without its
    /// policy having been charged for it.
    ///
    /// # Errors
    /// A text that says what is wrong: a bug of the simulator.
    pub fn check(&self, now: Time) -> Result<(), String> {
        let total = now.since(self.started);
        let mut given = Ns::ZERO;
        for (n, p) in self.pcpus.iter().enumerate() {
            let open = now.since(p.since);
            let sum = p.spent.iter().copied().sum::<Ns>() + open;
            if sum != total {
                return Err(format!("pCPU {n} has had {sum} of {total}"));
            }
            given += total - p.idled(now);
            if (p.activity == Activity::Idle) != p.vcpu.is_none() {
                return Err(format!("pCPU {n} is {:?} with {:?}", p.activity, p.vcpu));
            }
            if let Some(v) = p.vcpu {
                let state = self.vcpus[v.index()].state;
                let here = CpuId(n as u32);
                if state != State::Running(here) && state != State::Waiting(here) {
                    return Err(format!("pCPU {n} has vCPU {v}, which is {state:?}"));
                }
            }
        }
        let mut taken = Ns::ZERO;
        for (n, v) in self.vcpus.iter().enumerate() {
            let open = now.since(v.since);
            let sum = v.ran + v.ready + v.halted + open;
            if sum != total {
                return Err(format!("vCPU {n} has had {sum} of {total}"));
            }
            taken += v.ran;
            if let State::Halted | State::Queued = v.state
                && v.owed > Ns::ZERO
            {
                let owed = v.owed;
                return Err(format!("vCPU {n} is {:?}, uncharged for {owed}", v.state));
            }
            if let State::Running(p) | State::Waiting(p) = v.state {
                taken += open;
                if self.pcpus[p.index()].vcpu != Some(Vcpu(n as u32)) {
                    return Err(format!("vCPU {n} is {:?}, which does not have it", v.state));
                }
            }
        }
        if taken != given {
            return Err(format!(
                "vCPUs have taken {taken} of {given} that were given"
            ));
        }
        Ok(())
    }
}
