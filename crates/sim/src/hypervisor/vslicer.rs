// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vSlicer (SL1..SL7). The decisions are `policy::host::vslicer`.
//!
//! Each vCPU lives on one pCPU, with its VM's others on the following ones. The
//! VMs that the scenario declares I/O-intensive are the latency-sensitive ones;
//! if it declares none, all are, as where every VM runs the same load.

use policy::host::vslicer;
use policy::host::vslicer::Round;
use units::CpuId;
use units::Ns;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
use super::checks::ensure;
use crate::ids::Vcpu;
use crate::machine::State;

/// vSlicer.
#[derive(Debug)]
pub struct Vslicer {
    settings: vslicer::Settings,
    lanes: Vec<Lane>,
    /// By vCPU: its pCPU and its position there.
    seat: Vec<(CpuId, usize)>,
}

#[derive(Debug, Default)]
struct Lane {
    round: Round,
    table: Vec<vslicer::Vcpu>,
    vcpus: Vec<Vcpu>,
}

impl Lane {
    /// Has nobody been given a slice yet?
    fn is_new(&self) -> bool {
        self.round.used() == Ns::ZERO && self.table.iter().all(|v| v.left == Ns::ZERO)
    }
}

impl Vslicer {
    /// vSlicer with these settings.
    #[must_use]
    pub fn new(settings: vslicer::Settings) -> Self {
        Self {
            settings,
            lanes: Vec::new(),
            seat: Vec::new(),
        }
    }
}

impl Hypervisor for Vslicer {
    fn name(&self) -> &'static str {
        "vslicer"
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let count = host.pcpu_count().max(1);
        self.lanes = (0..count).map(|_| Lane::default()).collect();
        let declared = host.machine().vms.iter().any(|vm| vm.io_intensive);
        for vcpu in host.vcpus() {
            let facts = host.vcpu(vcpu);
            let wanted = CpuId(facts.id.0 % count);
            let pcpu = if host.allows(vcpu, wanted) {
                wanted
            } else {
                let allowed = || host.pcpus().filter(|&p| host.allows(vcpu, p));
                allowed()
                    .min_by_key(|p| (self.lanes[p.index()].vcpus.len(), *p))
                    .unwrap_or(wanted)
            };
            let lane = &mut self.lanes[pcpu.index()];
            self.seat.push((pcpu, lane.vcpus.len()));
            lane.vcpus.push(vcpu);
            lane.table.push(vslicer::Vcpu {
                latency_sensitive: !declared || host.vm_of(vcpu).io_intensive,
                left: Ns::ZERO,
                owed: Ns::ZERO,
            });
        }
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        let (pcpu, seat) = self.seat[vcpu.index()];
        let (Why::Start | Why::Woken(_)) = why else {
            return;
        };
        let Some(running) = host.on(pcpu) else {
            host.kick(pcpu);
            return;
        };
        if let Why::Woken(_) = why {
            let lane = &self.lanes[pcpu.index()];
            let runs = &lane.table[self.seat[running.index()].1];
            let n = lane.table.len();
            if lane
                .round
                .preempts(&lane.table[seat], runs, n, &self.settings)
            {
                host.kick_remote(pcpu);
            }
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let lane = &mut self.lanes[pcpu.index()];
        let vcpus = &lane.vcpus;
        let ready = |seat: usize| host.vcpu(vcpus[seat]).state == State::Queued;
        let turn = lane.round.pick(&mut lane.table, ready, &self.settings)?;
        Some(Pick {
            vcpu: lane.vcpus[turn.vcpu],
            slice: Some(turn.slice),
        })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId, ran: Ns, _: Ns) {
        let (pcpu, seat) = self.seat[vcpu.index()];
        let lane = &mut self.lanes[pcpu.index()];
        lane.round
            .on_charge(&mut lane.table[seat], ran, &self.settings);
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        let seated = self
            .lanes
            .iter()
            .map(|lane| lane.vcpus.len())
            .sum::<usize>();
        ensure(seated == host.vcpus().count(), || {
            format!("{seated} have a seat")
        })?;
        for (vcpu, &(pcpu, seat)) in host.vcpus().zip(&self.seat) {
            let there = self.lanes[pcpu.index()].vcpus.get(seat);
            ensure(there == Some(&vcpu), || {
                format!("vCPU {there:?} has seat {seat} of pCPU {pcpu}, vCPU {vcpu}'s")
            })?;
        }
        // SL1: what was run in a round is what is gone of everybody's slice. Turns end in time
        // here, so nobody owes anything.
        for (pcpu, lane) in host.pcpus().zip(&self.lanes) {
            let owed = lane.table.iter().map(|v| v.owed).sum::<Ns>();
            ensure(owed == Ns::ZERO, || {
                format!("{owed} of the slices on pCPU {pcpu} are owed")
            })?;
            let had = lane.table.iter().map(|v| self.settings.slice - v.left);
            let (had, used) = (had.sum::<Ns>(), lane.round.used());
            ensure(had == used || lane.is_new(), || {
                format!("of the slices on pCPU {pcpu} {had} are gone and {used} were run")
            })?;
        }
        Ok(())
    }
}
