// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The libbpf part: load, attach, rings, snapshot.

use std::io;
use std::mem::ManuallyDrop;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use libbpf_rs::Link;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::MapType;
use libbpf_rs::OpenObject;
use libbpf_rs::Program;
use libbpf_rs::ProgramMut;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::Skel;
use libbpf_rs::skel::SkelBuilder;
use units::CpuSet;
use units::Ns;
use units::Time;
use units::VcpuId;

use super::MAX_VCPUS;
use super::ProgramState;
use super::SenseError;
use super::Shared;
use super::Source;
use super::locate;
use super::probe::now;
use super::probe::possible_vcpus;
use super::skel::sense as skel;
use super::skel::sense::types;
use crate::settings::Settings;
use crate::settings::SourceChoice;

/// A look that old is as good as one now: to wake takes some ten microseconds, and
/// to ask the kernel again takes ten more. After a gap in between it is older.
const FRESH: Ns = Ns::from_us(100);

/// Room for 255 bells per vCPU, 16 bytes each with the kernel's header; a page is the least a
/// ring may have.
const RING_BYTES: u32 = 4096;

/// Where `struct bio_key` has its epoch.
const EPOCH_OF_KEY: std::ops::Range<usize> = {
    let at = std::mem::offset_of!(types::bio_key, epoch);
    at..at + size_of::<u64>()
};

/// The loaded programs and everything that must outlive their links.
struct Loaded {
    links: Vec<Link>,
    /// Those of the detector, while it is armed.
    detector: Vec<Link>,
    skel: ManuallyDrop<skel::SenseSkel<'static>>,
    storage: *mut MaybeUninit<OpenObject>,
}

// SAFETY: libbpf objects are not tied to the thread that made them; access is
// serialised by the mutex in `Sense`.
unsafe impl Send for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.detector.clear();
        self.links.clear();
        // SAFETY: dropped once, here, before the storage that it borrows.
        unsafe { ManuallyDrop::drop(&mut self.skel) };
        // SAFETY: came from Box::leak in `Sense::start`; nothing borrows it now.
        drop(unsafe { Box::from_raw(self.storage) });
    }
}

/// The daemon's senses, loaded.
pub struct Sense {
    shared: Shared,
    snapshot: OwnedFd,
    late_beat: OwnedFd,
    rings: Vec<MapHandle>,
    source: Source,
    nr_vcpus: usize,
    has_tick: bool,
    loaded: Mutex<Loaded>,
    /// Keeps the memory of a test bed's steal pages alive.
    _steal_map: Option<MapHandle>,
}

/// Which vCPUs were away at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) now: Time,
    pub(crate) out: CpuSet,
}

impl Sense {
    /// Loads the programs. Nothing is attached yet.
    ///
    /// # Errors
    /// If the kernel lacks what is needed, see [`SenseError`].
    pub fn load(settings: &Settings) -> Result<Self, SenseError> {
        let kernel = Kernel::look(settings)?;
        let source = choose_source(settings, &kernel)?;
        Self::load_with(settings, &kernel, source)
    }

