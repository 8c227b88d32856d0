// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a period: DATS, RCR, DASL, RCR, ELB, auto-disable (J2, J5).

use policy::host::jupiter;
use policy::host::jupiter::PERIOD;
use policy::host::jupiter::dasl;
use policy::host::jupiter::dats;
use policy::host::jupiter::elb;
use policy::host::jupiter::rcr;
use units::CpuId;
use units::Ns;
use units::Permille;

use super::Jupiter;
use crate::hypervisor::Host;
use crate::hypervisor::checks::ensure;
use crate::ids::Vcpu;
use crate::machine::State;

fn state(host: &Host<'_>, vcpu: Vcpu) -> jupiter::State {
    match host.vcpu(vcpu).state {
        State::Running(_) => jupiter::State::Running,
        State::Queued => jupiter::State::Ready,
        State::Halted | State::Waiting(_) => jupiter::State::Idle,
    }
}

impl Jupiter {
    pub(super) fn end_period(&mut self, host: &mut Host<'_>) {
        for entity in &mut self.vcpus {
            if let Some(bucket) = &mut entity.bucket {
                bucket.on_period(entity.base, entity.used);
            }
        }
        if let Some(settings) = &self.settings.disable {
            // J17 speaks of "the vCPUs' CPU time", J4 of the VM's: a VM's vCPUs are
            // taken together. One by one, the rounds of any parallel program look
            // unpredictable, and JUPITER would never be on.
            let predicted = Self::means(host, |v| self.vcpus[v.index()].predicted);
            let actual = Self::means(host, |v| self.vcpus[v.index()].used);
            self.switch.on_period(&predicted, &actual, PERIOD, settings);
        }
        if self.enforces() {
            // Of the period that ends, before slices of the next one are handed out.
            let has_left: Vec<bool> = self.vcpus.iter().map(|v| v.used < v.slice).collect();
            self.slices(host);
            self.hand_out(host, true);
            self.overload(host);
            self.latencies(host, &has_left);
            self.low_latency_conflicts(host);
        } else {
            self.disabled_periods += 1;
            self.hand_out(host, true);
        }
        for vcpu in &mut self.vcpus {
            vcpu.predicted = vcpu.used;
            vcpu.used = Ns::ZERO;
            vcpu.depleted = false;
            vcpu.woken_by.clear();
        }
        self.conflicts.fill(0);
        self.vm_conflicts.fill(0);
    }

    fn of_vm(host: &Host<'_>, vm: usize) -> impl Iterator<Item = Vcpu> + use<> {
        host.machine().vms[vm].vcpus.clone().map(Vcpu)
    }

    /// Means over the vCPUs of each VM.
    fn means(host: &Host<'_>, of: impl Fn(Vcpu) -> Ns) -> Vec<Ns> {
        (0..host.machine().vms.len())
            .map(|vm| {
                let vcpus = Self::of_vm(host, vm);
                let (mut sum, mut count) = (Ns::ZERO, 0);
                for vcpu in vcpus {
                    sum += of(vcpu);
                    count += 1;
                }
                sum / u64::max(count, 1)
            })
            .collect()
    }

    /// J7, J9: who used up its slice and would go on.
    fn is_depleted(&self, host: &Host<'_>, vcpu: Vcpu) -> bool {
        let entity = &self.vcpus[vcpu.index()];
        entity.depleted || (entity.used >= entity.slice && state(host, vcpu).is_runnable())
    }

    /// DATS, VM by VM.
    fn slices(&mut self, host: &mut Host<'_>) {
        let Some(settings) = self.settings.dats.clone() else {
            return;
        };
        for vm in 0..self.vm_time.len() {
            let vcpus: Vec<Vcpu> = Self::of_vm(host, vm).collect();
            let depleted: Vec<bool> = vcpus.iter().map(|&v| self.is_depleted(host, v)).collect();
            let mut weights: Vec<dats::Weight> =
                vcpus.iter().map(|v| self.vcpus[v.index()].weight).collect();
            dats::adjust(&mut weights, &depleted, &settings);
            for (vcpu, weight) in vcpus.into_iter().zip(weights) {
                self.vcpus[vcpu.index()].weight = weight;
            }
        }
    }

