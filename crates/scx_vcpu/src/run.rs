// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a scheduler: load, find vCPUs, follow them, record, end.

use std::fs::File;
use std::io;
use std::io::BufWriter;
use std::io::Read;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::RingBufferBuilder;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::SkelBuilder;
use policy::host::credit::credit1;
use policy::host::credit::credit2;
use units::Ns;

use crate::config::Config;
use crate::probe;
use crate::probe::Unsupported;
use crate::seat;
use crate::seat::Found;
use crate::seat::Seats;
use crate::skel::MainSkel;
use crate::skel::MainSkelBuilder;
use crate::skel::types::sv_settings;
use crate::table::PIN;
use crate::trace::MAGIC;

/// How often the trace is emptied, and at most so late a signal is seen.
const ROUND: Duration = Duration::from_millis(100);

/// Where interrupts to vCPUs are seen, see `event.h`. A static function of KVM: a
/// compiler may have dissolved it.
const EVENTS: &str = "__apic_accept_irq";

/// Bytes of `struct sv_found`.
const FOUND: usize = 16;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rules.
    pub rules: Rules,
    /// What each VM is worth.
    pub config: Config,
    /// Where the trace goes.
    pub trace: Option<PathBuf>,
    /// End by itself after so long.
    pub length: Option<Duration>,
}

/// The rules of a policy.
#[derive(Clone, Debug)]
pub enum Rules {
    /// Slice of each possible pCPU.
    Fixed(Vec<Ns>),
    /// See there.
    Credit1(credit1::Settings),
    /// See there.
    Credit2(credit2::Settings),
}

/// The kernel ended the scheduler.
#[derive(Debug, thiserror::Error)]
#[error("the kernel ended the scheduler: {reason}{message}; its own scheduler has the machine")]
pub struct Ended {
    /// The kernel's word for it.
    reason: String,
    /// Details, if any, behind a separator.
    message: String,
}

/// Number of possible pCPUs: how many slices [`Options`] needs.
///
/// # Errors
/// The kernel does not say.
pub fn possible_cpus() -> anyhow::Result<u32> {
    let cpus = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
    Ok(u32::try_from(cpus)?)
}

/// Loads the scheduler and keeps it until `stop` is set.
///
/// `ready` is called once, when vCPUs are being scheduled.
///
/// # Errors
/// [`Unsupported`], [`Ended`], or a file that cannot be written.
pub fn run(
    options: &Options,
    stop: &Arc<AtomicBool>,
    ready: impl FnOnce(usize, usize),
) -> anyhow::Result<()> {
    probe::files(Path::new("/"))?;
    probe::core_scheduling()?;
    let writer = options.trace.as_deref().map(open_trace).transpose()?;
    let writer = Mutex::new((writer, None::<io::Error>));

    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, libbpf_says)));
    let mut storage = MaybeUninit::uninit();
    let mut skel = load(options, &mut storage)?;
    let _switch = skel.links.switches.take();
    let seats = Mutex::new(Seats::default());
    let refused = Mutex::new(None::<io::Error>);
    let knobs = libbpf_rs::MapHandle::try_from(&skel.maps.vcpus).map_err(refuse)?;
    let seat = |found: Found| {
        let marked = if seat::is_taken(found.tid) {
            Ok(())
        } else {
            mark(&knobs, found, options.config.weight_of(found.vm))
        };
        let taken = marked.and_then(|()| lock(&seats).take(found));
        match taken {
            Ok(true) => tracing::info!(vm = found.vm, vcpu = found.vcpu, tid = found.tid, "vCPU"),
            Ok(false) => {}
            Err(error) => *lock(&refused) = Some(error),
        }
    };

    let mut rings = RingBufferBuilder::new();
    rings.add(&skel.maps.found, |bytes| {
        if let Some(found) = Found::decode(bytes) {
            seat(found);
        }
        0
    })?;
    rings.add(&skel.maps.trace, |bytes| {
        let mut guard = lock(&writer);
        let (writer, failed) = &mut *guard;
        if let Some(writer) = writer
            && let Err(error) = writer.write_all(bytes)
        {
            *failed = Some(error);
        }
        0
    })?;
    let rings = rings.build()?;

    // What the kernel's side finds when a thread comes to it. Those that a killed
    // predecessor left in SCHED_EXT come as soon as there is a scheduler.
    for found in list(&skel)? {
        mark(&knobs, found, options.config.weight_of(found.vm))
            .context("cannot mark a vCPU thread")?;
    }
    // The scheduler before its first vCPU, and the watcher before the list: a
    // vCPU that starts in between is seen twice and not missed.
    let ops = skel.maps.vcpu_ops.attach_struct_ops().map_err(|error| {
        // Another scheduler may have been faster since our first look.
        let why = probe::files(Path::new("/")).err();
        why.map_or_else(|| refuse(error), anyhow::Error::from)
    })?;
    let watcher = skel.progs.vcpu_runs.attach_trace().map_err(refuse)?;
    for found in list(&skel)? {
        seat(found);
    }
    let _pin = Pin::new(&mut skel.maps.table);
    let (vms, vcpus) = lock(&seats).count();
    ready(vms, vcpus);

    let end = options.length.map(|length| Instant::now() + length);
    let mut ended = None;
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        match rings.poll(ROUND) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read the kernel's events"),
        }
        flush(&rings, &writer)?;
        if let Some(error) = lock(&refused).take() {
            return Err(error).context("cannot make a vCPU thread SCHED_EXT");
        }
        ended = why_ended(&skel);
        if ended.is_some() {
            break;
        }
    }
    // Undone in this order: no new vCPUs, the label of each thread, then the
    // scheduler itself.
    drop(watcher);
    drop(rings);
    drop(seats);
    drop(ops);
    let lost = skel
        .maps
        .bss_data
        .as_deref()
        .map_or(0, |bss| bss.nr_trace_lost);
    if lost > 0 {
        tracing::warn!(lost, "events did not fit into the trace");
    }
    ended.map_or(Ok(()), |ended| Err(ended.into()))
}