    /// The same with pages that the caller has found.
    pub(super) fn load_with(
        settings: &Settings,
        kernel: &Kernel,
        (source, pages, steal_map): Chosen,
    ) -> Result<Self, SenseError> {
        let Kernel {
            nr_vcpus, has_tick, ..
        } = *kernel;

        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let storage_ptr: *mut MaybeUninit<OpenObject> = storage;
        let mut open = skel::SenseSkelBuilder::default()
            .open(storage)
            .map_err(|error| SenseError::bpf("open", error))?;
        open.progs.on_tick.set_autoload(has_tick);
        // Without CONFIG_IO_URING nobody waits there.
        open.progs.on_cqring_wait.set_autoload(kernel.has_uring);
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            let iobound = &settings.iobound;
            rodata.nr_vcpus = u32::try_from(nr_vcpus).unwrap_or(u32::MAX);
            // Half of what the estimator calls a gap: what it ignores as short
            // it must still see, because the slice's start moves on by it.
            rodata.min_gap_ns = settings.here(Ns::from_us(100)).as_ns();
            rodata.tick_ns = if source.reads_steal() {
                0
            } else {
                tick_length().as_ns()
            };
            rodata.quiet_after_ns = settings.quiet_after.as_ns();
            rodata.calm_after_ns = settings.calm_after.as_ns();
            rodata.window_ns = iobound.window.as_ns();
            rodata.min_accounted_ns = iobound.min_accounted.as_ns();
            rodata.idle_ns = iobound.idle.as_ns();
            rodata.stay_ns = iobound.stay.as_ns();
            rodata.enter_permille = u32::from(iobound.enter.get());
            rodata.leave_permille = u32::from(iobound.leave.get());
            rodata.leave_windows = iobound.leave_windows;
            rodata.own_tgid = std::process::id();
        }
        open.maps
            .bio_owner
            .set_max_entries(settings.bios_in_flight)
            .map_err(|error| SenseError::bpf("open", error))?;
        let mut skel = open
            .load()
            .map_err(|error| SenseError::bpf("load", error))?;
        let bss = skel.maps.bss_data.as_deref_mut().ok_or(SenseError::NoBtf)?;
        let shared = Shared::new(bss);
        shared.set_steal_addr(&pages);
        let rings = make_rings(&skel.maps.rings, nr_vcpus)?;
        let snapshot = descriptor(&skel.progs.snapshot)?;
        let late_beat = descriptor(&skel.progs.late_beat)?;
        Ok(Self {
            shared,
            snapshot,
            late_beat,
            rings,
            source,
            nr_vcpus,
            has_tick,
            loaded: Mutex::new(Loaded {
                links: Vec::new(),
                detector: Vec::new(),
                skel: ManuallyDrop::new(skel),
                storage: storage_ptr,
            }),
            _steal_map: steal_map,
        })
    }

    /// Attaches the programs that nobody pays for who does no I/O. They stay until
    /// `self` is dropped.
    ///
    /// # Errors
    /// If the kernel refuses; then none of them is attached.
    pub fn attach(&self) -> Result<(), SenseError> {
        let mut loaded = self.lock();
        let progs = &loaded.skel.progs;
        let links = [
            &progs.on_exit,
            &progs.on_fork,
            &progs.on_bio_complete,
            &progs.on_rq_complete,
            &progs.on_bio_queue,
        ]
        .into_iter()
        .chain([&progs.on_cqring_wait, &progs.on_tick])
        .filter(|program| program.autoload());
        loaded.links = attach_all(links)?;
        Ok(())
    }

    /// Attaches the rest of the detector: what every context switch and wake-up
    /// pays for. Each program is a patch of kernel text, for which each vCPU must
    /// answer several interrupts, and one that is away answers when it is back:
    /// up to seconds, so not for threads in a hurry. Does nothing the second time.
    ///
    /// # Errors
    /// If the kernel refuses; then none of them is attached.
    pub fn arm(&self) -> Result<(), SenseError> {
        let mut loaded = self.lock();
        if loaded.detector.is_empty() {
            let progs = &loaded.skel.progs;
            loaded.detector = attach_all([
                &progs.on_wakeup,
                &progs.on_waking,
                &progs.on_migrate,
                &progs.on_switch,
            ])?;
            self.shared.armed(now());
            forget_requests(&loaded, &self.shared);
        }
        Ok(())
    }

    /// Before each change between asleep and awake: counting starts anew.
    pub(crate) fn forget(&self) {
        self.shared.forget(now());
        forget_requests(&self.lock(), &self.shared);
    }

    /// Detaches what [`Self::arm`] attached.
    pub fn disarm(&self) {
        self.shared.disarmed();
        self.lock().detector.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each program by its name, and what it is now; as the kernel says, not as
    /// [`Self::attach`] and [`Self::arm`] would have it.
    pub(super) fn programs(&self) -> libbpf_rs::Result<Vec<(String, ProgramState)>> {
        let loaded = self.lock();
        let attached = loaded
            .links
            .iter()
            .chain(&loaded.detector)
            .map(|link| Ok(link.info()?.prog_id))
            .collect::<libbpf_rs::Result<Vec<_>>>()?;
        let programs = loaded.skel.object().progs();
        programs
            .map(|program| {
                let state = if !program.autoload() {
                    ProgramState::LeftOut
                } else if attached.contains(&Program::id_from_fd(program.as_fd())?) {
                    ProgramState::Attached
                } else {
                    ProgramState::Loaded
                };
                Ok((program.name().to_string_lossy().into_owned(), state))
            })
            .collect()
    }

    /// Tests say who does I/O, in place of the programs, which are not attached.
    #[cfg(test)]
    pub(crate) fn put_live(&self, slot: usize, key: units::TaskKey) {
        let mut loaded = self.lock();
        let bss = loaded.skel.maps.bss_data.as_deref_mut().unwrap();
        let task = &mut bss.tasks[slot];
        task.tid = key.tid.0;
        task.tgid = key.tid.0;
        task.start_boottime_ns = key.start_ticks * 10_000_000;
        task.taken_ns = now().as_ns();
        task.state = super::SlotState::Live as u32;
        bss.slots_used = bss.slots_used.max(slot as u32 + 1);
    }

    /// Is the detector attached?
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.shared.is_armed()
    }

    /// Where slices are seen.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Possible vCPUs of this machine: the size of every per-vCPU array.
    #[must_use]
    pub const fn nr_vcpus(&self) -> usize {
        self.nr_vcpus
    }

    /// Can BPF look at each timer interrupt (x86)? Otherwise sharing must be
    /// looked for in /proc/stat.
    #[must_use]
    pub const fn has_tick(&self) -> bool {
        self.has_tick
    }

    pub(crate) const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The ring of a vCPU.
    pub(crate) fn ring(&self, vcpu: VcpuId) -> &MapHandle {
        &self.rings[vcpu.index()]
    }

    /// The control ring.
    pub(crate) fn control_ring(&self) -> &MapHandle {
        &self.rings[self.nr_vcpus]
    }

    /// Which vCPUs are away now, for the thread of `me`, running there: as the
    /// program saw it that has just woken the thread, or else asked anew.
    ///
    /// # Errors
    /// If the kernel refuses to run the program.
    pub(crate) fn look(&self, me: VcpuId) -> Result<Snapshot, SenseError> {
        let (looked, out) = self.shared.last_look(me);
        let now = now();
        if now.since(looked) <= FRESH {
            return Ok(Snapshot { now, out });
        }
        self.snapshot()
    }

    /// Which vCPUs are away now, as the steal pages say.
    ///
    /// # Errors
    /// If the kernel refuses to run the program.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, SenseError> {
        let mut context = types::snapshot::default();
        run(&self.snapshot, &mut context)?;
        Ok(Snapshot {
            now: Time(context.now_ns),
            out: CpuSet::from_words(&context.out),
        })
    }

    /// A vCPU was away between these instants, as its late heartbeat says, and its tasks
    /// lost that time; only for a source where the programs see no gaps, and only by the
    /// thread that is pinned to that vCPU.
    ///
    /// # Errors
    /// If the kernel refuses to run the program.
    pub(crate) fn late_beat(&self, vcpu: VcpuId, out: Time, back: Time) -> Result<(), SenseError> {
        let mut context = types::late_beat {
            out_ns: out.as_ns(),
            back_ns: back.as_ns(),
            cpu: vcpu.0,
            ..types::late_beat::default()
        };
        run(&self.late_beat, &mut context)
    }
}

