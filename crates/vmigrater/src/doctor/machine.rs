// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel, the hypervisor and the vCPUs.

use serde::Serialize;
use units::CpuSet;

use super::root::Root;

/// Tracepoints whose absence would keep the BPF programs from loading. Looked up
/// by name in the kernel's type information, where every tracepoint `x` that BPF
/// can use appears as `btf_trace_x`; the kernel's version says nothing reliable.
pub(crate) const TRACEPOINTS: [&str; 7] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_process_fork",
    "sched_process_exit",
    "block_bio_queue",
    "block_bio_complete",
];

/// What does not change while the machine is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// `uname -r`.
    pub(crate) kernel: String,
    /// The kernel publishes its types, which portable BPF programs need.
    pub(crate) btf: bool,
    /// Names from [`TRACEPOINTS`] that it lacks; all of them without BTF.
    pub(crate) missing_tracepoints: Vec<String>,
    /// The CPU says that it is virtual.
    pub(crate) virtual_machine: bool,
    /// The clock source of a KVM host is offered: a KVM guest.
    pub(crate) kvm: bool,
    /// vCPUs that are online.
    pub(crate) online: CpuSet,
    /// Those of them that this process may use (its cpuset and mask).
    pub(crate) allowed: CpuSet,
    /// vCPUs that the boot command line keeps the scheduler away from.
    pub(crate) isolated: CpuSet,
    /// vCPUs that the kernel advises to use (Linux 7.4); `None` without such a mask.
    pub(crate) preferred: Option<CpuSet>,
}

impl Machine {
    /// Reads everything; what cannot be read counts as absent.
    pub(crate) fn read(root: &Root) -> Self {
        let list = |path| {
            root.read(path)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default()
        };
        let online: CpuSet = list("/sys/devices/system/cpu/online");
        let allowed = status_field(root, "Cpus_allowed_list").and_then(|text| text.parse().ok());
        let types = std::fs::read(root.path("/sys/kernel/btf/vmlinux")).unwrap_or_default();
        Self {
            kernel: root
                .read("/proc/sys/kernel/osrelease")
                .unwrap_or_else(|| "unknown".into()),
            btf: !types.is_empty(),
            missing_tracepoints: TRACEPOINTS
                .into_iter()
                .filter(|name| !contains(&types, format!("\0btf_trace_{name}\0").as_bytes()))
                .map(str::to_owned)
                .collect(),
            virtual_machine: cpu_flag(root, "hypervisor"),
            kvm: root
                .read("/sys/devices/system/clocksource/clocksource0/available_clocksource")
                .is_some_and(|names| names.split_whitespace().any(|name| name == "kvm-clock")),
            allowed: allowed.unwrap_or(online),
            online,
            isolated: list("/sys/devices/system/cpu/isolated"),
            preferred: root
                .read("/sys/devices/system/cpu/preferred")
                .and_then(|text| text.parse().ok()),
        }
    }

    /// vCPUs that tasks could be moved between.
    pub(crate) fn usable(&self) -> u32 {
        self.online.and(&self.allowed).len()
    }
}

/// A field of `/proc/self/status`.
pub(crate) fn status_field(root: &Root, name: &str) -> Option<String> {
    let status = root.read("/proc/self/status")?;
    status.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim().to_owned())
    })
}

fn cpu_flag(root: &Root, flag: &str) -> bool {
    root.read("/proc/cpuinfo").is_some_and(|text| {
        text.lines()
            .filter(|line| line.starts_with("flags"))
            .any(|line| line.split_whitespace().any(|word| word == flag))
    })
}

/// Whether the bytes occur; the type information is a few megabytes.
fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'b')
        .any(|(at, _)| at > 0 && haystack[at - 1..].starts_with(needle))
}