fn load<'a>(
    options: &Options,
    storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>,
) -> anyhow::Result<MainSkel<'a>> {
    let cpus = possible_cpus()?;
    let mut open = MainSkelBuilder::default().open(storage).map_err(refuse)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.nr_cpu_ids = cpus;
        rodata.settings = settings(&options.rules)?;
    }
    open.maps.slices.set_max_entries(cpus).map_err(refuse)?;
    open.maps.pcpus.set_max_entries(cpus).map_err(refuse)?;
    let tracing = options.trace.is_some();
    // Without a trace nothing of it is in the kernel's way.
    open.progs.switches.set_autoload(tracing);
    open.progs.wakes.set_autoload(tracing);
    let events = probe::has_kvm_function(Path::new("/"), EVENTS);
    if !events {
        tracing::warn!("this kernel's KVM has no {EVENTS}: I/O events are not seen");
    }
    open.progs.irq_raised.set_autoload(events);
    let mut skel = open.load().map_err(refuse)?;
    if let Rules::Fixed(slices) = &options.rules {
        for (cpu, slice) in slices.iter().enumerate() {
            let key = u32::try_from(cpu)?.to_ne_bytes();
            skel.maps
                .slices
                .update(&key, &slice.0.to_ne_bytes(), MapFlags::ANY)
                .context("cannot set the slices")?;
        }
    }
    if events {
        skel.links.irq_raised = Some(skel.progs.irq_raised.attach_trace().map_err(refuse)?);
    }
    if tracing {
        skel.links.switches = Some(skel.progs.switches.attach_trace().map_err(refuse)?);
        skel.links.wakes = Some(skel.progs.wakes.attach_trace().map_err(refuse)?);
    }
    Ok(skel)
}

/// The rules as the kernel's side reads them.
fn settings(rules: &Rules) -> anyhow::Result<sv_settings> {
    let nr_cpus = std::thread::available_parallelism().context("cannot count the CPUs")?;
    let all = sv_settings {
        nr_cpus: u32::try_from(nr_cpus.get())?,
        ..sv_settings::default()
    };
    Ok(match rules {
        Rules::Fixed(_) => sv_settings { policy: 0, ..all },
        Rules::Credit1(rules) => sv_settings {
            policy: 1,
            slice_ns: rules.slice.0,
            boost_slice_ns: rules.boost_slice.0,
            refill_ns: rules.refill_period.0,
            credit_limit_ns: rules.credit_limit.0,
            zero_is_under: u32::from(rules.zero_is_under),
            boost_needs_under: u32::from(rules.boost_needs_under),
            ..all
        },
        Rules::Credit2(rules) => sv_settings {
            policy: 2,
            slice_ns: rules.slice.0,
            default_credit_ns: rules.default_credit.0,
            reference: rules.reference.get(),
            reset_adds: u32::from(rules.reset == credit2::Reset::AddToDebt),
            reset_at_zero: u32::from(rules.reset_at_zero),
            slice_ends_with_credit: u32::from(rules.slice_ends_with_credit),
            ..all
        },
    })
}

