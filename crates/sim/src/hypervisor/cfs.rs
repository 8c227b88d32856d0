// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CFS with wake-up preemption: "vanilla KVM" of the papers (C7..C11).
//!
//! Each pCPU has a queue ordered by virtual run time (C7). A slice is the
//! scheduling latency divided by weight among those that share the pCPU, but
//! never below the minimal granularity, so slices shrink with consolidation (C8).
//! A vCPU that wakes is placed a little before the others (the sleeper's credit,
//! C11) and preempts if it lags the running one by more than the wake-up
//! granularity (C9; the "scheduling delay" of C10).
//!
//! Left out: groups (a vCPU is an entity of its own, so the shares of two VMs of
//! unequal size are by vCPU and not by VM) and scheduling domains (one flat
//! domain; balancing by the number of queued vCPUs).

use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Wake;
use super::Why;
use super::ordered::Ordered;
use crate::ids::Vcpu;
use crate::machine::NORMAL_WEIGHT;

/// Settings of [`Cfs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfsSettings {
    /// Everybody on a pCPU runs once within this, while few share it. 24 ms in
    /// Linux with 8 or more CPUs; two VMs get slices of 12 ms, where the papers
    /// state 11.
    pub latency: Ns,
    /// No slice is shorter. 3 ms in Linux with 8 or more CPUs.
    pub min_granularity: Ns,
    /// How far behind the running vCPU a waking one has to be to preempt it. 4 ms
    /// in Linux with 8 or more CPUs.
    pub wakeup_granularity: Ns,
    /// Half of the latency as credit for a sleeper (`GENTLE_FAIR_SLEEPERS`).
    pub sleeper_credit: bool,
    /// How often pCPUs even out their queues. 20 ms; zero: never.
    pub balance_period: Ns,
}

impl Default for CfsSettings {
    fn default() -> Self {
        Self {
            latency: Ns::from_ms(24),
            min_granularity: Ns::from_ms(3),
            wakeup_granularity: Ns::from_ms(4),
            sleeper_credit: true,
            balance_period: Ns::from_ms(20),
        }
    }
}

impl CfsSettings {
    /// The latency with which two VMs get slices of this length; the granularities
    /// stay those of Linux.
    #[must_use]
    pub fn with_slice(slice: Ns) -> Self {
        Self {
            latency: slice * 2,
            ..Self::default()
        }
    }
}

/// CFS.
#[derive(Debug)]
pub struct Cfs {
    settings: CfsSettings,
    queues: Vec<RunQueue>,
    vcpus: Vec<Entity>,
}

#[derive(Debug, Default)]
struct RunQueue {
    /// By virtual run time; equal ones in order of arrival, as Linux' tree has
    /// them. By number it would be the same VM first on every pCPU: coscheduling by
    /// accident.
    queued: Ordered<(u64, u64, Vcpu)>,
    arrivals: u64,
    min_vruntime: u64,
    weight: u64,
    /// Who runs, since when in this slice.
    current: Option<(Vcpu, Time)>,
}

#[derive(Clone, Copy, Debug)]
struct Entity {
    vruntime: u64,
    weight: u64,
    queue: Option<CpuId>,
    /// Its number of arrival there.
    arrival: u64,
    /// Where its virtual run time is counted.
    home: CpuId,
}

impl Cfs {
    /// CFS with these settings.
    #[must_use]
    pub const fn new(settings: CfsSettings) -> Self {
        Self {
            settings,
            queues: Vec::new(),
            vcpus: Vec::new(),
        }
    }

    /// Virtual time of `real` time at a weight.
    fn virtual_time(real: Ns, weight: u64) -> u64 {
        real.scaled(u64::from(NORMAL_WEIGHT), weight.max(1)).as_ns()
    }

    /// The virtual run time of a vCPU as of now.
    fn vruntime(&self, host: &Host<'_>, vcpu: Vcpu) -> u64 {
        let entity = &self.vcpus[vcpu.index()];
        entity.vruntime + Self::virtual_time(host.uncharged(vcpu), entity.weight)
    }

