// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mode xballoon (XB1..XB7): computation beside I/O-bound tasks is held for a
//! part of each slice, as `policy::guest::xballoon` says.
//!
//! | thread | bound to | waits for | does |
//! |---|---|---|---|
//! | `vmg-bal/N` | vCPU N | a new slice, its timer | inflates and deflates the balloon of vCPU N |
//! | `vmg-census` | - | [`CENSUS`] | finds out who computes on which vCPU, and puts them into its balloon |
//!
//! Who computes is asked of `/proc`: the BPF programs know I/O-bound threads only,
//! and a fifth of a second is soon enough for computation. Both kinds of thread do
//! nothing unless some task is I/O-bound.

mod census;

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use policy::guest::xballoon;
use units::Ns;
use units::Permille;
use units::Tid;
use units::Time;
use units::VcpuId;

use self::census::Census;
use self::census::Thread;
use super::core::Core;
use super::count::Wakeup;
use super::thread;
use super::thread::Alarm;
use super::thread::Poke;
use super::thread::Waiter;
use super::view::Tracks;
use crate::act::balloon::Balloon;
use crate::act::balloon::BalloonError;
use crate::act::balloon::Hierarchy;
use crate::act::balloon::Left;
use crate::act::task::Roots;
use crate::report;
use crate::sense::Mode;
use crate::sense::SlotState;
use crate::sense::now;

/// How often it is looked who computes.
const CENSUS: Duration = Duration::from_millis(200);

/// While tasks are I/O-bound somewhere, a balloon looks again after this at the
/// latest: they may have come to its vCPU, or its estimate may have settled.
const LOOK_AGAIN: Ns = Ns::from_ms(50);

/// The balloons of all vCPUs.
pub(super) struct Balloons {
    hierarchy: Hierarchy,
    of: Vec<OfVcpu>,
    census: Poke,
}

/// The balloon of one vCPU. Its thread and the census share it without a lock:
/// either may be descheduled at any instruction.
struct OfVcpu {
    poke: Poke,
    /// One for each cgroup that its threads come from.
    groups: ArcSwap<Vec<Arc<Balloon>>>,
    inflated: AtomicBool,
    inflated_at: AtomicU64,
    inflated_ns: AtomicU64,
    inflations: AtomicU64,
    threads: AtomicU64,
    failed: AtomicU64,
}

impl Balloons {
    /// None inflated.
    pub(super) fn open(nr_vcpus: usize) -> Result<Self, BalloonError> {
        let hierarchy = Hierarchy::open(&Roots::default())?;
        let of_vcpu = || {
            Ok(OfVcpu {
                poke: Poke::new()?,
                groups: ArcSwap::default(),
                inflated: AtomicBool::new(false),
                inflated_at: AtomicU64::new(0),
                inflated_ns: AtomicU64::new(0),
                inflations: AtomicU64::new(0),
                threads: AtomicU64::new(0),
                failed: AtomicU64::new(0),
            })
        };
        let made = || -> io::Result<(Vec<OfVcpu>, Poke)> {
            Ok((
                (0..nr_vcpus)
                    .map(|_| of_vcpu())
                    .collect::<io::Result<_>>()?,
                Poke::new()?,
            ))
        };
        let (of, census) = made().map_err(|source| BalloonError::Refused {
            path: "an eventfd".into(),
            source,
        })?;
        Ok(Self {
            hierarchy,
            of,
            census,
        })
    }

    /// A new slice of this vCPU has begun.
    pub(super) fn wake(&self, vcpu: VcpuId) {
        self.of[vcpu.index()].poke.poke();
    }

    /// Everybody looks again.
    pub(super) fn wake_all(&self) {
        self.of.iter().for_each(|of| of.poke.poke());
        self.census.poke();
    }

    /// Gives everybody back. To be called when no thread of ours is at work.
    pub(super) fn dissolve(&self) -> Left {
        let mut left = Left::default();
        for of in &self.of {
            of.set(false, now());
            let mut kept = Vec::new();
            // Nobody inflates them any more.
            for balloon in of.groups.swap(Arc::default()).iter() {
                match balloon.dissolve() {
                    Ok(given) => left.restored += given,
                    Err(error) => {
                        let group = balloon.group().display();
                        tracing::error!("cannot give threads back to {group}: {error}");
                        left.failed += 1;
                        // To be tried again.
                        kept.push(Arc::clone(balloon));
                    }
                }
            }
            of.groups.store(Arc::new(kept));
            of.threads.store(0, Ordering::Relaxed);
        }
        left
    }

