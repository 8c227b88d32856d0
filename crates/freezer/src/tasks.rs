// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a few threads do meanwhile: when they run, wait, are woken and change
//! CPU, by BPF (`src/bpf/tasks.bpf.c`).
//!
//! Together with the freezer's own log this says where a thread's time went.
//! Nothing is interpreted here.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::Skel;
use libbpf_rs::skel::SkelBuilder;
use units::Tid;
use units::Time;
use units::VcpuId;

use crate::shared::Shared;

/// Generated from the compiled object.
#[allow(
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    unused
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/tasks.skel.rs"));
}

use skel::types;

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It became current.
    In,
    /// It stopped being current but wants to go on.
    Ready,
    /// It stopped being current and waits for I/O.
    Io,
    /// It stopped being current and waits for something else.
    Sleep,
    /// It is being woken, by something on that CPU.
    Waking,
    /// It is queued on that CPU from now on.
    Moved,
}

/// One event of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// When, on `CLOCK_MONOTONIC`.
    pub at: Time,
    /// Where.
    pub cpu: VcpuId,
    /// What.
    pub what: What,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Loading, sizing or attaching failed.
    #[error("cannot record what threads do; needs Linux 5.18, BTF and root")]
    Bpf(#[from] libbpf_rs::Error),
    /// The log could not be mapped.
    #[error("cannot map the log of threads")]
    Map(#[from] rustix::io::Errno),
}

/// A recorder, attached. Dropping it ends it.
pub struct TaskRecorder {
    ctl: Shared<types::ft_ctl>,
    lanes: Shared<types::ft_lane>,
    events: Shared<types::ft_event>,
    log_per_cpu: u32,
    links: Vec<OwnedFd>,
}

impl std::fmt::Debug for TaskRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskRecorder")
            .field("log_per_cpu", &self.log_per_cpu)
            .finish_non_exhaustive()
    }
}

impl TaskRecorder {
    /// Loads and attaches it for these threads; nothing is recorded yet. Each CPU's
    /// log has room for so many events; a request of a thread that sleeps takes
    /// three to five.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn load(tids: &[u32], log_per_cpu: u32) -> Result<Self, RecordError> {
        let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(u32::MAX);
        let entries = cpus.saturating_mul(log_per_cpu);
        let mut storage = MaybeUninit::uninit();
        let mut open = skel::TasksSkelBuilder::default().open(&mut storage)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.log_per_cpu = log_per_cpu;
        }
        open.maps.task_lanes.set_max_entries(cpus)?;
        open.maps.task_events.set_max_entries(entries)?;
        let mut skel = open.load()?;
        for tid in tids {
            let one = 1u32.to_ne_bytes();
            skel.maps
                .watched
                .update(&tid.to_ne_bytes(), &one, MapFlags::ANY)?;
        }
        let ctl = Shared::new(skel.maps.bss.as_fd(), 1)?;
        let lanes = Shared::new(skel.maps.task_lanes.as_fd(), cpus as usize)?;
        let events = Shared::new(skel.maps.task_events.as_fd(), entries as usize)?;
        skel.attach()?;
        let links = &skel.links;
        // Our own descriptors keep the links when the skeleton is gone.
        let links = [&links.task_switch, &links.task_waking, &links.task_moved]
            .into_iter()
            .map(|link| match link {
                Some(link) => link.as_fd().try_clone_to_owned(),
                None => Err(io::ErrorKind::NotFound.into()),
            })
            .collect::<Result<_, io::Error>>()
            .map_err(libbpf_rs::Error::from)?;
        Ok(Self {
            ctl,
            lanes,
            events,
            log_per_cpu,
            links,
        })
    }

    /// Records from now on.
    pub fn start(&self) {
        self.record(1);
    }

    /// Records nothing any more, for good. The log stays readable.
    pub fn stop(&mut self) {
        self.record(0);
        self.links.clear();
    }

    fn record(&self, recording: u32) {
        self.ctl.set(
            0,
            types::ft_ctl {
                recording,
                ..types::ft_ctl::default()
            },
        );
    }

    /// Events that found the log full: with any, the log says nothing about the
    /// end of the recorded time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        (0..self.lanes.len())
            .map(|cpu| self.lanes.get(cpu).nr_dropped)
            .sum()
    }

    /// All events so far, by thread and in the order of time.
    #[must_use]
    pub fn events(&self) -> BTreeMap<Tid, Vec<TaskEvent>> {
        let mut by_tid: BTreeMap<Tid, Vec<TaskEvent>> = BTreeMap::new();
        for cpu in 0..self.lanes.len() {
            // SAFETY: the address of an aligned u64 inside the mapping, which BPF
            // writes with atomics only.
            let logged = unsafe { AtomicU64::from_ptr(&raw mut (*self.lanes.at(cpu)).nr_logged) };
            // Acquire: the events below this count are complete.
            let logged = logged
                .load(Ordering::Acquire)
                .min(u64::from(self.log_per_cpu));
            let first = cpu * self.log_per_cpu as usize;
            for index in (first..).take(logged as usize) {
                let event = self.events.get(index);
                let Some(what) = what_of(event.kind) else {
                    continue;
                };
                by_tid.entry(Tid(event.tid)).or_default().push(TaskEvent {
                    at: Time(event.at_ns),
                    cpu: VcpuId(event.cpu),
                    what,
                });
            }
        }
        for events in by_tid.values_mut() {
            // Stable: events of one CPU with the same stamp stay in order.
            events.sort_by_key(|event| event.at);
        }
        by_tid
    }
}

fn what_of(kind: types::ft_kind) -> Option<What> {
    match kind {
        types::ft_kind::FT_IN => Some(What::In),
        types::ft_kind::FT_READY => Some(What::Ready),
        types::ft_kind::FT_IO => Some(What::Io),
        types::ft_kind::FT_SLEEP => Some(What::Sleep),
        types::ft_kind::FT_WAKING => Some(What::Waking),
        types::ft_kind::FT_MOVED => Some(What::Moved),
        _ => None,
    }
}
