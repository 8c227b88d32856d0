// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this process may do.

use serde::Serialize;

use super::machine::status_field;
use super::root::Root;

/// The capabilities the daemon needs, by bit number (linux/capability.h), with
/// what each is for. Found by taking one away at a time.
pub(crate) const NEEDED: [(u32, &str, &str); 3] = [
    (39, "CAP_BPF", "to load BPF programs"),
    (38, "CAP_PERFMON", "to attach them to tracepoints"),
    (23, "CAP_SYS_NICE", "to move other users' tasks"),
];
/// Contains the first two; kernels before 5.8 had nothing finer.
const SYS_ADMIN: u32 = 21;

/// Facts only; the verdict draws the conclusions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Privileges {
    /// Names from [`NEEDED`] that are not effective.
    pub(crate) missing: Vec<String>,
    /// The cgroup's real-time budget, where the kernel groups it: with 0 nobody
    /// in it may use SCHED_FIFO, not even root.
    pub(crate) rt_runtime_us: Option<i64>,
}

impl Privileges {
    /// Of this process.
    pub(crate) fn read(root: &Root) -> Self {
        let effective = status_field(root, "CapEff")
            .and_then(|text| u64::from_str_radix(&text, 16).ok())
            .unwrap_or(0);
        Self {
            missing: missing(effective),
            rt_runtime_us: rt_runtime(root),
        }
    }
}

/// Needed capabilities that are not among these.
pub(crate) fn missing(effective: u64) -> Vec<String> {
    let has = |bit: u32| effective >> bit & 1 == 1;
    let covered = |bit: u32| bit > 37 && has(SYS_ADMIN);
    NEEDED
        .into_iter()
        .filter(|(bit, ..)| !(has(*bit) || covered(*bit)))
        .map(|(_, name, _)| name.to_owned())
        .collect()
}

/// `cpu.rt_runtime_us` of our group: cgroup v1 only, and only kernels that were
/// built with RT_GROUP_SCHED.
fn rt_runtime(root: &Root) -> Option<i64> {
    let groups = root.read("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        controllers
            .split(',')
            .any(|name| name == "cpu")
            .then(|| parts.next())
            .flatten()
    })?;
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
        .iter()
        .find_map(|mount| {
            root.read(&format!(
                "{mount}{}/cpu.rt_runtime_us",
                group.trim_end_matches('/')
            ))?
            .parse()
            .ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_admin_stands_for_bpf_and_perfmon_but_not_for_nice() {
        assert_eq!(missing(0), ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_NICE"]);
        assert_eq!(missing(1 << 21), ["CAP_SYS_NICE"]);
        assert_eq!(missing(1 << 39 | 1 << 38 | 1 << 23), Vec::<String>::new());
    }
}
