// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the host of this machine itself took a CPU away, beside the freezer: a thread on
//! each CPU, before all others, notes when it woke late.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use freezer::Event;
use rustix::thread::ClockId;
use rustix::time::Timespec;
use units::Ns;
use units::Time;

use crate::bed::CPUS;
use crate::bed::now;

/// Between two looks.
const PERIOD: Ns = Ns::from_us(500);

/// A timer that is later than this was kept by somebody.
const LATE: Ns = Ns::from_us(250);

/// A time in which a CPU did not run, whoever took it.
#[derive(Clone, Copy, Debug)]
struct Pause {
    cpu: u32,
    from: Time,
    to: Time,
}

/// The watch; dropping it ends it.
pub(crate) struct Host {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Pause>>>,
}

impl Host {
    pub(crate) fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..CPUS).map(|cpu| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || pauses(cpu, &over))
        });
        Self {
            threads: threads.collect(),
            over,
        }
    }

    /// Ends it. Of these gaps, those around whose beginning no CPU was taken away by
    /// anybody but the freezer, whose log this is: from `before` it to `after`.
    pub(crate) fn quiet(
        mut self,
        log: &[Event],
        gaps: &[Event],
        before: Ns,
        after: Ns,
    ) -> Vec<Event> {
        self.over.store(true, Ordering::Relaxed);
        let pauses: Vec<Pause> = self
            .threads
            .drain(..)
            .flat_map(|thread| thread.join().unwrap())
            .flat_map(|pause| pause.beside(log))
            .collect();
        let is_quiet = |gap: &&Event| {
            let (from, to) = (Time(gap.out.0 - before.0), gap.out + after);
            !pauses.iter().any(|p| p.from < to && p.to > from)
        };
        let quiet: Vec<Event> = gaps.iter().filter(is_quiet).copied().collect();
        println!(
            "the host took CPUs away {} times; around {} of {} gaps it did not",
            pauses.len(),
            quiet.len(),
            gaps.len()
        );
        quiet
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Pause {
    /// What is left of it if the freezer's gaps on that CPU are taken out.
    fn beside(self, log: &[Event]) -> Vec<Self> {
        let mut left = Vec::new();
        let mut from = self.from;
        let gaps = log.iter().filter(|gap| gap.cpu.0 == self.cpu);
        for gap in gaps.filter(|gap| gap.out < self.to && gap.back > self.from) {
            left.push((from, gap.out));
            from = gap.back;
        }
        left.push((from, self.to));
        left.into_iter()
            .filter(|(from, to)| to.since(*from) > LATE)
            .map(|(from, to)| Self { from, to, ..self })
            .collect()
    }
}

fn pauses(cpu: u32, over: &AtomicBool) -> Vec<Pause> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    // SAFETY: sched_param is plain memory.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    // Above the engine's threads, and the shortest of all.
    param.sched_priority = 10;
    // SAFETY: `param` is valid; 0 is this thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    let mut pauses = Vec::new();
    let mut due = now() + PERIOD;
    while !over.load(Ordering::Relaxed) {
        let until = Timespec {
            tv_sec: (due.as_ns() / 1_000_000_000).cast_signed(),
            tv_nsec: (due.as_ns() % 1_000_000_000).cast_signed(),
        };
        // Interrupted, it has slept for less, and the next look shows it.
        let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
        let woke = now();
        if woke.since(due) > LATE {
            pauses.push(Pause {
                cpu,
                from: due,
                to: woke,
            });
        }
        due = due.max(woke) + PERIOD;
    }
    pauses
}
