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
use units::Ns;

use crate::probe;
use crate::probe::Unsupported;
use crate::seat::Found;
use crate::seat::Seats;
use crate::skel::MainSkel;
use crate::skel::MainSkelBuilder;
use crate::trace::MAGIC;

/// How often the trace is emptied, and at most so late a signal is seen.
const ROUND: Duration = Duration::from_millis(100);

/// Bytes of `struct sv_found`.
const FOUND: usize = 16;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Slice of each possible pCPU.
    pub slices: Vec<Ns>,
    /// Where the trace goes.
    pub trace: Option<PathBuf>,
    /// End by itself after so long.
    pub length: Option<Duration>,
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
    let seat = |found: Found| {
        let taken = lock(&seats).take(found);
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

    // The scheduler before its first vCPU, and the watcher before the list: a
    // vCPU that starts in between is seen twice and not missed.
    let ops = skel.maps.vcpu_ops.attach_struct_ops().map_err(refuse)?;
    let watcher = skel.progs.vcpu_runs.attach_trace().map_err(refuse)?;
    for found in list(&skel)? {
        mark(&skel, found)?;
        seat(found);
    }
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
    let cpus = u32::try_from(options.slices.len())?;
    let mut open = MainSkelBuilder::default().open(storage).map_err(refuse)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.nr_cpu_ids = cpus;
    }
    open.maps.slices.set_max_entries(cpus).map_err(refuse)?;
    let tracing = options.trace.is_some();
    // Without a trace nothing of it is in the kernel's way.
    open.progs.switches.set_autoload(tracing);
    open.progs.wakes.set_autoload(tracing);
    let mut skel = open.load().map_err(refuse)?;
    for (cpu, slice) in options.slices.iter().enumerate() {
        let key = u32::try_from(cpu)?.to_ne_bytes();
        skel.maps
            .slices
            .update(&key, &slice.0.to_ne_bytes(), MapFlags::ANY)
            .context("cannot set the slices")?;
    }
    if tracing {
        skel.links.switches = Some(skel.progs.switches.attach_trace().map_err(refuse)?);
        skel.links.wakes = Some(skel.progs.wakes.attach_trace().map_err(refuse)?);
    }
    Ok(skel)
}

/// Tells the BPF side what a thread is: the list is of threads that may not call
/// KVM_RUN again for minutes.
fn mark(skel: &MainSkel<'_>, found: Found) -> anyhow::Result<()> {
    let Some(tid) = rustix::process::Pid::from_raw(found.tid.cast_signed()) else {
        return Ok(());
    };
    // PIDFD_THREAD (6.9), older than any kernel with sched_ext.
    let thread = rustix::process::PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
    // One that has gone needs no mark.
    let Ok(pidfd) = rustix::process::pidfd_open(tid, thread) else {
        return Ok(());
    };
    let mut value = found.vm.to_ne_bytes().to_vec();
    value.extend(found.vcpu.to_ne_bytes());
    skel.maps
        .vcpus
        .update(&pidfd.as_raw_fd().to_ne_bytes(), &value, MapFlags::ANY)
        .context("cannot mark a vCPU thread")
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