    pub(super) fn report(&self, now: Time) -> Vec<report::Balloon> {
        let all = (0..).map(VcpuId).zip(&self.of);
        all.map(|(vcpu, of)| {
            let inflated = of.inflated.load(Ordering::Acquire);
            let since = Time(of.inflated_at.load(Ordering::Relaxed));
            let running = if inflated { now.since(since) } else { Ns::ZERO };
            report::Balloon {
                vcpu,
                inflated,
                threads: of.threads.load(Ordering::Relaxed),
                inflations: of.inflations.load(Ordering::Relaxed),
                inflated_ns: Ns(of.inflated_ns.load(Ordering::Relaxed)) + running,
                failed: of.failed.load(Ordering::Relaxed),
            }
        })
        .collect()
    }
}

impl OfVcpu {
    /// Inflates or deflates; free for groups that are so already.
    fn set(&self, inflate: bool, now: Time) {
        for balloon in self.groups.load().iter() {
            if let Err(error) = balloon.hold(inflate) {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(inflate, %error, "a balloon does not obey");
            }
        }
        if self.inflated.swap(inflate, Ordering::AcqRel) == inflate {
            return;
        }
        if inflate {
            self.inflated_at.store(now.as_ns(), Ordering::Relaxed);
            self.inflations.fetch_add(1, Ordering::Relaxed);
        } else {
            let since = Time(self.inflated_at.load(Ordering::Relaxed));
            self.inflated_ns
                .fetch_add(now.since(since).as_ns(), Ordering::Relaxed);
        }
    }
}

/// Starts the threads of the mode; none in the other.
pub(super) fn start(core: &Arc<Core>) -> io::Result<Vec<JoinHandle<()>>> {
    if core.balloons.is_none() {
        return Ok(Vec::new());
    }
    let mut threads = Vec::new();
    for vcpu in core.vcpus() {
        let of = Arc::clone(core);
        threads.push(thread::on_vcpu(
            core,
            format!("vmg-bal/{vcpu}"),
            vcpu,
            thread::MONITOR,
            move || {
                if let Err(error) = keep(&of, vcpu) {
                    of.fail(format!("the balloon of vCPU {vcpu} stopped: {error}"));
                }
            },
        )?);
    }
    let of = Arc::clone(core);
    let census = move || {
        if let Err(error) = count(&of) {
            of.fail(format!("the census stopped: {error}"));
        }
    };
    threads.push(thread::spawn(core, "vmg-census".into(), census)?);
    Ok(threads)
}

/// Keeps one vCPU's balloon as it should be.
fn keep(core: &Core, me: VcpuId) -> io::Result<()> {
    let Some(of) = core.balloons.as_ref().map(|all| &all.of[me.index()]) else {
        return Ok(());
    };
    let mut alarm = Alarm::new()?;
    let mut tracks = Tracks::new(core, now());
    let waiter = Waiter::new(&[alarm.as_fd(), of.poke.as_fd()])?;
    while !core.stopping() {
        let ready = waiter.wait(None);
        if ready & 1 != 0 {
            alarm.went_off();
        }
        of.poke.clear();
        core.counters[me.index()].woke(Wakeup::Timer);
        let at = now();
        let next = if core.sense.shared().mode() == Mode::Active {
            tracks.catch_up(core);
            let timeline = tracks.timeline(me);
            let (io_tasks, demand) = demand(core, me);
            let view = xballoon::View {
                since: timeline.running_since(),
                slice: timeline.slice().map(|slice| slice.value),
                gap: timeline.gap_estimate().map(|gap| gap.value),
                io_tasks,
                demand,
            };
            let balloon = xballoon::decide(at, &view, &core.settings.xballoon);
            of.set(balloon.is_inflated() && !core.settings.dry_run, at);
            let latest = at + core.settings.here(LOOK_AGAIN);
            Some(balloon.next().map_or(latest, |next| next.min(latest)))
        } else {
            of.set(false, at);
            None
        };
        alarm.set(next);
    }
    of.set(false, now());
    Ok(())
}

/// The I/O-bound tasks on a vCPU and what they would use, in thousandths of a CPU.
fn demand(core: &Core, vcpu: VcpuId) -> (u32, u32) {
    let here = core.slots().filter_map(|i| {
        let slot = core.sense.shared().task(i);
        let mine = slot.state == SlotState::Live
            && slot.vcpu == vcpu
            && core.seats[i].seated(&slot).is_some();
        mine.then(|| Permille::of(slot.on_cpu, slot.on_cpu + slot.blocked_io))
    });
    here.fold((0, 0), |(tasks, sum), share| {
        (tasks + 1, sum + u32::from(share.get()))
    })
}

