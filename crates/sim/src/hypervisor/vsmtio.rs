// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vSMT-IO (M1..M28): context retention with an adaptive timeout, unbalanced
//! symbiotic scheduling on the two hyperthreads of a core, workload adjuster. The
//! decisions are `policy::host::{ltcr, rass, monitor, adjuster}`.
//!
//! Core c has the hyperthreads 2c (for compute) and 2c + 1 (for I/O). IPC is work
//! per running time, which is what the sibling takes away (B7). Cycle accounts (M18) are
//! those of the tasks that have a profile; of vCPUs without one the partner is chosen by
//! fairness (M19). Two that go together are not faster for it here: what one takes from
//! the other is B7's, whoever they are.

use policy::host::adjuster;
use policy::host::ltcr;
use policy::host::ltcr::Ltcr;
use policy::host::monitor::Counters;
use policy::host::rass;
use policy::host::rass::Class;
use units::CpuId;
use units::Ns;

use super::Host;
use super::Hypervisor;
use super::Idle;
use super::Pick;
use super::Why;
use super::fair::Fair;
use crate::ids::Vcpu;
use crate::machine::State;

/// Settings of [`Vsmtio`]; each part can be switched off (Fig 3.6).
#[derive(Clone, Debug)]
pub struct VsmtioSettings {
    /// Context retention with algorithm 1. None: vCPUs block.
    pub ltcr: Option<ltcr::Settings>,
    /// Unbalanced scheduling. None: both hyperthreads take anybody.
    pub rass: Option<rass::Settings>,
    /// Adjuster. None: vCPUs stay on their core.
    pub adjuster: Option<adjuster::Settings>,
    /// A borrower is chosen by symbiosis among the few (M18, M19), as far as cycles are
    /// known. False: by fairness alone.
    pub symbiosis: bool,
    /// Slice under contention.
    pub slice: Ns,
    /// A compute-bound vCPU gives the I/O hyperthread that it was lent back as soon
    /// as somebody I/O-bound is ready there, as M16 says. If not, it is to CFS, which
    /// decides whatever is not said (M19), a vCPU like the others there: tables 3.6
    /// and 3.7 have it run for a third of the time while I/O-bound ones are ready for
    /// half of theirs.
    pub yields: bool,
    /// VMs that are control groups compete as such. Not stated; the authors' kernel
    /// takes whatever it picks in a pCPU's queue for a vCPU, which groups are not.
    pub groups: bool,
    /// How much less a waking vCPU must have had to preempt (as in CFS): 4 ms.
    pub wakeup_granularity: Ns,
    /// Periods of classification between two runs of the adjuster. Not stated. 10.
    pub adjust_every: u32,
}

impl Default for VsmtioSettings {
    fn default() -> Self {
        Self {
            ltcr: Some(ltcr::Settings::default()),
            rass: Some(rass::Settings::default()),
            adjuster: Some(adjuster::Settings::default()),
            symbiosis: true,
            slice: Ns::from_ms(11),
            yields: true,
            groups: true,
            wakeup_granularity: Ns::from_ms(4),
            adjust_every: 10,
        }
    }
}

/// vSMT-IO.
#[derive(Debug)]
pub struct Vsmtio {
    name: &'static str,
    settings: VsmtioSettings,
    fair: Fair,
    class: Vec<Class>,
    cores: Vec<Option<Ltcr>>,
    /// Counters of each vCPU at the beginning of the period.
    last: Vec<Seen>,
    /// By vCPU: its cycles in the last period in which any were measured.
    cycles: Vec<Option<rass::Cycles>>,
    periods: u32,
    swaps: u64,
    lent: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    retained: Ns,
    waits: u64,
    work: Ns,
    ran: Ns,
    cycles: rass::Cycles,
}

impl Vsmtio {
    /// With these settings, called `name` in results.
    #[must_use]
    pub fn new(name: &'static str, settings: VsmtioSettings) -> Self {
        Self {
            name,
            fair: Fair::new(settings.slice),
            settings,
            class: Vec::new(),
            cores: Vec::new(),
            last: Vec::new(),
            cycles: Vec::new(),
            periods: 0,
            swaps: 0,
            lent: 0,
        }
    }

    fn core(pcpu: CpuId) -> usize {
        pcpu.index() / 2
    }

    fn is_io_thread(pcpu: CpuId) -> bool {
        pcpu.0 % 2 == 1
    }

