// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a scheduler: load, find vCPUs, follow them, record, end.

mod attached;
mod end;
mod joins;
mod kept;
mod pin;
pub(crate) mod record;
mod rest;
mod slow;

use std::io::Read;
use std::mem::MaybeUninit;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use libbpf_rs::RingBufferBuilder;
use units::Ns;

use crate::cgroup;
use crate::config::Config;
use crate::control;
use crate::control::Answer;
use crate::control::SOCKET;
use crate::control::Server;
use crate::ended;
use crate::heed;
use crate::load;
pub use crate::load::Rules;
use crate::load::refuse;
use crate::lost::Lost;
use crate::probe;
use crate::roster::Change;
use crate::roster::Roster;
use crate::roster::Told;
use crate::seat;
use crate::seat::Found;
use crate::skel::main::MainSkel;
use crate::sleep::Sleeps;
use crate::table;
use crate::tell::Teller;
use crate::watch;
use attached::attach;
use end::End;
use end::Until;
use joins::Joins;
use kept::Kept;
use pin::Pins;
use record::Recorder;
use rest::Rest;
use rest::Used;
use slow::Slow;

/// How often the trace is emptied, and at most so late a signal is seen.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// What [`Options::watchdog`] may be. 30 s is the kernel's own limit and the default; below
/// 4.1 s it warns.
pub const WATCHDOG: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(30);

/// How often the policy file is looked at, and a VM's counters under iSche.
const PERIOD: Duration = Duration::from_secs(1);

/// How often cookies of core scheduling are looked for, a system call for each thread, and
/// vCPUs that nothing told of, a look at each open file.
const COOKIES: Duration = Duration::from_secs(5);

/// So long after its last vCPU has gone the scheduler leaves the kernel: a VM that its manager
/// starts again is back before.
const EMPTY: Duration = Duration::from_secs(5);

/// Where threads are looked for.
const PROC: &str = "/proc";

/// Bytes of `struct sv_found`.
const FOUND: usize = 16;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rules.
    pub rules: Rules,
    /// What each VM is worth.
    pub config: Config,
    /// Where that is from: read again whenever it changes.
    pub file: Option<PathBuf>,
    /// Where the trace goes.
    pub trace: Option<PathBuf>,
    /// End by itself after so long.
    pub length: Option<Duration>,
    /// How long a vCPU may stand in a queue until the kernel ends the scheduler.
    pub watchdog: Duration,
    /// So many entries has the table of vCPUs; `None`: as many as it can have.
    pub table: Option<u32>,
    /// Leave the kernel after so long in which no vCPU has wanted CPU time, until one does;
    /// `None`: never. A trace, of every on and off instant, and [`Rules::Never`] never do.
    pub rest_after: Option<Duration>,
}

impl Options {
    /// The same, if this kernel counts what threads have.
    fn may_rest_after(&self) -> Option<Duration> {
        let own = std::process::id();
        let counts = Used::of_thread(own, own).is_some_and(|used| used.ran > Ns::ZERO);
        if !counts {
            tracing::info!("this kernel does not count what threads had (CONFIG_SCHED_INFO)");
        }
        let may = counts && self.trace.is_none() && !matches!(self.rules, Rules::Never);
        self.rest_after.filter(|_| may)
    }
}

/// Instructions that the kernel's verifier went through for each program with these rules,
/// by the program's name. Loads them and attaches nothing.
///
/// # Errors
/// [`probe::Unsupported`].
pub fn verified(rules: Rules) -> anyhow::Result<Vec<(String, u32)>> {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, libbpf_says)));
    load::verified(&Options {
        rules,
        config: Config::default(),
        file: None,
        // Its programs are of interest too.
        trace: Some(PathBuf::new()),
        length: None,
        watchdog: *WATCHDOG.end(),
        table: None,
        rest_after: None,
    })
}

/// Number of possible pCPUs: how many slices [`Options`] needs.
///
/// # Errors
/// The kernel does not say.
pub fn possible_cpus() -> anyhow::Result<u32> {
    let cpus = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
    Ok(u32::try_from(cpus)?)
}

