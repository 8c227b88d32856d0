// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What else went on while a window was open: did this machine's own host take
//! time from it, did anybody else compute on it?

use std::collections::BTreeMap;
use std::fs;

use experiment::result::Machine;
use units::Ns;

/// Length of the kernel's unit of CPU time in /proc, `USER_HZ`.
const TICK: Ns = Ns::from_ms(10);

/// The counters at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    stolen: Option<Ns>,
    others: BTreeMap<u32, Ns>,
}

impl Snapshot {
    /// Reads them. A few milliseconds; never while a window is open.
    pub(super) fn take() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats: Vec<Stat> = processes
            .filter_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                Stat::parse(&text)
            })
            .collect();
        Self {
            stolen: stolen(&stat),
            others: others(&stats, std::process::id()),
        }
    }

    /// What happened since.
    pub(super) fn until_now(&self) -> Machine {
        let later = Self::take();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let others = later.others.iter().map(|(pid, cpu)| {
            // One that is new since then has used all of it since then.
            *cpu - self.others.get(pid).copied().unwrap_or_default()
        });
        Machine {
            load_average: load.split_whitespace().next().and_then(|n| n.parse().ok()),
            stolen: later
                .stolen
                .zip(self.stolen)
                .map(|(later, earlier)| later - earlier),
            others: Some(others.sum()),
        }
    }
}

/// A line of `/proc/<pid>/stat`, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    pid: u32,
    parent: u32,
    cpu: Ns,
}

impl Stat {
    /// Fields 1, 4, 14 and 15; the name in parentheses may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(' ')?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            cpu: TICK * (ticks(11)? + ticks(12)?),
        })
    }
}

/// CPU time of all processes that are neither `us` nor started by us. Kernel
/// threads work for whoever needs them, so they do not count.
fn others(stats: &[Stat], us: u32) -> BTreeMap<u32, Ns> {
    /// The parent of all kernel threads.
    const KTHREADD: u32 = 2;
    let parents: BTreeMap<u32, u32> = stats.iter().map(|stat| (stat.pid, stat.parent)).collect();
    let excluded = |pid: u32| {
        // A cycle cannot be, except in a list that was read while it changed.
        let line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        line.take(parents.len() + 1)
            .any(|pid| pid == us || pid == KTHREADD)
    };
    stats
        .iter()
        .filter(|stat| !excluded(stat.pid))
        .map(|stat| (stat.pid, stat.cpu))
        .collect()
}

/// The eighth number of the first line: time that the host took, all CPUs.
fn stolen(stat: &str) -> Option<Ns> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = line.split_whitespace().nth(7)?;
    Some(TICK * ticks.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        let stat = "cpu  66013 0 15159 350171 1171 0 1567 4044 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
        assert_eq!(stolen(stat), Some(Ns::from_ms(40_440)));
        assert_eq!(stolen("cpu0 1 2\n"), None);
        assert_eq!(stolen("cpu  1 2 3\n"), None);
    }

    #[test]
    fn a_name_may_contain_anything() {
        let text = "12 (a) b (c) S 1 12 12 0 -1 4194560 9 0 0 0 7 5 0 0 20 0 1 0 42 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.pid, stat.parent, stat.cpu), (12, 1, Ns::from_ms(120)));
        assert_eq!(Stat::parse("12 (a"), None);
    }

    #[test]
    fn we_our_children_and_kernel_threads_are_no_others() {
        let stat = |pid, parent| Stat {
            pid,
            parent,
            cpu: Ns::from_ms(u64::from(pid)),
        };
        let stats = [
            stat(1, 0),
            stat(2, 0),
            stat(3, 2),
            stat(10, 1),
            stat(11, 10),
            stat(12, 11),
            stat(20, 1),
        ];
        let others: Vec<u32> = others(&stats, 11).into_keys().collect();
        assert_eq!(others, [1, 10, 20]);
    }

    #[test]
    fn this_machine_says_what_it_does() {
        let machine = Snapshot::take().until_now();
        assert!(machine.others.is_some() && machine.stolen.is_some());
        assert!(machine.load_average.is_some());
    }
}
