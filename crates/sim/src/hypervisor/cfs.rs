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
//! VMs that are control groups ([`crate::machine::VmFacts::shares`]) compete as such,
//! and turns end at a tick then, as in Linux; without them when a slice is over. Left
//! out: scheduling domains (one flat domain; balancing by the number of queued vCPUs).

use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Wake;
use super::Why;
use super::tree::Tree;
use super::tree::Turns;
use crate::ids::Vcpu;

/// The host's tick where turns end at one: 250 Hz, as distributions build Linux.
pub(super) const TICK: Ns = Ns::from_ms(4);

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
    tree: Tree,
    /// By pCPU: since when whoever runs there has had it.
    since: Vec<Time>,
    ticks: u64,
}

impl Cfs {
    /// CFS with these settings.
    #[must_use]
    pub const fn new(settings: CfsSettings) -> Self {
        let turns = Turns {
            latency: settings.latency,
            min_granularity: settings.min_granularity,
        };
        Self {
            settings,
            tree: Tree::new(turns),
            since: Vec::new(),
            ticks: 0,
        }
    }

    /// Where a waking vCPU goes: back, if that pCPU is idle or no other is.
    fn choose(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.tree.home(vcpu);
        let free = |pcpu: &CpuId| host.is_idle(*pcpu) && self.tree.len(*pcpu) == 0;
        // A whole core that is idle first, as select_idle_core().
        let core = |pcpu: &CpuId| host.pcpu(*pcpu).sibling.is_none_or(|s| host.is_idle(s));
        let count = host.pcpu_count();
        let allowed = &host.vcpu(vcpu).allowed;
        let chosen = if allowed.is_empty() {
            let all = || (0..count).map(|step| CpuId((home.0 + step) % count));
            all()
                .find(|pcpu| free(pcpu) && core(pcpu))
                .or_else(|| all().find(free))
        } else {
            // In the same order, without a look at all the others.
            let step = |pcpu: &CpuId| (pcpu.0 + count - home.0) % count;
            let all = allowed.iter().copied().filter(free);
            all.min_by_key(|pcpu| (!core(pcpu), step(pcpu)))
        };
        chosen.unwrap_or(home)
    }

    /// Somebody whom `to` may take, from the longest queue of more than `above`.
    fn busiest(&self, host: &Host<'_>, to: CpuId, above: usize) -> Option<Vcpu> {
        let mut best: Option<(usize, Vcpu)> = None;
        for from in host.pcpus().filter(|&from| from != to) {
            let length = self.tree.len(from);
            if length <= best.map_or(above, |(length, _)| length) {
                continue;
            }
            // The last one: it would wait longest there.
            let mut movable = self.tree.waiting(from).rev();
            if let Some(vcpu) = movable.find(|&v| host.allows(v, to)) {
                best = Some((length, vcpu));
            }
        }
        best.map(|(_, vcpu)| vcpu)
    }

    fn balance(&mut self, host: &mut Host<'_>) {
        // No move makes it longer.
        let lengths = host.pcpus().map(|pcpu| self.tree.len(pcpu));
        let longest = lengths.max().unwrap_or(0);
        for to in host.pcpus() {
            let mine = self.tree.len(to) + usize::from(!host.is_idle(to));
            if longest <= mine {
                continue;
            }
            // With whoever runs there, two more than here: one moves.
            if let Some(vcpu) = self.busiest(host, to, mine) {
                self.tree.carry(host, vcpu, to);
                self.shorten(host, to);
                if host.is_idle(to) {
                    host.kick(to);
                }
            }
        }
    }

    /// Somebody more shares this pCPU: the running one's slice gets shorter.
    fn shorten(&self, host: &mut Host<'_>, pcpu: CpuId) {
        if !self.tree.has_groups()
            && let Some(slice) = self.tree.slice(pcpu)
        {
            let end = self.since[pcpu.index()] + slice;
            host.set_slice_end(pcpu, Some(end.max(host.now())));
        }
    }
}

impl Hypervisor for Cfs {
    fn name(&self) -> &'static str {
        "cfs"
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let count = host.pcpu_count();
        let home = |vcpu| {
            let facts = host.vcpu(vcpu);
            let first = facts.allowed.first().copied();
            first.unwrap_or(CpuId(facts.id.0 % count.max(1)))
        };
        let homes = host.vcpus().map(home).collect();
        self.tree.start(host, homes);
        self.since = vec![host.now(); count as usize];
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        match why {
            Why::SliceEnd | Why::Preempted => self.tree.back(host, vcpu),
            Why::Start | Why::Woken(Wake::Io | Wake::Ipi { .. } | Wake::Timer) => {
                let pcpu = self.choose(host, vcpu);
                self.tree.carry(host, vcpu, pcpu);
                let slept = self.settings.sleeper_credit && why != Why::Start;
                let credit = self.settings.latency / 2 * u64::from(slept);
                // As Linux; with VMs that are no groups it makes 13.1 worse, see
                // docs/reproduction.md.
                if self.tree.has_groups() {
                    self.tree.count(host, pcpu);
                }
                self.tree.wake(host, vcpu, credit);
                let granularity = self.settings.wakeup_granularity;
                if host.is_idle(pcpu) {
                    host.kick(pcpu);
                } else if why != Why::Start && self.tree.preempts(host, vcpu, granularity) {
                    host.kick_remote(pcpu);
                } else {
                    self.shorten(host, pcpu);
                }
            }
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        if self.tree.len(pcpu) == 0
            && let Some(vcpu) = self.busiest(host, pcpu, 0)
        {
            self.tree.carry(host, vcpu, pcpu);
        }
        let vcpu = self.tree.waiting(pcpu).next()?;
        self.tree.take(host, vcpu, pcpu);
        self.since[pcpu.index()] = host.now();
        let timed = !self.tree.has_groups();
        let slice = self.tree.slice(pcpu).filter(|_| timed);
        Some(Pick { vcpu, slice })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, _waited: Ns) {
        self.tree.charge(vcpu, pcpu, ran);
    }

    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        self.tree.halt(host, vcpu);
    }

    fn is_local(&self) -> bool {
        // What groups weigh is brought up to date for all of them at once.
        !self.tree.has_groups()
    }

    fn tick_period(&self) -> Option<Ns> {
        let balance = self.settings.balance_period;
        let balance = (balance > Ns::ZERO).then_some(balance);
        if self.tree.has_groups() {
            Some(TICK)
        } else {
            balance
        }
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        self.ticks += 1;
        if !self.tree.has_groups() {
            self.balance(host);
            return;
        }
        self.tree.tick(host);
        let every = self.settings.balance_period.as_ns() / TICK.as_ns();
        if every > 0 && self.ticks.is_multiple_of(every) {
            self.balance(host);
        }
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.tree.check(host)
    }
}
