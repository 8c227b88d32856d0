// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical machine and what is known of every vCPU on it.
//!
//! Facts only: the engine writes them, hypervisor policies and reports read
//! them. Every nanosecond of a pCPU and of a vCPU is in exactly one of the
//! counters here; [`Machine::check`] proves it.

mod books;

use std::ops::Range;

use policy::host::rass::Cycles;
use units::CpuId;
use units::Ns;
use units::Time;
use units::VcpuId;

use crate::ids::Vcpu;
use crate::ids::VmId;
use crate::record::VcpuLog;

/// The weight of a VM or vCPU for which nothing else was said: nice 0 in Linux.
pub const NORMAL_WEIGHT: u32 = 1024;

/// What switching and moving cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A pCPU changes to another vCPU: exit, scheduler, entry, cold caches. Paid
    /// before the new vCPU runs; nobody runs meanwhile.
    pub vcpu_switch: Ns,
    /// Out of a halt: its exit and entry and what they flush, timers, the guest's way
    /// out of its idle loop. Paid by whoever was woken, before it runs, in addition to
    /// `vcpu_switch` if another vCPU has had the pCPU meanwhile.
    pub vcpu_wake: Ns,
    /// Added to `vcpu_wake` for as long as others have had the pCPU meanwhile, in
    /// thousandths of that time: what a woken vCPU finds gone from the caches.
    pub vcpu_wake_cold: u32,
    /// So much time of others counts for `vcpu_wake_cold` at most.
    pub wake_cold_after: Ns,
    /// Added when others have had the pCPU, in proportion to how long, up to all of
    /// it after `cache_after`: caches and TLB have to be filled again.
    pub vcpu_cache: Ns,
    /// So many pCPUs share the last cache, of which each has a part: where a machine has
    /// fewer, a vCPU finds a larger part to be filled, and that takes longer as well.
    pub cache_pcpus: u32,
    /// After so long nothing is left of a vCPU in the caches of its pCPU.
    pub cache_after: Ns,
    /// Added when the vCPU last ran on another pCPU.
    pub vcpu_migration: Ns,
    /// From a kick of another pCPU until it looks at its queue (an IPI).
    pub ipi: Ns,
    /// From the event until a vCPU that retained its context or polled runs on.
    pub resume: Ns,
}

impl Costs {
    /// Nothing costs anything: for results that are worked by hand.
    pub const FREE: Self = Self {
        vcpu_switch: Ns::ZERO,
        vcpu_wake: Ns::ZERO,
        vcpu_wake_cold: 0,
        wake_cold_after: Ns::ZERO,
        vcpu_cache: Ns::ZERO,
        cache_pcpus: 1,
        cache_after: Ns::from_ms(1),
        vcpu_migration: Ns::ZERO,
        ipi: Ns::ZERO,
        resume: Ns::ZERO,
    };
}

impl Costs {
    /// What it takes to fill the caches on a machine of so many pCPUs, if nothing is left.
    pub(crate) fn cache(&self, pcpus: u32) -> Ns {
        let sharing = self.cache_pcpus.max(1);
        let here = pcpus.clamp(1, sharing);
        self.vcpu_cache.scaled(u64::from(sharing), u64::from(here))
    }
}

impl Default for Costs {
    /// None is stated in the papers (section 14). 5 us for a switch: a KVM exit
    /// and entry take 1..2 us each and L1 and TLB have to be filled again; 3 us
    /// for an IPI through the hypervisor; 1 us to leave MWAIT; cold after 1 ms, in
    /// which a core can read a few MB.
    fn default() -> Self {
        Self {
            vcpu_switch: Ns::from_us(5),
            vcpu_wake: Ns::ZERO,
            vcpu_wake_cold: 0,
            wake_cold_after: Ns::ZERO,
            vcpu_cache: Ns::ZERO,
            cache_pcpus: 1,
            cache_after: Ns::from_ms(1),
            vcpu_migration: Ns::from_us(5),
            ipi: Ns::from_us(3),
            resume: Ns::from_us(1),
        }
    }
}

