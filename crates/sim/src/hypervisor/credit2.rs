// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit2 (K9..K15). The decisions are `policy::host::credit::credit2`.

use policy::host::credit::Credit;
use policy::host::credit::Weight;
use policy::host::credit::credit2;
use units::CpuId;
use units::Ns;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
use super::checks::ensure;
use super::pools::Ahead;
use super::pools::Pools;
use super::turns::Turns;
use crate::ids::Vcpu;
use crate::machine::NORMAL_WEIGHT;

/// Settings of [`Credit2`].
#[derive(Clone, Debug)]
pub struct Credit2Settings {
    /// The rules.
    pub rules: credit2::Settings,
    /// pCPUs per run queue. Not stated. 1.
    pub pcpus_per_queue: u32,
    /// How often load is balanced (K14). Not stated. 100 ms.
    pub balance_period: Ns,
    /// Does an idle pCPU take over who waits in another queue? Not stated; yes.
    pub idle_takes: bool,
    /// The rules of Xen 4.12 that no text has; `slice`, `reset` and `reset_at_zero` of
    /// the rules say nothing then. Off.
    pub xen: Option<credit2::Xen>,
}

impl Default for Credit2Settings {
    fn default() -> Self {
        Self {
            rules: credit2::Settings::default(),
            pcpus_per_queue: 1,
            balance_period: Ns::from_ms(100),
            idle_takes: true,
            xen: None,
        }
    }
}

/// A Linux weight in Xen's units, where normal is 256.
pub(super) fn xen_weight(weight: u32) -> Weight {
    let weight = u64::from(weight) * 256 / u64::from(NORMAL_WEIGHT);
    Weight::new(u32::try_from(weight).unwrap_or(u32::MAX))
}

mod xen;

/// Credit2.
#[derive(Debug)]
pub struct Credit2 {
    name: &'static str,
    settings: Credit2Settings,
    pools: Pools,
    table: Vec<credit2::Vcpu>,
    ahead: Ahead,
    /// Execution time of each vCPU since the last balancing.
    ran: Vec<Ns>,
    /// As in Xen 4.12.
    turns: Option<Turns>,
    resets: u64,
    moves: u64,
}

impl Credit2 {
    /// Credit2 with these settings, under this name.
    #[must_use]
    pub fn new(name: &'static str, settings: Credit2Settings) -> Self {
        Self {
            name,
            settings,
            pools: Pools::default(),
            table: Vec::new(),
            ahead: Ahead::default(),
            ran: Vec::new(),
            turns: None,
            resets: 0,
            moves: 0,
        }
    }

    /// K10: kicks the running vCPU with the least credit if the woken has more.
    fn preempt(&self, host: &mut Host<'_>, vcpu: Vcpu) {
        let rules = &self.settings.rules;
        let victim = self
            .pools
            .running(host, vcpu)
            .into_iter()
            .map(|(pcpu, running)| {
                let mut charged = self.table[running.index()].clone();
                charged.on_charge(self.ahead.owed(host, running), rules);
                (charged, pcpu)
            })
            .min_by_key(|(charged, pcpu)| (charged.credit, *pcpu));
        if let Some((charged, pcpu)) = victim
            && self.table[vcpu.index()].preempts(&charged)
        {
            host.kick_remote(pcpu);
        }
    }
}