/// Throws away who submitted the requests of older epochs, whose completion nobody saw, and
/// nobody counts any more. The programs add none of those meanwhile.
fn forget_requests(loaded: &Loaded, shared: &Shared) {
    let owners = &loaded.skel.maps.bio_owner;
    let epoch = u64::from(shared.epoch()).to_ne_bytes();
    // Who walks a map that others change may be sent back to its beginning.
    let most = owners.max_entries() as usize;
    let old: Vec<_> = owners
        .keys()
        .take(most)
        .filter(|key| key.get(EPOCH_OF_KEY) != Some(&epoch))
        .collect();
    for key in old {
        // It is complete since, or was seen twice: gone, as it should be.
        let _ = owners.delete(&key);
    }
}

/// Runs a program that is attached nowhere. Its context, of plain integers, is read, and
/// written back.
fn run<T: Copy>(program: &OwnedFd, context: &mut T) -> Result<(), SenseError> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: (&raw mut *context).cast(),
        ctx_size_in: size_of::<T>() as u32,
        ..Default::default()
    };
    // SAFETY: the descriptor is a loaded program, the options live across the call, and
    // the kernel writes at most ctx_size_in bytes back.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result != 0 {
        return Err(SenseError::System {
            call: "BPF_PROG_TEST_RUN",
            source: io::Error::last_os_error(),
        });
    }
    Ok(())
}

/// Our own descriptor of a loaded program.
fn descriptor(program: &ProgramMut<'_>) -> Result<OwnedFd, SenseError> {
    let fd = program.as_fd().try_clone_to_owned();
    fd.map_err(|source| SenseError::System {
        call: "dup",
        source,
    })
}

