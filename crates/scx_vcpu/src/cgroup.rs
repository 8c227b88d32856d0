// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the VMM's cgroups make of a VM's weight.
//!
//! # Problem
//! Without this scheduler the kernel shares CPU time by the `cpu.weight` of cgroups, which
//! is how libvirt's `cputune` and systemd's `CPUWeight=` reach a VM. Once its vCPUs
//! are ours they would play no part any more.
//!
//! # Rule
//! A VM's weight counts times `cpu.weight / 100` of each cgroup between the root and its
//! VMM's: 100 is the kernel's default and changes nothing, 200 is twice the CPU time.
//! It is looked at once a second.
//!
//! # Limits
//! The kernel shares level by level, among those that want to run; this is one product
//! for each VM, so VMs get the same ratio where they are alone in cgroups of one
//! level. cgroup v2 only. Rejected: `ops.cgroup_set_weight`, which says the same a moment
//! earlier, but not for VMs whose cgroups were there before us without a second way.

use std::fs;
use std::path::Path;

/// `cpu.weight` that changes nothing.
const DEFAULT: u64 = 100;

/// A factor of 1, in thousandths.
pub(crate) const ONE: u64 = 1000;

/// Largest and smallest factor: the range of `cpu.weight` twice.
const RANGE: (u64, u64) = (1, 10_000 * ONE);

/// The factor of process `pid` in thousandths, below `root` (normally `/`).
pub(crate) fn factor(root: &Path, pid: u32) -> u64 {
    let line = fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).unwrap_or_default();
    let Some(path) = line.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return ONE;
    };
    let top = root.join("sys/fs/cgroup");
    let mut factor = ONE;
    for group in Path::new(path).ancestors() {
        if group.as_os_str().is_empty() {
            break;
        }
        // A cgroup without the controller shares as one of the default would.
        let text = fs::read_to_string(top.join(group).join("cpu.weight")).unwrap_or_default();
        let weight = text.trim().parse().unwrap_or(DEFAULT);
        factor = (factor.saturating_mul(weight) / DEFAULT).clamp(RANGE.0, RANGE.1);
    }
    factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cgroups_above_a_vm_count_and_the_root_does_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(factor(root.path(), 7), ONE, "it has gone");
        write(
            "proc/7/cgroup",
            "1:cpuset:/x\n0::/machine.slice/web/emulator\n",
        );
        assert_eq!(factor(root.path(), 7), ONE, "no controller");
        write("sys/fs/cgroup/cpu.weight", "1\n");
        write("sys/fs/cgroup/machine.slice/cpu.weight", "100\n");
        write("sys/fs/cgroup/machine.slice/web/cpu.weight", "250\n");
        assert_eq!(factor(root.path(), 7), 2500);
        write(
            "sys/fs/cgroup/machine.slice/web/emulator/cpu.weight",
            "50\n",
        );
        assert_eq!(factor(root.path(), 7), 1250);
        write("sys/fs/cgroup/machine.slice/web/cpu.weight", "1\n");
        assert_eq!(factor(root.path(), 7), 5);
        write("proc/7/cgroup", "0::/\n");
        assert_eq!(factor(root.path(), 7), ONE);
    }
}