/// Speed of a hyperthread, in thousandths of that with an idle sibling, by what
/// the sibling does (B7, table 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smt {
    /// The sibling computes. Not stated (B7: "about 50 % expected").
    pub computing: u32,
    /// The sibling polls in the halt-polling loop: 730 (B7).
    pub polling: u32,
    /// The sibling is switching vCPUs: 320 (B7).
    pub switching: u32,
    /// The sibling retains a context with MWAIT: as if it were idle (M1).
    pub retaining: u32,
}

impl Default for Smt {
    fn default() -> Self {
        Self {
            computing: 600,
            polling: 730,
            switching: 320,
            retaining: 1000,
        }
    }
}

/// What a pCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing.
    Idle,
    /// Changes vCPUs.
    Switching,
    /// Runs a vCPU.
    Running,
    /// Polls on behalf of a vCPU that waits (B4).
    Polling,
    /// Retains the context of a vCPU that waits (M1).
    Retaining,
}

impl Activity {
    /// Is it for a vCPU that waits?
    pub(crate) const fn is_wait(self) -> bool {
        matches!(self, Self::Polling | Self::Retaining)
    }
}

/// How a hyperthread gets on beside its sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// In thousandths of the speed with an idle sibling.
    pub(crate) speed: u32,
    /// The sibling retains a context: what runs here can be measured as if alone (M18).
    pub(crate) sibling_retains: bool,
}

/// One pCPU (a hyperthread where there are two per core).
#[derive(Clone, Debug)]
pub struct Pcpu {
    /// The other hyperthread of its core.
    pub sibling: Option<CpuId>,
    /// The vCPU that has it: running, being switched to, polling or retaining.
    pub vcpu: Option<Vcpu>,
    /// What it does.
    pub activity: Activity,
    /// Since when it does so.
    pub since: Time,
    /// Time spent on each activity before `since`, in the order of the enum.
    pub spent: [Ns; 5],
    /// See [`Pcpu::for_vm`]. Those that have been here alone: with all VMs of a large
    /// machine for each pCPU it would be most of the memory.
    pub(crate) for_vms: Vec<(VmId, Ns)>,
    /// The vCPU that had it last: going back to it is no switch.
    pub last: Option<Vcpu>,
    /// Switches from one vCPU to another.
    pub switches: u64,
    /// All context switches, to and from the idle task included.
    pub turns: u64,
    /// When the slice of the present vCPU ends, if it does.
    pub slice_end: Option<Time>,
    pub(crate) epoch: u32,
    /// Kicks to come.
    pub(crate) kicks: Vec<Time>,
}

/// What a vCPU is doing, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for an event and has no pCPU (M28 "waiting").
    Halted,
    /// It wants to run and has no pCPU (M28 "ready").
    Queued,
    /// It has this pCPU (M28 "running"); also while being switched to.
    Running(CpuId),
    /// It waits for an event and keeps this pCPU, polling or retaining its
    /// context.
    Waiting(CpuId),
}

