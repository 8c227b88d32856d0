// SPDX-License-Identifier: Apache-2.0 OR MIT
//! EEVDF with a slice per entity: Linux 6.6 and later (6.12 for slices of one's
//! own and `PREEMPT_SHORT`), `kernel/sched/fair.c`.
//!
//! An entity that has had no more than the weighted average of its queue is
//! eligible; of those the one with the earliest virtual deadline runs, where a
//! deadline is a slice after the virtual time at which it was set. So a short slice
//! means to be served sooner and for shorter, at the same share. A vCPU that
//! sleeps keeps its lag, up to the longest slice of its queue and a tick
//! (`entity_lag()` of 6.18.44).
//!
//! Left out: groups, periodic balancing (an idle pCPU takes somebody, a woken vCPU
//! goes to an idle pCPU); that who sleeps ahead of the average counts in it
//! (`DELAY_DEQUEUE`).

use units::CpuId;
use units::Ns;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
use super::cfs::TICK;
use super::checks::ensure;
use super::checks::ready_once;
use crate::ids::Vcpu;
use crate::machine::NORMAL_WEIGHT;

/// Settings of [`Eevdf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EevdfSettings {
    /// Slice of a vCPU for which nothing else is said. 3 ms in Linux with 8 or
    /// more CPUs.
    pub slice: Ns,
    /// Slice of the vCPUs of VMs that are declared I/O-intensive: 0.1 ms..100 ms in
    /// Linux; `None`: as the others.
    pub io_slice: Option<Ns>,
    /// The running vCPU is safe until its slice is over (`RUN_TO_PARITY`), as long as
    /// it is eligible, except from one with a shorter slice.
    pub run_to_parity: bool,
}

impl Default for EevdfSettings {
    fn default() -> Self {
        Self {
            slice: Ns::from_ms(3),
            io_slice: None,
            run_to_parity: true,
        }
    }
}

/// EEVDF.
#[derive(Debug)]
pub struct Eevdf {
    name: &'static str,
    settings: EevdfSettings,
    queues: Vec<RunQueue>,
    vcpus: Vec<Entity>,
    short_preemptions: u64,
}

#[derive(Debug, Default)]
struct RunQueue {
    queued: Vec<Vcpu>,
    current: Option<Vcpu>,
    /// The average when somebody was last here.
    average: i128,
}

/// Virtual times are in nanoseconds at [`NORMAL_WEIGHT`].
#[derive(Clone, Copy, Debug)]
struct Entity {
    vruntime: i128,
    deadline: i128,
    /// Average less vruntime, kept while it sleeps.
    lag: i128,
    weight: u64,
    slice: Ns,
    home: CpuId,
}

impl Entity {
    fn virtual_time(&self, real: Ns) -> i128 {
        i128::from(real.as_ns()) * i128::from(NORMAL_WEIGHT) / i128::from(self.weight)
    }

    /// Real time until its deadline.
    fn left(&self) -> Ns {
        let left = (self.deadline - self.vruntime).max(0) * i128::from(self.weight);
        Ns(u64::try_from(left / i128::from(NORMAL_WEIGHT)).unwrap_or(u64::MAX))
    }
}

impl Eevdf {
    /// EEVDF with these settings, called `name` in results.
    #[must_use]
    pub const fn new(name: &'static str, settings: EevdfSettings) -> Self {
        Self {
            name,
            settings,
            queues: Vec::new(),
            vcpus: Vec::new(),
            short_preemptions: 0,
        }
    }

    /// What a vCPU has had, as of now.
    fn had(&self, host: &Host<'_>, vcpu: Vcpu) -> i128 {
        let entity = &self.vcpus[vcpu.index()];
        entity.vruntime + entity.virtual_time(host.uncharged(vcpu))
    }

    /// The weighted average of those on a pCPU, and their weight.
    fn average(&self, host: &Host<'_>, pcpu: CpuId) -> (i128, i128) {
        let queue = &self.queues[pcpu.index()];
        let mut weight = 0;
        let mut sum = 0;
        for &vcpu in queue.queued.iter().chain(&queue.current) {
            let own = i128::from(self.vcpus[vcpu.index()].weight);
            weight += own;
            // Relative to the last average: small numbers.
            sum += own * (self.had(host, vcpu) - queue.average);
        }
        if weight == 0 {
            return (queue.average, 0);
        }
        (queue.average + sum / weight, weight)
    }

