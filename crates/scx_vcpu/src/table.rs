// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of vCPUs of a scheduler that runs, also of another process.

mod text;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use serde::Deserialize;
use serde::Serialize;
pub use text::text;
use units::Ns;
use units::Time;

use crate::config::Class;
use crate::control;
use crate::control::SOCKET;
use crate::load;
use crate::load::HELD;
use crate::lost::Lost;
use crate::name;
use crate::skel::main::types::sv_pcpu;
use crate::skel::main::types::sv_vcpu;
use crate::skel::main::types::sv_waker;

/// Where a scheduler that runs keeps its table for others.
pub(crate) const PIN: &str = "/sys/fs/bpf/scx_vcpu_table";

/// The same for who wakes whom.
pub(crate) const PIN_WAKERS: &str = "/sys/fs/bpf/scx_vcpu_wakers";

/// The same for the programs' counters.
pub(crate) const PIN_COUNTS: &str = "/sys/fs/bpf/scx_vcpu_counts";

/// The same for what vCPUs had before it was attached.
pub(crate) const PIN_PAST: &str = "/sys/fs/bpf/scx_vcpu_past";

/// All of them.
pub(crate) const PINS: [&str; 4] = [PIN, PIN_WAKERS, PIN_COUNTS, PIN_PAST];

/// Entries read at once.
const BATCH: u32 = 256;

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has nothing to do.
    Asleep,
    /// It could run.
    Waits,
    /// It has a pCPU.
    Runs,
    /// It is the kernel's own scheduler's, since no vCPU wants CPU time
    /// ([`crate::run::Options::rest_after`]).
    Rests,
}

/// One vCPU. Times and numbers count from when it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Process id of the VMM.
    pub vm: u32,
    /// What the VMM calls its VM, or how the VMM itself is called; for people.
    #[serde(default)]
    pub name: String,
    /// Policy that schedules it, as `--policy` takes it; empty if it is not known, or while it
    /// rests.
    #[serde(default)]
    pub policy: String,
    /// The thread.
    pub tid: u32,
    /// Number of the vCPU.
    pub vcpu: u32,
    /// What it did when it was read.
    pub state: State,
    /// pCPU of its queue.
    pub cpu: u32,
    /// More is more CPU time.
    pub weight: u32,
    /// Its VM's kind.
    pub class: Class,
    /// Most of a pCPU that it may use, in thousandths; 0: no limit.
    pub cap_permille: u32,
    /// Time on a pCPU; without what goes on now.
    pub ran: Ns,
    /// Its part of the time that all vCPUs beside it had, in thousandths.
    #[serde(default)]
    pub share_permille: u32,
    /// The same of all vCPUs of its VM together.
    #[serde(default)]
    pub vm_share_permille: u32,
    /// Time in which it could run and did not.
    pub waited: Ns,
    /// The longest that it waited at once, also for its cap's next period. Since it was found:
    /// a longest has no difference.
    pub longest_wait: Ns,
    /// Time without work.
    pub slept: Ns,
    /// Times that it got a pCPU.
    pub turns: u64,
    /// Times that it lost it and could run on.
    pub preempted: u64,
    /// Wake-ups.
    pub wakes: u64,
    /// Interrupts from devices.
    pub io: u64,
    /// Interrupts from vCPUs of its VM.
    pub ipi: u64,
    /// Of those, the ones that found it asleep.
    pub wake_ipis: u64,
    /// The same by the number of the vCPU that sent them (J11), as far as it is known.
    pub wakers: BTreeMap<u32, u64>,
    /// Times that its guest halted, and for how long; without one that goes on now.
    pub halts: u64,
    /// See there.
    pub halted: Ns,
    /// How long a turn of it may last, as a user has said; zero: as its policy says.
    pub own_slice: Ns,
    /// How long it may wait when it wakes, as a user has said; zero: as its policy says.
    pub latency: Ns,
    /// How long its present or last turn may become, or might have.
    pub slice: Ns,
    /// Credit in ns of running at the reference weight.
    pub credit: i64,
    /// ISACS: what the last reallocation gave for I/O.
    pub ivcredit: Ns,
}

