// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run queues of CFS, of one level or two: in a pCPU's queue are vCPUs, or the VMs
//! that are control groups, each with a queue of its vCPUs there.
//!
//! As in Linux 3.8 to 5.3 (`kernel/sched/fair.c`): virtual run time counts on each
//! level by the weight of the entity there (`update_curr()`); a group weighs on a pCPU
//! what part of its load it has there (`calc_group_shares()`, in `shares`). Left out:
//! bandwidth limits, buddies, and the levels of libvirt that have one member each.

mod check;
mod load;
mod shares;
mod turns;

use units::CpuId;
use units::Ns;

use self::shares::Shares;
pub(super) use self::turns::Turns;
use super::Host;
use super::ordered::Ordered;
use crate::ids::Vcpu;
use crate::machine::NORMAL_WEIGHT;

/// Where an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// It does not want to run.
    Off,
    Queued,
    /// It is the one that its queue has given the pCPU to.
    Current,
}

/// A vCPU, or what a group has on one pCPU.
#[derive(Clone, Copy, Debug)]
struct Entity {
    vruntime: u64,
    weight: u64,
    queue: usize,
    at: At,
    /// Its number of arrival.
    arrival: u64,
    /// How long it has run in this turn.
    turn: Ns,
}

/// The queue of a pCPU, or of a group there.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// By virtual run time; equal ones in order of arrival, as Linux' tree has
    /// them. By number it would be the same VM first on every pCPU: coscheduling by
    /// accident.
    queued: Ordered<(u64, u64, usize)>,
    arrivals: u64,
    /// The least virtual run time of anybody here; never goes back.
    floor: u64,
    /// Weight and number of those that want to run, the current one included.
    weight: u64,
    count: u64,
    current: Option<usize>,
    /// Who had the pCPU before and would go on: if it does, its turn does, too.
    before: Option<usize>,
}

/// The queues of all pCPUs.
#[derive(Debug)]
pub(super) struct Tree {
    turns: Turns,
    pcpus: usize,
    vcpus: usize,
    /// vCPUs, then what group g has on pCPU p at `vcpus + g * pcpus + p`.
    entities: Vec<Entity>,
    /// Of pCPUs, then of group g on pCPU p at `pcpus + g * pcpus + p`.
    queues: Vec<Queue>,
    /// By vCPU: where it lives. One that runs may live elsewhere from its next turn on.
    home: Vec<CpuId>,
    /// By vCPU: its group.
    group: Vec<Option<usize>>,
    shares: Shares,
    /// By pCPU: vCPUs that wait, who runs, and how much of what it has not been
    /// charged for yet is counted already.
    waiting: Vec<usize>,
    running: Vec<Option<usize>>,
    counted: Vec<Ns>,
}

