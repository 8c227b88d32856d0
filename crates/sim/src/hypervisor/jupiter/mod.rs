// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JUPITER (J1..J18) on balance scheduling. The decisions are
//! `policy::host::jupiter`; `period` is what happens every 100 ms.
//!
//! A vCPU has a slice per period and a rescheduling latency. How those are enforced is
//! not said. With budgets, those with slice left come before those without, which run
//! only if nobody else wants the pCPU; a vCPU that has waited as long as its latency,
//! with slice left, is next, and preempts whoever has a longer latency or no slice left.
//! By weight, CFS decides: a slice is a weight there, and a latency stands in the place
//! of the wake-up granularity, of which Linux has one for all (J3).

mod period;

use policy::host::cosched::balance;
use policy::host::cosched::bucket::Bucket;
use policy::host::jupiter::PERIOD;
use policy::host::jupiter::dasl;
use policy::host::jupiter::dats;
use policy::host::jupiter::disable;
use policy::host::jupiter::elb;
use policy::host::jupiter::rcr;
use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
use super::fair::Fair;
use super::fair::Siblings;
use crate::ids::Vcpu;
use crate::machine::State;

/// Settings of [`Jupiter`]; each part can be switched off (Fig 4.13).
#[derive(Clone, Debug)]
pub struct JupiterSettings {
    /// Slices follow demand (J7).
    pub dats: Option<dats::Settings>,
    /// Latencies follow progress (J10).
    pub dasl: Option<dasl::Settings>,
    /// Conflicts are resolved (J12, J13).
    pub rcr: Option<rcr::Settings>,
    /// VMs lend and borrow (J16).
    pub elb: Option<elb::Settings>,
    /// The simple leaky bucket (O6): a vCPU keeps up to so much unused slice for
    /// later periods. Not a part of JUPITER, whose loans take its place.
    pub bucket: Option<Ns>,
    /// It gets out of the way when it cannot predict (J17).
    pub disable: Option<disable::Settings>,
    /// Longest time without a new decision.
    pub slice: Ns,
    /// Wake-up preemption while nothing is enforced, as in CFS: 4 ms.
    pub wakeup_granularity: Ns,
    /// Slices are weights and latencies wake-up granularities of CFS (J3), not budgets
    /// and deadlines. Open. False.
    pub by_weight: bool,
    /// A vCPU may go to an idle pCPU at home to siblings that all sleep: not stacked
    /// (J15) are those that want to run. Open: balance scheduling, on which it stands,
    /// keeps every sibling apart. Whether slices are enforced or not (J17). False.
    pub stacks_halted: bool,
}

impl Default for JupiterSettings {
    fn default() -> Self {
        Self {
            dats: Some(dats::Settings::default()),
            dasl: Some(dasl::Settings::default()),
            rcr: Some(rcr::Settings::default()),
            elb: Some(elb::Settings::default()),
            bucket: None,
            disable: Some(disable::Settings::default()),
            slice: Ns::from_ms(11),
            wakeup_granularity: Ns::from_ms(4),
            by_weight: false,
            stacks_halted: false,
        }
    }
}

/// One vCPU in the present period.
#[derive(Clone, Debug)]
struct Entity {
    weight: dats::Weight,
    latency: Ns,
    /// Its slice of this period and what it has used of it.
    slice: Ns,
    used: Ns,
    /// Its slice without what it has saved, and what it has saved.
    base: Ns,
    bucket: Option<Bucket>,
    /// As predicted for this period: what it used in the last one.
    predicted: Ns,
    depleted: bool,
    /// Has waited as long as its latency.
    due: bool,
    woken_by: Vec<Vcpu>,
    /// Tells timers that are out of date.
    epoch: u32,
    ready_since: Time,
}

/// JUPITER.
#[derive(Debug)]
pub struct Jupiter {
    name: &'static str,
    settings: JupiterSettings,
    fair: Fair,
    vcpus: Vec<Entity>,
    lenders: Vec<elb::Lender>,
    /// CPU time of each VM in the present period.
    vm_time: Vec<Ns>,
    /// Conflicts (a) + (b) of J13 by pCPU and by VM.
    conflicts: Vec<u64>,
    vm_conflicts: Vec<u64>,
    switch: disable::Switch,
    swaps: u64,
    disabled_periods: u64,
}

impl Jupiter {
    /// JUPITER with these settings, called `name` in results.
    #[must_use]
    pub fn new(name: &'static str, settings: JupiterSettings) -> Self {
        Self {
            name,
            fair: Fair::new(settings.slice),
            settings,
            vcpus: Vec::new(),
            lenders: Vec::new(),
            vm_time: Vec::new(),
            conflicts: Vec::new(),
            vm_conflicts: Vec::new(),
            switch: disable::Switch::default(),
            swaps: 0,
            disabled_periods: 0,
        }
    }

    fn enforces(&self) -> bool {
        self.switch.is_enabled()
    }

