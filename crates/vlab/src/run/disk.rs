// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The disk under a directory: what it is and where its requests complete.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use experiment::result::Disk;

/// A disk and the numbers of its interrupts.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskUnder {
    /// For the result.
    pub(super) disk: Disk,
    interrupts: Vec<u32>,
}

impl DiskUnder {
    /// The disk that holds `dir`; `None` if no single disk does (a network or
    /// memory file system, RAID over several).
    pub(super) fn find(dir: &Path) -> Option<Self> {
        let device = fs::metadata(dir).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let mut block = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        if block.join("partition").exists() {
            block = block.parent()?.to_owned();
        }
        Some(Self {
            disk: describe(&block, file_system(dir).unwrap_or_default())?,
            interrupts: interrupts_of(&block),
        })
    }

    /// A disk that is read without a file system, by its device; `None`: there is none.
    pub(super) fn raw(device: &Path) -> Option<Self> {
        let block = Path::new("/sys/block").join(device.file_name()?);
        let block = fs::canonicalize(block).ok()?;
        Some(Self {
            disk: describe(&block, "no file system".to_owned())?,
            interrupts: interrupts_of(&block),
        })
    }

    /// Interrupts of the disk so far, per CPU.
    pub(super) fn completions(&self) -> io::Result<Vec<u64>> {
        Ok(count(
            &fs::read_to_string("/proc/interrupts")?,
            &self.interrupts,
        ))
    }
}

/// Interrupts between two readings, per CPU; empty where there is no disk. The kernel counts
/// in 32 bits, which five days of 10 000 requests per second fill.
pub(super) fn since(before: Option<Vec<u64>>, after: Option<Vec<u64>>) -> Vec<u64> {
    let readings = before.unwrap_or_default().into_iter();
    readings
        .zip(after.unwrap_or_default())
        .map(|(before, after)| u64::from((after as u32).wrapping_sub(before as u32)))
        .collect()
}

/// What sysfs says of a disk.
fn describe(block: &Path, file_system: String) -> Option<Disk> {
    let text = |name: &str| fs::read_to_string(block.join(name)).unwrap_or_default();
    Some(Disk {
        name: block.file_name()?.to_string_lossy().into_owned(),
        queues: fs::read_dir(block.join("mq"))
            .map_or(0, |queues| u32::try_from(queues.count()).unwrap_or(0)),
        scheduler: scheduler(&text("queue/scheduler")),
        file_system,
    })
}

/// The interrupts of the nearest device above a block device that has any.
fn interrupts_of(block: &Path) -> Vec<u32> {
    let mut dir: PathBuf = block.to_owned();
    while dir.starts_with("/sys/devices") && dir != Path::new("/sys/devices") {
        if let Ok(list) = fs::read_dir(dir.join("msi_irqs")) {
            return list
                .filter_map(|irq| irq.ok()?.file_name().to_str()?.parse().ok())
                .collect();
        }
        if !dir.pop() {
            break;
        }
    }
    Vec::new()
}

/// Adds up the lines of `/proc/interrupts` that belong to these numbers.
fn count(table: &str, interrupts: &[u32]) -> Vec<u64> {
    let mut lines = table.lines();
    let cpus = lines.next().unwrap_or_default().split_whitespace().count();
    let mut sums = vec![0; cpus];
    for line in lines {
        let Some((number, counts)) = line.split_once(':') else {
            continue;
        };
        if !number
            .trim()
            .parse()
            .is_ok_and(|number| interrupts.contains(&number))
        {
            continue;
        }
        for (sum, count) in sums.iter_mut().zip(counts.split_whitespace()) {
            *sum += count.parse::<u64>().unwrap_or(0);
        }
    }
    sums
}

/// The one in brackets of `none [mq-deadline]`.
fn scheduler(line: &str) -> String {
    let chosen = line
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(line.trim(), |(name, _)| name).to_owned()
}

/// The type of the file system that holds a directory.
fn file_system(dir: &Path) -> Option<String> {
    let dir = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let point = left.split_whitespace().nth(4)?;
            dir.starts_with(point)
                .then(|| (point.len(), right.split_whitespace().next()))
        })
        .max_by_key(|(length, _)| *length)?
        .1
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_of_the_disk_count() {
        let table = "           CPU0       CPU1       \n \
            36:          1      72753 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n \
            37:         10          4 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\n\
            LOC:      45028      52505   Local timer interrupts\nERR:          0\n";
        assert_eq!(count(table, &[35, 36]), [1, 72753]);
        assert_eq!(count(table, &[36, 37]), [11, 72757]);
        assert_eq!(count(table, &[]), [0, 0]);
    }

    #[test]
    fn completions_of_a_window_are_what_came_between_two_readings() {
        assert_eq!(since(Some(vec![5, 7]), Some(vec![6, 107])), [1, 100]);
        assert!(since(None, None).is_empty());
        assert_eq!(since(Some(vec![u64::from(u32::MAX)]), Some(vec![3])), [4]);
    }

    #[test]
    fn queues_are_counted_where_the_kernel_lists_them() {
        let block = tempfile::tempdir().unwrap();
        for queue in ["mq/0", "mq/1", "queue"] {
            fs::create_dir_all(block.path().join(queue)).unwrap();
        }
        fs::write(block.path().join("queue/scheduler"), "[none] kyber\n").unwrap();
        let disk = describe(block.path(), "ext4".to_owned()).unwrap();
        assert_eq!((disk.queues, disk.scheduler.as_str()), (2, "none"));
        assert_eq!(disk.file_system, "ext4");
        assert!(DiskUnder::raw(Path::new("/dev/no-such-disk")).is_none());
    }

    #[test]
    fn the_scheduler_in_brackets_is_in_use() {
        assert_eq!(scheduler("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(scheduler("none\n"), "none");
    }
}
