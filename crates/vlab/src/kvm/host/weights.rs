// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs that weigh more than others: each in a cgroup of its own, as libvirt puts them.
//!
//! The kernel's own scheduler and the policies of `scx_vcpu` that have weights share CPU
//! time by them.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;

/// Where control groups are: version 2.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The groups; removed on drop, after the VMs have gone.
#[derive(Debug)]
pub(super) struct Weights {
    groups: Vec<PathBuf>,
    /// The file in which `cpu` was switched on for them.
    switched: Option<PathBuf>,
}

impl Weights {
    /// Gives each process its `cpu.weight`.
    ///
    /// # Errors
    /// There are no control groups of version 2, or they cannot weigh.
    pub(super) fn give(vms: &[(u32, u32)]) -> anyhow::Result<Self> {
        Self::give_below(Path::new(CGROUPS), vms)
    }

    fn give_below(root: &Path, vms: &[(u32, u32)]) -> anyhow::Result<Self> {
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        let has_cpu = |text: &str| text.split_whitespace().any(|word| word == "cpu");
        anyhow::ensure!(
            has_cpu(&read("cgroup.controllers")),
            "no cgroup v2 with the controller cpu at {}, and [[vm]] asks for weights: mount it (mount -t cgroup2 none {0}), or leave the weights out",
            root.display()
        );
        let mut weights = Self {
            groups: Vec::new(),
            switched: None,
        };
        let below = root.join("cgroup.subtree_control");
        if !has_cpu(&read("cgroup.subtree_control")) {
            write(&below, "+cpu")?;
            weights.switched = Some(below);
        }
        for (process, weight) in vms {
            let group = root.join(format!("vlab-{process}"));
            fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
            weights.groups.push(group.clone());
            write(&group.join("cpu.weight"), &weight.to_string())?;
            write(&group.join("cgroup.procs"), &process.to_string())?;
        }
        Ok(weights)
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
}

impl Drop for Weights {
    fn drop(&mut self) {
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
        if let Some(file) = &self.switched {
            let _ = fs::write(file, "-cpu");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_control_groups_that_weigh_it_is_said_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let error = Weights::give_below(root.path(), &[(1, 100)]).unwrap_err();
        assert!(error.to_string().starts_with("no cgroup v2"), "{error:#}");
        fs::write(root.path().join("cgroup.controllers"), "cpuset io\n").unwrap();
        assert!(Weights::give_below(root.path(), &[(1, 100)]).is_err());
    }

    #[test]
    fn each_vm_has_a_group_and_what_was_switched_on_is_switched_off() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        fs::write(at("cgroup.subtree_control"), "cpuset\n").unwrap();
        let weights = Weights::give_below(root.path(), &[(71, 180), (72, 20)]).unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+cpu");
        assert_eq!(read("vlab-71/cpu.weight"), "180");
        assert_eq!(read("vlab-72/cgroup.procs"), "72");
        drop(weights);
        assert_eq!(read("cgroup.subtree_control"), "-cpu");
        fs::write(at("cgroup.subtree_control"), "cpu\n").unwrap();
        fs::remove_dir_all(at("vlab-71")).unwrap();
        drop(Weights::give_below(root.path(), &[(71, 180)]).unwrap());
        assert_eq!(read("cgroup.subtree_control"), "cpu\n");
    }
}