    fn note_average(&mut self, host: &Host<'_>, pcpu: CpuId) {
        let (average, _) = self.average(host, pcpu);
        self.queues[pcpu.index()].average = average;
    }

    /// Remembers the lag of a vCPU that leaves a pCPU's queue.
    fn leave(&mut self, host: &Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        let (average, _) = self.average(host, pcpu);
        let queue = &self.queues[pcpu.index()];
        let there = queue.queued.iter().chain(&queue.current);
        let slices = there.map(|other| self.vcpus[other.index()].slice);
        let entity = &self.vcpus[vcpu.index()];
        let most = entity.virtual_time(slices.fold(entity.slice, Ns::max) + TICK);
        let entity = &mut self.vcpus[vcpu.index()];
        entity.lag = (average - entity.vruntime).clamp(-most, most);
        self.queues[pcpu.index()].queued.retain(|v| *v != vcpu);
    }

    /// Places a vCPU that comes to a pCPU's queue: as far behind or ahead of the
    /// average as it was, its own weight counted.
    fn join(&mut self, host: &Host<'_>, vcpu: Vcpu, pcpu: CpuId, first: bool) {
        let (average, weight) = self.average(host, pcpu);
        let entity = &mut self.vcpus[vcpu.index()];
        if entity.lag < 0 && entity.home == pcpu {
            // Who is ahead stays in the queue until the others have caught up
            // (DELAY_DEQUEUE): sleeping neither adds to the debt nor sheds it.
            if weight > 0 && entity.vruntime > average {
                self.queues[pcpu.index()].queued.push(vcpu);
                return;
            }
            entity.lag = 0;
        }
        let own = i128::from(entity.weight);
        let lag = if weight == 0 {
            0
        } else {
            entity.lag * (weight + own) / weight
        };
        entity.vruntime = average - lag;
        let slice = entity.virtual_time(entity.slice);
        // PLACE_DEADLINE_INITIAL: the first one is half as far away.
        entity.deadline = entity.vruntime + if first { slice / 2 } else { slice };
        entity.home = pcpu;
        self.queues[pcpu.index()].queued.push(vcpu);
    }

    /// Where a waking vCPU goes: back, if that pCPU is free or no other is.
    fn choose(&self, host: &Host<'_>, vcpu: Vcpu) -> CpuId {
        let home = self.vcpus[vcpu.index()].home;
        let count = host.pcpu_count();
        (0..count)
            .map(|step| CpuId((home.0 + step) % count))
            .find(|&pcpu| {
                host.is_idle(pcpu)
                    && self.queues[pcpu.index()].queued.is_empty()
                    && host.allows(vcpu, pcpu)
            })
            .unwrap_or(home)
    }

    /// Somebody of the longest other queue that has one who may run on a pCPU that has
    /// nobody.
    fn pull(&mut self, host: &Host<'_>, to: CpuId) {
        let movable = |from: CpuId| {
            let queued = &self.queues[from.index()].queued;
            let vcpu = queued.iter().copied().find(|&v| host.allows(v, to))?;
            Some((queued.len(), std::cmp::Reverse(from), vcpu))
        };
        let others = host.pcpus().filter(|&pcpu| pcpu != to);
        let best = others
            .filter_map(movable)
            .max_by_key(|best| (best.0, best.1));
        if let Some((_, std::cmp::Reverse(from), vcpu)) = best {
            self.leave(host, vcpu, from);
            self.join(host, vcpu, to, false);
        }
    }

    /// The eligible one with the earliest deadline.
    fn best(&self, host: &Host<'_>, pcpu: CpuId) -> Option<Vcpu> {
        let (average, _) = self.average(host, pcpu);
        self.queues[pcpu.index()]
            .queued
            .iter()
            .copied()
            .min_by_key(|vcpu| {
                let entity = &self.vcpus[vcpu.index()];
                (entity.vruntime > average, entity.deadline, *vcpu)
            })
    }

