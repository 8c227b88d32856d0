// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSche's two kinds of cores (S1..S9) for [`Credit1`]. The decisions are
//! `policy::host::ische`.
//!
//! A VM's type is what the scenario declares (S4), or comes from its counters
//! when that is asked for.

use policy::host::credit::credit1;
use policy::host::ische;
use policy::host::ische::Kind;
use policy::host::ische::classify;
use policy::host::ische::classify::Classifier;
use units::CpuId;
use units::Ns;
use units::Permille;

use super::Host;
use super::credit1::Credit1;
use crate::ids::Vcpu;
use crate::machine::VmFacts;

/// Labels, types and pins.
#[derive(Debug)]
pub(super) struct Cores {
    settings: ische::Settings,
    seed: u64,
    /// Classify by counters, with these settings.
    automatic: Option<classify::Settings>,
    /// Nobody gains by being classified: our fix.
    within_share: bool,
    labels: Vec<ische::Core>,
    kinds: Vec<Classifier>,
    /// Counters of each VM at the last look: events and demand.
    last: Vec<(u64, Ns)>,
}

/// iSche, called `name` in results; the choice of cores follows from the seed (S2). Hardened,
/// with Credit1's own fixes in `settings`, who wants more than its share is CPU-intensive
/// (`within_share`, [`Classifier::on_period_of_share`]).
#[must_use]
pub fn ische(
    name: &'static str,
    settings: &ische::Settings,
    automatic: Option<classify::Settings>,
    within_share: bool,
    seed: u64,
) -> Credit1 {
    let cores = Cores {
        settings: settings.clone(),
        seed,
        automatic,
        within_share,
        labels: Vec::new(),
        kinds: Vec::new(),
        last: Vec::new(),
    };
    Credit1::with_cores(name, settings.credit.clone(), Some(cores))
}

impl Cores {
    pub(super) fn start(&mut self, host: &Host<'_>) {
        let count = host.pcpu_count() as usize;
        self.labels = ische::label(count, self.settings.general_cores, self.seed);
        for vm in &host.machine().vms {
            let kind = match (vm.driver_domain, vm.io_intensive) {
                (true, _) => Kind::Dom0,
                (false, true) => Kind::Io,
                (false, false) => Kind::Cpu,
            };
            self.kinds.push(Classifier::new(kind));
            self.last.push((0, Ns::ZERO));
        }
    }

    fn kind(&self, host: &Host<'_>, vcpu: Vcpu) -> Kind {
        self.kinds[host.vcpu(vcpu).vm.index()].kind()
    }

    /// May it run there, as far as labels go?
    pub(super) fn may(&self, host: &Host<'_>, vcpu: Vcpu, pcpu: CpuId) -> bool {
        self.suits(self.kind(host, vcpu), pcpu) || self.is_astray(host, vcpu)
    }

    fn suits(&self, kind: Kind, pcpu: CpuId) -> bool {
        let lends = self.settings.idle_io_core == ische::IdleIoCore::TakesCpuVms;
        (lends && kind == Kind::Cpu) || ische::pins(kind, &self.labels).contains(&pcpu.index())
    }

    /// Do its pins leave it no core of its label? Then it runs where they allow, among those
    /// whose cores these are: else it would run nowhere.
    fn is_astray(&self, host: &Host<'_>, vcpu: Vcpu) -> bool {
        let (kind, allowed) = (self.kind(host, vcpu), &host.vcpu(vcpu).allowed);
        !allowed.is_empty() && !allowed.iter().any(|&pcpu| self.suits(kind, pcpu))
    }

    pub(super) fn slice(&self, pcpu: CpuId, vcpu: &credit1::Vcpu) -> Ns {
        ische::slice(self.labels[pcpu.index()], vcpu, &self.settings)
    }

    pub(super) fn pick(
        &self,
        host: &Host<'_>,
        pcpu: CpuId,
        queue: &credit1::RunQ,
        table: &[credit1::Vcpu],
    ) -> Option<usize> {
        // Who is of which type matters on I/O cores alone.
        let kind_of = |v: usize| {
            let vcpu = Vcpu(v as u32);
            if self.is_astray(host, vcpu) {
                Kind::Io
            } else {
                self.kind(host, vcpu)
            }
        };
        ische::pick(
            self.labels[pcpu.index()],
            queue,
            table,
            kind_of,
            &self.settings,
        )
    }

    /// One more period for the automatic classification.
    pub(super) fn slow(&mut self, host: &Host<'_>) {
        let Some(settings) = &self.automatic else {
            return;
        };
        for (vm, facts) in host.machine().vms.iter().enumerate() {
            let vcpus = &host.machine().vcpus[facts.vcpus.start as usize..facts.vcpus.end as usize];
            let events = vcpus.iter().map(|v| v.io_events).sum::<u64>();
            let demand = vcpus.iter().map(|v| v.ran + v.ready).sum::<Ns>();
            let (last_events, last_demand) = self.last[vm];
            self.last[vm] = (events, demand);
            let period = classify::Period {
                length: self.settings.credit.refill_period,
                vcpus: vcpus.len() as u32,
                events: events.saturating_sub(last_events),
                demand: demand - last_demand,
            };
            if self.within_share {
                let share = share(host, facts);
                self.kinds[vm].on_period_of_share(&period, share, settings);
            } else {
                self.kinds[vm].on_period(&period, settings);
            }
        }
    }
}

/// What each vCPU of a VM would have of a pCPU if all VMs took their parts by weight.
fn share(host: &Host<'_>, vm: &VmFacts) -> Permille {
    let all: u64 = host.machine().vms.iter().map(|v| host.vm_weight(v)).sum();
    let part = u64::from(host.pcpu_count()) * 1000 * host.vm_weight(vm);
    let each = part / (all * vm.vcpus.len() as u64).max(1);
    Permille::new(u16::try_from(each.min(1000)).unwrap_or(1000))
}