    /// Does it hold vCPUs to budgets and deadlines now?
    fn has_budgets(&self) -> bool {
        self.enforces() && !self.settings.by_weight
    }

    /// Do deadlines decide whose turn ends, among those that have slice left? Where there are
    /// none (the simple leaky bucket, DATS or ELB alone) what does under balance scheduling.
    fn has_deadlines(&self) -> bool {
        self.has_budgets() && self.settings.dasl.is_some()
    }

    /// How far behind who runs a vCPU that wakes has to be where CFS decides.
    fn granularity(&self, vcpu: Vcpu) -> Ns {
        if self.enforces() && self.settings.dasl.is_some() {
            self.vcpus[vcpu.index()].latency
        } else {
            self.settings.wakeup_granularity
        }
    }

    /// What it may still use of this period, as of now.
    fn left(&self, host: &Host<'_>, vcpu: Vcpu) -> Ns {
        let entity = &self.vcpus[vcpu.index()];
        entity.slice - entity.used - host.uncharged(vcpu)
    }

    /// Those who come first on a pCPU: due, then with slice left, then the rest;
    /// each by what they have had.
    fn first(&self, host: &Host<'_>, pcpu: CpuId) -> Option<Vcpu> {
        if !self.has_budgets() {
            return self.fair.waiting(pcpu).next();
        }
        let rank = |v: &Vcpu| {
            let left = self.left(host, *v) > Ns::ZERO;
            match (left, self.vcpus[v.index()].due) {
                (true, true) => 0,
                (true, false) => 1,
                (false, _) => 2,
            }
        };
        // The first of the lowest rank: waiting() is in order already.
        self.fair.waiting(pcpu).min_by_key(rank)
    }

    fn is_low(&self, vcpu: Vcpu) -> bool {
        let low = self.settings.rcr.as_ref().map(|rcr| rcr.low_latency);
        low.is_some_and(|low| self.vcpus[vcpu.index()].latency < low)
    }

    /// The pCPUs as this vCPU may choose among them.
    fn cores_for(&self, host: &Host<'_>, vcpu: Vcpu) -> Vec<balance::Core> {
        let apart_from = match self.settings.stacks_halted {
            true => Siblings::Awake,
            false => Siblings::All,
        };
        self.fair.cores(host, vcpu, apart_from)
    }

    /// A vCPU of another pCPU for one that has nobody, siblings kept apart.
    fn pull(&self, host: &Host<'_>, pcpu: CpuId) -> Option<Vcpu> {
        let from = host
            .pcpus()
            .filter(|&p| p != pcpu)
            .max_by_key(|&p| (self.fair.len(p), std::cmp::Reverse(p)))?;
        self.fair.waiting(from).find(|&vcpu| {
            let siblings = self.cores_for(host, vcpu)[pcpu.index()].siblings;
            host.allows(vcpu, pcpu) && siblings == 0
        })
    }

    /// Sets the timer for the end of its rescheduling latency (J3).
    fn arm(&mut self, host: &mut Host<'_>, vcpu: Vcpu) {
        let entity = &mut self.vcpus[vcpu.index()];
        entity.epoch = entity.epoch.wrapping_add(1);
        entity.due = false;
        entity.ready_since = host.now();
        if self.settings.dasl.is_some() && !self.settings.by_weight {
            let token = u64::from(entity.epoch) << 32 | u64::from(vcpu.0);
            host.timer(entity.latency, token);
        }
    }

    fn conflict(&mut self, host: &Host<'_>, vcpu: Vcpu) {
        let home = self.fair.home(vcpu);
        self.conflicts[home.index()] += 1;
        self.vm_conflicts[host.vcpu(vcpu).vm.index()] += 1;
    }
}