/// One vCPU, seen by the host. Laid out as written, a line of the cache for each paragraph:
/// what each request asks for comes first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct VcpuFacts {
    /// Its VM.
    pub vm: VmId,
    /// Its number in that VM.
    pub id: VcpuId,
    /// What it is doing.
    pub state: State,
    pub(crate) epoch: u32,
    /// Where it ran last.
    pub last_pcpu: Option<CpuId>,
    /// It was woken and has not had a pCPU since.
    pub(crate) woken: bool,
    /// It is the guest that waits there: to the host this vCPU runs.
    pub(crate) waits_in_guest: bool,
    /// I/O completions that arrived for it (the response events of I2).
    pub io_events: u64,
    /// Since when it is in its state.
    pub since: Time,
    /// Time running, polling and retaining included: what a policy charges.
    pub ran: Ns,
    /// Of `ran`, what its policy has not been charged for.
    pub(crate) owed: Ns,

    /// Of `ran`, what it ran on `last_pcpu` and that pCPU's account of VMs has not yet.
    pub(crate) here: Ns,
    /// Time ready without a pCPU.
    pub ready: Ns,
    /// When it last lost a pCPU.
    pub(crate) left: Time,
    /// How long that pCPU had been idle by then, in all.
    pub(crate) left_idle: Ns,
    /// Time halted.
    pub halted: Ns,
    /// Times it lost its pCPU although it wanted to go on.
    pub preempted: u64,
    /// Times it got a pCPU that another vCPU had before.
    pub switched_in: u64,
    /// Its share under contention, in the units of Linux ([`NORMAL_WEIGHT`]).
    pub weight: u32,

    /// The pCPUs on which it may run; empty means all.
    pub allowed: Vec<CpuId>,
    /// Of `ran`, time in which it kept its pCPU while it waited.
    pub waited_on_pcpu: Ns,
    /// Work done, in nanoseconds at full speed: `ran` without waiting, switch
    /// costs and what a sibling took (B7). A stand-in for instructions: work
    /// per running time is the IPC of M11.
    pub work: Ns,
    /// Of that, what it did while the sibling hyperthread retained a context, as far as
    /// its tasks say what their cycles go into ([`crate::guest::Profile`]): the cycle
    /// account of M18, in ns at full speed.
    pub cycles: Cycles,
    /// Times it got another pCPU than the last time.
    pub migrations: u64,
    /// Wake-ups from halted.
    pub wakeups: u64,
    /// Times it waited on its pCPU (polls and retentions), and of those, times
    /// that ended by the event and not by the timeout.
    pub waits: u64,
    /// See `waits`.
    pub waits_paid: u64,
    /// IPIs that it has sent to other vCPUs of its VM.
    pub ipis_sent: u64,
    /// When it began to wait on its pCPU.
    pub(crate) wait_began: Time,
}

/// One VM, seen by the host.
#[derive(Clone, Debug)]
pub struct VmFacts {
    /// Its name in the scenario.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: Range<u32>,
    /// Its weight; each of its vCPUs has this weight at the start.
    pub weight: u32,
    /// It is a control group of so many shares; its vCPUs share them by weight.
    pub shares: Option<u32>,
    /// The most CPU time that all its vCPUs have together even if pCPUs are idle, in
    /// thousandths of a pCPU, in equal parts; 0: no limit. Credit1 and iSche heed it (K1).
    pub cap_permille: u32,
    /// Declared I/O-intensive by the administrator (S4).
    pub io_intensive: bool,
    /// It is a driver domain: it serves the others' I/O (6.1, S3).
    pub driver_domain: bool,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What switching and moving cost.
    pub costs: Costs,
    /// How hyperthreads slow each other down.
    pub smt: Smt,
    /// By [`CpuId`].
    pub pcpus: Vec<Pcpu>,
    /// By [`Vcpu`].
    pub vcpus: Vec<VcpuFacts>,
    /// By [`VmId`].
    pub vms: Vec<VmFacts>,
    pub(crate) started: Time,
    pub(crate) log: Option<VcpuLog>,
}

impl Pcpu {
    /// Of [`Activity::Running`] and [`Activity::Switching`], what was for a VM, as of the
    /// last [`crate::engine::Sim::run_until`].
    #[must_use]
    pub fn for_vm(&self, vm: VmId) -> Ns {
        let own = self.for_vms.iter().find(|(other, _)| *other == vm);
        own.map_or(Ns::ZERO, |(_, had)| *had)
    }

    /// Books time for a VM.
    pub(crate) fn add_for_vm(&mut self, vm: VmId, had: Ns) {
        if had == Ns::ZERO {
            return;
        }
        match self.for_vms.iter_mut().find(|(other, _)| *other == vm) {
            Some((_, sum)) => *sum += had,
            None => self.for_vms.push((vm, had)),
        }
    }

    /// How long it has been idle so far.
    pub(crate) fn idled(&self, now: Time) -> Ns {
        let open = if self.activity == Activity::Idle {
            now.since(self.since)
        } else {
            Ns::ZERO
        };
        self.spent[Activity::Idle as usize] + open
    }
}

