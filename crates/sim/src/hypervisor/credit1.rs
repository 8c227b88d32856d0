// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's Credit1 (K1..K8) and, as it keeps Credit1's rules on its two kinds of
//! cores, iSche (S1..S9). The decisions are `policy::host::credit::credit1` and
//! `policy::host::ische`.
//!
//! Each pCPU has its queue. A woken vCPU goes to an idle pCPU if there is one,
//! else to where it was. The tick is Xen's 10 ms; credit is handed out every
//! refill period to those that wanted to run since the last one.

use policy::host::credit;
use policy::host::credit::Weight;
use policy::host::credit::credit1;
use policy::host::credit::credit1::Charging;
use policy::host::credit::credit1::RunQ;
use units::CpuId;
use units::Ns;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Wake;
use super::Why;
use super::checks::ensure;
use super::checks::ready_once;
use super::ische::Cores;
use crate::ids::Vcpu;
use crate::machine::NORMAL_WEIGHT;
use crate::machine::State;

/// Xen's tick.
pub(super) const TICK: Ns = Ns::from_ms(10);

/// Credit1, or iSche on it.
#[derive(Debug)]
pub struct Credit1 {
    name: &'static str,
    settings: credit1::Settings,
    table: Vec<credit1::Vcpu>,
    queues: Vec<RunQ>,
    home: Vec<CpuId>,
    /// Wanted to run since the last refill (K5).
    active: Vec<bool>,
    /// iSche's cores; none under plain Credit1.
    cores: Option<Cores>,
    boosts: u64,
    steals: u64,
    /// The credit that was handed out since the start, ns: less than the pCPUs could
    /// have given where vCPUs had as much as they may have.
    given: i128,
}

impl Credit1 {
    /// Plain Credit1, under this name.
    #[must_use]
    pub fn new(name: &'static str, settings: credit1::Settings) -> Self {
        Self::with_cores(name, settings, None)
    }

    pub(super) fn with_cores(
        name: &'static str,
        settings: credit1::Settings,
        cores: Option<Cores>,
    ) -> Self {
        Self {
            name,
            settings,
            table: Vec::new(),
            queues: Vec::new(),
            home: Vec::new(),
            active: Vec::new(),
            cores,
            boosts: 0,
            steals: 0,
            given: 0,
        }
    }

    /// The sum of all credits, ns.
    fn credit(&self) -> i128 {
        self.table.iter().map(|v| i128::from(v.credit.0)).sum()
    }

    /// K5: hands out what the pCPUs can give in a period to those that are active.
    fn refill(&mut self, pcpus: u32, active: &[usize]) {
        let before = self.credit();
        credit1::refill(&mut self.table, active, pcpus, &self.settings);
        self.given += self.credit() - before;
    }

    /// May `vcpu` run there: its own pins and, under iSche, those of its type.
    fn may(&self, host: &Host<'_>, vcpu: Vcpu, pcpu: CpuId) -> bool {
        host.allows(vcpu, pcpu)
            && self
                .cores
                .as_ref()
                .is_none_or(|cores| cores.may(host, vcpu, pcpu))
    }

    /// Where a woken vCPU goes.
    fn choose(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.home[vcpu.index()];
        let count = host.pcpu_count();
        (0..count)
            .map(|step| CpuId((home.0 + step) % count))
            .find(|&pcpu| {
                host.is_idle(pcpu)
                    && self.queues[pcpu.index()].as_slice().is_empty()
                    && self.may(host, vcpu, pcpu)
            })
            .unwrap_or_else(|| {
                if self.may(host, vcpu, home) {
                    home
                } else {
                    self.shortest(host, vcpu)
                }
            })
    }

    fn shortest(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        host.pcpus()
            .filter(|&pcpu| self.may(host, vcpu, pcpu))
            .min_by_key(|&pcpu| {
                (
                    self.queues[pcpu.index()].as_slice().len() + usize::from(!host.is_idle(pcpu)),
                    pcpu,
                )
            })
            .unwrap_or(self.home[vcpu.index()])
    }

    fn insert(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        self.home[vcpu.index()] = pcpu;
        self.queues[pcpu.index()].insert(vcpu.index(), &self.table, &self.settings);
    }

    /// K4: lets the pCPU choose anew if who has just come is of a higher class
    /// than who runs, charged up to now.
    fn preempt(&self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        match host.on(pcpu) {
            None => host.kick(pcpu),
            Some(running) => {
                let mut charged = self.table[running.index()].clone();
                charged.on_charge(host.uncharged(running), &self.settings);
                if self.table[vcpu.index()].preempts(&charged, &self.settings) {
                    host.kick_remote(pcpu);
                }
            }
        }
    }

    /// K7: the other queues from the next pCPU on.
    fn steal(&self, host: &Host<'_>, pcpu: CpuId) -> Option<usize> {
        let count = self.queues.len();
        let others: Vec<usize> = (1..count)
            .map(|step| (pcpu.index() + step) % count)
            .collect();
        let queues: Vec<&RunQ> = others.iter().map(|&q| &self.queues[q]).collect();
        let may = |v: usize| self.may(host, Vcpu(v as u32), pcpu);
        let own = &self.queues[pcpu.index()];
        credit1::steal_from(own, &queues, &self.table, may, &self.settings).map(|(_, v)| v)
    }

    /// How long `v` may run on this pCPU, its cap included (K1).
    fn slice(&self, v: usize, pcpu: CpuId) -> Ns {
        let vcpu = &self.table[v];
        let slice = match &self.cores {
            None => vcpu.slice(&self.settings),
            Some(cores) => cores.slice(pcpu, vcpu),
        };
        if vcpu.cap_permille == 0 {
            return slice;
        }
        let cap = self
            .settings
            .refill_period
            .scaled(u64::from(vcpu.cap_permille), 1000);
        slice.min((cap - vcpu.used).max(Ns(1)))
    }
}