impl Hypervisor for Jupiter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        self.fair.start(host, true);
        let initial = self.settings.dasl.as_ref().map_or(PERIOD, |d| d.initial);
        let vms = host.machine().vms.len();
        self.vcpus = vec![
            Entity {
                weight: dats::UNIT,
                latency: initial,
                slice: Ns::ZERO,
                used: Ns::ZERO,
                base: Ns::ZERO,
                bucket: self.settings.bucket.map(Bucket::new),
                predicted: Ns::ZERO,
                depleted: false,
                due: false,
                woken_by: Vec::new(),
                epoch: 0,
                ready_since: host.now(),
            };
            host.vcpus().count()
        ];
        self.lenders = vec![elb::Lender::default(); vms];
        self.vm_time = vec![Ns::ZERO; vms];
        self.conflicts = vec![0; host.pcpu_count() as usize];
        self.vm_conflicts = vec![0; vms];
        self.hand_out(host, false);
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        match why {
            Why::SliceEnd | Why::Preempted => {
                let entity = &mut self.vcpus[vcpu.index()];
                // J7: preempted because its slice is used up.
                entity.depleted |= entity.used >= entity.slice;
                self.fair.back(host, vcpu);
            }
            Why::Start | Why::Woken(_) => {
                let home = self.fair.home(vcpu);
                if !host.is_idle(home) {
                    let cores = self.cores_for(host, vcpu);
                    let better = host.pcpus().find(|&p| {
                        host.is_idle(p)
                            && self.fair.len(p) == 0
                            && cores[p.index()].siblings == 0
                            && host.allows(vcpu, p)
                    });
                    if let Some(pcpu) = better {
                        self.fair.carry(host, vcpu, pcpu);
                    }
                }
                self.fair.wake(host, vcpu);
            }
        }
        self.arm(host, vcpu);
        let home = self.fair.home(vcpu);
        let again = matches!(why, Why::SliceEnd | Why::Preempted);
        let Some(running) = host.on(home) else {
            // The pCPU that it leaves chooses anew anyway.
            if !again || host.vcpu(vcpu).last_pcpu != Some(home) {
                host.kick(home);
            }
            return;
        };
        if again {
            return;
        }
        let by_vruntime = self.fair.preempts(host, vcpu, self.granularity(vcpu));
        let preempts = if self.has_budgets() {
            // Who has slice left comes before who has not.
            let has_left = |vcpu| self.left(host, vcpu) > Ns::ZERO;
            match (has_left(vcpu), has_left(running)) {
                (true, false) => true,
                (false, true) => false,
                _ => !self.has_deadlines() && by_vruntime,
            }
        } else {
            by_vruntime
        };
        if preempts {
            if self.settings.by_weight && self.is_low(running) {
                // J13 (a), as below.
                self.conflict(host, running);
            }
            host.kick_remote(home);
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        if self.fair.len(pcpu) == 0
            && let Some(vcpu) = self.pull(host, pcpu)
        {
            self.fair.carry(host, vcpu, pcpu);
        }
        let vcpu = self.first(host, pcpu)?;
        self.fair.take(host, vcpu, pcpu);
        let left = self.left(host, vcpu);
        let entity = &mut self.vcpus[vcpu.index()];
        entity.due = false;
        let late = dasl::is_due(entity.ready_since, host.now(), entity.latency);
        if self.settings.by_weight && late && self.is_low(vcpu) {
            // J13 (b), as below.
            self.conflict(host, vcpu);
        }
        let slice = if !self.has_budgets() {
            self.fair.turn()
        } else if left > Ns::ZERO {
            Some(left.min(self.settings.slice))
        } else {
            Some(self.settings.slice)
        };
        Some(Pick { vcpu, slice })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, _: Ns) {
        self.fair.charge(vcpu, pcpu, ran);
        self.vcpus[vcpu.index()].used += ran;
    }

    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        self.fair.halt(host, vcpu);
    }

    fn tick_period(&self) -> Option<Ns> {
        self.fair.tick_period()
    }

    fn tick(&mut self, host: &mut Host<'_>) {
        if !self.has_deadlines() {
            self.fair.tick(host);
        }
    }

    fn ipi(&mut self, _: &mut Host<'_>, from: Vcpu, to: Vcpu) {
        let entity = &mut self.vcpus[to.index()];
        if !entity.woken_by.contains(&from) {
            entity.woken_by.push(from);
        }
    }

    /// A rescheduling latency is over.
    fn timer(&mut self, host: &mut Host<'_>, token: u64) {
        let vcpu = Vcpu((token & u64::from(u32::MAX)) as u32);
        let entity = &self.vcpus[vcpu.index()];
        let current = u64::from(entity.epoch) == token >> 32;
        let due = dasl::is_due(entity.ready_since, host.now(), entity.latency);
        if !current || !due || !self.enforces() || host.vcpu(vcpu).state != State::Queued {
            return;
        }
        if self.left(host, vcpu) == Ns::ZERO {
            return;
        }
        self.vcpus[vcpu.index()].due = true;
        let home = self.fair.home(vcpu);
        let Some(running) = host.on(home) else {
            host.kick_remote(home);
            return;
        };
        // J1's asymmetric prioritisation: of two the one with the lower latency
        // has the pCPU. If it always went to the one that is due, J13's case (b)
        // could not happen, and vCPUs of the least latency would take the pCPU
        // from each other every time it is over.
        let own = self.vcpus[vcpu.index()].latency;
        let preempts =
            own < self.vcpus[running.index()].latency || self.left(host, running) == Ns::ZERO;
        if preempts {
            if self.is_low(running) {
                // J13 (a): one with a low latency is preempted.
                self.conflict(host, running);
            }
            host.kick_remote(home);
        } else if self.is_low(vcpu) {
            // J13 (b): it waits beyond its latency.
            self.conflict(host, vcpu);
        }
    }

    fn slow_period(&self) -> Option<Ns> {
        Some(PERIOD)
    }

    fn slow(&mut self, host: &mut Host<'_>) {
        self.end_period(host);
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.fair.check(host)?;
        self.check_period(host)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("swaps", self.swaps),
            ("disabled_periods", self.disabled_periods),
        ]
    }
}