/// What a pCPU has for its queue, as far as user space decides on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pcpu {
    /// Sum of the IVCredits of the last reallocation.
    pub(crate) io_load: Ns,
    /// Response events of its vCPUs in the period before.
    pub(crate) io_events: u64,
    /// Reallocations so far.
    pub(crate) reallocations: u64,
    /// No vCPU has run there for [`HELD`]. It is host threads' then, for an idle one would
    /// have taken a vCPU that waits.
    pub(crate) held: bool,
}

/// All pCPUs, by number, at this time of `CLOCK_MONOTONIC`.
pub(crate) fn pcpus(map: &impl MapCore, count: u32, now: Time) -> anyhow::Result<Vec<Pcpu>> {
    (0..count)
        .map(|cpu| {
            let bytes = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY)?;
            let pcpu: sv_pcpu = plain(&bytes.unwrap_or_default()).unwrap_or_default();
            Ok(Pcpu {
                io_load: Ns(pcpu.io_load_ns),
                io_events: pcpu.io_events,
                reallocations: pcpu.nr_reallocations,
                held: is_held(&pcpu, now),
            })
        })
        .collect()
}

/// See [`Pcpu::held`].
fn is_held(pcpu: &sv_pcpu, now: Time) -> bool {
    pcpu.slot == 0 && now.0.saturating_sub(pcpu.left_ns) >= HELD.0
}

/// All vCPUs of the scheduler that runs on this machine; none while it waits for the first.
/// While it rests they have what it had written a second ago at most.
///
/// # Errors
/// None runs, or not permitted.
pub fn read() -> anyhow::Result<Vec<Vcpu>> {
    let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    let policy = policy_of(&ops);
    if policy.is_none() {
        let waits = control::runs(Path::new(SOCKET))
            .context("cannot tell whether scx_vcpu runs; run as root")?;
        anyhow::ensure!(
            waits,
            "scx_vcpu does not run on this machine; start it with `scx_vcpu run`"
        );
    }
    // The scheduler may come or go in this moment. A vCPU is at rest before it leaves the table,
    // and in the table before it is at rest no longer.
    let before = at_rest();
    let scheduled = match MapHandle::from_pinned_path(Path::new(PIN)) {
        Ok(map) => entries(&map, u32::MAX)?,
        Err(_) if policy.is_none() => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| {
                format!("cannot open {PIN}; run as root, on a machine with /sys/fs/bpf mounted")
            });
        }
    };
    let mut vcpus = one_each([scheduled, at_rest(), before]);
    complete(&mut vcpus, policy.unwrap_or_default());
    Ok(vcpus)
}

/// Each vCPU once, as the first of these has it.
fn one_each(all: [Vec<Vcpu>; 3]) -> Vec<Vcpu> {
    let mut vcpus: Vec<Vcpu> = all.into_iter().flatten().collect();
    // Stable.
    vcpus.sort_by_key(|vcpu| (vcpu.vm, vcpu.vcpu, vcpu.tid));
    vcpus.dedup_by_key(|vcpu| (vcpu.vm, vcpu.tid));
    vcpus
}

/// Those of a scheduler that has left the kernel until one of them wants CPU time.
fn at_rest() -> Vec<Vcpu> {
    // None: it waits for its first vCPU, or is of a version that knows no rest.
    let Ok(map) = MapHandle::from_pinned_path(Path::new(PIN_PAST)) else {
        return Vec::new();
    };
    let entries = map.keys().filter_map(|tid| {
        let entry = map.lookup(&tid, MapFlags::ANY).ok()??;
        let vcpu = decode(&entry)?;
        Some(Vcpu {
            state: State::Rests,
            ..vcpu
        })
    });
    entries.collect()
}

