// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loading the BPF object, and what stays of it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use libbpf_rs::MapHandle;
use libbpf_rs::ProgramInput;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::Skel;
use libbpf_rs::skel::SkelBuilder;
use rustix::thread::CpuSet as KernelCpuSet;
use units::CpuSet;
use units::VcpuId;

use crate::MAX_GAP;
use crate::probe;
use crate::probe::Unsupported;
use crate::shared::Shared;
use crate::skel::FreezerSkelBuilder;
use crate::skel::types;

/// How large the maps shall be.
pub(crate) struct Sizes {
    /// Recorded pairs that one bank can hold.
    pub(crate) pairs_per_bank: u32,
    /// Events that one CPU can log.
    pub(crate) log_per_cpu: u32,
}

impl Sizes {
    /// For a probe.
    pub(crate) const MINIMAL: Self = Self {
        pairs_per_bank: 1,
        log_per_cpu: 1,
    };
}

/// The loaded object, attached, with every CPU's slice timer polling for the
/// start. All of it is file descriptors and mappings: nothing borrows from libbpf's
/// object, and the kernel takes everything back when the process dies.
pub(crate) struct Loaded {
    pub(crate) ctl: Shared<types::fz_ctl>,
    pub(crate) plans: Shared<types::fz_plan>,
    pub(crate) pairs: Shared<types::fz_pair>,
    pub(crate) lanes: Shared<types::fz_lane>,
    pub(crate) events: Shared<types::fz_event>,
    pub(crate) steal: Shared<types::fz_steal>,
    pub(crate) steal_map: MapHandle,
    pub(crate) cpu_ids: u32,
    /// The attachment ends when this is closed.
    _link: OwnedFd,
    /// The kernel cancels the timers of a map when its last descriptor is closed.
    _timers: MapHandle,
}

/// Why loading failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The machine cannot be frozen.
    Unsupported(Unsupported),
    /// No thread of this process may run on that CPU.
    Pin(VcpuId, io::Error),
    /// That CPU's slice timer could not be set.
    Timer(VcpuId, io::Error),
}

/// Opens, sizes, loads and attaches the object and prepares `cpus`.
///
/// In a thread of its own, because it must visit each of those CPUs: the
/// caller's affinity is never touched.
pub(crate) fn load(sizes: &Sizes, cpus: &CpuSet) -> Result<Loaded, Failure> {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| load_here(sizes, cpus)).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// libbpf's own messages, the verifier's log among them, belong into ours: what a
/// user needs is in the error.
fn libbpf_says(_level: libbpf_rs::PrintLevel, message: String) {
    tracing::debug!(target: "libbpf", "{}", message.trim_end());
}

fn refused(error: libbpf_rs::Error) -> Failure {
    Failure::Unsupported(match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Unsupported::NotPermitted,
        _ if probe::for_real_time(Path::new(probe::VERSION_FILE)) => Unsupported::RealTime,
        _ => Unsupported::Refused(error),
    })
}

fn map<T: Copy>(map: &libbpf_rs::MapMut<'_>, entries: u32) -> Result<Shared<T>, Failure> {
    Shared::new(map.as_fd(), entries as usize)
        .map_err(|errno| refused(io::Error::from(errno).into()))
}

fn load_here(sizes: &Sizes, cpus: &CpuSet) -> Result<Loaded, Failure> {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, libbpf_says)));
    // Possible CPUs: the length of every per-CPU array.
    let cpu_ids = libbpf_rs::num_possible_cpus().map_err(refused)?;
    let cpu_ids = u32::try_from(cpu_ids).unwrap_or(u32::MAX);
    let events = cpus.len().saturating_mul(sizes.log_per_cpu);

    let mut storage = MaybeUninit::uninit();
    let mut open = FreezerSkelBuilder::default()
        .open(&mut storage)
        .map_err(refused)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.max_gap_ns = MAX_GAP.0;
        rodata.nr_cpu_ids = cpu_ids;
        rodata.pairs_per_bank = sizes.pairs_per_bank;
        rodata.log_per_cpu = sizes.log_per_cpu;
    }
    for (map, entries) in [
        (&mut open.maps.plans, 2 * cpu_ids),
        (&mut open.maps.pairs, 2 * sizes.pairs_per_bank),
        (&mut open.maps.lanes, cpu_ids),
        (&mut open.maps.events, events),
        (&mut open.maps.steal_page, cpu_ids),
        (&mut open.maps.slice_timers, cpu_ids),
    ] {
        map.set_max_entries(entries).map_err(refused)?;
    }
    let mut skel = open.load().map_err(refused)?;
    skel.attach().map_err(refused)?;
    // Our own descriptor keeps the link when the skeleton is gone.
    let link = match &skel.links.freeze_cpu {
        Some(link) => link.as_fd().try_clone_to_owned(),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let link = link.map_err(|error| refused(error.into()))?;
    for cpu in cpus.iter() {
        prepare(&skel.progs.prepare_cpu, cpu)?;
    }

    let handle = |map: &libbpf_rs::MapMut<'_>| MapHandle::try_from(map).map_err(refused);
    Ok(Loaded {
        ctl: map(&skel.maps.bss, 1)?,
        plans: map(&skel.maps.plans, 2 * cpu_ids)?,
        pairs: map(&skel.maps.pairs, 2 * sizes.pairs_per_bank)?,
        lanes: map(&skel.maps.lanes, cpu_ids)?,
        events: map(&skel.maps.events, events)?,
        steal: map(&skel.maps.steal_page, cpu_ids)?,
        steal_map: handle(&skel.maps.steal_page)?,
        cpu_ids,
        _link: link,
        _timers: handle(&skel.maps.slice_timers)?,
    })
}

/// `bpf_timer_init` may not wait for memory (kernel/bpf/helpers.c), so it fails now and then
/// with gigabytes to spare, and not a moment later.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// Between two tries.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Goes to `cpu` and sets its slice timer polling.
fn prepare(program: &libbpf_rs::ProgramMut<'_>, cpu: VcpuId) -> Result<(), Failure> {
    let mut here = KernelCpuSet::new();
    here.set(cpu.index());
    rustix::thread::sched_setaffinity(None, &here)
        .map_err(|errno| Failure::Pin(cpu, errno.into()))?;
    let mut call = u64::from(cpu.0).to_ne_bytes();
    const { assert!(size_of::<types::fz_call>() == size_of::<u64>()) };
    let give_up = Instant::now() + MEMORY_PATIENCE;
    loop {
        let input = ProgramInput {
            context_in: Some(&mut call),
            ..ProgramInput::default()
        };
        let done = program.test_run(input).map_err(refused)?;
        match -done.return_value.cast_signed() {
            0 => return Ok(()),
            libc::ENOMEM if Instant::now() < give_up => std::thread::sleep(MEMORY_PAUSE),
            errno => return Err(Failure::Timer(cpu, io::Error::from_raw_os_error(errno))),
        }
    }
}
