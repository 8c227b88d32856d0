// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Balance scheduling (O2) and on top of it conventional (O3), relaxed (O5) and
//! demand-based (O4) coscheduling. The decisions are `policy::host::cosched`.

use policy::host::cosched::balance;
use policy::host::cosched::demand;
use policy::host::cosched::gang;
use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
use super::checks::ensure;
use super::fair::Fair;
use super::fair::Siblings;
use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::machine::State;

/// What is coordinated.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Siblings are kept apart, nothing else (O2).
    Balance,
    /// VMs run as gangs (O3, O5).
    Gang(gang::Settings),
    /// vCPUs that communicate are preferred (O4).
    Demand(demand::Settings),
}

/// Settings of [`Cosched`].
#[derive(Clone, Debug)]
pub struct CoschedSettings {
    /// What is coordinated.
    pub mode: Mode,
    /// Slice under contention (O7: not stated).
    pub slice: Ns,
    /// How much less a waking vCPU must have had to preempt (as in CFS): 4 ms.
    pub wakeup_granularity: Ns,
}

/// Balance scheduling and coscheduling.
#[derive(Debug)]
pub struct Cosched {
    name: &'static str,
    settings: CoschedSettings,
    fair: Fair,
    demand: Vec<demand::Vcpu>,
    gangs: Gangs,
    urgent_picks: u64,
}

/// How long a pCPU waits for others that become free at the same instant.
const LOOK_AGAIN: Ns = Ns(1);

/// What gangs need to remember.
#[derive(Debug, Default)]
struct Gangs {
    /// Who is to run next on each pCPU, and until when.
    reserved: Vec<Option<(Vcpu, Time)>>,
    /// Whose gang each pCPU was given to, and until when: the vCPUs that block
    /// meanwhile come back to it. Of strict gangs only.
    held: Vec<Option<(VmId, Time)>>,
    /// When each pCPU last waited for the others of the same instant.
    looked: Vec<Option<Time>>,
    /// CPU time of each VM by weight; of strict gangs that of the pCPUs that they were
    /// given, whether they used it or not: nobody else could.
    used: Vec<Ns>,
    /// Since when each VM has been waiting.
    waiting: Vec<Time>,
    started: u64,
}

impl Cosched {
    /// With these settings, called `name` in results.
    #[must_use]
    pub fn new(name: &'static str, settings: CoschedSettings) -> Self {
        Self {
            name,
            fair: Fair::new(settings.slice),
            settings,
            demand: Vec::new(),
            gangs: Gangs::default(),
            urgent_picks: 0,
        }
    }

    fn is_gang(&self) -> bool {
        matches!(self.settings.mode, Mode::Gang(_))
    }

    /// O2: an idle pCPU on which no sibling lives, if the vCPU's own is busy.
    fn choose(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.fair.home(vcpu);
        if host.is_idle(home) {
            return home;
        }
        let cores = self.fair.cores(host, vcpu, Siblings::All);
        let here = cores[home.index()].siblings;
        host.pcpus()
            .filter(|&p| host.is_idle(p) && self.fair.len(p) == 0 && host.allows(vcpu, p))
            .find(|&p| balance::may_move(here + 1, cores[p.index()].siblings))
            .unwrap_or(home)
    }

    fn is_urgent(&self, host: &Host<'_>, vcpu: Vcpu) -> bool {
        let Mode::Demand(settings) = &self.settings.mode else {
            return false;
        };
        let demand = &self.demand[vcpu.index()];
        let ahead = || self.fair.ahead(host, vcpu);
        demand.is_urgent(host.now()) && demand.comes_first(host.now(), ahead(), settings)
    }

    /// Lets a pCPU choose anew if `vcpu`, queued there, comes before who runs.
    fn preempt(&self, host: &mut Host<'_>, vcpu: Vcpu) {
        let home = self.fair.home(vcpu);
        let Some(running) = host.on(home) else {
            host.kick(home);
            return;
        };
        let held = self.is_urgent(host, running);
        let urgent = !held && self.is_urgent(host, vcpu);
        let granularity = self.settings.wakeup_granularity;
        let behind = self.fair.preempts(host, vcpu, granularity);
        if urgent || (behind && !held) {
            host.kick_remote(home);
        } else if held && let Some(until) = self.demand[running.index()].urgent_until() {
            // Urgent ones take turns, and who is behind waits for no longer than another is
            // urgent.
            host.kick_at(until, home);
        }
    }

    /// A vCPU of the longest queue that may come here without being stacked.
    fn pull(&self, host: &Host<'_>, pcpu: CpuId) -> Option<Vcpu> {
        let from = host
            .pcpus()
            .filter(|&p| p != pcpu)
            .max_by_key(|&p| (self.fair.len(p), std::cmp::Reverse(p)))?;
        self.fair.waiting(from).find(|&vcpu| {
            let cores = self.fair.cores(host, vcpu, Siblings::All);
            let (here, there) = (cores[from.index()].siblings, cores[pcpu.index()].siblings);
            host.allows(vcpu, pcpu) && balance::may_move(here + 1, there)
        })
    }

