// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a disk's completions arrive, as Linux says it beforehand: from its queues, its
//! interrupts and where it sends completions.
//!
//! What the running daemon sees of the requests themselves comes first; this is for the
//! time until it has seen enough (`policy::guest::path`), and for `vmigrater doctor`.
//!
//! # Sources
//! | file | says |
//! |---|---|
//! | `/sys/dev/block/M:N` | the disk of a device number; of a partition its parent |
//! | `/sys/block/D/slaves` | device-mapper and md: the disks below, which complete |
//! | `/sys/block/D/mq/*/cpu_list` | the vCPUs that submit to each hardware queue |
//! | `msi_irqs` and `irq` of the PCI function above it | its interrupts |
//! | `/proc/interrupts` | their names; where there is no PCI they are all there is |
//! | `/proc/irq/N/effective_affinity_list` | the vCPU that an interrupt really arrives at |
//! | `/sys/block/D/queue/rq_affinity` | 0: completed there; 1: sent to the submitter if that one shares no cache with it; 2: sent to the submitter |
//! | `/sys/devices/system/cpu/cpuN/cache` | who shares its last cache |
//!
//! The rule of `rq_affinity` is `blk_mq_complete_need_ipi` (block/blk-mq.c). A completion
//! that is sent on has come by the vCPU of the interrupt all the same.
//!
//! # Limits
//! loop, zram and disks of a network have no interrupt of their own: nothing is said of
//! them. Kernels that run with `threadirqs` send nothing on.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use policy::guest::path::Prior;
use serde::Serialize;
use units::CpuSet;
use units::VcpuId;

use crate::act::task::Roots;

/// Disks below disks below disks: no real stack is that high.
const MAX_STACK: u32 = 8;

/// Where completions of a disk arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completions {
    /// One queue for every vCPU: the submitter completes its own requests.
    FollowsTask,
    /// The interrupts of all queues arrive on these, which complete the requests.
    On(CpuSet),
    /// All interrupts arrive on this one, which sends completions on to the submitter:
    /// nothing completes without it.
    SentOnFrom(VcpuId),
    /// Neither queues nor interrupts of this name were found.
    Unknown,
}

impl Completions {
    /// What may be believed before anything is seen.
    #[must_use]
    pub fn prior(&self) -> Prior {
        match self {
            Self::FollowsTask => Prior::Follows,
            Self::On(vcpus) => only(vcpus).map_or(Prior::None, Prior::At),
            Self::SentOnFrom(vcpu) => Prior::SentOnFrom(*vcpu),
            Self::Unknown => Prior::None,
        }
    }

    /// The one vCPU without which nothing completes, if there is one.
    #[must_use]
    pub fn vcpu(&self) -> Option<VcpuId> {
        match self {
            Self::On(vcpus) => only(vcpus),
            Self::SentOnFrom(vcpu) => Some(*vcpu),
            Self::FollowsTask | Self::Unknown => None,
        }
    }
}

/// A disk with hardware or a host behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// As in `/sys/block`.
    pub name: String,
    /// Hardware queues.
    pub queues: usize,
    /// Its completion path.
    pub completions: Completions,
}

/// Reads one machine's files, or a test's.
#[derive(Debug)]
pub struct Disks<'a> {
    roots: &'a Roots,
    online: CpuSet,
    interrupts: Vec<Interrupt>,
}

/// A line of `/proc/interrupts`.
#[derive(Debug)]
struct Interrupt {
    number: u32,
    name: String,
}

impl<'a> Disks<'a> {
    /// Reads what is the same for all disks.
    #[must_use]
    pub fn of(roots: &'a Roots) -> Self {
        let table = fs::read_to_string(roots.proc.join("interrupts")).unwrap_or_default();
        let rows = table.lines().skip(1).filter_map(|line| {
            let (number, rest) = line.trim_start().split_once(':')?;
            Some(Interrupt {
                number: number.parse().ok()?,
                // The name is the last word; the per-CPU counts come first.
                name: rest.split_whitespace().last()?.to_owned(),
            })
        });
        Self {
            online: list(&roots.sys.join("devices/system/cpu/online")).unwrap_or_default(),
            interrupts: rows.collect(),
            roots,
        }
    }