/// What is not in the entries themselves.
fn complete(vcpus: &mut [Vcpu], policy: &str) {
    // Its own version has it; the counters are of use without.
    if let Ok(map) = MapHandle::from_pinned_path(Path::new(PIN_WAKERS)) {
        add_wakers(&map, vcpus);
    }
    // Last: both counters are of nearly the same moment.
    let mut names = BTreeMap::new();
    for vcpu in &mut *vcpus {
        let name = names.entry(vcpu.vm).or_insert_with(|| name::of(vcpu.vm));
        vcpu.name.clone_from(name);
        if vcpu.state != State::Rests {
            policy.clone_into(&mut vcpu.policy);
        }
    }
    add_shares(vcpus);
}

/// What the scheduler that runs on this machine had no room or memory for; nothing if none runs.
#[must_use]
pub fn lost() -> Lost {
    MapHandle::from_pinned_path(Path::new(PIN_COUNTS))
        .map_or_else(|_| Lost::default(), |map| Lost::read(&map))
}

/// The policy of the scheduler that the kernel calls so; empty if it is of a version that does
/// not say, `None` if it is not ours.
fn policy_of(ops: &str) -> Option<&str> {
    match ops.trim().strip_prefix(load::NAME)? {
        "" => Some(""),
        rest => rest.strip_prefix('_'),
    }
}

/// What part each had of the time of all, and its VM.
fn add_shares(vcpus: &mut [Vcpu]) {
    let mut all = Ns::ZERO;
    let mut of_vm: BTreeMap<u32, Ns> = BTreeMap::new();
    for vcpu in &*vcpus {
        all += vcpu.ran;
        *of_vm.entry(vcpu.vm).or_default() += vcpu.ran;
    }
    let permille = |part: Ns| (part.0 as f64 / all.0.max(1) as f64 * 1e3).round() as u32;
    for vcpu in vcpus {
        vcpu.share_permille = permille(vcpu.ran);
        vcpu.vm_share_permille = permille(of_vm[&vcpu.vm]);
    }
}

/// Who has woken each.
fn add_wakers(map: &impl MapCore, vcpus: &mut [Vcpu]) {
    for key in map.keys() {
        let count = map.lookup(&key, MapFlags::ANY).ok().flatten();
        let (Some(waker), Some(count)) = (
            plain::<sv_waker>(&key),
            count.and_then(|bytes| bytes.try_into().ok()),
        ) else {
            continue;
        };
        let woken = vcpus
            .iter_mut()
            .find(|vcpu| (vcpu.vm, vcpu.tid) == (waker.vm, waker.tid));
        if let Some(vcpu) = woken {
            vcpu.wakers.insert(waker.source, u64::from_ne_bytes(count));
        }
    }
}

/// The entries in use of a table, of its first `positions`: the slow loops know how many
/// were ever used, and the whole table is a megabyte.
pub(crate) fn entries(map: &MapHandle, positions: u32) -> anyhow::Result<Vec<Vcpu>> {
    let mut vcpus: Vec<Vcpu> = raw(map, positions)?.iter().filter_map(of_entry).collect();
    vcpus.sort_by_key(|vcpu| (vcpu.vm, vcpu.vcpu));
    Ok(vcpus)
}

/// The same as they lie there, with those that nobody has.
pub(crate) fn raw(map: &MapHandle, positions: u32) -> anyhow::Result<Vec<sv_vcpu>> {
    if positions == 0 {
        return Ok(Vec::new());
    }
    let batches = map
        .lookup_batch(BATCH.min(positions), MapFlags::ANY, MapFlags::ANY)
        .context("cannot read the table of vCPUs")?;
    let entries = batches.take(positions as usize);
    Ok(entries.filter_map(|(_, bytes)| plain(&bytes)).collect())
}

/// A structure of the BPF side: plain integers, of which any bytes make one.
pub(crate) trait Plain: Copy {}
impl Plain for sv_vcpu {}
impl Plain for sv_pcpu {}
impl Plain for sv_waker {}