impl Machine {
    /// A machine of `count` pCPUs without VMs; with `smt`, pCPUs 2n and 2n+1 are
    /// the hyperthreads of one core.
    #[must_use]
    pub fn new(count: u32, two_threads: bool, costs: Costs, smt: Smt) -> Self {
        let sibling = |n: u32| Some(CpuId(n ^ 1)).filter(|s| two_threads && s.0 < count);
        Self {
            costs,
            smt,
            pcpus: (0..count)
                .map(|n| Pcpu {
                    sibling: sibling(n),
                    vcpu: None,
                    activity: Activity::Idle,
                    since: Time::ZERO,
                    spent: [Ns::ZERO; 5],
                    for_vms: Vec::new(),
                    last: None,
                    switches: 0,
                    turns: 0,
                    slice_end: None,
                    epoch: 0,
                    kicks: Vec::new(),
                })
                .collect(),
            vcpus: Vec::new(),
            vms: Vec::new(),
            started: Time::ZERO,
            log: None,
        }
    }

    /// Adds a VM; `pins[i]` lists the pCPUs of its vCPU i (none: all).
    pub fn add_vm(&mut self, name: &str, weight: u32, pins: &[Vec<CpuId>]) -> VmId {
        let vm = VmId(self.vms.len() as u32);
        let first = self.vcpus.len() as u32;
        for (nth, allowed) in pins.iter().enumerate() {
            self.vcpus.push(VcpuFacts {
                vm,
                id: VcpuId(nth as u32),
                weight,
                allowed: allowed.clone(),
                state: State::Halted,
                since: Time::ZERO,
                last_pcpu: None,
                ran: Ns::ZERO,
                waited_on_pcpu: Ns::ZERO,
                ready: Ns::ZERO,
                halted: Ns::ZERO,
                work: Ns::ZERO,
                cycles: Cycles::default(),
                switched_in: 0,
                migrations: 0,
                preempted: 0,
                wakeups: 0,
                waits: 0,
                waits_paid: 0,
                io_events: 0,
                ipis_sent: 0,
                epoch: 0,
                left: Time::ZERO,
                left_idle: Ns::ZERO,
                wait_began: Time::ZERO,
                woken: false,
                waits_in_guest: false,
                owed: Ns::ZERO,
                here: Ns::ZERO,
            });
        }
        self.vms.push(VmFacts {
            name: name.to_owned(),
            vcpus: first..first + pins.len() as u32,
            weight,
            shares: None,
            cap_permille: 0,
            io_intensive: false,
            driver_domain: false,
        });
        vm
    }

    /// The host's name of a VM's vCPU.
    #[must_use]
    pub fn vcpu(&self, vm: VmId, id: VcpuId) -> Vcpu {
        Vcpu(self.vms[vm.index()].vcpus.start + id.0)
    }

    /// May this vCPU run there?
    #[must_use]
    pub fn allows(&self, vcpu: Vcpu, pcpu: CpuId) -> bool {
        let allowed = &self.vcpus[vcpu.index()].allowed;
        allowed.is_empty() || allowed.contains(&pcpu)
    }

    /// How a pCPU gets on now.
    pub(crate) fn pace(&self, pcpu: CpuId) -> Pace {
        let sibling = self.pcpus[pcpu.index()].sibling;
        let retains = |s: CpuId| self.pcpus[s.index()].activity == Activity::Retaining;
        Pace {
            speed: self.speed(pcpu),
            sibling_retains: sibling.is_some_and(retains),
        }
    }

    /// Speed of a pCPU now, in thousandths of that with an idle sibling (B7).
    #[must_use]
    pub fn speed(&self, pcpu: CpuId) -> u32 {
        let Some(sibling) = self.pcpus[pcpu.index()].sibling else {
            return 1000;
        };
        match self.pcpus[sibling.index()].activity {
            Activity::Idle => 1000,
            Activity::Switching => self.smt.switching,
            Activity::Running => self.smt.computing,
            Activity::Polling => self.smt.polling,
            Activity::Retaining => self.smt.retaining,
        }
    }
}