    /// All disks that have a device; loop, zram and device-mapper have none and complete
    /// wherever the disk below does.
    #[must_use]
    pub fn all(&self) -> Vec<Disk> {
        let block = self.roots.sys.join("block");
        names(&block)
            .into_iter()
            .filter_map(|name| {
                let disk = block.join(&name);
                fs::read_link(disk.join("device")).ok()?;
                Some(Disk {
                    queues: names(&disk.join("mq")).len(),
                    completions: self.completions(&disk, MAX_STACK),
                    name,
                })
            })
            .collect()
    }

    /// The same of the disk with this number, as the kernel keeps it (`dev_t`: the minor
    /// number in the lower 20 bits), or of the disk that this partition is on.
    #[must_use]
    pub fn by_number(&self, dev: u32) -> Completions {
        let (major, minor) = (dev >> 20, dev & 0xf_ffff);
        let link = self.roots.sys.join(format!("dev/block/{major}:{minor}"));
        whole(&link).map_or(Completions::Unknown, |disk| {
            self.completions(&disk, MAX_STACK)
        })
    }

    fn completions(&self, disk: &Path, stack: u32) -> Completions {
        let below = names(&disk.join("slaves"));
        if !below.is_empty() {
            return self.of_all(disk, &below, stack);
        }
        let arrive = self.arrive(disk);
        if let Some(vcpu) = only(&arrive) {
            // Also with many queues: they share an interrupt.
            return self.from(disk, vcpu);
        }
        let queues = queues(disk);
        // With queues for offline vCPUs, too.
        let alone = |vcpu: VcpuId| {
            let mut mine = queues
                .iter()
                .filter(|queue| queue.contains(vcpu))
                .peekable();
            mine.peek().is_some() && mine.all(|queue| queue.and(&self.online).len() == 1)
        };
        if queues.len() > 1 && !self.online.is_empty() && self.online.iter().all(alone) {
            return Completions::FollowsTask;
        }
        if arrive.is_empty() {
            Completions::Unknown
        } else {
            Completions::On(arrive)
        }
    }

    /// Of a disk that is made of others: what they say with one voice.
    fn of_all(&self, disk: &Path, below: &[String], stack: u32) -> Completions {
        let Some(left) = stack.checked_sub(1) else {
            return Completions::Unknown;
        };
        let mut said = below.iter().map(|name| {
            whole(&disk.join("slaves").join(name))
                .map_or(Completions::Unknown, |disk| self.completions(&disk, left))
        });
        let Some(first) = said.next() else {
            return Completions::Unknown;
        };
        if said.all(|other| other == first) {
            first
        } else {
            Completions::Unknown
        }
    }

    /// The vCPUs at which the interrupts of a disk's queues arrive.
    fn arrive(&self, disk: &Path) -> CpuSet {
        let device = fs::read_link(disk.join("device"))
            .ok()
            .and_then(|target| Some(target.file_name()?.to_string_lossy().into_owned()));
        let Some(device) = device else {
            return CpuSet::EMPTY;
        };
        let numbers = numbers_above(disk, &self.roots.sys);
        let mut mine: Vec<&Interrupt> = self
            .interrupts
            .iter()
            .filter(|one| numbers.contains(&one.number) && !is_for_control(&one.name))
            .collect();
        if mine.is_empty() {
            let named = |one: &&Interrupt| is_queue(&one.name, &device);
            mine = self.interrupts.iter().filter(named).collect();
        }
        let effective = mine.into_iter().filter_map(|one| {
            let irq = self.roots.proc.join("irq").join(one.number.to_string());
            list(&irq.join("effective_affinity_list"))
        });
        effective
            .flat_map(|set| set.iter().collect::<Vec<_>>())
            .collect()
    }