/// Tells the BPF side what a thread is and what it is worth.
fn mark(knobs: &libbpf_rs::MapHandle, found: Found, weight: u32) -> io::Result<()> {
    let Some(tid) = rustix::process::Pid::from_raw(found.tid.cast_signed()) else {
        return Ok(());
    };
    // PIDFD_THREAD (6.9), older than any kernel with sched_ext.
    let thread = rustix::process::PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
    // One that has gone needs no mark.
    let Ok(pidfd) = rustix::process::pidfd_open(tid, thread) else {
        return Ok(());
    };
    let value: Vec<u8> = [found.vm, found.vcpu, 0, weight, 0, 0]
        .iter()
        .flat_map(|word: &u32| word.to_ne_bytes())
        .collect();
    knobs
        .update(&pidfd.as_raw_fd().to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(io::Error::other)
}

/// The table's name in the file system, for `scx_vcpu list`.
struct Pin;

impl Pin {
    fn new(table: &mut libbpf_rs::MapMut<'_>) -> Self {
        // One that was killed has left its own.
        let _ = std::fs::remove_file(PIN);
        if let Err(error) = table.pin(PIN) {
            tracing::warn!(%error, "`scx_vcpu list` will not work: cannot make {PIN}");
        }
        Self
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(PIN);
    }
}

/// The vCPUs that are there now.
fn list(skel: &MainSkel<'_>) -> anyhow::Result<Vec<Found>> {
    let link = skel.progs.list_vcpus.attach().map_err(refuse)?;
    let mut bytes = Vec::new();
    libbpf_rs::Iter::new(&link)
        .map_err(refuse)?
        .read_to_end(&mut bytes)
        .context("cannot list the vCPUs")?;
    Ok(bytes
        .chunks_exact(FOUND)
        .filter_map(Found::decode)
        .collect())
}

fn flush(
    rings: &libbpf_rs::RingBuffer<'_>,
    writer: &Mutex<(Option<BufWriter<File>>, Option<io::Error>)>,
) -> anyhow::Result<()> {
    rings.consume().context("cannot read the kernel's events")?;
    let mut guard = lock(writer);
    let (writer, failed) = &mut *guard;
    if let Some(writer) = writer
        && let Err(error) = writer.flush()
    {
        *failed = Some(error);
    }
    match failed.take() {
        Some(error) => Err(error).context("cannot write the trace; is the disk full?"),
        None => Ok(()),
    }
}

fn why_ended(skel: &MainSkel<'_>) -> Option<Ended> {
    let bss = skel.maps.bss_data.as_deref()?;
    if bss.exit_kind == 0 {
        return None;
    }
    let text = |bytes: &[i8]| {
        let bytes: Vec<u8> = bytes
            .iter()
            .map(|byte| byte.cast_unsigned())
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let message = text(&bss.exit_message);
    Some(Ended {
        reason: text(&bss.exit_reason),
        message: if message.is_empty() {
            message
        } else {
            format!(" ({message})")
        },
    })
}

fn open_trace(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let cannot = || format!("cannot write the trace to {}", path.display());
    let mut writer = BufWriter::new(File::create(path).with_context(cannot)?);
    writer.write_all(&MAGIC).with_context(cannot)?;
    Ok(writer)
}

fn refuse(error: libbpf_rs::Error) -> anyhow::Error {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Unsupported::NotPermitted.into(),
        _ => Unsupported::Refused(error).into(),
    }
}

fn libbpf_says(_level: libbpf_rs::PrintLevel, message: String) {
    tracing::debug!(target: "libbpf", "{}", message.trim_end());
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
