// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who computes, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use units::Ns;
use units::Tid;

/// Who there is and what they have used so far.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) threads: Vec<Thread>,
    /// By id and start: an id may be used again.
    pub(super) used: HashMap<(Tid, u64), Ns>,
}

/// One thread of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) tid: Tid,
    pub(super) start_ticks: u64,
    pub(super) comm: String,
    /// Where it ran last.
    pub(super) cpu: usize,
    /// Neither the kernel's nor ours nor under a real-time policy.
    pub(super) may_be_held: bool,
}

impl Census {
    pub(super) fn take(proc: &Path) -> Self {
        let mut census = Self::default();
        let own = std::process::id();
        let ours = [own, std::os::unix::process::parent_id()];
        for process in numbers(proc) {
            for tid in numbers(&proc.join(format!("{process}/task"))) {
                let dir = proc.join(format!("{process}/task/{tid}"));
                let read = |name| fs::read_to_string(dir.join(name));
                // It may end between any two of these.
                let (Ok(stat), Ok(schedstat)) = (read("stat"), read("schedstat")) else {
                    continue;
                };
                let used = schedstat
                    .split_whitespace()
                    .next()
                    .and_then(|n| n.parse().ok());
                let (Some(mut thread), Some(used)) = (Thread::parse(Tid(tid), &stat), used) else {
                    continue;
                };
                thread.may_be_held &= !ours.contains(&process);
                census
                    .used
                    .insert((thread.tid, thread.start_ticks), Ns(used));
                census.threads.push(thread);
            }
        }
        census
    }
}

/// Entries of a directory that are numbers.
fn numbers(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

impl Thread {
    /// From a line of `/proc/<tid>/stat`.
    fn parse(tid: Tid, stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let processor = rest.split_ascii_whitespace().nth(39 - 3)?;
        let stat = crate::act::task::Stat::parse(stat)?;
        Some(Self {
            tid,
            start_ticks: stat.start_ticks,
            cpu: processor.parse().ok()?,
            may_be_held: !stat.is_kernel_thread() && stat.is_fair(),
            comm: stat.comm,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_from_its_line() {
        let line = |flags: u32, policy: u32| {
            format!(
                "7 (a) b) R 1 2 3 0 -1 {flags} 0 0 0 0 5 6 0 0 20 0 1 0 4242 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 {policy} 0 0"
            )
        };
        let thread = Thread::parse(Tid(7), &line(0x40_0040, 0)).unwrap();
        assert_eq!(
            (thread.comm.as_str(), thread.start_ticks, thread.cpu),
            ("a) b", 4242, 3)
        );
        assert!(thread.may_be_held);
        let held = |flags, policy| {
            Thread::parse(Tid(7), &line(flags, policy))
                .unwrap()
                .may_be_held
        };
        assert!(held(0, 3), "SCHED_BATCH computes");
        assert!(
            !held(0, 1) && !held(0, 6),
            "real-time is its owner's choice"
        );
        assert!(!held(0x20_0000, 0), "the kernel's");
        assert_eq!(Thread::parse(Tid(7), "7 (x) R 1"), None);
    }

    #[test]
    fn this_test_is_in_the_census_and_may_not_be_held_by_itself() {
        let census = Census::take(Path::new("/proc"));
        let me = Tid(rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs());
        let thread = census
            .threads
            .iter()
            .find(|thread| thread.tid == me)
            .unwrap();
        assert!(!thread.may_be_held);
        assert!(census.used.contains_key(&(me, thread.start_ticks)));
    }
}