impl Hypervisor for Credit1 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let count = host.pcpu_count();
        self.queues = vec![RunQ::default(); count as usize];
        if let Some(cores) = &mut self.cores {
            cores.start(host);
        }
        self.active = vec![false; host.vcpus().count()];
        for vcpu in host.vcpus() {
            let facts = host.vcpu(vcpu);
            // Xen's normal weight is 256 where Linux' is 1024.
            let weight = u64::from(facts.weight) * 256 / u64::from(NORMAL_WEIGHT);
            // The cap is the VM's (K1), rounded up so that it is never none.
            let vm = host.vm_of(vcpu);
            let cap_permille = vm.cap_permille.div_ceil(vm.vcpus.len() as u32);
            self.table.push(credit1::Vcpu {
                weight: Weight::new(u32::try_from(weight).unwrap_or(u32::MAX)),
                cap_permille,
                ..credit1::Vcpu::default()
            });
            // Where fewest of those before it live; its own number decides a draw.
            let wanted = CpuId(facts.id.0 % count.max(1));
            let home = host
                .pcpus()
                .filter(|&pcpu| self.may(host, vcpu, pcpu))
                .min_by_key(|&pcpu| {
                    let lives = self.home.iter().filter(|home| **home == pcpu).count();
                    (lives, pcpu != wanted, pcpu)
                });
            self.home.push(home.unwrap_or(wanted));
        }
        // Everybody begins with a period's worth.
        let all: Vec<usize> = (0..self.table.len()).collect();
        self.refill(count, &all);
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        let v = vcpu.index();
        self.active[v] = true;
        match why {
            Why::SliceEnd | Why::Preempted => {
                self.table[v].on_stop();
                let home = self.home[v];
                let home = if self.may(host, vcpu, home) {
                    home
                } else {
                    self.shortest(host, vcpu)
                };
                self.insert(vcpu, home);
                // The pCPU that it leaves chooses anew anyway.
                if host.is_idle(home) && host.vcpu(vcpu).last_pcpu != Some(home) {
                    host.kick(home);
                }
            }
            Why::Start | Why::Woken(_) => {
                let wake = match why {
                    Why::Woken(Wake::Io) => credit::Wake::Io,
                    _ => credit::Wake::Other,
                };
                self.table[v].on_wake(wake, &self.settings);
                self.boosts += u64::from(self.table[v].boosted);
                let pcpu = self.choose(host, vcpu);
                self.insert(vcpu, pcpu);
                self.preempt(host, vcpu, pcpu);
            }
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let v = match self.steal(host, pcpu) {
            Some(v) => {
                self.steals += 1;
                Some(v)
            }
            None => match &self.cores {
                None => self.queues[pcpu.index()].head(&self.table, &self.settings),
                Some(cores) => cores.pick(host, pcpu, &self.queues[pcpu.index()], &self.table),
            },
        }?;
        let from = self.home[v];
        self.queues[from.index()].remove(v);
        self.home[v] = pcpu;
        Some(Pick {
            vcpu: Vcpu(v as u32),
            slice: Some(self.slice(v, pcpu)),
        })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId, ran: Ns, _: Ns) {
        self.active[vcpu.index()] = true;
        self.table[vcpu.index()].on_charge(ran, &self.settings);
    }

    fn halt(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        self.table[vcpu.index()].on_stop();
    }

    fn tick_period(&self) -> Option<Ns> {
        Some(TICK)
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        for pcpu in host.pcpus() {
            if let Some(vcpu) = host.on(pcpu) {
                self.table[vcpu.index()].on_tick(&self.settings);
            }
        }
    }

    fn slow_period(&self) -> Option<Ns> {
        Some(self.settings.refill_period)
    }

    fn slow(&mut self, host: &mut Host<'_>) {
        let active: Vec<usize> = (0..self.table.len()).filter(|&v| self.active[v]).collect();
        self.refill(host.pcpu_count(), &active);
        for queue in &mut self.queues {
            queue.resort(&self.table, &self.settings);
        }
        for vcpu in host.vcpus() {
            self.active[vcpu.index()] = host.vcpu(vcpu).state != State::Halted;
        }
        if let Some(cores) = &mut self.cores {
            cores.slow(host);
        }
        // Caps are open again.
        for pcpu in host.pcpus() {
            if host.is_idle(pcpu) && !self.queues[pcpu.index()].as_slice().is_empty() {
                host.kick(pcpu);
            }
        }
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        let class = |v: usize| self.table[v].priority(&self.settings);
        for (pcpu, queue) in host.pcpus().zip(&self.queues) {
            let queue = queue.as_slice();
            ensure(queue.iter().all(|&v| self.home[v] == pcpu), || {
                format!("one of {queue:?}, queued on pCPU {pcpu}, lives elsewhere")
            })?;
            ensure(queue.is_sorted_by(|&a, &b| class(a) >= class(b)), || {
                format!("the queue {queue:?} of pCPU {pcpu} is out of order (K2)")
            })?;
        }
        let queued = self.queues.iter().flat_map(RunQ::as_slice);
        ready_once(host, queued.map(|&v| Vcpu(v as u32)))?;
        // Where running burns credit, that and what is handed out is all there is (K5).
        if self.settings.charging != Charging::Exact {
            return Ok(());
        }
        let burned: Ns = host.vcpus().map(|vcpu| host.charged(vcpu)).sum();
        let (credit, given) = (self.credit(), self.given);
        ensure(credit == given - i128::from(burned.as_ns()), || {
            format!("credits are {credit}, of {given} handed out {burned} were burned")
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("boosts", self.boosts), ("steals", self.steals)]
    }
}
