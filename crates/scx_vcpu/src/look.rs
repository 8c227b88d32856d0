// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scx_vcpu trace`: what the host's own scheduler does with vCPUs.
//!
//! The same trace as that of a policy of ours, from the same two programs, so that both
//! can be compared. Nobody is scheduled: no thread is touched.

use std::io::Read;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use libbpf_rs::RingBufferBuilder;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::skel::SkelBuilder;

use crate::config::Worth;
use crate::load::refuse;
use crate::probe;
use crate::roster::Knobs;
use crate::run::found_in;
use crate::run::libbpf_says;
use crate::run::record::Recorder;
use crate::seat::Found;
use crate::skel::look::LookSkelBuilder;
use crate::tell;
use units::Ns;

/// Writes the trace to `path` until `stop` is set or `length` is over. `ready` is called
/// once, with how many vCPUs of how many VMs are there then.
///
/// # Errors
/// [`probe::Unsupported`], or a file that cannot be written.
pub fn run(
    path: &Path,
    length: Option<Duration>,
    stop: &AtomicBool,
    ready: impl FnOnce(usize, usize),
) -> anyhow::Result<()> {
    probe::kvm(Path::new("/"))?;
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, libbpf_says)));
    let mut storage = MaybeUninit::uninit();
    let open = LookSkelBuilder::default()
        .open(&mut storage)
        .map_err(refuse)?;
    let skel = open.load().map_err(refuse)?;
    // Not before it is known that there will be a trace: what the file had goes.
    let recorder = Recorder::new(Some(path))?;
    // New ones first: one that starts while the others are listed is seen twice and not
    // missed.
    let _new = skel.progs.vcpu_runs.attach_trace().map_err(refuse)?;
    let knobs = libbpf_rs::MapHandle::try_from(&skel.maps.vcpus).map_err(refuse)?;
    let mut vms = std::collections::BTreeSet::new();
    let list = skel.progs.list_vcpus.attach().map_err(refuse)?;
    let mut bytes = Vec::new();
    libbpf_rs::Iter::new(&list)
        .map_err(refuse)?
        .read_to_end(&mut bytes)
        .context("cannot list the vCPUs")?;
    let found: Vec<Found> = found_in(&bytes);
    for found in &found {
        let worth = Worth::default();
        // Of these only who it is counts.
        let nothing = Knobs {
            weight: worth.weight,
            cap_permille: 0,
            class: worth.class,
            home: None,
            slice: Ns::ZERO,
            latency: Ns::ZERO,
            cpus: None,
        };
        tell::mark(&knobs, *found, nothing)?;
        vms.insert(found.vm);
    }
    let _switches = skel.progs.switches.attach_trace().map_err(refuse)?;
    let _wakes = skel.progs.wakes.attach_trace().map_err(refuse)?;

    let mut rings = RingBufferBuilder::new();
    // A new one has its mark already; its message has to be taken all the same.
    rings.add(&skel.maps.found, |_| 0)?;
    rings.add(&skel.maps.trace, |bytes| {
        recorder.write(bytes);
        0
    })?;
    let rings = rings.build()?;
    ready(vms.len(), found.len());
    let end = length.map(|length| Instant::now() + length);
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        recorder.hear(&rings)?;
    }
    let bss = skel.maps.bss_data.as_deref();
    let lost = bss.map_or(0, |bss| bss.nr_trace_lost);
    if lost > 0 {
        tracing::warn!(lost, "events did not fit into the trace");
    }
    Ok(())
}