/// Loads the scheduler and keeps it until `stop` is set. When a CPU comes or goes the
/// kernel ends every scheduler: it is loaded again then, with the same roster.
///
/// It is attached only while there are vCPUs that want CPU time. A kernel with any scheduler
/// attached takes 9 % longer for each wake-up of an ordinary thread (docs/scx_vcpu-measured.md), for
/// nothing where there is nobody to schedule. The first vCPU runs in the fair class for as long
/// as attaching takes.
///
/// `ready` is called once, when so many vCPUs of so many VMs are being scheduled, or none are
/// there; its last argument are iSche's cores, for people.
///
/// # Errors
/// [`probe::Unsupported`], the kernel ended the scheduler, or a file that cannot be written.
pub fn run(
    options: &Options,
    stop: &Arc<AtomicBool>,
    ready: impl FnOnce(usize, usize, Option<String>),
) -> anyhow::Result<()> {
    watch::tell_unheeded(&options.rules, &options.config);
    probe::files(Path::new("/"))?;
    probe::privileges(Path::new("/proc/self/status"))?;
    probe::core_scheduling()?;
    // Before anything that is another one's if one runs already.
    let control = Server::bind(Path::new(SOCKET))?;
    let recorder = Recorder::new(options.trace.as_deref())?;
    // Before the first look at which CPUs there are.
    let mut hotplugs = watch::hotplugs();
    let cores = watch::label_cores(&options.rules, &options.config)?;
    let mut lasting = Lasting {
        options,
        until: Until {
            stop,
            end: options.length.map(|length| Instant::now() + length),
        },
        recorder,
        roster: Mutex::new(Roster::new(options.config.clone(), cores)),
        pins: Pins::none(),
        control,
        file: watch::Watched::new(options.file.as_deref()),
        rest: Rest::new(options.may_rest_after(), Instant::now()),
        kept: Kept::default(),
    };
    let mut ready = Some(ready);
    loop {
        let sleeps = Sleeps::now(Path::new("/"));
        let end = schedule(&mut lasting, hotplugs, &mut |vms, vcpus, labels| {
            if let Some(ready) = ready.take() {
                ready(vms, vcpus, labels);
            }
        })?;
        match end {
            End::Over => return Ok(()),
            End::Empty => tracing::info!("no vCPU is left; waiting for the next one"),
            End::Idle => tracing::info!("no vCPU wants CPU time; resting until one does"),
            End::Hotplug => {
                if let Some(slept) = sleeps.awake(Path::new("/"), stop) {
                    tracing::info!(%slept, "the machine was suspended");
                }
                hotplugs = watch::hotplugs();
                let mut roster = lock(&lasting.roster);
                let cores = watch::label_cores(&options.rules, &roster.config())?;
                roster.relabel(cores);
                tracing::info!("a CPU came or went; scheduling again");
            }
        }
    }
}

/// What outlives a scheduler that is loaded again.
struct Lasting<'a> {
    options: &'a Options,
    until: Until<'a>,
    recorder: Recorder,
    roster: Mutex<Roster>,
    /// The last one's until the next one has its own: somebody may look on. They go before the
    /// socket, which keeps others away.
    pins: Pins,
    control: Server,
    file: watch::Watched<'a>,
    rest: Rest,
    kept: Kept,
}