    /// ELB: what each VM may use in the coming period; then each vCPU's part. Nothing is
    /// lent before a period has passed (`has_run`): what a lender used before it lent
    /// anything is what its degradation is measured by (J16).
    pub(super) fn hand_out(&mut self, host: &mut Host<'_>, has_run: bool) {
        let capacity = PERIOD * u64::from(host.pcpu_count());
        let vms = &host.machine().vms;
        let weight_of = |vm: usize| host.vm_weight(&vms[vm]);
        let weights: u64 = (0..vms.len()).map(weight_of).sum();
        let shares: Vec<Ns> = (0..vms.len())
            .map(|vm| capacity.scaled(weight_of(vm), weights.max(1)))
            .collect();
        self.vm_time.clone_from(&shares);
        if has_run
            && self.enforces()
            && let Some(settings) = self.settings.elb.clone()
        {
            self.lend(host, &shares, &settings);
        }
        for vm in 0..shares.len() {
            let vcpus: Vec<Vcpu> = Self::of_vm(host, vm).collect();
            let total: dats::Weight = vcpus.iter().map(|v| self.vcpus[v.index()].weight).sum();
            for vcpu in vcpus {
                let entity = &mut self.vcpus[vcpu.index()];
                entity.base = dats::slice(entity.weight, total, self.vm_time[vm]).min(PERIOD);
                let bucket = entity.bucket.as_ref();
                entity.slice = bucket.map_or(entity.base, |b| b.budget(entity.base));
            }
        }
        if self.settings.by_weight {
            self.weigh(host, &shares);
        }
    }

    /// What CFS goes by: a vCPU's weight among those of its VM, and what the VM has of
    /// its share; while nothing is enforced as if there were no JUPITER.
    fn weigh(&mut self, host: &Host<'_>, shares: &[Ns]) {
        let enforces = self.enforces();
        for (vm, &share) in shares.iter().enumerate() {
            let facts = &host.machine().vms[vm];
            let has = if enforces { self.vm_time[vm] } else { share };
            let own = |of: u32| {
                let of = Ns(u64::from(of));
                of.scaled(has.as_ns(), share.as_ns().max(1)).as_ns()
            };
            if let (Some(shares), Some(any)) = (facts.shares, Self::of_vm(host, vm).next()) {
                self.fair.set_shares(any, own(shares));
            }
            for vcpu in Self::of_vm(host, vm) {
                let weight = host.vcpu(vcpu).weight.max(1);
                let weight = match facts.shares {
                    Some(_) => u64::from(weight),
                    None => own(weight),
                };
                let part = match enforces {
                    true => self.vcpus[vcpu.index()].weight,
                    false => dats::UNIT,
                };
                let weight = Ns(weight).scaled(part, dats::UNIT).as_ns().max(1);
                self.fair.set_weight(host, vcpu, weight);
            }
        }
    }

    /// J16: lenders give a part of their share, borrowers with the fewest
    /// conflicts get it first. A VM with a vCPU that used up its slice borrows as
    /// much again as those vCPUs had; nobody lends and borrows at once.
    fn lend(&mut self, host: &Host<'_>, shares: &[Ns], settings: &elb::Settings) {
        let mut wants = vec![0; shares.len()];
        let mut lent = 0;
        for vm in 0..shares.len() {
            let mut used = Ns::ZERO;
            for vcpu in Self::of_vm(host, vm) {
                used += self.vcpus[vcpu.index()].used;
                if self.is_depleted(host, vcpu) {
                    wants[vm] += self.vcpus[vcpu.index()].slice.as_ns();
                }
            }
            self.lenders[vm].on_period(Permille::of(used, shares[vm]), settings);
            if wants[vm] == 0 {
                let loan = shares[vm].scaled(u64::from(self.lenders[vm].loan().get()), 1000);
                self.vm_time[vm] = shares[vm] - loan;
                lent += loan.as_ns();
            }
        }
        let got = elb::distribute(lent, &wants, &self.vm_conflicts);
        for (time, got) in self.vm_time.iter_mut().zip(&got) {
            *time += Ns(*got);
        }
    }

