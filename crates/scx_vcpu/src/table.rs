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

use crate::config::Class;

/// Where a scheduler that runs keeps its table for others.
pub(crate) const PIN: &str = "/sys/fs/bpf/scx_vcpu_table";

/// Bytes of `struct sv_vcpu`.
const ENTRY: usize = 264;

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
    /// Credit in ns of running at the reference weight.
    pub credit: i64,
    /// ISACS: what the last reallocation gave for I/O.
    pub ivcredit: Ns,
}

/// What a pCPU has for its queue, as far as user space decides on it: ISACS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pcpu {
    /// Sum of the IVCredits of the last reallocation.
    pub(crate) io_load: Ns,
    /// Response events of its vCPUs in the period before.
    pub(crate) io_events: u64,
    /// Reallocations so far.
    pub(crate) reallocations: u64,
}

/// All pCPUs, by number.
pub(crate) fn pcpus(map: &impl MapCore, count: u32) -> anyhow::Result<Vec<Pcpu>> {
    (0..count)
        .map(|cpu| {
            let bytes = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY)?;
            let bytes = bytes.unwrap_or_default();
            let u64_at = |at: usize| {
                let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
                Some(u64::from_ne_bytes(bytes))
            };
            Ok(Pcpu {
                io_load: Ns(u64_at(72).unwrap_or(0)),
                io_events: u64_at(80).unwrap_or(0),
                reallocations: u64_at(88).unwrap_or(0),
            })
        })
        .collect()
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
    entries(&map)
}

/// The entries in use of a table.
pub(crate) fn entries(map: &MapHandle) -> anyhow::Result<Vec<Vcpu>> {
    let mut vcpus = Vec::new();
    let batches = map
        .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
        .context("cannot read the table of vCPUs")?;
    for (_, bytes) in batches {
        vcpus.extend(decode(&bytes));
    }
    vcpus.sort_by_key(|vcpu| (vcpu.vm, vcpu.vcpu));
    Ok(vcpus)
}

/// Reads `struct sv_vcpu`; `None` if nobody has the entry.
fn decode(bytes: &[u8]) -> Option<Vcpu> {
    if bytes.len() < ENTRY {
        return None;
    }
    let u32_at = |at: usize| {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    let u64_at = |at: usize| {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    Some(Vcpu {
        state: match u32_at(0)? {
            1 => State::Asleep,
            2 => State::Waits,
            3 => State::Runs,
            _ => return None,
        },
        vm: u32_at(4)?,
        tid: u32_at(8)?,
        vcpu: u32_at(12)?,
        cpu: u32_at(16)?,
        weight: u32_at(20)?,
        class: if u32_at(168)? == 0 {
            Class::Cpu
        } else {
            Class::Io
        },
        cap_permille: u32_at(24)?,
        ran: Ns(u64_at(48)?),
        waited: Ns(u64_at(56)?),
        slept: Ns(u64_at(64)?),
        turns: u64_at(72)?,
        preempted: u64_at(80)?,
        wakes: u64_at(88)?,
        io: u64_at(96)?,
        ipi: u64_at(104)?,
        credit: u64_at(112)?.cast_signed(),
        ivcredit: Ns(u64_at(208)?),
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
        "{:>8} {:>5} {:>8} {:>5} {:>5} {:>7} {:>6} {:>7} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10}  {}\n",
        "VM",
        "vCPU",
        "thread",
        "pCPU",
        "class",
        "weight",
        "cap",
        "VM has",
        "ran",
        "waited",
        "turns",
        "I/O",
        "IPIs",
        "credit ms",
        "state"
    );
    for vcpu in vcpus {
        let share = of_vm[&vcpu.vm].0 as f64 / all.0.max(1) as f64;
        text += &format!(
            "{:>8} {:>5} {:>8} {:>5} {:>5} {:>7} {:>6} {:>5.1} % {:>10} {:>10} {:>8} {:>8} {:>8} {:>10.2}  {}\n",
            vcpu.vm,
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
            vcpu.turns,
            vcpu.io,
            vcpu.ipi,
            vcpu.credit as f64 / 1e6,
            match vcpu.state {
                State::Asleep => "asleep",
                State::Waits => "waits",
                State::Runs => "runs",
            }
        );
    }
    text
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
                ..vcpu.clone()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: u32, ran: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [state, 7, 70, 1, 0, 512, 0, 0, 0, 512] {
            bytes.extend(word.to_ne_bytes());
        }
        for long in [
            1,
            ran,
            20,
            30,
            4,
            5,
            6,
            8,
            9,
            (-3_000_000_i64).cast_unsigned(),
        ] {
            bytes.extend(long.to_ne_bytes());
        }
        bytes.resize(168, 0);
        bytes.extend(1u32.to_ne_bytes());
        bytes.resize(ENTRY, 0);
        bytes
    }

    #[test]
    fn an_entry_is_read_as_the_bpf_side_lays_it_out() {
        let vcpu = decode(&entry(3, 10)).unwrap();
        assert_eq!((vcpu.vm, vcpu.tid, vcpu.vcpu, vcpu.weight), (7, 70, 1, 512));
        assert_eq!(vcpu.class, Class::Io);
        assert_eq!(
            (vcpu.ran, vcpu.waited, vcpu.slept),
            (Ns(10), Ns(20), Ns(30))
        );
        assert_eq!((vcpu.io, vcpu.ipi, vcpu.credit), (8, 9, -3_000_000));
        assert_eq!(decode(&entry(0, 10)), None, "nobody's");
        assert_eq!(decode(&entry(3, 10)[..100]), None);
    }

    #[test]
    fn a_difference_is_of_the_same_vcpu_only() {
        let old = decode(&entry(1, 10)).unwrap();
        let now = decode(&entry(1, 25)).unwrap();
        let (older, newer) = (std::slice::from_ref(&old), std::slice::from_ref(&now));
        assert_eq!(since(older, newer)[0].ran, Ns(15));
        let other = Vcpu { vm: 8, ..old };
        assert_eq!(since(&[other], &[now])[0].ran, Ns(25));
    }

    #[test]
    fn the_share_of_a_vm_is_of_all_that_ran() {
        let a = decode(&entry(3, 30)).unwrap();
        let b = Vcpu {
            vm: 9,
            ran: Ns(10),
            ..a.clone()
        };
        let text = text(&[a, b]);
        assert!(text.contains("75.0 %") && text.contains("25.0 %"), "{text}");
    }
}