    fn pick_one(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        if self.fair.len(pcpu) == 0
            && let Some(vcpu) = self.pull(host, pcpu)
        {
            self.fair.carry(host, vcpu, pcpu);
        }
        let first = self.fair.waiting(pcpu).next()?;
        let urgent = self
            .fair
            .waiting(pcpu)
            .find(|&vcpu| self.is_urgent(host, vcpu));
        let vcpu = urgent.unwrap_or(first);
        let slice = match &self.settings.mode {
            Mode::Demand(demand) if vcpu != first => {
                self.urgent_picks += 1;
                Some(demand.urgent_slice)
            }
            _ => self.fair.turn(),
        };
        self.fair.take(host, vcpu, pcpu);
        Some(Pick { vcpu, slice })
    }

    /// A pCPU is a strict gang's for a slice; what is left of an earlier one's is not.
    fn give(&mut self, host: &Host<'_>, pcpu: CpuId, vm: VmId, until: Time) {
        let left = |vm: VmId, end: Time| {
            let weight = host.vm_weight(&host.machine().vms[vm.index()]);
            end.since(host.now()).scaled(1024, weight)
        };
        let gangs = &mut self.gangs;
        if let Some((before, end)) = gangs.held[pcpu.index()].replace((vm, until)) {
            let used = &mut gangs.used[before.index()];
            *used = *used - left(before, end);
        }
        gangs.used[vm.index()] += left(vm, until);
    }

    /// Who comes back to the gang that this pCPU was given to, and until when.
    fn back(&self, host: &Host<'_>, pcpu: CpuId) -> Option<(Vcpu, Time)> {
        let (vm, until) = self.gangs.held[pcpu.index()].filter(|(_, until)| *until > host.now())?;
        let reserved = |v: Vcpu| self.gangs.reserved.iter().flatten().any(|r| r.0 == v);
        let vcpus = host.machine().vms[vm.index()].vcpus.clone().map(Vcpu);
        // To where it was, unless somebody has that.
        let fits = |v: Vcpu| {
            let home = self.fair.home(v);
            home == pcpu || !host.is_idle(home) || !host.allows(v, home)
        };
        let back = |&v: &Vcpu| {
            let waits = host.vcpu(v).state == State::Queued && !reserved(v);
            waits && host.allows(v, pcpu) && fits(v)
        };
        let first = vcpus
            .filter(back)
            .min_by_key(|&v| (self.fair.home(v) != pcpu, v))?;
        Some((first, until))
    }

    /// O3, O5. The first look of an instant only asks for another one, after
    /// every other pCPU that becomes free at this instant is free.
    fn pick_gang(
        &mut self,
        host: &mut Host<'_>,
        pcpu: CpuId,
        settings: &gang::Settings,
    ) -> Option<Pick> {
        let now = host.now();
        if let Some((vcpu, until)) = self.gangs.reserved[pcpu.index()].take()
            && host.vcpu(vcpu).state == State::Queued
            && until > now
        {
            self.fair.take(host, vcpu, pcpu);
            return Some(Pick {
                vcpu,
                slice: Some(until.since(now)),
            });
        }
        if let Some((vcpu, until)) = self.back(host, pcpu) {
            self.fair.take(host, vcpu, pcpu);
            return Some(Pick {
                vcpu,
                slice: Some(until.since(now)),
            });
        }
        // A kick of this pCPU for now is ignored while it chooses.
        let again = self.gangs.looked[pcpu.index()].replace(now);
        if again.is_none_or(|looked| looked + LOOK_AGAIN != now) {
            host.kick_at(now + LOOK_AGAIN, pcpu);
            return None;
        }
        let free: Vec<CpuId> = host
            .pcpus()
            .filter(|&p| host.is_idle(p) && self.gangs.reserved[p.index()].is_none())
            .collect();
        let ready = |vm: usize| {
            let vcpus = host.machine().vms[vm].vcpus.clone();
            vcpus.map(Vcpu).filter(|&v| {
                let reserved = self.gangs.reserved.iter().flatten().any(|r| r.0 == v);
                host.vcpu(v).state == State::Queued && !reserved
            })
        };
        let gangs: Vec<gang::Gang> = (0..host.machine().vms.len())
            .map(|vm| gang::Gang {
                vcpus: host.machine().vms[vm].vcpus.len(),
                ready: ready(vm).count(),
                used: self.gangs.used[vm],
                waited: now.since(self.gangs.waiting[vm]),
            })
            .collect();
        let start = gang::pick(&gangs, free.len(), host.pcpu_count() as usize, settings)?;
        let mut members: Vec<Vcpu> = ready(start.gang).collect();
        members.sort_by_key(|&v| self.fair.had(host, v));
        self.gangs.started += 1;
        self.gangs.waiting[start.gang] = now;
        let until = now + settings.slice;
        if settings.members == gang::Members::All {
            let needs = gangs[start.gang].needs(settings);
            for place in free.iter().take(needs) {
                self.give(host, *place, VmId(start.gang as u32), until);
            }
        }
        let mut free = free;
        let before = free.len();
        let mut mine = None;
        for vcpu in members {
            // Its own pCPU if that is free, else any.
            let home = self.fair.home(vcpu);
            let at = free
                .iter()
                .position(|&p| p == home && host.allows(vcpu, p))
                .or_else(|| free.iter().position(|&p| host.allows(vcpu, p)));
            let Some(at) = at else {
                continue;
            };
            let place = free.remove(at);
            if place == pcpu {
                mine = Some(vcpu);
            } else {
                self.gangs.reserved[place.index()] = Some((vcpu, until));
                host.kick(place);
            }
        }
        match mine {
            Some(vcpu) => {
                self.fair.take(host, vcpu, pcpu);
                Some(Pick {
                    vcpu,
                    slice: Some(settings.slice),
                })
            }
            None => {
                // Others may still fit here, unless pins kept all away.
                if free.len() < before {
                    host.kick_at(now + LOOK_AGAIN, pcpu);
                }
                None
            }
        }
    }
}