    /// The slice of `vcpu` on a pCPU where it runs beside what is queued there.
    fn slice(&self, vcpu: Vcpu, pcpu: CpuId) -> Option<Ns> {
        let queue = &self.queues[pcpu.index()];
        let others = queue.queued.len() as u64;
        if others == 0 {
            return None;
        }
        let own = self.vcpus[vcpu.index()].weight;
        let period = self
            .settings
            .latency
            .max(self.settings.min_granularity * (others + 1));
        let slice = period.scaled(own, own + queue.weight);
        Some(slice.max(self.settings.min_granularity))
    }

    /// Where a waking vCPU goes: back, if that pCPU is idle or no other is.
    fn choose(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.vcpus[vcpu.index()].home;
        let free = |pcpu: CpuId| {
            host.is_idle(pcpu)
                && self.queues[pcpu.index()].queued.is_empty()
                && host.allows(vcpu, pcpu)
        };
        let count = host.pcpu_count();
        let all = || (0..count).map(|step| CpuId((home.0 + step) % count));
        // A whole core that is idle first, as select_idle_core().
        let core = |pcpu: &CpuId| host.pcpu(*pcpu).sibling.is_none_or(|s| host.is_idle(s));
        all()
            .find(|pcpu| free(*pcpu) && core(pcpu))
            .or_else(|| all().find(|pcpu| free(*pcpu)))
            .unwrap_or(home)
    }

    fn insert(&mut self, vcpu: Vcpu, pcpu: CpuId) {
        let entity = &mut self.vcpus[vcpu.index()];
        entity.queue = Some(pcpu);
        entity.home = pcpu;
        let queue = &mut self.queues[pcpu.index()];
        queue.arrivals += 1;
        entity.arrival = queue.arrivals;
        queue.queued.insert((entity.vruntime, entity.arrival, vcpu));
        queue.weight += entity.weight;
    }

    fn remove(&mut self, vcpu: Vcpu) {
        let entity = &mut self.vcpus[vcpu.index()];
        if let Some(pcpu) = entity.queue.take() {
            let queue = &mut self.queues[pcpu.index()];
            queue
                .queued
                .remove(&(entity.vruntime, entity.arrival, vcpu));
            queue.weight -= entity.weight;
        }
    }

    /// Takes a vCPU from one queue to another; its lead or lag goes with it.
    fn carry(&mut self, vcpu: Vcpu, to: CpuId) {
        let from = self.vcpus[vcpu.index()].home;
        let base = self.queues[from.index()].min_vruntime;
        let target = self.queues[to.index()].min_vruntime;
        let entity = &mut self.vcpus[vcpu.index()];
        entity.vruntime = (entity.vruntime + target).saturating_sub(base);
        entity.home = to;
    }

    fn update_min(&mut self, pcpu: CpuId) {
        let queue = &mut self.queues[pcpu.index()];
        let first = queue.queued.first().map(|(vruntime, ..)| *vruntime);
        let current = queue
            .current
            .map(|(vcpu, _)| self.vcpus[vcpu.index()].vruntime);
        if let Some(least) = first.into_iter().chain(current).min() {
            queue.min_vruntime = queue.min_vruntime.max(least);
        }
    }

    /// Somebody whom `to` may take, from the longest queue of more than `above`.
    fn busiest(&self, host: &Host<'_>, to: CpuId, above: usize) -> Option<Vcpu> {
        let mut best: Option<(usize, Vcpu)> = None;
        for (n, queue) in self.queues.iter().enumerate() {
            if n == to.index() || queue.queued.len() <= best.map_or(above, |(length, _)| length) {
                continue;
            }
            // The last one: it would wait longest there.
            let movable = queue
                .queued
                .iter()
                .rev()
                .find(|(.., v)| host.allows(*v, to));
            if let Some((.., vcpu)) = movable {
                best = Some((queue.queued.len(), *vcpu));
            }
        }
        best.map(|(_, vcpu)| vcpu)
    }