impl Hypervisor for Credit2 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        self.pools.start(host, self.settings.pcpus_per_queue);
        self.table = host
            .vcpus()
            .map(|v| credit2::Vcpu::new(xen_weight(host.vcpu(v).weight), &self.settings.rules))
            .collect();
        self.ahead = Ahead::new(self.table.len());
        self.ran = vec![Ns::ZERO; self.table.len()];
        self.turns = self.settings.xen.map(|xen| Turns::new(host, xen));
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        self.pools.insert(vcpu.index());
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
            waiting = self.pools.waiting(host, pcpu);
        }
        let members = self.pools.members(queue);
        let rules = &self.settings.rules;
        // A reset gives everybody the same: what was spent before it is spent.
        for running in self.pools.on(host, queue) {
            let owed = self.ahead.settle(host, running);
            self.table[running.index()].on_charge(owed, rules);
        }
        let pick = credit2::pick(&mut self.table, &members, &waiting, rules)?;
        self.resets += u64::from(pick.reset);
        self.pools.remove(pick.vcpu);
        Some(Pick {
            vcpu: Vcpu(pick.vcpu as u32),
            slice: Some(self.table[pick.vcpu].slice(rules)),
        })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId, ran: Ns, _: Ns) {
        let owed = self.ahead.charge(vcpu, ran);
        self.table[vcpu.index()].on_charge(owed, &self.settings.rules);
        self.ran[vcpu.index()] += ran;
    }

    fn halt(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId) {
        self.pools.settle(vcpu.index());
    }

    fn slow_period(&self) -> Option<Ns> {
        Some(self.settings.balance_period).filter(|&p| p > Ns::ZERO)
    }

    fn slow(&mut self, host: &mut Host<'_>) {
        let loads = loads(&self.pools, &self.ran);
        if let Some(step) = credit2::balance(&loads) {
            self.pools.move_to(host, step.vcpu, step.to);
            self.moves += 1;
        }
        self.ran.fill(Ns::ZERO);
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        self.pools.check(host)?;
        self.ahead.check(host)?;
        if self.turns.is_some() {
            // Each migration adds a little, and nothing bounds that but the next reset.
            return Ok(());
        }
        // K12: nobody ever has more than a reset gives.
        let most = Credit::of(self.settings.rules.default_credit);
        for (vcpu, of) in host.vcpus().zip(&self.table) {
            let credit = of.credit;
            ensure(credit <= most, || {
                format!("vCPU {vcpu} has a credit of {credit}, a reset gives {most}")
            })?;
        }
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("resets", self.resets), ("moves", self.moves)]
    }
}

/// K14: execution time of each queue's vCPUs.
pub(super) fn loads(pools: &Pools, ran: &[Ns]) -> Vec<credit2::Load> {
    (0..pools.count())
        .map(|queue| credit2::Load {
            vcpus: pools
                .members(queue)
                .into_iter()
                .map(|v| (v, ran[v]))
                .collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Requests;
    use crate::hypervisor::tests::staged;

    /// K12 on a queue of two pCPUs: vCPU 0 has run for 8 ms on the first one when the
    /// second one finds nobody with credit. Everybody is given 10 ms, vCPU 0 as well:
    /// what it ran before is not taken from that (`reset_credit()` of Xen).
    #[test]
    fn what_was_run_before_a_reset_is_not_taken_from_the_new_credit() {
        let (mut machine, mut requests) = (staged::machine(2, 3), Requests::default());
        let mut policy = Credit2::new(
            "credit2",
            Credit2Settings {
                pcpus_per_queue: 2,
                ..Credit2Settings::default()
            },
        );
        policy.start(&mut staged::host(&machine, &mut requests, 0));
        staged::run(&mut machine, Vcpu(0), CpuId(0), 0);
        for vcpu in [Vcpu(1), Vcpu(2)] {
            staged::wait(&mut machine, vcpu, 0);
            policy.table[vcpu.index()].credit = Credit(-1_000_000);
            let mut host = staged::host(&machine, &mut requests, 0);
            policy.enqueue(&mut host, vcpu, Why::Start);
        }
        let mut host = staged::host(&machine, &mut requests, 8);
        policy.pick(&mut host, CpuId(1)).unwrap();
        let full = Credit::of(Ns::from_ms(10));
        assert_eq!(policy.resets, 1);
        assert!(policy.table.iter().all(|v| v.credit == full));
        policy.charge(&mut host, Vcpu(0), CpuId(0), Ns::from_ms(8), Ns::ZERO);
        assert_eq!(policy.table[0].credit, full);
        assert_eq!(policy.ran[0], Ns::from_ms(8));
    }
}
