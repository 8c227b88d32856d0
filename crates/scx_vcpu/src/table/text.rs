// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table for people.

use std::collections::BTreeMap;

use super::State;
use super::Vcpu;

/// The table for people: one line per vCPU, VMs together.
#[must_use]
pub fn text(vcpus: &[Vcpu]) -> String {
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
            f64::from(vcpu.vm_share_permille) / 10.0,
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
                State::Rests => "rests",
            },
            wakers(&vcpu.wakers)
        );
    }
    text
}

/// The vCPUs that have woken one most often, with the numbers of times.
pub(super) fn wakers(wakers: &BTreeMap<u32, u64>) -> String {
    let mut most: Vec<_> = wakers.iter().filter(|(_, count)| **count > 0).collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let texts: Vec<String> = most
        .iter()
        .take(3)
        .map(|(source, count)| format!("{source}: {count}"))
        .collect();
    texts.join(", ")
}
