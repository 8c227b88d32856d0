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
    /// Slices end at the next multiple of this, at which all pCPUs have their tick
    /// (`check_preempt_tick()`); zero: when they are over. Zero. Where VMs are control
    /// groups, turns end at a tick anyway: every 4 ms, if this is zero.
    pub tick: Ns,
    /// How often pCPUs even out their queues. 20 ms; zero: never.
    pub balance_period: Ns,
    /// How many pCPUs a vCPU that wakes and is pinned nowhere looks at, if its own is busy
    /// and no core is idle as a whole (`select_idle_cpu()`). All; Linux: four at least.
    pub idle_scan: u32,
    /// A pCPU that has nobody takes from the longest queue if it is idle for so long on
    /// average (`newidle_balance()`). Always; Linux says 500 us (`sched_migration_cost`).
    pub newidle_after: Ns,
}

impl Default for CfsSettings {
    fn default() -> Self {
        Self {
            latency: Ns::from_ms(24),
            min_granularity: Ns::from_ms(3),
            wakeup_granularity: Ns::from_ms(4),
            sleeper_credit: true,
            tick: Ns::ZERO,
            balance_period: Ns::from_ms(20),
            idle_scan: u32::MAX,
            newidle_after: Ns::ZERO,
        }
    }
}

impl CfsSettings {
    /// The tick at which the turns of control groups end.
    fn turn_tick(&self) -> Ns {
        match self.tick {
            Ns::ZERO => TICK,
            tick => tick,
        }
    }

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
    idle: Vec<Idleness>,
    ticks: u64,
}

/// How a pCPU is idle (`rq->idle_stamp`, `rq->avg_idle`).
#[derive(Clone, Copy, Debug)]
struct Idleness {
    since: Option<Time>,
    mean: Ns,
}

impl Idleness {
    /// It has somebody now. The mean counts the last period for an eighth, as
    /// `update_avg()`, and is never more than `most`.
    fn end(&mut self, now: Time, most: Ns) {
        if let Some(since) = self.since.take() {
            self.mean = ((self.mean * 7 + now.since(since)) / 8).min(most);
        }
    }
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
            idle: Vec::new(),
            ticks: 0,
        }
    }

    /// Where a waking vCPU goes: back, if that pCPU is idle or no other is.
    fn choose(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.tree.home(vcpu);
        let free = |pcpu: &CpuId| host.is_idle(*pcpu) && self.tree.len(*pcpu) == 0;
        // Then a whole core that is idle first, as select_idle_core().
        let core = |pcpu: &CpuId| host.pcpu(*pcpu).sibling.is_none_or(|s| host.is_idle(s));
        if free(&home) {
            return home;
        }
        let count = host.pcpu_count();
        let allowed = &host.vcpu(vcpu).allowed;
        let chosen = if allowed.is_empty() {
            let all = || (0..count).map(|step| CpuId((home.0 + step) % count));
            let few = || all().take(self.settings.idle_scan.saturating_add(1) as usize);
            all()
                .find(|pcpu| free(pcpu) && core(pcpu))
                .or_else(|| few().find(free))
                .or_else(|| host.pcpu(home).sibling.filter(free))
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
            let end = self.end(self.since[pcpu.index()] + slice);
            host.set_slice_end(pcpu, Some(end.max(host.now())));
        }
    }

    /// When a slice that is over at `end` ends.
    fn end(&self, end: Time) -> Time {
        match self.settings.tick.as_ns() {
            0 => end,
            tick => Time(end.as_ns().next_multiple_of(tick)),
        }
    }
}

/// All pCPUs, one hyperthread of each core before the others: where new threads go while
/// there are idle cores (`find_idlest_group()`, `find_idlest_cpu()`).
fn by_core(host: &Host<'_>) -> Vec<CpuId> {
    let mut all: Vec<CpuId> = host.pcpus().collect();
    all.sort_by_key(|&pcpu| host.pcpu(pcpu).sibling.is_some_and(|first| first < pcpu));
    all
}