    /// Does one that has just come to the queue take the pCPU from who runs?
    fn preempts(&mut self, host: &Host<'_>, vcpu: Vcpu, running: Vcpu) -> bool {
        let (new, old) = (&self.vcpus[vcpu.index()], &self.vcpus[running.index()]);
        let (average, _) = self.average(host, new.home);
        if new.vruntime > average || self.best(host, new.home) != Some(vcpu) {
            return false;
        }
        // Who runs and is not eligible any more is out of the question, whatever its
        // deadline (`pick_eevdf()`).
        let competes = self.had(host, running) <= average;
        let shorter = new.slice < old.slice;
        let safe = competes && self.settings.run_to_parity && !shorter;
        let wins = !safe && (!competes || new.deadline < old.deadline);
        self.short_preemptions += u64::from(wins && competes && shorter);
        wins
    }
}

impl Hypervisor for Eevdf {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, host: &mut Host<'_>) {
        let count = host.pcpu_count();
        self.queues = (0..count).map(|_| RunQueue::default()).collect();
        let io_slice = self.settings.io_slice.unwrap_or(self.settings.slice);
        self.vcpus = host
            .vcpus()
            .map(|vcpu| {
                let facts = host.vcpu(vcpu);
                let first = facts.allowed.first().copied();
                Entity {
                    vruntime: 0,
                    deadline: 0,
                    lag: 0,
                    weight: u64::from(facts.weight.max(1)),
                    slice: if host.vm_of(vcpu).io_intensive {
                        io_slice
                    } else {
                        self.settings.slice
                    },
                    home: first.unwrap_or(CpuId(facts.id.0 % count.max(1))),
                }
            })
            .collect();
    }

    fn enqueue(&mut self, host: &mut Host<'_>, vcpu: Vcpu, why: Why) {
        match why {
            Why::SliceEnd | Why::Preempted => {
                let entity = &mut self.vcpus[vcpu.index()];
                if entity.vruntime >= entity.deadline {
                    entity.deadline = entity.vruntime + entity.virtual_time(entity.slice);
                }
                let home = entity.home;
                self.queues[home.index()].current = None;
                self.queues[home.index()].queued.push(vcpu);
                self.note_average(host, home);
            }
            Why::Start | Why::Woken(_) => {
                let pcpu = self.choose(host, vcpu);
                self.join(host, vcpu, pcpu, why == Why::Start);
                match host.on(pcpu) {
                    None => host.kick(pcpu),
                    Some(running) if self.preempts(host, vcpu, running) => host.kick_remote(pcpu),
                    Some(_) => {}
                }
            }
        }
    }

    fn pick(&mut self, host: &mut Host<'_>, pcpu: CpuId) -> Option<Pick> {
        self.queues[pcpu.index()].current = None;
        if self.queues[pcpu.index()].queued.is_empty() {
            self.pull(host, pcpu);
        }
        let vcpu = self.best(host, pcpu)?;
        self.note_average(host, pcpu);
        let queue = &mut self.queues[pcpu.index()];
        queue.queued.retain(|v| *v != vcpu);
        queue.current = Some(vcpu);
        Some(Pick {
            vcpu,
            slice: Some(self.vcpus[vcpu.index()].left().max(Ns(1))),
        })
    }

    fn charge(&mut self, _: &mut Host<'_>, vcpu: Vcpu, _: CpuId, ran: Ns, _: Ns) {
        let entity = &mut self.vcpus[vcpu.index()];
        entity.vruntime += entity.virtual_time(ran);
    }

    fn halt(&mut self, host: &mut Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        self.leave(host, vcpu, pcpu);
        self.note_average(host, pcpu);
        self.queues[pcpu.index()].current = None;
    }

    fn is_local(&self) -> bool {
        true
    }

    fn check(&self, host: &Host<'_>) -> Result<(), String> {
        for (pcpu, queue) in host.pcpus().zip(&self.queues) {
            let (current, on) = (queue.current, host.on(pcpu));
            ensure(current == on, || {
                format!("{current:?} is current on pCPU {pcpu}, which {on:?} has")
            })?;
            for &vcpu in queue.queued.iter().chain(&queue.current) {
                let entity = &self.vcpus[vcpu.index()];
                let home = entity.home;
                ensure(home == pcpu, || {
                    format!("vCPU {vcpu} of pCPU {home} is with pCPU {pcpu}")
                })?;
                // A deadline is at most a slice away.
                let far = entity.deadline - entity.vruntime;
                ensure(far <= entity.virtual_time(entity.slice), || {
                    format!("the deadline of vCPU {vcpu} is {far} away")
                })?;
            }
        }
        ready_once(
            host,
            self.queues.iter().flat_map(|q| q.queued.iter().copied()),
        )
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("short_preemptions", self.short_preemptions)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::Requests;
    use crate::hypervisor::tests::staged;

    fn policy(machine: &crate::machine::Machine) -> Eevdf {
        let mut policy = Eevdf::new("eevdf", EevdfSettings::default());
        let mut requests = Requests::default();
        policy.start(&mut staged::host(machine, &mut requests, 0));
        policy
    }

    fn at(policy: &mut Eevdf, vcpu: Vcpu, pcpu: CpuId, us: i128) {
        let entity = &mut policy.vcpus[vcpu.index()];
        entity.home = pcpu;
        entity.vruntime = us * 1000;
        entity.deadline = entity.vruntime + 3_000_000;
    }

    /// vCPU 0 runs at 1 ms, vCPU 1 fell asleep at 3 ms, ahead. It comes back where it
    /// was: `DELAY_DEQUEUE` has kept it in the queue. When vCPU 0 has caught up it owes
    /// nothing.
    #[test]
    fn a_debt_is_the_same_after_a_sleep() {
        let mut machine = staged::machine(1, 2);
        staged::run(&mut machine, Vcpu(0), CpuId(0), 0);
        for (ms, expected) in [(1, 3_000_000), (4, 5_000_000)] {
            let mut policy = policy(&machine);
            let mut requests = Requests::default();
            at(&mut policy, Vcpu(0), CpuId(0), 1000);
            at(&mut policy, Vcpu(1), CpuId(0), 3000);
            policy.queues[0].current = Some(Vcpu(0));
            policy.vcpus[1].lag = -1_000_000;
            let host = staged::host(&machine, &mut requests, ms);
            policy.join(&host, Vcpu(1), CpuId(0), false);
            assert_eq!(policy.vcpus[1].vruntime, expected, "after {ms} ms");
        }
    }

    /// Equal slices: who runs is safe from one that wakes while it is eligible, and not
    /// when it has had more than the average, though its deadline is to come.
    #[test]
    fn who_runs_is_safe_while_it_is_eligible() {
        let mut machine = staged::machine(1, 2);
        staged::run(&mut machine, Vcpu(0), CpuId(0), 0);
        for (own, wins) in [(1000, false), (900, true)] {
            let mut policy = policy(&machine);
            let mut requests = Requests::default();
            at(&mut policy, Vcpu(0), CpuId(0), 1000);
            policy.vcpus[0].deadline = 1_500_000;
            at(&mut policy, Vcpu(1), CpuId(0), own);
            policy.queues[0].current = Some(Vcpu(0));
            policy.queues[0].queued.push(Vcpu(1));
            let host = staged::host(&machine, &mut requests, 0);
            assert_eq!(policy.preempts(&host, Vcpu(1), Vcpu(0)), wins, "{own}");
        }
    }

    /// As in `pools`: the longest queue counts with somebody who may come.
    #[test]
    fn an_idle_pcpu_takes_somebody_who_may_come() {
        let mut machine = staged::machine(3, 3);
        for vcpu in [0, 2] {
            machine.vcpus[vcpu].allowed = vec![CpuId(0)];
        }
        let mut policy = policy(&machine);
        let mut requests = Requests::default();
        let host = staged::host(&machine, &mut requests, 0);
        policy.queues[0].queued = vec![Vcpu(0), Vcpu(2)];
        policy.queues[1].queued = vec![Vcpu(1)];
        policy.pull(&host, CpuId(2));
        assert_eq!(policy.queues[2].queued, [Vcpu(1)]);
        assert_eq!(policy.vcpus[1].home, CpuId(2));
    }
}
