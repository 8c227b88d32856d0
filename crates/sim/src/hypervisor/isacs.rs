// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ISACS (I1..I19, A1..A8). The decisions are `policy::host::isacs`.
//!
//! EVENT CHECKER (I2) is the engine's `io_event`: every I/O completion that
//! arrives for a vCPU.

use policy::host::credit::Credit;
use policy::host::credit::credit2;
use policy::host::isacs;
use policy::host::isacs::QueueLoad;
use policy::host::isacs::RunQ;
use policy::host::isacs::WakeInBoost;
use units::CpuId;
use units::Ns;
use units::Time;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
use super::checks::ensure;
use super::credit2::loads;
use super::credit2::xen_weight;
use super::pools::Ahead;
use super::pools::Pools;
use super::turns::Turns;
use crate::ids::Vcpu;

/// Settings of [`Isacs`].
#[derive(Clone, Debug)]
pub struct IsacsSettings {
    /// The rules.
    pub rules: isacs::Settings,
    /// pCPUs per run queue, as in Credit2.
    pub pcpus_per_queue: u32,
    /// Algorithm 2 after each reallocation (A5).
    pub io_balance: bool,
    /// Algorithm 2 may move vCPUs without IVCredit, too. As printed it does: their
    /// move never fails the test, so that hogs leave the queue of an I/O-bound vCPU
    /// until it is alone there. Off: it balances I/O, as the prose says.
    pub moves_any: bool,
    /// Credit2's own balancing (A8): how often; zero: never.
    pub balance_period: Ns,
    /// Does an idle pCPU take over who waits in another queue?
    pub idle_takes: bool,
    /// The rules of Xen 4.12's Credit2, in which it was built, that no text has: who
    /// keeps a pCPU, and how long a turn lasts; `slice` of the rules says nothing then.
    /// Off.
    pub xen: Option<credit2::Xen>,
}

impl Default for IsacsSettings {
    fn default() -> Self {
        Self {
            rules: isacs::Settings::default(),
            pcpus_per_queue: 1,
            io_balance: true,
            moves_any: false,
            balance_period: Ns::from_ms(100),
            idle_takes: true,
            xen: None,
        }
    }
}

mod xen;

/// ISACS.
#[derive(Debug)]
pub struct Isacs {
    name: &'static str,
    settings: IsacsSettings,
    pools: Pools,
    table: Vec<isacs::Vcpu>,
    ahead: Ahead,
    queues: Vec<RunQ>,
    /// When each queue reallocated last.
    since: Vec<Time>,
    /// What was charged last on each pCPU (A2).
    last_ran: Vec<Ns>,
    /// A6: who preempts on this pCPU although it is not its turn.
    forced: Vec<Option<usize>>,
    ran: Vec<Ns>,
    /// As in Xen 4.12.
    turns: Option<Turns>,
    reallocations: u64,
    io_moves: u64,
}

impl Isacs {
    /// ISACS with these settings, called `name` in results.
    #[must_use]
    pub fn new(name: &'static str, settings: IsacsSettings) -> Self {
        Self {
            name,
            settings,
            pools: Pools::default(),
            table: Vec::new(),
            ahead: Ahead::default(),
            queues: Vec::new(),
            since: Vec::new(),
            last_ran: Vec::new(),
            forced: Vec::new(),
            ran: Vec::new(),
            turns: None,
            reallocations: 0,
            io_moves: 0,
        }
    }

    fn update_members(&mut self) {
        for queue in 0..self.queues.len() {
            self.queues[queue].members = self.pools.members(queue);
        }
    }

    fn preempt(&mut self, host: &mut Host<'_>, vcpu: Vcpu) {
        let queue = &self.queues[self.pools.of(vcpu.index())];
        let rules = &self.settings.rules;
        let waking = &self.table[vcpu.index()];
        let victim = self
            .pools
            .running(host, vcpu)
            .into_iter()
            .map(|(pcpu, running)| {
                let mut charged = self.table[running.index()].clone();
                queue.on_charge(&mut charged, self.ahead.owed(host, running), rules);
                (charged, pcpu)
            })
            .filter(|(charged, _)| isacs::wakes_before(queue, waking, charged, rules))
            .min_by_key(|(charged, pcpu)| (charged.credit, *pcpu));
        if let Some((_, pcpu)) = victim {
            let out_of_turn = queue.cpu_boost && !isacs::wakes_as_member(waking, rules);
            if out_of_turn && rules.wake_in_boost == WakeInBoost::Preempts {
                self.forced[pcpu.index()] = Some(vcpu.index());
            }
            host.kick_remote(pcpu);
        }
    }

    /// Charges who runs on the pCPUs of a queue: a reallocation compares what all have
    /// consumed.
    fn settle(&mut self, host: &Host<'_>, queue: usize) {
        for running in self.pools.on(host, queue) {
            let owed = self.ahead.settle(host, running);
            let vcpu = &mut self.table[running.index()];
            self.queues[queue].on_charge(vcpu, owed, &self.settings.rules);
        }
    }

    /// Algorithm 1 among those who wait, and what a reallocation brings with it. Who is
    /// chosen leaves the queue.
    fn choose(&mut self, host: &mut Host<'_>, pcpu: CpuId, waiting: &[usize]) -> Option<usize> {
        let queue = self.pools.of_pcpu(pcpu);
        let forced = self.forced[pcpu.index()].take();
        if let Some(vcpu) = forced.filter(|v| waiting.contains(v)) {
            self.pools.remove(vcpu);
            return Some(vcpu);
        }
        let pick = isacs::pick(
            &mut self.queues[queue],
            &mut self.table,
            waiting,
            self.last_ran[pcpu.index()],
            host.now().since(self.since[queue]),
            &self.settings.rules,
        )?;
        self.pools.remove(pick.vcpu);
        if pick.reallocated {
            self.reallocations += 1;
            self.since[queue] = host.now();
            if self.settings.io_balance {
                self.balance_io(host, queue);
            }
        }
        Some(pick.vcpu)
    }