impl Tree {
    pub(super) const fn new(turns: Turns) -> Self {
        Self {
            turns,
            pcpus: 0,
            vcpus: 0,
            entities: Vec::new(),
            queues: Vec::new(),
            home: Vec::new(),
            group: Vec::new(),
            shares: Shares::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Every vCPU has its home and sleeps. Without `groups` no VM is one here, whatever the
    /// machine says.
    pub(super) fn start(&mut self, host: &Host<'_>, home: Vec<CpuId>, groups: bool) {
        self.pcpus = host.pcpu_count() as usize;
        self.vcpus = home.len();
        self.shares = Shares::of(host, &home, groups);
        self.group = host.vcpus().map(|v| self.shares.group_of(v)).collect();
        let entity = |weight: u64| Entity {
            vruntime: 0,
            weight,
            queue: 0,
            at: At::Off,
            arrival: 0,
            turn: Ns::ZERO,
        };
        let weights = host.vcpus().map(|v| u64::from(host.vcpu(v).weight.max(1)));
        self.entities = weights.map(entity).collect();
        for _ in 0..self.shares.groups() {
            for pcpu in 0..self.pcpus {
                self.entities.push(Entity {
                    queue: pcpu,
                    ..entity(1)
                });
            }
        }
        self.queues = vec![Queue::default(); self.pcpus * (1 + self.shares.groups())];
        self.home = home;
        for vcpu in 0..self.vcpus {
            self.entities[vcpu].queue = self.queue_for(vcpu);
        }
        self.waiting = vec![0; self.pcpus];
        self.running = vec![None; self.pcpus];
        self.counted = vec![Ns::ZERO; self.pcpus];
    }

    /// Is any VM a control group?
    pub(super) fn has_groups(&self) -> bool {
        self.shares.groups() > 0
    }

    pub(super) fn home(&self, vcpu: Vcpu) -> CpuId {
        self.home[vcpu.index()]
    }

    /// How many wait on a pCPU.
    pub(super) fn len(&self, pcpu: CpuId) -> usize {
        self.waiting[pcpu.index()]
    }

    /// Who waits on a pCPU, in the order in which they would run; last those that
    /// wait for another vCPU of their group, which runs.
    pub(super) fn waiting(&self, pcpu: CpuId) -> impl DoubleEndedIterator<Item = Vcpu> + '_ {
        let root = &self.queues[pcpu.index()];
        let queued = root.queued.iter().map(|&(.., entity)| entity);
        queued.chain(root.current).flat_map(|entity| {
            let own = (entity < self.vcpus && Some(entity) != root.current).then_some(entity);
            let below = self.queue_of(entity).map(|q| &self.queues[q].queued);
            let below = below.into_iter().flat_map(Ordered::iter);
            own.into_iter()
                .chain(below.map(|&(.., entity)| entity))
                .map(|entity| Vcpu(entity as u32))
        })
    }

    /// Virtual time of `real` time for an entity.
    fn virtual_time(&self, entity: usize, real: Ns) -> u64 {
        let weight = self.entities[entity].weight;
        real.scaled(u64::from(NORMAL_WEIGHT), weight).as_ns()
    }

    /// The queue that a vCPU belongs into by its home.
    fn queue_for(&self, vcpu: usize) -> usize {
        let pcpu = self.home[vcpu].index();
        self.group[vcpu].map_or(pcpu, |group| self.pcpus * (1 + group) + pcpu)
    }

    /// The queue of what a group has on a pCPU.
    fn queue_of(&self, entity: usize) -> Option<usize> {
        (entity >= self.vcpus).then(|| entity - self.vcpus + self.pcpus)
    }

    /// The entity whose queue an entity is in.
    fn parent(&self, entity: usize) -> Option<usize> {
        let queue = self.entities[entity].queue;
        (queue >= self.pcpus).then(|| queue - self.pcpus + self.vcpus)
    }

    /// A vCPU and the group that it is in.
    fn up(&self, vcpu: usize) -> [Option<usize>; 2] {
        [Some(vcpu), self.parent(vcpu)]
    }

    fn queue_in(&mut self, entity: usize) {
        let e = &mut self.entities[entity];
        let queue = &mut self.queues[e.queue];
        queue.arrivals += 1;
        e.arrival = queue.arrivals;
        e.at = At::Queued;
        queue.queued.insert((e.vruntime, e.arrival, entity));
    }

    fn queue_out(&mut self, entity: usize) {
        let e = &self.entities[entity];
        let key = (e.vruntime, e.arrival, entity);
        self.queues[e.queue].queued.remove(&key);
    }

    fn update_floor(&mut self, queue: usize) {
        let q = &self.queues[queue];
        let first = q.queued.first().map(|(vruntime, ..)| *vruntime);
        let current = q.current.map(|entity| self.entities[entity].vruntime);
        if let Some(least) = first.into_iter().chain(current).min() {
            let floor = &mut self.queues[queue].floor;
            *floor = (*floor).max(least);
        }
    }

    /// Not more than `credit` behind those that ran on (in virtual time, as Linux'
    /// sleeper credit).
    fn place(&mut self, entity: usize, credit: Ns) {
        let e = &mut self.entities[entity];
        let floor = self.queues[e.queue].floor.saturating_sub(credit.as_ns());
        e.vruntime = e.vruntime.max(floor);
    }

    /// Counts what whoever runs on a pCPU has had up to now.
    pub(super) fn count(&mut self, host: &Host<'_>, pcpu: CpuId) {
        if let Some(vcpu) = self.running[pcpu.index()] {
            let more = self.uncounted(host, pcpu.index(), vcpu);
            self.counted[pcpu.index()] += more;
            self.ran(vcpu, more);
        }
    }

    /// What a vCPU that runs on a pCPU has had and is not counted yet.
    fn uncounted(&self, host: &Host<'_>, pcpu: usize, vcpu: usize) -> Ns {
        host.uncharged(Vcpu(vcpu as u32)) - self.counted[pcpu]
    }

    fn ran(&mut self, vcpu: usize, time: Ns) {
        for entity in self.up(vcpu).into_iter().flatten() {
            let more = self.virtual_time(entity, time);
            let e = &mut self.entities[entity];
            e.vruntime += more;
            e.turn += time;
            let queue = e.queue;
            self.update_floor(queue);
        }
    }

    /// It ran, `time` since the last call.
    pub(super) fn charge(&mut self, vcpu: Vcpu, pcpu: CpuId, time: Ns) {
        let counted = std::mem::take(&mut self.counted[pcpu.index()]);
        self.ran(vcpu.index(), time - counted);
    }

    /// A vCPU weighs this from now on (`reweight_entity()`).
    pub(super) fn set_weight(&mut self, host: &Host<'_>, vcpu: Vcpu, weight: u64) {
        let n = vcpu.index();
        let queue = self.entities[n].queue;
        self.count(host, CpuId((queue % self.pcpus) as u32));
        self.shares.set_weight(n, host.now(), weight);
        let e = &mut self.entities[n];
        let before = std::mem::replace(&mut e.weight, weight);
        if e.at != At::Off {
            let queue = &mut self.queues[queue];
            queue.weight = queue.weight + weight - before;
        }
        self.reweigh(queue);
    }

    /// The VM that is a control group, and of which this vCPU is one, has so many shares
    /// from now on; on each pCPU it weighs by them from its next tick there on.
    pub(super) fn set_shares(&mut self, vcpu: Vcpu, shares: u64) {
        if let Some(group) = self.group[vcpu.index()] {
            self.shares.set_shares(group, shares);
        }
    }

    /// The weight of a group on a pCPU follows its load (`update_cfs_group()`).
    fn reweigh(&mut self, queue: usize) {
        if queue < self.pcpus {
            return;
        }
        let (group, pcpu) = (queue / self.pcpus - 1, queue % self.pcpus);
        let entity = self.vcpus + queue - self.pcpus;
        let weight = self.shares.weight(group, pcpu, self.queues[queue].weight);
        let e = &mut self.entities[entity];
        let before = std::mem::replace(&mut e.weight, weight);
        if e.at != At::Off {
            let root = &mut self.queues[pcpu];
            root.weight = root.weight + weight - before;
        }
    }

    /// A vCPU comes into its queue, its group into the pCPU's if it is not there.
    fn enqueue(&mut self, host: &Host<'_>, vcpu: usize, credit: Ns) {
        self.shares.set(vcpu, host.now(), true);
        let queue = self.entities[vcpu].queue;
        self.waiting[queue % self.pcpus] += 1;
        self.add(vcpu);
        self.reweigh(queue);
        if let Some(group) = self.parent(vcpu)
            && self.entities[group].at == At::Off
        {
            self.place(group, credit);
            self.add(group);
        }
    }

    fn add(&mut self, entity: usize) {
        let e = self.entities[entity];
        self.queues[e.queue].weight += e.weight;
        self.queues[e.queue].count += 1;
        self.queue_in(entity);
    }

    /// A vCPU leaves its queue; its group leaves the pCPU's with the last one, and
    /// is queued there if the vCPU had the pCPU.
    fn dequeue(&mut self, host: &Host<'_>, vcpu: usize, wants: bool) {
        let queue = self.entities[vcpu].queue;
        let ran = self.entities[vcpu].at == At::Current;
        if ran {
            self.running[queue % self.pcpus] = None;
        } else {
            self.waiting[queue % self.pcpus] -= 1;
        }
        self.shares.set(vcpu, host.now(), wants);
        self.remove(vcpu);
        if let Some(group) = self.parent(vcpu) {
            if self.queues[queue].count == 0 {
                self.remove(group);
            } else if ran {
                self.put(group);
            }
            self.reweigh(queue);
        }
    }

    fn remove(&mut self, entity: usize) {
        let e = self.entities[entity];
        if e.at == At::Queued {
            self.queue_out(entity);
        }
        self.entities[entity].at = At::Off;
        let queue = &mut self.queues[e.queue];
        queue.current = queue.current.filter(|&current| current != entity);
        queue.before = queue.before.filter(|&before| before != entity);
        queue.weight -= e.weight;
        queue.count -= 1;
        self.update_floor(e.queue);
    }

    /// The current one goes back into its queue.
    fn put(&mut self, entity: usize) {
        let queue = self.entities[entity].queue;
        self.queues[queue].current = None;
        self.queues[queue].before = Some(entity);
        self.queue_in(entity);
        self.update_floor(queue);
    }

    /// A vCPU that slept wants to run: it is not more than `credit` behind.
    pub(super) fn wake(&mut self, host: &Host<'_>, vcpu: Vcpu, credit: Ns) {
        self.place(vcpu.index(), credit);
        self.enqueue(host, vcpu.index(), credit);
    }

    /// A vCPU that ran would go on: it waits at home.
    pub(super) fn back(&mut self, host: &Host<'_>, vcpu: Vcpu) {
        let n = vcpu.index();
        let queue = self.entities[n].queue;
        if self.queue_for(n) == queue {
            self.running[queue % self.pcpus] = None;
            self.waiting[queue % self.pcpus] += 1;
            for entity in self.up(n).into_iter().flatten() {
                self.put(entity);
            }
        } else {
            self.move_on(host, n);
        }
    }

    /// One that wants to run goes into the queue of its home. Its lead counts from
    /// what the floor was with it.
    fn move_on(&mut self, host: &Host<'_>, vcpu: usize) {
        let floor = self.queues[self.entities[vcpu].queue].floor;
        self.dequeue(host, vcpu, true);
        self.change_queue(vcpu, floor);
        self.enqueue(host, vcpu, Ns::ZERO);
    }

    /// A vCPU that ran sleeps.
    pub(super) fn halt(&mut self, host: &Host<'_>, vcpu: Vcpu) {
        let floor = self.queues[self.entities[vcpu.index()].queue].floor;
        self.dequeue(host, vcpu.index(), false);
        self.change_queue(vcpu.index(), floor);
    }

    /// One that is in no queue follows its home; its lead or lag over `floor` goes with it.
    fn change_queue(&mut self, vcpu: usize, floor: u64) {
        let to = self.queue_for(vcpu);
        let e = &mut self.entities[vcpu];
        if std::mem::replace(&mut e.queue, to) != to {
            e.vruntime = (e.vruntime + self.queues[to].floor).saturating_sub(floor);
        }
    }

    /// Changes where a vCPU lives. One that runs goes on where it is until it stops.
    pub(super) fn carry(&mut self, host: &Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        let n = vcpu.index();
        let from = std::mem::replace(&mut self.home[n], pcpu);
        if from == pcpu {
            return;
        }
        self.shares.carry(n, from, pcpu);
        match self.entities[n].at {
            At::Off => {
                let floor = self.queues[self.entities[n].queue].floor;
                self.change_queue(n, floor);
            }
            At::Queued => self.move_on(host, n),
            At::Current => {}
        }
    }

    /// Takes a vCPU off the queues to run it on `pcpu`, which becomes its home.
    pub(super) fn take(&mut self, host: &Host<'_>, vcpu: Vcpu, pcpu: CpuId) {
        self.carry(host, vcpu, pcpu);
        let n = vcpu.index();
        self.waiting[pcpu.index()] -= 1;
        self.running[pcpu.index()] = Some(n);
        self.counted[pcpu.index()] = Ns::ZERO;
        for entity in self.up(n).into_iter().flatten() {
            self.queue_out(entity);
            let e = &mut self.entities[entity];
            e.at = At::Current;
            let queue = e.queue;
            if self.queues[queue].before.take() != Some(entity) {
                e.turn = Ns::ZERO;
            }
            self.queues[queue].current = Some(entity);
            self.update_floor(queue);
        }
    }

    /// How much more than who has had least on its pCPU a vCPU has had, or its VM where
    /// that is a control group: in CPU time of its share, as of now.
    pub(super) fn ahead(&self, host: &Host<'_>, vcpu: Vcpu) -> Ns {
        let n = vcpu.index();
        let entity = self.parent(n).unwrap_or(n);
        let pcpu = self.home[n].index();
        let uncounted = match self.running[pcpu] {
            Some(running) if self.parent(running).unwrap_or(running) == entity => {
                self.uncounted(host, pcpu, running)
            }
            _ => Ns::ZERO,
        };
        let e = &self.entities[entity];
        let lead = e.vruntime.saturating_sub(self.queues[e.queue].floor);
        Ns(lead).scaled(e.weight, u64::from(NORMAL_WEIGHT)) + uncounted
    }

    /// What it has had, by weight, among those of its queue, as of now.
    pub(super) fn had(&self, host: &Host<'_>, vcpu: Vcpu) -> u64 {
        let n = vcpu.index();
        let counted = self.running.iter().position(|&r| r == Some(n));
        let counted = counted.map_or(Ns::ZERO, |pcpu| self.counted[pcpu]);
        let more = host.uncharged(vcpu) - counted;
        self.entities[n].vruntime + self.virtual_time(n, more)
    }
}
