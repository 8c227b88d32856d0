// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which vCPU handles a disk's completions: the first thing that decides whether
//! moving its I/O tasks can gain anything.

use serde::Serialize;
use units::CpuSet;

use super::root::Root;

/// Where completions of a disk arrive, as its queues and interrupts say. The
/// running daemon learns the same from the events themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Path {
    /// One queue for every vCPU: the submitter completes its own requests.
    FollowsTask,
    /// All queues complete on these.
    On(CpuSet),
    /// Neither queues nor interrupts of this name were found.
    Unknown,
}

/// A disk with hardware or a host behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    /// As in `/sys/block`.
    pub(crate) name: String,
    /// Hardware queues.
    pub(crate) queues: usize,
    /// Its completion path.
    pub(crate) completions: Path,
}

/// All disks that have a device; loop, zram and device-mapper have none and
/// complete wherever the disk below does.
pub(crate) fn read(root: &Root, online: &CpuSet) -> Vec<Disk> {
    let interrupts = Interrupts::read(root);
    root.names("/sys/block")
        .into_iter()
        .filter_map(|name| {
            let device = root.link_name(&format!("/sys/block/{name}/device"))?;
            let queues = root.names(&format!("/sys/block/{name}/mq")).len();
            let completions = if queues > 1 && queues >= online.len() as usize {
                Path::FollowsTask
            } else {
                match interrupts.of(root, &device) {
                    vcpus if vcpus.is_empty() => Path::Unknown,
                    vcpus => Path::On(vcpus),
                }
            };
            Some(Disk {
                name,
                queues,
                completions,
            })
        })
        .collect()
}

/// Number and name of every interrupt.
struct Interrupts(Vec<(String, String)>);

impl Interrupts {
    fn read(root: &Root) -> Self {
        let text = root.read("/proc/interrupts").unwrap_or_default();
        let rows = text.lines().skip(1).filter_map(|line| {
            let (number, rest) = line.trim_start().split_once(':')?;
            // The name is the last word; the per-CPU counts come first.
            Some((
                number.to_owned(),
                rest.split_whitespace().last()?.to_owned(),
            ))
        });
        Self(rows.collect())
    }

    /// Where the request interrupts of a device are handled.
    fn of(&self, root: &Root, device: &str) -> CpuSet {
        let mut vcpus = CpuSet::default();
        for (number, _) in self.0.iter().filter(|(_, name)| is_queue(name, device)) {
            let effective = format!("/proc/irq/{number}/effective_affinity_list");
            let set: Option<CpuSet> = root.read(&effective).and_then(|list| list.parse().ok());
            vcpus = set.unwrap_or_default().iter().chain(vcpus.iter()).collect();
        }
        vcpus
    }
}

/// `virtio1-req.0`, `nvme0q1` (`nvme0q0` is the administration queue), or the
/// device's own name.
fn is_queue(interrupt: &str, device: &str) -> bool {
    match interrupt.strip_prefix(device) {
        Some("") => true,
        Some(rest) if rest.starts_with("-req") => true,
        Some(rest) => rest
            .strip_prefix('q')
            .and_then(|number| number.parse::<u32>().ok())
            .is_some_and(|number| number > 0),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_request_queues_of_the_very_device_count() {
        assert!(is_queue("virtio1-req.0", "virtio1"));
        assert!(is_queue("nvme0q1", "nvme0"));
        assert!(is_queue("ahci", "ahci"));
        for (interrupt, device) in [
            ("virtio1-config", "virtio1"),
            ("virtio11-req.0", "virtio1"),
            ("nvme0q0", "nvme0"),
            ("nvme01q1", "nvme0"),
        ] {
            assert!(!is_queue(interrupt, device), "{interrupt} {device}");
        }
    }
}