    /// Algorithm 2 for the queue that has just reallocated.
    fn balance_io(&mut self, host: &mut Host<'_>, source: usize) {
        let queues: Vec<QueueLoad> = self
            .queues
            .iter()
            .map(|q| QueueLoad {
                io_load: q.io_load,
                io_events: q.io_events,
            })
            .collect();
        let members: Vec<(usize, Ns)> = self.queues[source]
            .members
            .iter()
            .map(|&v| (v, self.table[v].ivcredit))
            .filter(|(_, ivcredit)| self.settings.moves_any || *ivcredit > Ns::ZERO)
            .collect();
        if let Some(step) = isacs::balance(source, &queues, &members, &self.settings.rules) {
            self.pools.move_to(host, step.vcpu, step.to);
            self.io_moves += 1;
            self.update_members();
        }
    }
}

impl Hypervisor for Isacs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        self.pools.start(host, self.settings.pcpus_per_queue);
        self.table = host
            .vcpus()
            .map(|v| isacs::Vcpu::new(xen_weight(host.vcpu(v).weight), &self.settings.rules))
            .collect();
        self.ahead = Ahead::new(self.table.len());
        self.ran = vec![Ns::ZERO; self.table.len()];
        self.queues = vec![RunQ::default(); self.pools.count()];
        self.since = vec![host.now(); self.pools.count()];
        self.last_ran = vec![Ns::ZERO; host.pcpu_count() as usize];
        self.forced = vec![None; host.pcpu_count() as usize];
        self.turns = self.settings.xen.map(|xen| Turns::new(host, xen));
        self.update_members();
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        if self.pools.insert(vcpu.index()).is_some() {
            self.update_members();
        }
        if let Some(mut turns) = self.turns.take() {
            if turns.must_tell(host, vcpu, why) {
                self.tell(host, &mut turns, vcpu);
            }
            self.turns = Some(turns);
            return;
        }
        if !self.pools.serve(host, vcpu, why, self.settings.idle_takes) {
            self.preempt(host, vcpu);
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        if let Some(mut turns) = self.turns.take() {
            let pick = self.pick_as_xen(host, &mut turns, pcpu);
            turns.end(pcpu);
            self.turns = Some(turns);
            return pick;
        }
        let queue = self.pools.of_pcpu(pcpu);
        let mut waiting = self.pools.waiting(host, pcpu);
        if waiting.is_empty() && self.settings.idle_takes {
            let vcpu = self.pools.longest_elsewhere(host, pcpu)?;
            self.pools.move_to(host, vcpu, queue);
            self.update_members();
            waiting = self.pools.waiting(host, pcpu);
        }
        self.settle(host, queue);
        let vcpu = self.choose(host, pcpu, &waiting)?;
        let slice = self.queues[queue].slice(&self.table[vcpu], &self.settings.rules);
        Some(Pick {
            vcpu: Vcpu(vcpu as u32),
            slice: Some(slice),
        })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId, ran: Ns, _: Ns) {
        let v = vcpu.index();
        let queue = &self.queues[self.pools.of(v)];
        let owed = self.ahead.charge(vcpu, ran);
        queue.on_charge(&mut self.table[v], owed, &self.settings.rules);
        self.ran[v] += ran;
        self.last_ran[pcpu.index()] = ran;
    }

    fn halt(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        if self.pools.settle(vcpu.index()).is_some() {
            self.update_members();
        }
    }

    fn io_event(&mut self, host: &mut Host<'_>, vcpu: Vcpu) {
        let now = host.now();
        self.table[vcpu.index()]
            .events
            .on_event(now, &self.settings.rules);
    }

    fn slow_period(&self) -> Option<Ns> {
        Some(self.settings.balance_period).filter(|&p| p > Ns::ZERO)
    }

    fn slow(&mut self, host: &mut Host<'_>) {
        if let Some(step) = credit2::balance(&loads(&self.pools, &self.ran)) {
            self.pools.move_to(host, step.vcpu, step.to);
            self.update_members();
        }
        self.ran.fill(Ns::ZERO);
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.pools.check(host)?;
        self.ahead.check(host)?;
        for (n, queue) in self.queues.iter().enumerate() {
            let (members, own) = (&queue.members, self.pools.members(n));
            ensure(*members == own, || {
                format!("queue {n} has {own:?} and gives credit to {members:?}")
            })?;
        }
        // I16, I18: nobody ever has more than the default and what its I/O is worth, and
        // who is not in the group has no part of the second phase.
        let default = self.settings.rules.default_credit;
        for (vcpu, of) in host.vcpus().zip(&self.table) {
            let (credit, most) = (of.credit, Credit::of(default + of.ivcredit));
            ensure(credit <= most, || {
                format!("vCPU {vcpu} has a credit of {credit}, given were {most}")
            })?;
            ensure(of.in_group || of.cvcredit == Credit::ZERO, || {
                format!("vCPU {vcpu} is not in the group and has {}", of.cvcredit)
            })?;
        }
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("reallocations", self.reallocations),
            ("io_moves", self.io_moves),
        ]
    }
}