/// A copy of the structure that these bytes are; `None` if they are too few.
pub(crate) fn plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: as many bytes as a T has, and any make one.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of an entry.
pub(crate) fn bytes_of(entry: &sv_vcpu) -> &[u8] {
    // SAFETY: plain integers without gaps, borrowed for as long as the bytes are.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(entry).cast(), size_of::<sv_vcpu>()) }
}

/// Reads `struct sv_vcpu`; `None` if nobody has the entry.
fn decode(bytes: &[u8]) -> Option<Vcpu> {
    of_entry(&plain(bytes)?)
}

/// `None` if nobody has the entry.
fn of_entry(entry: &sv_vcpu) -> Option<Vcpu> {
    Some(Vcpu {
        // enum sv_state
        state: match entry.state {
            1 => State::Asleep,
            2 => State::Waits,
            3 => State::Runs,
            _ => return None,
        },
        vm: entry.vm,
        name: String::new(),
        policy: String::new(),
        tid: entry.tid,
        vcpu: entry.vcpu,
        cpu: entry.cpu,
        weight: entry.weight,
        class: if entry.class == 0 {
            Class::Cpu
        } else {
            Class::Io
        },
        cap_permille: entry.cap_permille,
        ran: Ns(entry.ran_ns),
        share_permille: 0,
        vm_share_permille: 0,
        waited: Ns(entry.waited_ns),
        longest_wait: Ns(entry.longest_wait_ns),
        slept: Ns(entry.slept_ns),
        turns: entry.nr_turns,
        preempted: entry.nr_preempted,
        wakes: entry.nr_wakes,
        io: entry.nr_io,
        ipi: entry.nr_ipi,
        wake_ipis: entry.nr_wake_ipi,
        wakers: BTreeMap::new(),
        halts: entry.nr_halts,
        halted: Ns(entry.halted_ns),
        own_slice: Ns(entry.slice_ns),
        latency: Ns(entry.latency_ns),
        slice: Ns(entry.turn_ns),
        credit: entry.credit,
        ivcredit: Ns(entry.ivcredit),
    })
}

/// What happened between two readings: counts and times are differences, the
/// rest is as it is now. A vCPU that was not there before counts from its start.
#[must_use]
pub fn since(before: &[Vcpu], now: &[Vcpu]) -> Vec<Vcpu> {
    let past: BTreeMap<u32, &Vcpu> = before.iter().map(|vcpu| (vcpu.tid, vcpu)).collect();
    let mut since: Vec<Vcpu> = now
        .iter()
        .map(|vcpu| {
            let Some(past) = past
                .get(&vcpu.tid)
                .filter(|past| past.vm == vcpu.vm && past.turns <= vcpu.turns)
            else {
                return vcpu.clone();
            };
            Vcpu {
                ran: Ns(vcpu.ran.0.saturating_sub(past.ran.0)),
                waited: Ns(vcpu.waited.0.saturating_sub(past.waited.0)),
                slept: Ns(vcpu.slept.0.saturating_sub(past.slept.0)),
                turns: vcpu.turns - past.turns,
                preempted: vcpu.preempted.saturating_sub(past.preempted),
                wakes: vcpu.wakes.saturating_sub(past.wakes),
                io: vcpu.io.saturating_sub(past.io),
                ipi: vcpu.ipi.saturating_sub(past.ipi),
                wake_ipis: vcpu.wake_ipis.saturating_sub(past.wake_ipis),
                wakers: vcpu
                    .wakers
                    .iter()
                    .map(|(source, count)| {
                        let past = past.wakers.get(source).copied().unwrap_or_default();
                        (*source, count.saturating_sub(past))
                    })
                    .collect(),
                halts: vcpu.halts.saturating_sub(past.halts),
                halted: Ns(vcpu.halted.0.saturating_sub(past.halted.0)),
                ..vcpu.clone()
            }
        })
        .collect();
    add_shares(&mut since);
    since
}

#[cfg(test)]
mod tests;