/// What the kernel offers to the programs.
pub(super) struct Kernel {
    pub(super) nr_vcpus: usize,
    pub(super) has_tick: bool,
    has_uring: bool,
}

impl Kernel {
    pub(super) fn look(settings: &Settings) -> Result<Self, SenseError> {
        let nr_vcpus = possible_vcpus()?;
        if nr_vcpus > MAX_VCPUS {
            return Err(SenseError::TooManyVcpus { found: nr_vcpus });
        }
        let btf = Btf::from_vmlinux().map_err(|_| SenseError::NoBtf)?;
        let has_tracepoint = |name: &str| {
            btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"))
                .is_some()
        };
        Ok(Self {
            nr_vcpus,
            has_tick: settings.steal_stat.is_none() && has_tracepoint("local_timer_exit"),
            has_uring: has_tracepoint("io_uring_cqring_wait"),
        })
    }
}

/// A source, the addresses of its pages, and the map that they are in.
pub(super) type Chosen = (Source, Vec<u64>, Option<MapHandle>);

/// The source that was asked for, or the best one there is.
fn choose_source(settings: &Settings, kernel: &Kernel) -> Result<Chosen, SenseError> {
    let Kernel {
        nr_vcpus, has_tick, ..
    } = *kernel;
    if settings.source == SourceChoice::Heartbeat {
        return Ok((Source::Heartbeat, Vec::new(), None));
    }
    if let Some(id) = settings.steal_map_id {
        let (pages, map) = locate::map_pages(id, nr_vcpus)?;
        return Ok((Source::StealMap, pages, Some(map)));
    }
    match locate::kvm_pages(nr_vcpus) {
        // Without the timer tracepoint a gap would be seen at the next context
        // switch only, which may be a slice later.
        Ok(pages) if has_tick => Ok((Source::StealPage, pages, None)),
        Ok(_) if settings.source == SourceChoice::StealPage => Err(SenseError::NoStealPage {
            reason: "this kernel has no timer tracepoint to look at it from".into(),
        }),
        Err(error) if settings.source == SourceChoice::StealPage => Err(error),
        Err(SenseError::Permission) => Err(SenseError::Permission),
        Ok(_) | Err(_) => Ok((Source::Heartbeat, Vec::new(), None)),
    }
}

fn attach_all<'a>(
    programs: impl IntoIterator<Item = &'a ProgramMut<'a>>,
) -> Result<Vec<Link>, SenseError> {
    programs
        .into_iter()
        .map(|program| program.attach())
        .collect::<libbpf_rs::Result<_>>()
        .map_err(|error| SenseError::bpf("attach", error))
}

/// One ring per vCPU and the control ring, at the end here and at index
/// `MAX_VCPUS` in the map.
fn make_rings(outer: &impl MapCore, nr_vcpus: usize) -> Result<Vec<MapHandle>, SenseError> {
    try_make_rings(outer, nr_vcpus).map_err(|error| SenseError::bpf("make rings for", error))
}

fn try_make_rings(outer: &impl MapCore, nr_vcpus: usize) -> libbpf_rs::Result<Vec<MapHandle>> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let name = Some("vmg_bells");
    let rings = (0..=nr_vcpus)
        .map(|_| MapHandle::create(MapType::RingBuf, name, 0, 0, RING_BYTES, &options))
        .collect::<libbpf_rs::Result<Vec<_>>>()?;
    let entries: Vec<_> = (0u32..)
        .zip(&rings)
        .map(|(i, ring)| {
            let key = if i as usize == nr_vcpus {
                MAX_VCPUS as u32
            } else {
                i
            };
            (key.to_ne_bytes(), ring.as_fd().as_raw_fd().to_ne_bytes())
        })
        .collect();
    let keys: Vec<u8> = entries.iter().flat_map(|(key, _)| *key).collect();
    let values: Vec<u8> = entries.iter().flat_map(|(_, fd)| *fd).collect();
    // At once: after each update of such a map the kernel waits until no program
    // can see the old entry, some ten milliseconds where CPUs are busy.
    let count = entries.len() as u32;
    let at_once = outer.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY);
    if at_once.is_err() {
        for (key, fd) in &entries {
            outer.update(key, fd, MapFlags::ANY)?;
        }
    }
    Ok(rings)
}

/// The kernel's tick, from the resolution of its coarse clock.
fn tick_length() -> Ns {
    let resolution = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Ns(u64::try_from(resolution.tv_nsec).unwrap_or(4_000_000))
}