    /// All interrupts of this disk arrive at `vcpu`: what does that one do with them?
    fn from(&self, disk: &Path, vcpu: VcpuId) -> Completions {
        let here = Completions::On(CpuSet::only(vcpu));
        let others = self.online.and_not(&CpuSet::only(vcpu));
        let sent_to = match text(&disk.join("queue/rq_affinity")).as_deref() {
            Some("2") => others,
            // Where no cache is described nothing is known, and what will be seen decides.
            Some("1") => last_cache(&self.roots.sys, vcpu)
                .map_or(CpuSet::EMPTY, |shared| others.and_not(&shared)),
            _ => CpuSet::EMPTY,
        };
        if sent_to.is_empty() {
            here
        } else {
            Completions::SentOnFrom(vcpu)
        }
    }
}

/// The vCPUs that submit to each hardware queue.
fn queues(disk: &Path) -> Vec<CpuSet> {
    let mq = disk.join("mq");
    let lists = names(&mq).into_iter();
    lists
        .filter_map(|queue| list(&mq.join(queue).join("cpu_list")))
        .collect()
}

/// The numbers of the interrupts of the PCI function that a disk hangs on. Not of a bridge
/// above it: the first directory that speaks of interrupts is the function's own.
fn numbers_above(disk: &Path, sys: &Path) -> Vec<u32> {
    let (Ok(disk), Ok(sys)) = (fs::canonicalize(disk), fs::canonicalize(sys)) else {
        return Vec::new();
    };
    let above = disk.ancestors().take_while(|dir| **dir != sys);
    let function = above
        .into_iter()
        .find(|dir| dir.join("msi_irqs").is_dir() || dir.join("irq").is_file());
    let Some(function) = function else {
        return Vec::new();
    };
    let messages = names(&function.join("msi_irqs"));
    let line = text(&function.join("irq")).filter(|_| messages.is_empty());
    messages
        .into_iter()
        .chain(line)
        .filter_map(|number| number.parse().ok())
        .filter(|number| *number > 0)
        .collect()
}

/// The vCPUs that share the last level of cache with this one, itself among them.
fn last_cache(sys: &Path, vcpu: VcpuId) -> Option<CpuSet> {
    let cache = sys.join(format!("devices/system/cpu/cpu{vcpu}/cache"));
    names(&cache)
        .into_iter()
        .filter_map(|index| {
            let index = cache.join(index);
            let level: u32 = text(&index.join("level"))?.parse().ok()?;
            Some((level, list(&index.join("shared_cpu_list"))?))
        })
        .max_by_key(|(level, _)| *level)
        .map(|(_, shared)| shared)
}

/// The disk behind a link to it or to one of its partitions.
fn whole(link: &Path) -> Option<PathBuf> {
    let block = fs::canonicalize(link).ok()?;
    if block.join("partition").exists() {
        return Some(block.parent()?.to_owned());
    }
    Some(block)
}

/// Configuration and administration: `virtio1-config`, `virtio2-control`, `virtio2-event`,
/// `nvme0q0`.
fn is_for_control(interrupt: &str) -> bool {
    let of_virtio = ["-config", "-control", "-event"];
    let of_nvme = |rest: &str| rest.strip_suffix("q0").is_some_and(is_number);
    of_virtio.iter().any(|end| interrupt.ends_with(end))
        || interrupt.strip_prefix("nvme").is_some_and(of_nvme)
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

/// `virtio1-req.0`, `virtio1-virtqueues` (one interrupt for all queues), `nvme0q1` (`nvme0q0`
/// is the administration queue), or the device's own name.
fn is_queue(interrupt: &str, device: &str) -> bool {
    match interrupt.strip_prefix(device) {
        Some("" | "-virtqueues") => true,
        Some(rest) if rest.starts_with("-req") => true,
        Some(rest) => rest
            .strip_prefix('q')
            .and_then(|number| number.parse::<u32>().ok())
            .is_some_and(|number| number > 0),
        None => false,
    }
}

fn only(vcpus: &CpuSet) -> Option<VcpuId> {
    vcpus.iter().next().filter(|_| vcpus.len() == 1)
}

/// A list of CPUs; the kernel separates them with `, ` in `cpu_list` and with `,` elsewhere.
fn list(path: &Path) -> Option<CpuSet> {
    text(path)?.replace(' ', "").parse().ok()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The names in a directory, sorted; none if there is no such directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
