// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run of the freezer, from start to stop.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use libbpf_rs::MapCore;
use rustix::time::ClockId;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

use crate::exclusive::Exclusive;
use crate::load;
use crate::load::Loaded;
use crate::options::Options;
use crate::options::StartError;
use crate::plan::Pattern;
use crate::plan::Plan;
use crate::plan::PlanError;
use crate::probe::online_cpus;
use crate::skel::types;
use crate::steal;
use crate::steal::StealEntry;
use crate::trace::Event;
use crate::trace::Span;

/// Fewest and most events that one CPU's log is made for, unless
/// [`Options::log_per_cpu`] says otherwise. The most is 8 MiB per CPU.
const LOG_MIN: u64 = 1 << 10;
const LOG_MAX: u64 = 1 << 18;
/// Recorded pairs that a later plan may have in all, if the first has fewer.
const PAIRS_MIN: usize = 4096;
/// One CPU's counters since the start. Nothing is ever missing from them, also
/// when the log is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Which CPU.
    pub cpu: VcpuId,
    /// Gaps that have ended.
    pub gaps: u64,
    /// Their lengths in all.
    pub frozen: Ns,
    /// How much later than planned the CPU was taken away, in all.
    pub late: Ns,
    /// And at most.
    pub late_max: Ns,
    /// How much later than planned the CPU came back, in all.
    pub overrun: Ns,
    /// And at most.
    pub overrun_max: Ns,
    /// Gaps ended early because all CPUs were off for too long.
    pub capped: u64,
    /// Gaps that are in the log.
    pub logged: u64,
    /// Gaps that found the log full.
    pub dropped: u64,
    /// Times that the slice timer could not be set; the tick ended those slices.
    pub timer_errors: u64,
}

/// A run. Dropping it stops it.
pub struct Freezer {
    bpf: Loaded,
    cpus: CpuSet,
    t0: Time,
    deadline: Time,
    log_per_cpu: u32,
    pairs_per_bank: usize,
    limit_fixed: bool,
    /// Held while the plan is being changed.
    changing: Mutex<()>,
    stopped: Option<Time>,
    _exclusive: Exclusive,
}

/// A run whose programs are loaded and attached and freeze nothing yet: to begin takes
/// microseconds, to get here a good part of a second. Dropping it leaves nothing behind.
pub struct Ready {
    freezer: Freezer,
    plan: Plan,
    options: Options,
}

impl Ready {
    /// Starts freezing, see [`Freezer::start`]. The deadline counts from here.
    #[must_use]
    pub fn begin(mut self) -> Freezer {
        self.freezer.begin(&self.plan, &self.options);
        self.freezer
    }
}