impl Hypervisor for Cfs {
    fn name(&self) -> &'static str {
        "cfs"
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let pcpus = by_core(host);
        let count = pcpus.len();
        let home = |vcpu| {
            let facts = host.vcpu(vcpu);
            let first = facts.allowed.first().copied();
            first.unwrap_or_else(|| pcpus[facts.id.index() % count])
        };
        let homes = host.vcpus().map(home).collect();
        self.tree.start(host, homes, true);
        self.since = vec![host.now(); count];
        let idleness = Idleness {
            since: None,
            mean: self.settings.newidle_after,
        };
        self.idle = vec![idleness; count];
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
        let after = self.settings.newidle_after;
        if self.tree.len(pcpu) == 0
            && self.idle[pcpu.index()].mean >= after
            && let Some(vcpu) = self.busiest(host, pcpu, 0)
        {
            self.tree.carry(host, vcpu, pcpu);
        }
        let idle = &mut self.idle[pcpu.index()];
        let Some(vcpu) = self.tree.waiting(pcpu).next() else {
            idle.since.get_or_insert(host.now());
            return None;
        };
        idle.end(host.now(), after * 2);
        self.tree.take(host, vcpu, pcpu);
        self.since[pcpu.index()] = host.now();
        let timed = !self.tree.has_groups();
        let slice = self.tree.slice(pcpu).filter(|_| timed);
        let slice = slice.map(|slice| self.end(host.now() + slice).since(host.now()));
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
            Some(self.settings.turn_tick())
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
        let every = self.settings.balance_period.as_ns() / self.settings.turn_tick().as_ns();
        if self.settings.balance_period > Ns::ZERO && self.ticks.is_multiple_of(every.max(1)) {
            self.balance(host);
        }
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.tree.check(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Requests;
    use crate::hypervisor::tests::staged;
    use crate::machine::Machine;
    use crate::machine::NORMAL_WEIGHT;

    /// Eight pCPUs, and a VM of nine vCPUs.
    fn eight() -> Machine {
        let mut machine = staged::machine(8, 0);
        machine.add_vm("vm", NORMAL_WEIGHT, &vec![Vec::new(); 9]);
        machine
    }

    /// The same in four cores.
    fn four_cores() -> Machine {
        let mut machine = eight();
        for pcpu in 0..8 {
            machine.pcpus[pcpu as usize].sibling = Some(CpuId(pcpu ^ 1));
        }
        machine
    }

    /// vCPU n on pCPU n but for those of `idle`; vCPU 8 wakes at pCPU 0.
    fn wakes_to(settings: CfsSettings, idle: &[u32]) -> u32 {
        let mut machine = four_cores();
        for pcpu in 0..8 {
            if !idle.contains(&pcpu) {
                staged::run(&mut machine, Vcpu(pcpu), CpuId(pcpu), 0);
            }
        }
        let mut requests = Requests::default();
        let mut host = staged::host(&machine, &mut requests, 0);
        let mut cfs = Cfs::new(settings);
        cfs.start(&mut host);
        cfs.choose(&host, Vcpu(8)).0
    }

    /// Four cores and nine vCPUs: cores that have nobody first, then their other
    /// hyperthreads, then again. Without hyperthreads vCPU n begins on pCPU n.
    #[test]
    fn new_threads_go_to_cores_that_have_nobody() {
        for (machine, homes) in [
            (four_cores(), [0, 2, 4, 6, 1, 3, 5, 7, 0]),
            (eight(), [0, 1, 2, 3, 4, 5, 6, 7, 0]),
        ] {
            let mut requests = Requests::default();
            let mut host = staged::host(&machine, &mut requests, 0);
            let mut cfs = Cfs::new(CfsSettings::default());
            cfs.start(&mut host);
            let found: Vec<u32> = (0..9).map(|v| cfs.tree.home(Vcpu(v)).0).collect();
            assert_eq!(found, homes);
        }
    }

    /// `select_idle_sibling()`: its own pCPU, a whole core anywhere, one of the next few,
    /// the other hyperthread of its own, or back.
    #[test]
    fn a_vcpu_that_wakes_looks_at_a_few_pcpus() {
        let few = CfsSettings {
            idle_scan: 3,
            ..CfsSettings::default()
        };
        for (idle, few_goes, all_goes) in [
            (&[0, 2, 3][..], 0, 0),
            (&[1, 6, 7], 6, 6),
            (&[3, 5], 3, 3),
            (&[5, 6], 0, 5),
            (&[1, 4], 1, 1),
            (&[], 0, 0),
        ] {
            assert_eq!(wakes_to(few, idle), few_goes, "{idle:?}");
            assert_eq!(wakes_to(CfsSettings::default(), idle), all_goes, "{idle:?}");
        }
    }

    /// vCPU 0 runs on pCPU 0, where vCPU 1 waits; pCPU 1 has nobody.
    fn steals(settings: CfsSettings, idle_for: &[u64]) -> bool {
        let mut machine: Machine = staged::machine(2, 2);
        let mut requests = Requests::default();
        let mut cfs = Cfs::new(settings);
        cfs.start(&mut staged::host(&machine, &mut requests, 0));
        let mut now = 0;
        for ms in idle_for {
            // pCPU 1 has vCPU 1 for no time, and then nobody.
            for (at, wants) in [(now, false), (now + ms, true)] {
                let mut host = staged::host(&machine, &mut requests, at);
                if wants {
                    cfs.tree.carry(&host, Vcpu(1), CpuId(1));
                    cfs.tree.wake(&host, Vcpu(1), Ns::ZERO);
                }
                assert_eq!(cfs.pick(&mut host, CpuId(1)).is_some(), wants);
                if wants {
                    cfs.tree.halt(&host, Vcpu(1));
                }
            }
            now += ms;
        }
        for vcpu in [Vcpu(0), Vcpu(1)] {
            staged::wait(&mut machine, vcpu, now);
            let host = staged::host(&machine, &mut requests, now);
            cfs.tree.carry(&host, vcpu, CpuId(0));
            cfs.tree.wake(&host, vcpu, Ns::ZERO);
        }
        let mut host = staged::host(&machine, &mut requests, now);
        cfs.pick(&mut host, CpuId(0));
        cfs.pick(&mut host, CpuId(1)).is_some()
    }

    /// `newidle_balance()`: a pCPU takes from others while it is idle for 8 ms on average,
    /// to begin with; of 8, 1 and 8 ms the mean is 8, 7.125 and 7.23 ms, and 2 s count as
    /// twice the 8 ms.
    #[test]
    fn a_pcpu_that_is_never_idle_for_long_takes_from_nobody() {
        let after = CfsSettings {
            newidle_after: Ns::from_ms(8),
            ..CfsSettings::default()
        };
        for (periods, takes) in [
            (&[][..], true),
            (&[8], true),
            (&[8, 1], false),
            (&[8, 1, 8], false),
            (&[8, 1, 8, 2000], true),
            (&[1, 2000, 1, 1, 1, 1, 1, 1], false),
        ] {
            assert_eq!(steals(after, periods), takes, "{periods:?}");
            assert!(steals(CfsSettings::default(), periods), "{periods:?}");
        }
    }
}