impl Hypervisor for Cosched {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        self.fair.start(host, true);
        self.demand = vec![demand::Vcpu::default(); host.vcpus().count()];
        let (pcpus, vms) = (host.pcpu_count() as usize, host.machine().vms.len());
        self.gangs = Gangs {
            reserved: vec![None; pcpus],
            held: vec![None; pcpus],
            looked: vec![None; pcpus],
            used: vec![Ns::ZERO; vms],
            waiting: vec![host.now(); vms],
            started: 0,
        };
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        if let Why::Start | Why::Woken(_) = why {
            if self.is_gang() {
                let vm = host.vcpu(vcpu).vm;
                let others = host.machine().vms[vm.index()].vcpus.clone().map(Vcpu);
                let mut others = others.filter(|&v| v != vcpu);
                if others.all(|v| host.vcpu(v).state == State::Halted) {
                    self.gangs.waiting[vm.index()] = host.now();
                }
            } else {
                let pcpu = self.choose(host, vcpu);
                self.fair.carry(host, vcpu, pcpu);
            }
            self.fair.wake(host, vcpu);
        } else {
            self.fair.back(host, vcpu);
        }
        // The pCPU that somebody leaves chooses anew anyway.
        let (Why::Start | Why::Woken(_)) = why else {
            return;
        };
        if self.is_gang() {
            for pcpu in host.pcpus() {
                if host.is_idle(pcpu) {
                    host.kick(pcpu);
                }
            }
        } else {
            self.preempt(host, vcpu);
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        match &self.settings.mode {
            Mode::Gang(settings) => {
                let settings = settings.clone();
                self.pick_gang(host, pcpu, &settings)
            }
            Mode::Balance | Mode::Demand(_) => self.pick_one(host, pcpu),
        }
    }

    fn charge(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, _: Ns) {
        self.fair.charge(vcpu, pcpu, ran);
        if let Mode::Gang(settings) = &self.settings.mode
            && settings.members == gang::Members::All
        {
            return;
        }
        // A VM's share is that of its vCPUs together, as in the queues of the others.
        let weight = host.vm_weight(host.vm_of(vcpu));
        self.gangs.used[host.vcpu(vcpu).vm.index()] += ran.scaled(1024, weight);
    }

    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        self.fair.halt(host, vcpu);
    }

    fn tick_period(&self) -> Option<Ns> {
        // A gang's slice is its own.
        self.fair.tick_period().filter(|_| !self.is_gang())
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        self.fair.tick(host);
    }

    fn ipi(&mut self, host: &mut Host<'_>, from: Vcpu, to: Vcpu) {
        if let Mode::Demand(settings) = &self.settings.mode {
            let now = host.now();
            self.demand[from.index()].on_sent(now, settings);
            self.demand[to.index()].on_received(now, settings);
            if host.vcpu(to).state == State::Queued {
                self.preempt(host, to);
            }
        }
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.fair.check(host)?;
        let mut reserved: Vec<Vcpu> = self.gangs.reserved.iter().flatten().map(|r| r.0).collect();
        reserved.sort_unstable();
        ensure(reserved.is_sorted_by(|a, b| a < b), || {
            format!("of {reserved:?} one is to run on two pCPUs at once")
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("gangs_started", self.gangs.started),
            ("urgent_picks", self.urgent_picks),
        ]
    }
}
