// SPDX-License-Identifier: Apache-2.0 OR MIT
//! EEVDF with a slice per entity: Linux 6.6 and later (6.12 for slices of one's
//! own and `PREEMPT_SHORT`), `kernel/sched/fair.c`.
//!
//! An entity that has had no more than the weighted average of its queue is
//! eligible; of those the one with the earliest virtual deadline runs, where a
//! deadline is a slice after the virtual time at which it was set. So a short slice
//! means to be served sooner and for shorter, at the same share. A vCPU that
//! sleeps keeps its lag, up to two slices.
//!
//! Left out: groups, periodic balancing (an idle pCPU takes somebody, a woken vCPU
//! goes to an idle pCPU).

use units::CpuId;
use units::Ns;

use super::Host;
use super::Hypervisor;
use super::Pick;
use super::Why;
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
    /// The running vCPU is safe until its slice is over (`RUN_TO_PARITY`), except
    /// from one with a shorter slice.
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
        let entity = &mut self.vcpus[vcpu.index()];
        let most = entity.virtual_time(entity.slice * 2);
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
            // (DELAY_DEQUEUE): sleeping neither keeps the debt nor sheds it.
            entity.lag = (average - entity.vruntime).min(0);
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

    /// Somebody of the longest other queue for a pCPU that has nobody.
    fn pull(&mut self, host: &Host<'_>, to: CpuId) {
        let from = host.pcpus().filter(|&pcpu| pcpu != to).max_by_key(|&pcpu| {
            (
                self.queues[pcpu.index()].queued.len(),
                std::cmp::Reverse(pcpu),
            )
        });
        let Some(from) = from else {
            return;
        };
        let queued = &self.queues[from.index()].queued;
        if let Some(&vcpu) = queued.iter().find(|vcpu| host.allows(**vcpu, to)) {
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
        let wins = new.vruntime <= average && new.deadline < old.deadline;
        let shorter = new.slice < old.slice;
        self.short_preemptions += u64::from(wins && shorter);
        wins && (shorter || !self.settings.run_to_parity)
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

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("short_preemptions", self.short_preemptions)]
    }
}