    /// J8: the weights of a VM's vCPUs add up to what they were, their slices to no more
    /// than the VM has; J16: what all VMs have to no more than there is.
    pub(super) fn check_period(&self, host: &Host<'_>) -> Result<(), String> {
        for (vm, &time) in self.vm_time.iter().enumerate() {
            let entities = || Self::of_vm(host, vm).map(|v| &self.vcpus[v.index()]);
            let weight: dats::Weight = entities().map(|v| v.weight).sum();
            let start = dats::UNIT * entities().count() as u64;
            ensure(weight == start, || {
                format!("the weights of VM {vm} are {weight}, of {start} at the start")
            })?;
            let slices: Ns = entities().map(|v| v.base).sum();
            ensure(slices <= time, || {
                format!("the slices of VM {vm} are {slices}, it has {time}")
            })?;
            let used = entities().map(|v| v.used).max().unwrap_or(Ns::ZERO);
            ensure(used <= PERIOD, || format!("a vCPU of VM {vm} used {used}"))?;
        }
        let all: Ns = self.vm_time.iter().copied().sum();
        let capacity = PERIOD * u64::from(host.pcpu_count());
        ensure(all <= capacity, || {
            format!("all VMs may use {all} of {capacity}")
        })
    }

    /// DASL, VM by VM; by vCPU: had it slice left?
    fn latencies(&mut self, host: &Host<'_>, has_left: &[bool]) {
        let Some(settings) = self.settings.dasl.clone() else {
            return;
        };
        for vm in 0..self.vm_time.len() {
            let vcpus: Vec<Vcpu> = Self::of_vm(host, vm).collect();
            let first = vcpus.first().map_or(0, |v| v.index());
            let reports: Vec<dasl::Report> = vcpus
                .iter()
                .map(|&v| {
                    let entity = &self.vcpus[v.index()];
                    dasl::Report {
                        state: state(host, v),
                        slice_left: has_left[v.index()],
                        woken_by: entity.woken_by.iter().map(|w| w.index() - first).collect(),
                    }
                })
                .collect();
            let mut latencies: Vec<Ns> = vcpus
                .iter()
                .map(|v| self.vcpus[v.index()].latency)
                .collect();
            dasl::adjust(&mut latencies, &reports, &settings);
            for (vcpu, latency) in vcpus.into_iter().zip(latencies) {
                self.vcpus[vcpu.index()].latency = latency;
            }
        }
    }

    fn cores(&self, host: &Host<'_>) -> Vec<rcr::Core> {
        let mut cores: Vec<rcr::Core> = self
            .conflicts
            .iter()
            .map(|&conflicts| rcr::Core {
                vcpus: Vec::new(),
                conflicts,
            })
            .collect();
        for vcpu in host.vcpus() {
            let entity = &self.vcpus[vcpu.index()];
            cores[self.fair.home(vcpu).index()].vcpus.push(rcr::Vcpu {
                vcpu: vcpu.index(),
                vm: host.vcpu(vcpu).vm.index(),
                slice: entity.slice,
                latency: entity.latency,
            });
        }
        cores
    }

    fn overload(&mut self, host: &mut Host<'_>) {
        if let Some(settings) = self.settings.rcr.clone() {
            let swaps = rcr::resolve_overload(&mut self.cores(host), &settings);
            self.carry_out(host, &swaps);
        }
    }

    fn low_latency_conflicts(&mut self, host: &mut Host<'_>) {
        if let Some(settings) = self.settings.rcr.clone() {
            let swaps = rcr::resolve_conflicts(&mut self.cores(host), &settings);
            self.carry_out(host, &swaps);
        }
    }

    /// Two vCPUs change homes. One that runs goes on where it is until it stops;
    /// its next queue is the new one.
    fn carry_out(&mut self, host: &mut Host<'_>, swaps: &[rcr::Swap]) {
        for swap in swaps {
            let (a, b) = (Vcpu(swap.a.0 as u32), Vcpu(swap.b.0 as u32));
            let (to_a, to_b) = (CpuId(swap.b.1 as u32), CpuId(swap.a.1 as u32));
            if !host.allows(a, to_a) || !host.allows(b, to_b) {
                continue;
            }
            self.fair.carry(host, a, to_a);
            self.fair.carry(host, b, to_b);
            self.swaps += 1;
            for pcpu in [to_a, to_b] {
                if host.is_idle(pcpu) {
                    host.kick(pcpu);
                }
            }
        }
    }
}
