// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of vCPUs of a scheduler that runs, also of another process.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use serde::Deserialize;
use serde::Serialize;
use units::Ns;
use units::Time;

use crate::config::Class;
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
}

/// One vCPU. Times and numbers count from when it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Process id of the VMM.
    pub vm: u32,
    /// What the VMM calls its VM, or how the VMM itself is called; for people.
    #[serde(default)]
    pub name: String,
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

/// All vCPUs of the scheduler that runs on this machine.
///
/// # Errors
/// None runs, or not permitted.
pub fn read() -> anyhow::Result<Vec<Vcpu>> {
    let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    anyhow::ensure!(
        ops.starts_with("scx_vcpu"),
        "scx_vcpu does not run on this machine; start it with `scx_vcpu run`"
    );
    let map = MapHandle::from_pinned_path(Path::new(PIN)).with_context(|| {
        format!("cannot open {PIN}; run as root, on a machine with /sys/fs/bpf mounted")
    })?;
    let mut vcpus = entries(&map, u32::MAX)?;
    // Its own version has it; the counters are of use without.
    if let Ok(map) = MapHandle::from_pinned_path(Path::new(PIN_WAKERS)) {
        add_wakers(&map, &mut vcpus);
    }
    // Last: both counters are of nearly the same moment.
    let mut names = BTreeMap::new();
    for vcpu in &mut vcpus {
        let name = names.entry(vcpu.vm).or_insert_with(|| name::of(vcpu.vm));
        vcpu.name.clone_from(name);
    }
    Ok(vcpus)
}