/// Now, on the clock of the log: `CLOCK_MONOTONIC`.
fn now() -> Time {
    let t = rustix::time::clock_gettime(ClockId::Monotonic);
    Time(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}

impl Freezer {
    /// Starts freezing. Every CPU of the plan begins with a slice, at the same
    /// instant; all of them notice within 100 us, the first gap is due at the end
    /// of the plan's shortest first slice.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is frozen then.
    pub fn start(plan: &Plan, options: &Options) -> Result<Self, StartError> {
        Ok(Self::ready(plan, options)?.begin())
    }

    /// All of [`Freezer::start`] that takes long: for who has to begin at an instant.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn ready(plan: &Plan, options: &Options) -> Result<Ready, StartError> {
        options.check()?;
        let online = online_cpus()?;
        for cpu in plan.cpus().iter() {
            if !online.contains(cpu) {
                return Err(StartError::Offline {
                    cpu,
                    online: Box::new(online),
                });
            }
        }
        let exclusive = Exclusive::take(options.wait.to_std())
            .map_err(StartError::Exclusive)?
            .ok_or(StartError::AlreadyRunning)?;

        let log_per_cpu = options.log_per_cpu.unwrap_or_else(|| {
            let enough = plan.periods_within(options.deadline).saturating_mul(3) / 2;
            // The clamp makes it fit.
            u32::try_from(enough.clamp(LOG_MIN, LOG_MAX)).unwrap_or(u32::MAX)
        });
        let pairs_per_bank = recorded_pairs(plan).max(PAIRS_MIN);
        let sizes = load::Sizes {
            pairs_per_bank: u32::try_from(pairs_per_bank)
                .map_err(|_| PlanError::new("recorded pairs", pairs_per_bank, "at most 2^31"))?,
            log_per_cpu,
        };
        let bpf = load::load(&sizes, &plan.cpus())?;
        let freezer = Self {
            bpf,
            cpus: plan.cpus(),
            t0: Time::ZERO,
            deadline: Time::ZERO,
            log_per_cpu,
            pairs_per_bank,
            limit_fixed: options.all_off_limit.is_some(),
            changing: Mutex::new(()),
            stopped: None,
            _exclusive: exclusive,
        };
        Ok(Ready {
            freezer,
            plan: plan.clone(),
            options: options.clone(),
        })
    }

    fn begin(&mut self, plan: &Plan, options: &Options) {
        for (slot, lane) in (0..).zip(plan.lanes()) {
            self.bpf.lanes.set(
                lane.cpu.index(),
                types::fz_lane {
                    slot,
                    member: 1,
                    ..types::fz_lane::default()
                },
            );
        }
        self.write_bank(plan, 0);
        let limit = options
            .all_off_limit
            .unwrap_or_else(|| plan.all_off_limit());
        self.t0 = now();
        self.deadline = self.t0 + options.deadline;
        self.bpf.ctl.set(
            0,
            types::fz_ctl {
                t0_ns: self.t0.0,
                deadline_ns: self.deadline.0,
                all_off_limit_ns: limit.0,
                state: types::fz_state::FZ_PREPARING,
                nr_lanes: self.cpus.len(),
                ..types::fz_ctl::default()
            },
        );
        self.state()
            .store(types::fz_state::FZ_RUNNING.0, Ordering::Release);
    }

    /// Changes the plan: each CPU finishes its present slice or gap as it was
    /// planned, and what follows is of the new plan. Phases go on from where they
    /// are, so [`Lane::first_on`](crate::plan::Lane::first_on) has no effect.
    ///
    /// # Errors
    /// If the new plan is for other CPUs or has more
    /// recorded pairs than there is room for (4096, or as many as the first plan).
    pub fn replan(&self, plan: &Plan) -> Result<(), PlanError> {
        if plan.cpus() != self.cpus {
            return Err(PlanError::new(
                "cpus",
                plan.cpus(),
                format_args!("{}, as at the start", self.cpus),
            ));
        }
        let pairs = recorded_pairs(plan);
        if pairs > self.pairs_per_bank {
            return Err(PlanError::new(
                "recorded pairs",
                pairs,
                format_args!("at most {}", self.pairs_per_bank),
            ));
        }
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.limit_fixed {
            let limit = plan.all_off_limit().0;
            // SAFETY: the address of a u64 inside the mapping, aligned as the
            // generated type is.
            unsafe { (&raw mut (*self.bpf.ctl.at(0)).all_off_limit_ns).write_volatile(limit) };
        }
        let next = 1 - (self.bank().load(Ordering::Relaxed) & 1);
        self.write_bank(plan, next);
        // A CPU that still reads a bank that is written twice in a row may take
        // one length of each plan, once; both are valid, and BPF bounds gaps.
        self.bank().store(next, Ordering::Release);
        Ok(())
    }

    /// Gives every CPU back at once and freezes nothing any more. For good: a new
    /// run is a new [`Freezer`]. The log and the counters stay readable.
    pub fn stop(&mut self) {
        if self.stopped.is_none() {
            self.state()
                .store(types::fz_state::FZ_STOPPED.0, Ordering::SeqCst);
            self.stopped = Some(now());
        }
    }

    /// Can CPUs still be frozen: neither stopped nor past the deadline?
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stopped.is_none() && now() < self.deadline
    }

    /// From the start to now, or to the stop or the deadline if that was earlier.
    #[must_use]
    pub fn span(&self) -> Span {
        let end = self.stopped.unwrap_or_else(now).min(self.deadline);
        Span {
            from: self.t0,
            to: end.max(self.t0),
        }
    }

    /// The CPUs of the plan.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.cpus
    }

    /// All gaps so far that have ended, by CPU and then by time. A gap in progress
    /// is not among them. Can be read at any time, as often as one likes.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        let mut log = Vec::new();
        for (slot, cpu) in self.cpus.iter().enumerate() {
            // SAFETY: the address of an aligned u64 inside the mapping, which BPF
            // writes with atomics only.
            let logged = unsafe {
                std::sync::atomic::AtomicU64::from_ptr(
                    &raw mut (*self.bpf.lanes.at(cpu.index())).nr_logged,
                )
            };
            // Acquire: the events below this count are complete.
            let logged = logged
                .load(Ordering::Acquire)
                .min(u64::from(self.log_per_cpu));
            let first = slot * self.log_per_cpu as usize;
            log.extend((first..).take(logged as usize).map(|index| {
                let event = self.bpf.events.get(index);
                Event {
                    cpu,
                    planned_out: Time(event.planned_out_ns),
                    out: Time(event.out_ns),
                    planned_back: Time(event.planned_back_ns),
                    back: Time(event.back_ns),
                }
            }));
        }
        log
    }

    /// The counters, by CPU.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        let counters = |cpu: VcpuId| {
            let lane = self.bpf.lanes.get(cpu.index());
            Counters {
                cpu,
                gaps: lane.nr_gaps,
                frozen: Ns(lane.frozen_ns),
                late: Ns(lane.late_ns),
                late_max: Ns(lane.late_max_ns),
                overrun: Ns(lane.overrun_ns),
                overrun_max: Ns(lane.overrun_max_ns),
                capped: lane.nr_capped,
                logged: lane.nr_logged,
                dropped: lane.nr_dropped,
                timer_errors: lane.nr_timer_errors,
            }
        };
        self.cpus.iter().map(counters).collect()
    }

    /// The id of the BPF array map with the steal pages: index = CPU, as many
    /// entries as there are possible CPUs, 64 bytes each, laid out as KVM's
    /// `struct kvm_steal_time`. The map lives as long as this run or whoever else
    /// has opened it.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn steal_map_id(&self) -> Result<u32, io::Error> {
        let info = self.bpf.steal_map.info().map_err(io::Error::other)?;
        Ok(info.info.id)
    }

    /// The steal pages of the plan's CPUs as they are now.
    #[must_use]
    pub fn steal_page(&self) -> Vec<StealEntry> {
        self.cpus
            .iter()
            .map(|cpu| steal::read(&self.bpf.steal, cpu))
            .collect()
    }

    /// Is the CPU off now? Zero-cost to ask: one read of the steal page.
    #[must_use]
    pub fn is_off(&self, cpu: VcpuId) -> bool {
        cpu.index() < self.bpf.steal.len() && self.bpf.steal.get(cpu.index()).preempted != 0
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: the address of an aligned u32 inside the mapping, which lives
        // as long as `self`; BPF only reads it.
        unsafe { AtomicU32::from_ptr((&raw mut (*self.bpf.ctl.at(0)).state).cast()) }
    }

    fn bank(&self) -> &AtomicU32 {
        // SAFETY: as for the state.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.bpf.ctl.at(0)).bank) }
    }

    /// Fills one bank with a plan.
    fn write_bank(&self, plan: &Plan, bank: u32) {
        let mut next_pair = 0;
        for lane in plan.lanes() {
            let mut entry = types::fz_plan {
                first_on_ns: lane.first_on.0,
                ..types::fz_plan::default()
            };
            match &lane.pattern {
                Pattern::Fixed(pair) => {
                    entry.on_ns = pair.on.0;
                    entry.off_ns = pair.off.0;
                }
                Pattern::Recorded(pairs) => {
                    entry.first_pair = next_pair;
                    for pair in pairs {
                        let index = bank as usize * self.pairs_per_bank + next_pair as usize;
                        self.bpf.pairs.set(
                            index,
                            types::fz_pair {
                                on_ns: pair.on.0,
                                off_ns: pair.off.0,
                            },
                        );
                        next_pair += 1;
                    }
                    entry.nr_pairs = next_pair - entry.first_pair;
                }
            }
            let index = bank as usize * self.bpf.cpu_ids as usize + lane.cpu.index();
            self.bpf.plans.set(index, entry);
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn recorded_pairs(plan: &Plan) -> usize {
    let pairs = |lane: &crate::plan::Lane| match &lane.pattern {
        Pattern::Fixed(_) => 0,
        Pattern::Recorded(pairs) => pairs.len(),
    };
    plan.lanes().iter().map(pairs).sum()
}