    /// The hyperthread of its core that a vCPU's class belongs on (M15).
    fn place(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.fair.home(vcpu);
        if self.settings.rass.is_none() {
            let sibling = host.pcpu(home).sibling;
            let other =
                sibling.filter(|&s| !host.is_idle(home) && host.is_idle(s) && host.allows(vcpu, s));
            return other.unwrap_or(home);
        }
        let first = CpuId(home.0 & !1);
        let wanted = match self.class[vcpu.index()] {
            Class::Cpu => first,
            Class::Io => CpuId(first.0 | 1),
        };
        if wanted.0 < host.pcpu_count() && host.allows(vcpu, wanted) {
            wanted
        } else {
            home
        }
    }

    /// Members of a core: those whose home is one of its hyperthreads.
    fn members(&self, host: &Host<'_>, core: usize) -> Vec<Vcpu> {
        host.vcpus()
            .filter(|&v| Self::core(self.fair.home(v)) == core)
            .collect()
    }

    fn counters_of(&self, host: &Host<'_>, vcpu: Vcpu) -> Counters {
        let facts = host.vcpu(vcpu);
        let last = self.last[vcpu.index()];
        let retained = facts.waited_on_pcpu - last.retained;
        Counters {
            retained,
            retentions: facts.waits.saturating_sub(last.waits),
            // Work is in nanoseconds at full speed: instructions per cycle.
            instructions: (facts.work - last.work).as_ns(),
            cycles: (facts.ran - last.ran - retained).as_ns(),
            ..Counters::default()
        }
    }

    fn period(&self) -> Ns {
        self.settings
            .ltcr
            .as_ref()
            .map_or(Ns::from_ms(100), |ltcr| ltcr.period)
    }

    /// M14 for one core.
    fn classify(&mut self, host: &Host<'_>, core: usize, rass: &rass::Settings) {
        let members = self.members(host, core);
        let vcpus: Vec<rass::Vcpu> = members
            .iter()
            .map(|&v| rass::Vcpu {
                rate: self.counters_of(host, v).retention_rate(self.period()),
                weight: host.vcpu(v).weight,
            })
            .collect();
        for (vcpu, class) in members.into_iter().zip(rass::classify(&vcpus, rass)) {
            self.class[vcpu.index()] = class;
        }
    }

    /// M23: two vCPUs change cores.
    fn adjust(&mut self, host: &mut Host<'_>, settings: &adjuster::Settings) {
        let cores: Vec<Vec<adjuster::Vcpu>> = (0..self.cores.len())
            .map(|core| {
                let members = self.members(host, core).into_iter();
                let rate = |v| self.counters_of(host, v).retention_rate(self.period());
                members
                    .map(|v| adjuster::Vcpu {
                        vcpu: v.index(),
                        rate: rate(v),
                    })
                    .collect()
            })
            .collect();
        let Some(swap) = adjuster::adjust(&cores, settings) else {
            return;
        };
        let (a, b) = (Vcpu(swap.a.1 as u32), Vcpu(swap.b.1 as u32));
        let (home_a, home_b) = (self.fair.home(a), self.fair.home(b));
        let fits = host.allows(a, home_b) && host.allows(b, home_a);
        let still = |v| host.where_is(v).is_none();
        // One that runs moves when it stops; until then nothing is swapped.
        if fits && still(a) && still(b) {
            self.fair.carry(host, a, home_b);
            self.fair.carry(host, b, home_a);
            self.swaps += 1;
            for pcpu in [home_a, home_b] {
                if host.is_idle(pcpu) {
                    host.kick(pcpu);
                }
            }
        }
    }

    /// Somebody of the other hyperthread for this one, which has nobody.
    fn borrow(&self, host: &Host<'_>, pcpu: CpuId) -> Option<Vcpu> {
        let sibling = host.pcpu(pcpu).sibling?;
        let may = |v: &Vcpu| host.allows(*v, pcpu);
        let candidates = self.settings.rass.as_ref().map_or(1, |r| r.candidates);
        let ready: Vec<(usize, Option<rass::Cycles>)> = self
            .fair
            .waiting(sibling)
            .filter(may)
            .map(|v| (v.index(), self.cycles[v.index()]))
            .collect();
        // M18 is about who computes beside whom: on the I/O hyperthread.
        let by_symbiosis = self.settings.symbiosis && Self::is_io_thread(pcpu);
        let running = host.on(sibling).filter(|_| by_symbiosis);
        let running = running.and_then(|v| self.cycles[v.index()]);
        rass::partner(running.as_ref(), &ready, candidates).map(|v| Vcpu(v as u32))
    }