/// What the scheduler that runs on this machine had no room or memory for; nothing if none runs.
#[must_use]
pub fn lost() -> Lost {
    MapHandle::from_pinned_path(Path::new(PIN_COUNTS))
        .map_or_else(|_| Lost::default(), |map| Lost::read(&map))
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
    let mut vcpus = Vec::new();
    if positions == 0 {
        return Ok(vcpus);
    }
    let batches = map
        .lookup_batch(BATCH.min(positions), MapFlags::ANY, MapFlags::ANY)
        .context("cannot read the table of vCPUs")?;
    for (_, bytes) in batches.take(positions as usize) {
        vcpus.extend(decode(&bytes));
    }
    vcpus.sort_by_key(|vcpu| (vcpu.vm, vcpu.vcpu));
    Ok(vcpus)
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

/// Reads `struct sv_vcpu`; `None` if nobody has the entry.
fn decode(bytes: &[u8]) -> Option<Vcpu> {
    let entry: sv_vcpu = plain(bytes)?;
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

/// The table for people: one line per vCPU, VMs together.
#[must_use]
pub fn text(vcpus: &[Vcpu]) -> String {
    let mut all = Ns::ZERO;
    let mut of_vm: BTreeMap<u32, Ns> = BTreeMap::new();
    for vcpu in vcpus {
        all += vcpu.ran;
        *of_vm.entry(vcpu.vm).or_default() += vcpu.ran;
    }
    let mut text = format!(
        "{:>8} {:<12} {:>5} {:>8} {:>5} {:>5} {:>7} {:>6} {:>7} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>10} {:>10} {:<6}  {}\n",
        "VM",
        "name",
        "vCPU",
        "thread",
        "pCPU",
        "class",
        "weight",
        "cap",
        "VM has",
        "ran",
        "waited",
        "longest",
        "turns",
        "I/O",
        "IPIs",
        "halted",
        "halts",
        "slice",
        "credit ms",
        "I/O ms",
        "state",
        "woken by"
    );
    for vcpu in vcpus {
        let share = of_vm[&vcpu.vm].0 as f64 / all.0.max(1) as f64;
        text += &format!(
            "{:>8} {:<12} {:>5} {:>8} {:>5} {:>5} {:>7} {:>6} {:>5.1} % {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>10.2} {:>10.2} {:<6}  {}\n",
            vcpu.vm,
            vcpu.name,
            vcpu.vcpu,
            vcpu.tid,
            vcpu.cpu,
            vcpu.class,
            vcpu.weight,
            match vcpu.cap_permille {
                0 => "none".to_owned(),
                cap => format!("{}.{}%", cap / 10, cap % 10),
            },
            share * 100.0,
            vcpu.ran.to_string(),
            vcpu.waited.to_string(),
            vcpu.longest_wait.to_string(),
            vcpu.turns,
            vcpu.io,
            vcpu.ipi,
            vcpu.halted.to_string(),
            vcpu.halts,
            vcpu.slice.to_string(),
            vcpu.credit as f64 / 1e6,
            vcpu.ivcredit.0 as f64 / 1e6,
            match vcpu.state {
                State::Asleep => "asleep",
                State::Waits => "waits",
                State::Runs => "runs",
            },
            wakers(&vcpu.wakers)
        );
    }
    text
}

/// The vCPUs that have woken one most often, with the numbers of times.
fn wakers(wakers: &BTreeMap<u32, u64>) -> String {
    let mut most: Vec<_> = wakers.iter().filter(|(_, count)| **count > 0).collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let texts: Vec<String> = most
        .iter()
        .take(3)
        .map(|(source, count)| format!("{source}: {count}"))
        .collect();
    texts.join(", ")
}

/// What happened between two readings: counts and times are differences, the
/// rest is as it is now. A vCPU that was not there before counts from its start.
#[must_use]
pub fn since(before: &[Vcpu], now: &[Vcpu]) -> Vec<Vcpu> {
    let past: BTreeMap<u32, &Vcpu> = before.iter().map(|vcpu| (vcpu.tid, vcpu)).collect();
    now.iter()
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
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: u32, ran: u64) -> sv_vcpu {
        sv_vcpu {
            state,
            vm: 7,
            tid: 70,
            vcpu: 1,
            weight: 512,
            class: 1,
            ran_ns: ran,
            waited_ns: 20,
            longest_wait_ns: 12,
            slept_ns: 30,
            nr_turns: 4,
            nr_io: 8,
            nr_ipi: 9,
            nr_wake_ipi: 5,
            nr_halts: 6,
            halted_ns: 7,
            credit: -3_000_000,
            ivcredit: 1_500_000,
            turn_ns: 30_000_000,
            ..sv_vcpu::default()
        }
    }

    fn bytes(entry: &sv_vcpu) -> &[u8] {
        // SAFETY: plain integers without gaps, borrowed for as long as the bytes are.
        unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(entry).cast(), size_of::<sv_vcpu>())
        }
    }

    fn vcpu(state: u32, ran: u64) -> Option<Vcpu> {
        decode(bytes(&entry(state, ran)))
    }

    #[test]
    fn an_entry_is_read_as_it_lies_there() {
        let vcpu = decode(bytes(&entry(3, 10))).unwrap();
        assert_eq!((vcpu.vm, vcpu.tid, vcpu.vcpu, vcpu.weight), (7, 70, 1, 512));
        assert_eq!(vcpu.class, Class::Io);
        assert_eq!(
            (vcpu.ran, vcpu.waited, vcpu.slept),
            (Ns(10), Ns(20), Ns(30))
        );
        assert_eq!(vcpu.longest_wait, Ns(12));
        assert_eq!((vcpu.io, vcpu.ipi, vcpu.credit), (8, 9, -3_000_000));
        assert_eq!((vcpu.halts, vcpu.halted, vcpu.wake_ipis), (6, Ns(7), 5));
        assert_eq!(decode(bytes(&entry(0, 10))), None, "nobody's");
        assert_eq!(decode(&bytes(&entry(3, 10))[..100]), None);
    }

    #[test]
    fn a_pcpu_is_held_when_no_vcpu_has_run_there_for_long() {
        let at = |slot, left_ns| {
            let pcpu = sv_pcpu {
                slot,
                left_ns,
                ..sv_pcpu::default()
            };
            is_held(&pcpu, Time(HELD.0 * 3))
        };
        assert!(at(0, HELD.0 * 2) && at(0, 0), "nobody for as long, or ever");
        assert!(!at(0, HELD.0 * 2 + 1), "only just interrupted");
        assert!(!at(4, 0), "one runs");
        assert!(!at(0, HELD.0 * 4), "since the clock was read");
    }

    #[test]
    fn a_difference_is_of_the_same_vcpu_only() {
        let woken = |state, ran, counts: &[(u32, u64)]| Vcpu {
            wakers: counts.iter().copied().collect(),
            ..vcpu(state, ran).unwrap()
        };
        let old = woken(1, 10, &[(0, 4)]);
        let now = woken(1, 25, &[(0, 6), (3, 9)]);
        let of = since(std::slice::from_ref(&old), std::slice::from_ref(&now));
        assert_eq!(wakers(&of[0].wakers), "3: 9, 0: 2");
        let (older, newer) = (std::slice::from_ref(&old), std::slice::from_ref(&now));
        assert_eq!(since(older, newer)[0].ran, Ns(15));
        let other = Vcpu { vm: 8, ..old };
        assert_eq!(since(&[other], &[now])[0].ran, Ns(25));
    }

    #[test]
    fn the_share_of_a_vm_is_of_all_that_ran() {
        let a = vcpu(3, 30).unwrap();
        let b = Vcpu {
            vm: 9,
            ran: Ns(10),
            ..a.clone()
        };
        let text = text(&[a, b]);
        assert!(text.contains("75.0 %") && text.contains("25.0 %"), "{text}");
        // The slice, the credit and what I/O adds to it.
        assert!(text.contains("30 ms      -3.00       1.50"), "{text}");
    }
}