/// Looks who computes, again and again.
fn count(core: &Core) -> io::Result<()> {
    let Some(balloons) = &core.balloons else {
        return Ok(());
    };
    let waiter = Waiter::new(&[balloons.census.as_fd()])?;
    let mut before: HashMap<(Tid, u64), Ns> = HashMap::new();
    while !core.stopping() {
        let active = core.sense.shared().mode() == Mode::Active;
        waiter.wait(active.then_some(CENSUS * core.settings.dilation));
        balloons.census.clear();
        if core.stopping() {
            break;
        }
        if core.sense.shared().mode() != Mode::Active {
            before.clear();
            let _ = balloons.dissolve();
            continue;
        }
        let census = Census::take(Path::new("/proc"));
        settle(core, balloons, &census, &before);
        before = census.used;
    }
    Ok(())
}

/// Puts each computing thread into the balloon of its vCPU, and everybody else
/// out of it.
fn settle(core: &Core, balloons: &Balloons, census: &Census, before: &HashMap<(Tid, u64), Ns>) {
    let used = |thread: &Thread| {
        let key = (thread.tid, thread.start_ticks);
        let then = before.get(&key)?;
        Some(census.used.get(&key)?.as_ns().saturating_sub(then.as_ns()))
    };
    let mut given = vec![Ns::ZERO; balloons.of.len()];
    for thread in &census.threads {
        if let (Some(sum), Some(ns)) = (given.get_mut(thread.cpu), used(thread)) {
            *sum += Ns(ns);
        }
    }
    let io_bound: BTreeSet<Tid> = core
        .slots()
        .filter(|i| core.sense.shared().slot_state(*i) == SlotState::Live)
        .map(|i| Tid(core.sense.shared().task(i).tid))
        .collect();
    for (vcpu, of) in (0..).map(VcpuId).zip(&balloons.of) {
        let held: BTreeSet<Tid> = of
            .groups
            .load()
            .iter()
            .flat_map(|balloon| balloon.members().unwrap_or_default())
            .collect();
        let serves = demand(core, vcpu).0 > 0 && !core.settings.dry_run;
        let wanted: BTreeSet<Tid> = census
            .threads
            .iter()
            .filter(|thread| serves && thread.cpu == vcpu.index() && thread.may_be_held)
            .filter(|thread| !io_bound.contains(&thread.tid) && allowed(core, &thread.comm))
            .filter(|thread| {
                used(thread).is_some_and(|ns| {
                    let holds = held.contains(&thread.tid);
                    let given = given[vcpu.index()];
                    xballoon::is_compute(Ns(ns), given, holds, &core.settings.xballoon)
                })
            })
            .map(|thread| thread.tid)
            .collect();
        change(balloons, of, vcpu, &held, &wanted);
    }
}

/// Threads that the user has excluded are left alone in every mode.
fn allowed(core: &Core, comm: &str) -> bool {
    core.settings.priority(comm).is_some()
}

fn change(
    balloons: &Balloons,
    of: &OfVcpu,
    vcpu: VcpuId,
    held: &BTreeSet<Tid>,
    wanted: &BTreeSet<Tid>,
) {
    let failed = |tid: Tid, error: &io::Error| {
        // One that has ended needs nothing.
        if !matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) {
            of.failed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%tid, %error, "a thread cannot be held or given back");
        }
    };
    let mut groups: Vec<Arc<Balloon>> = of.groups.load().to_vec();
    for balloon in &groups {
        for tid in balloon.members().unwrap_or_default() {
            if !wanted.contains(&tid)
                && let Err(error) = balloon.give_back(tid)
            {
                failed(tid, &error);
            }
        }
    }
    for tid in wanted.difference(held) {
        if let Err(error) = take(balloons, of, vcpu, *tid, &mut groups) {
            failed(*tid, &error);
        }
    }
    // Empty ones go, but not before nobody inflates them any more.
    let (full, empty): (Vec<_>, Vec<_>) = groups
        .into_iter()
        .partition(|balloon| balloon.members().is_ok_and(|members| !members.is_empty()));
    let threads = full
        .iter()
        .map(|b| b.members().map_or(0, |m| m.len() as u64));
    of.threads.store(threads.sum(), Ordering::Relaxed);
    of.groups.store(Arc::new(full));
    for balloon in empty {
        if let Err(error) = balloon.dissolve() {
            failed(Tid(0), &error);
        }
    }
}

/// Takes one thread into the balloon of its cgroup, which is made if need be.
fn take(
    balloons: &Balloons,
    of: &OfVcpu,
    vcpu: VcpuId,
    tid: Tid,
    groups: &mut Vec<Arc<Balloon>>,
) -> io::Result<()> {
    let group = balloons.hierarchy.group_of(tid)?;
    let balloon = match groups.iter().find(|balloon| balloon.group() == group) {
        Some(balloon) => Arc::clone(balloon),
        None => {
            let balloon = Arc::new(Balloon::make(&group, vcpu)?);
            groups.push(Arc::clone(&balloon));
            // Known before anybody is in it.
            of.groups.store(Arc::new(groups.clone()));
            balloon
        }
    };
    balloon.take(tid)
}