    /// M18: what each vCPU's cycles went into in the period that ends.
    fn account_cycles(&mut self, host: &Host<'_>) {
        for vcpu in host.vcpus() {
            let (now, last) = (host.vcpu(vcpu).cycles, self.last[vcpu.index()].cycles);
            // A window that opens begins the counters anew.
            let more = |now: u64, last: u64| now.checked_sub(last).unwrap_or(now);
            let cycles = rass::Cycles {
                total: more(now.total, last.total),
                base: more(now.base, last.base),
                miss: more(now.miss, last.miss),
            };
            if cycles.total > 0 {
                self.cycles[vcpu.index()] = Some(cycles);
            }
        }
    }
}

impl Hypervisor for Vsmtio {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        self.fair.start(host, self.settings.groups);
        let vcpus = host.vcpus().count();
        self.class = vec![Class::Cpu; vcpus];
        self.last = vec![Seen::default(); vcpus];
        self.cycles = vec![None; vcpus];
        let cores = host.pcpu_count().div_ceil(2) as usize;
        self.cores = vec![self.settings.ltcr.as_ref().map(Ltcr::new); cores];
        if let Some(rass) = self.settings.rass.clone() {
            for core in 0..cores {
                self.classify(host, core, &rass);
            }
        }
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        let again = matches!(why, Why::SliceEnd | Why::Preempted);
        let home = self.fair.home(vcpu);
        // A borrower that need not yield goes on competing there until the next period.
        let lasting = self.settings.rass.is_some() && !self.settings.yields;
        let stays = again && lasting && Self::is_io_thread(home);
        let pcpu = if stays { home } else { self.place(host, vcpu) };
        self.fair.carry(host, vcpu, pcpu);
        if let Why::Start | Why::Woken(_) = why {
            self.fair.wake(host, vcpu);
        } else {
            self.fair.back(host, vcpu);
        }
        let left = host.vcpu(vcpu).last_pcpu.filter(|_| again);
        let Some(running) = host.on(pcpu) else {
            // The pCPU that it leaves chooses anew anyway.
            if left != Some(pcpu) {
                host.kick(pcpu);
            }
            return;
        };
        // M16: a borrower gives way at once.
        let lent = self.settings.yields
            && Self::is_io_thread(pcpu)
            && self.settings.rass.is_some()
            && self.class[running.index()] == Class::Cpu
            && self.class[vcpu.index()] == Class::Io;
        // Others by CFS's rule (M19), whether they run or retain: that counts (M3).
        let granularity = self.settings.wakeup_granularity;
        let behind = matches!(why, Why::Woken(_)) && self.fair.preempts(host, vcpu, granularity);
        if lent || behind {
            host.kick_remote(pcpu);
        } else if let Some(idle) = host
            .pcpu(pcpu)
            .sibling
            .filter(|&s| host.is_idle(s) && Some(s) != left && host.allows(vcpu, s))
        {
            host.kick(idle);
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        let own = self.fair.waiting(pcpu).next();
        let vcpu = own.or_else(|| self.borrow(host, pcpu))?;
        self.lent += u64::from(own.is_none());
        self.fair.take(host, vcpu, pcpu);
        let slice = self.fair.turn();
        Some(Pick { vcpu, slice })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, _: Ns) {
        // Retention is charged (M3).
        self.fair.charge(vcpu, pcpu, ran);
    }

    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        self.fair.halt(host, vcpu);
    }

    fn tick_period(&self) -> Option<Ns> {
        self.fair.tick_period()
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        self.fair.tick(host);
    }

    fn idle(&mut self, _: &mut Host<'_>, _: Vcpu, pcpu: CpuId) -> Idle {
        match &self.cores[Self::core(pcpu)] {
            Some(ltcr) => Idle::Retain(Some(ltcr.effective())),
            None => Idle::Halt,
        }
    }

    fn slow_period(&self) -> Option<Ns> {
        Some(self.period())
    }

    fn slow(&mut self, host: &mut Host<'_>) {
        self.periods += 1;
        self.account_cycles(host);
        for core in 0..self.cores.len() {
            let mut progress = vec![None; self.class.len()];
            for vcpu in self.members(host, core) {
                let counters = self.counters_of(host, vcpu);
                progress[vcpu.index()] = counters.progress(self.class[vcpu.index()], self.period());
            }
            if let Some(ltcr) = &mut self.cores[core] {
                ltcr.on_period(&progress);
            }
            if let Some(rass) = self.settings.rass.clone() {
                self.classify(host, core, &rass);
            }
        }
        if let Some(settings) = self.settings.adjuster.clone()
            && self
                .periods
                .is_multiple_of(self.settings.adjust_every.max(1))
        {
            self.adjust(host, &settings);
        }
        for vcpu in host.vcpus() {
            let facts = host.vcpu(vcpu);
            self.last[vcpu.index()] = Seen {
                retained: facts.waited_on_pcpu,
                waits: facts.waits,
                work: facts.work,
                ran: facts.ran,
                cycles: facts.cycles,
            };
            // A new class may mean another hyperthread.
            if facts.state == State::Queued {
                let place = self.place(host, vcpu);
                if place != self.fair.home(vcpu) {
                    self.fair.carry(host, vcpu, place);
                    if host.is_idle(place) {
                        host.kick(place);
                    }
                }
            }
        }
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.fair.check(host)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("swaps", self.swaps), ("lent", self.lent)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Requests;
    use crate::hypervisor::tests::staged;

    fn cycles(base: u64, miss: u64) -> Option<rass::Cycles> {
        let total = 1000;
        Some(rass::Cycles { total, base, miss })
    }

    /// M18, M19: vCPU 0 computes on the first hyperthread and issues all the time; vCPUs 1
    /// to 4 wait for it, in this order by fairness, and the other hyperthread is idle.
    /// vCPU 2 waits for memory: the best of the first three. vCPU 4 is as good, but not
    /// among the few. Without symbiosis, without cycles, or where it is the first
    /// hyperthread that borrows, it is the first.
    #[test]
    fn the_most_symbiotic_of_a_few_is_borrowed() {
        let accounts = [
            cycles(1000, 0),
            cycles(800, 200),
            cycles(100, 900),
            cycles(600, 400),
            cycles(0, 1000),
        ];
        let borrowed = |symbiosis: bool, accounts: &[Option<rass::Cycles>], io_thread: bool| {
            let (busy, idle) = match io_thread {
                true => (CpuId(0), CpuId(1)),
                false => (CpuId(1), CpuId(0)),
            };
            let mut machine = staged::machine(2, 5);
            machine.pcpus[0].sibling = Some(CpuId(1));
            machine.pcpus[1].sibling = Some(CpuId(0));
            let settings = VsmtioSettings {
                symbiosis,
                ..VsmtioSettings::default()
            };
            let mut policy = Vsmtio::new("vsmtio", settings);
            let mut requests = Requests::default();
            policy.start(&mut staged::host(&machine, &mut requests, 0));
            for n in 0..5 {
                staged::wait(&mut machine, Vcpu(n), 0);
                let host = staged::host(&machine, &mut requests, 0);
                policy.fair.carry(&host, Vcpu(n), busy);
                policy.fair.wake(&host, Vcpu(n));
            }
            let host = staged::host(&machine, &mut requests, 0);
            policy.fair.take(&host, Vcpu(0), busy);
            staged::run(&mut machine, Vcpu(0), busy, 0);
            policy.cycles = accounts.to_vec();
            policy.borrow(&staged::host(&machine, &mut requests, 1), idle)
        };
        assert_eq!(borrowed(true, &accounts, true), Some(Vcpu(2)));
        assert_eq!(borrowed(false, &accounts, true), Some(Vcpu(1)));
        assert_eq!(borrowed(true, &[None; 5], true), Some(Vcpu(1)));
        assert_eq!(borrowed(true, &accounts, false), Some(Vcpu(1)));
    }

    /// What was measured counts until something newer is; a window that opens is no
    /// period of its own.
    #[test]
    fn cycles_are_those_of_the_last_period_with_any() {
        let mut machine = staged::machine(2, 1);
        let mut policy = Vsmtio::new("vsmtio", VsmtioSettings::default());
        let mut requests = Requests::default();
        policy.start(&mut staged::host(&machine, &mut requests, 0));
        let steps = [
            ((0, 0), None),
            ((1000, 600), Some((1000, 600))),
            ((1000, 600), Some((1000, 600))),
            ((1500, 700), Some((500, 100))),
            ((200, 50), Some((200, 50))),
        ];
        for (n, ((total, base), expected)) in steps.into_iter().enumerate() {
            machine.vcpus[0].cycles = rass::Cycles {
                total,
                base,
                miss: 0,
            };
            let mut host = staged::host(&machine, &mut requests, n as u64 * 100);
            policy.slow(&mut host);
            let found = policy.cycles[0].map(|c| (c.total, c.base));
            assert_eq!(found, expected, "period {n}");
        }
    }
}