/// From loading to the end.
///
/// # Errors
/// [`ended::Ended`] if that is the kernel's, for other reasons than a CPU.
fn schedule(
    lasting: &mut Lasting<'_>,
    hotplugs: u64,
    ready: &mut dyn FnMut(usize, usize, Option<String>),
) -> anyhow::Result<End> {
    let Lasting {
        options,
        until,
        recorder,
        roster,
        control,
        file,
        rest,
        kept,
        pins,
    } = lasting;
    let (options, recorder, roster) = (*options, &*recorder, &*roster);
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, libbpf_says)));
    let mut storage = MaybeUninit::uninit();
    let mut skel = load::load(options, hotplugs, &mut storage)?;
    let knobs = libbpf_rs::MapHandle::try_from(&skel.maps.vcpus).map_err(refuse)?;
    watch::set_core_slices(&skel, &options.rules, lock(roster).cores())?;
    let batch = libbpf_rs::MapHandle::try_from(&skel.maps.batch).map_err(refuse)?;
    let teller = Teller::new(&skel.progs.set_vcpus, batch, knobs);
    let tell = |told: Told| teller.tell(told);
    let worth = |vm, tid| lock(roster).knobs(vm, tid);
    let joins = Joins {
        roster,
        teller: &teller,
        seats: Mutex::default(),
        refused: Mutex::default(),
    };

    let mut rings = RingBufferBuilder::new();
    rings.add(&skel.maps.found, |bytes| {
        if let Some(found) =
            Found::decode(bytes).filter(|found| seat::is_there(Path::new(PROC), *found))
        {
            joins.seat(found);
        }
        0
    })?;
    rings.add(&skel.maps.trace, |bytes| {
        recorder.write(bytes);
        0
    })?;
    let rings = rings.build()?;

    // The watcher before the list: a vCPU that starts in between is seen twice and not missed.
    // All of them before the scheduler: it finds their marks when it is attached, also of those
    // that a killed predecessor left in SCHED_EXT.
    let watcher = skel.progs.vcpu_runs.attach_trace().map_err(refuse)?;
    for found in list(&skel)? {
        joins.seat(found);
    }
    // Before its name: until now the last one's had all of it.
    kept.tell(&skel.maps.past, worth);
    kept.tell_wakers(&skel.maps.wakers);
    pins.name(&mut skel.maps.past, table::PIN_PAST);
    pins.name(&mut skel.maps.table, table::PIN);
    pins.name(&mut skel.maps.wakers, table::PIN_WAKERS);
    pins.name(&mut skel.maps.bss, table::PIN_COUNTS);
    let entries = libbpf_rs::MapHandle::try_from(&skel.maps.table).map_err(refuse)?;
    let wakers = libbpf_rs::MapHandle::try_from(&skel.maps.wakers).map_err(refuse)?;
    let past = libbpf_rs::MapHandle::try_from(&skel.maps.past).map_err(refuse)?;
    let mut slow = Slow::new(options, roster, &skel)?;
    let mut ops = None;
    if lock(&joins.seats).is_empty() {
        rest.end(Instant::now());
    } else if !rest.rests() {
        ops = Some(attach(
            &mut skel.maps.vcpu_ops,
            &skel.progs,
            &past,
            kept,
            worth,
        )?);
        rest.end(Instant::now());
    }
    let (vms, vcpus) = lock(&joins.seats).count();
    ready(vms, vcpus, lock(roster).labels());

    // Where the policy keeps no cap, nobody has one.
    let a_cap = Change {
        cap: Some(1),
        ..Change::default()
    };
    let heeds = heed::unheeded(&options.rules, &a_cap).is_none();
    let cap = |vcpu: &Found| {
        let worth = worth(vcpu.vm, vcpu.tid).filter(|_| heeds);
        worth.map_or(0, |worth| worth.cap_permille)
    };
    let (mut looked, mut asked) = (Instant::now(), Instant::now());
    let mut lost = Lost::default();
    // Since when there is no vCPU.
    let mut empty = None;
    let end = loop {
        if until.is_over() {
            break End::Over;
        }
        recorder.hear(&rings)?;
        if let Some(error) = lock(&joins.refused).take() {
            return Err(error);
        }
        let vcpus = lock(&joins.seats).vcpus();
        let is_idle = rest.look(Instant::now(), &vcpus, Used::of, cap);
        if ops.is_none() && !vcpus.is_empty() && !rest.rests() {
            ops = Some(attach(
                &mut skel.maps.vcpu_ops,
                &skel.progs,
                &past,
                kept,
                worth,
            )?);
            rest.end(Instant::now());
        } else if ops.is_some()
            && is_idle
            && !vcpus.is_empty()
            && end::all_sleep(&slow.table(positions(&skel))?)
        {
            break End::Idle;
        }
        control.serve(|change| {
            if let Some(why) = heed::unheeded(&options.rules, change) {
                return Answer::Refused(why);
            }
            // What owners have said in this very second counts.
            let told = lock(roster).follow(seat::allowed);
            if let Err(error) = tell(told) {
                return Answer::Refused(format!("{error:#}"));
            }
            let answer = control::apply(&mut lock(roster), change, |told| teller.answer(told));
            if ops.is_none() {
                kept.tell(&past, worth);
            }
            answer
        });
        tell(slow.each_round(positions(&skel))?)?;
        if asked.elapsed() >= COOKIES {
            // One that appears while we run.
            asked = Instant::now();
            if ops.is_some() {
                probe::core_scheduling()?;
            }
            // A guest that only computes never leaves KVM_RUN: if its one call was missed, or
            // its thread has been a real-time one until now, nothing else tells of it.
            for found in list(&skel)? {
                joins.seat(found);
            }
        }
        if looked.elapsed() >= PERIOD {
            let length = Ns(u64::try_from(looked.elapsed().as_nanos())?);
            looked = Instant::now();
            let so_far = skel.maps.bss_data.as_deref().map(Lost::of);
            if let Some(so_far) = so_far.filter(|so_far| so_far.is_more(&lost)) {
                lost = so_far;
                tracing::warn!("{lost}");
            }
            let mut told = joins.forget_gone();
            if !lock(&joins.seats).is_empty() {
                empty = None;
            } else if ops.is_some() && empty.get_or_insert(looked).elapsed() >= EMPTY {
                break End::Empty;
            }
            if ops.is_none() && watch::hotplugs() != hotplugs {
                // Attached it would end at once.
                break End::Hotplug;
            }
            told.extend(lock(roster).follow(seat::allowed));
            tell(told)?;
            let told = lock(roster).weigh(|pid| cgroup::factor(Path::new("/"), pid));
            tell(told)?;
            if let Some(config) = file.changed() {
                watch::tell_unheeded(&options.rules, &config);
                let cores = watch::label_cores(&options.rules, &config)?;
                watch::set_core_slices(&skel, &options.rules, cores.as_ref())?;
                let told = lock(roster).reload(config, cores);
                tell(told)?;
                tracing::info!(labels = lock(roster).labels(), "read the policy file again");
            } else if ops.is_some() {
                tell(slow.classify(positions(&skel), length)?)?;
            }
            if ops.is_none() {
                // For `list`, also when the last one has gone.
                kept.tell(&past, worth);
            }
        }
        match ended::why(&skel) {
            None => {}
            Some(ended) if ended.by_hotplug => break End::Hotplug,
            Some(ended) => return Err(ended.into()),
        }
    };
    // Undone in this order: no new vCPUs, the label of each thread, then the
    // scheduler itself.
    drop(watcher);
    drop(rings);
    let vcpus = lock(&joins.seats).vcpus();
    if matches!(end, End::Idle) {
        // Before the table loses them: who looks on finds each here or there.
        kept.keep((&entries, &wakers), positions(&skel), &vcpus);
        kept.tell(&past, worth);
    }
    drop(joins);
    drop(ops);
    let end = end.by(ended::why(&skel))?;
    slow.end();
    if matches!(end, End::Idle | End::Hotplug) {
        kept.keep((&entries, &wakers), positions(&skel), &vcpus);
        kept.tell(&past, worth);
    }
    if matches!(end, End::Idle) {
        rest.begin();
    }
    let lost = skel
        .maps
        .bss_data
        .as_deref()
        .map_or(0, |bss| bss.nr_trace_lost);
    if lost > 0 {
        tracing::warn!(lost, "events did not fit into the trace");
    }
    Ok(end)
}

/// How many entries of the table were ever used.
fn positions(skel: &MainSkel<'_>) -> u32 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(u32::MAX, |bss| bss.nr_slots)
}

/// The vCPUs that are there now.
fn list(skel: &MainSkel<'_>) -> anyhow::Result<Vec<Found>> {
    let link = skel.progs.list_vcpus.attach().map_err(refuse)?;
    let mut bytes = Vec::new();
    libbpf_rs::Iter::new(&link)
        .map_err(refuse)?
        .read_to_end(&mut bytes)
        .context("cannot list the vCPUs")?;
    Ok(found_in(&bytes))
}

/// What the iterator has written, of threads that are there.
pub(crate) fn found_in(bytes: &[u8]) -> Vec<Found> {
    let entries = bytes.chunks_exact(FOUND).filter_map(Found::decode);
    entries
        .filter(|found| seat::is_there(Path::new(PROC), *found))
        .collect()
}

/// In several lines where it refuses something, of which ours says what matters.
pub(crate) fn libbpf_says(_level: libbpf_rs::PrintLevel, message: String) {
    tracing::debug!(target: "libbpf", "{}", message.trim_end());
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