    fn balance(&mut self, host: &mut Host<'_>) {
        // No move makes it longer.
        let lengths = self.queues.iter().map(|queue| queue.queued.len());
        let longest = lengths.max().unwrap_or(0);
        for to in host.pcpus() {
            let mine = self.queues[to.index()].queued.len() + usize::from(!host.is_idle(to));
            if longest <= mine {
                continue;
            }
            // With whoever runs there, two more than here: one moves.
            if let Some(vcpu) = self.busiest(host, to, mine) {
                self.remove(vcpu);
                self.carry(vcpu, to);
                self.insert(vcpu, to);
                self.shorten(host, to);
                if host.is_idle(to) {
                    host.kick(to);
                }
            }
        }
    }

    /// Somebody more shares this pCPU: the running one's slice gets shorter.
    fn shorten(&self, host: &mut Host<'_>, pcpu: CpuId) {
        if let Some((current, since)) = self.queues[pcpu.index()].current
            && let Some(slice) = self.slice(current, pcpu)
        {
            host.set_slice_end(pcpu, Some((since + slice).max(host.now())));
        }
    }
}

impl Hypervisor for Cfs {
    fn name(&self) -> &'static str {
        "cfs"
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let count = host.pcpu_count();
        self.queues = (0..count).map(|_| RunQueue::default()).collect();
        self.vcpus = host
            .vcpus()
            .map(|vcpu| {
                let facts = host.vcpu(vcpu);
                Entity {
                    vruntime: 0,
                    weight: u64::from(facts.weight.max(1)),
                    queue: None,
                    arrival: 0,
                    home: facts
                        .allowed
                        .first()
                        .copied()
                        .unwrap_or(CpuId(facts.id.0 % count.max(1))),
                }
            })
            .collect();
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        match why {
            Why::SliceEnd | Why::Preempted => {
                let home = self.vcpus[vcpu.index()].home;
                self.queues[home.index()].current = None;
                self.insert(vcpu, home);
                self.update_min(home);
            }
            Why::Start | Why::Woken(Wake::Io | Wake::Ipi { .. } | Wake::Timer) => {
                let pcpu = self.choose(host, vcpu);
                if pcpu != self.vcpus[vcpu.index()].home {
                    self.carry(vcpu, pcpu);
                }
                let running = self.queues[pcpu.index()]
                    .current
                    .map(|(current, _)| current);
                let credit = if self.settings.sleeper_credit {
                    self.settings.latency / 2
                } else {
                    Ns::ZERO
                };
                let floor = self.queues[pcpu.index()]
                    .min_vruntime
                    .saturating_sub(if why == Why::Start { 0 } else { credit.as_ns() });
                let entity = &mut self.vcpus[vcpu.index()];
                entity.vruntime = entity.vruntime.max(floor);
                self.insert(vcpu, pcpu);
                match running {
                    None => host.kick(pcpu),
                    Some(current) => {
                        let ahead = self.vruntime(host, current);
                        let limit = Self::virtual_time(
                            self.settings.wakeup_granularity,
                            self.vcpus[vcpu.index()].weight,
                        );
                        if ahead > self.vcpus[vcpu.index()].vruntime + limit && why != Why::Start {
                            host.kick_remote(pcpu);
                        } else {
                            self.shorten(host, pcpu);
                        }
                    }
                }
            }
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        self.queues[pcpu.index()].current = None;
        if self.queues[pcpu.index()].queued.is_empty()
            && let Some(vcpu) = self.busiest(host, pcpu, 0)
        {
            self.remove(vcpu);
            self.carry(vcpu, pcpu);
            self.insert(vcpu, pcpu);
        }
        let (.., vcpu) = *self.queues[pcpu.index()].queued.first()?;
        self.remove(vcpu);
        self.queues[pcpu.index()].current = Some((vcpu, host.now()));
        self.update_min(pcpu);
        let slice = self.slice(vcpu, pcpu);
        Some(Pick { vcpu, slice })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, _waited: Ns) {
        let entity = &mut self.vcpus[vcpu.index()];
        entity.vruntime += Self::virtual_time(ran, entity.weight);
        self.update_min(pcpu);
    }

    fn halt(&mut self, _: &mut Host<'_>, _: Vcpu, pcpu: CpuId) {
        self.queues[pcpu.index()].current = None;
    }

    fn tick_period(&self) -> Option<Ns> {
        Some(self.settings.balance_period).filter(|period| *period > Ns::ZERO)
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        self.balance(host);
    }
}
