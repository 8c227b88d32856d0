// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suspends of the machine.
//!
//! A suspend takes all CPUs but one away, so the kernel ends the scheduler as for any
//! hotplug, and it is to be loaded again. But not at once: processes go on before the
//! kernel says that the suspend is over (`suspend_finish` in kernel/power/suspend.c thaws
//! first), and what it says then is for the scheduler that it finds. It takes that one out of
//! a bypass (`scx_pm_handler` in kernel/sched/ext) into which only its predecessor was
//! put. One that was loaded in between counts its bypasses from minus one, and is then not
//! bypassed when the kernel ends it.
//!
//! So we wait for the kernel's count of suspends, which it adds to after that.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use rustix::time::ClockId;
use units::Ns;
use units::Time;

/// What clocks may differ by without a suspend: they are read one after the other.
const CHANCE: Ns = Ns::from_ms(50);

/// How long the count is waited for. It comes in milliseconds; a hibernation, and a kernel without
/// the count, never add to it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The suspends until some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleeps {
    /// Time asleep since the boot.
    asleep: Ns,
    /// Suspends, also those that failed; `None`: the kernel does not say.
    count: Option<u64>,
}

impl Sleeps {
    /// Those so far. `root` is normally `/`.
    pub(crate) fn now(root: &Path) -> Self {
        Self {
            asleep: clock(ClockId::Boottime).since(monotonic()),
            count: count(root),
        }
    }

    /// Waits, if the machine was suspended since, until the kernel is through with that, for
    /// [`PATIENCE`] at most and no longer than until `stop` is set. How long it was.
    pub(crate) fn awake(self, root: &Path, stop: &AtomicBool) -> Option<Ns> {
        self.awake_after(Self::now(root).asleep, root, stop)
    }

    /// The same with the time asleep since the boot.
    fn awake_after(self, asleep: Ns, root: &Path, stop: &AtomicBool) -> Option<Ns> {
        let slept = Ns(asleep.0.saturating_sub(self.asleep.0));
        if slept < CHANCE {
            return None;
        }
        let give_up = Instant::now() + PATIENCE;
        while self.count == count(root) && !stop.load(Ordering::Relaxed) && Instant::now() < give_up
        {
            std::thread::sleep(PAUSE);
        }
        Some(slept)
    }
}

/// `CLOCK_MONOTONIC`, the clock of the kernel's side.
pub(crate) fn monotonic() -> Time {
    clock(ClockId::Monotonic)
}

fn clock(id: ClockId) -> Time {
    let at = rustix::time::clock_gettime(id);
    Time(Ns::from_secs(at.tv_sec.cast_unsigned()).0 + at.tv_nsec.cast_unsigned())
}

/// Suspends that the kernel has counted.
fn count(root: &Path) -> Option<u64> {
    let stats = root.join("sys/power/suspend_stats");
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(stats.join(name)).ok()?;
        text.trim().parse().ok()
    };
    Some(read("success")? + read("fail")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(success: u32) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/power/suspend_stats");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("success"), format!("{success}\n")).unwrap();
        fs::write(dir.join("fail"), "2\n").unwrap();
        root
    }

    #[test]
    fn a_cpu_that_only_comes_or_goes_is_not_waited_for() {
        let root = stats(3);
        let sleeps = Sleeps::now(root.path());
        assert_eq!(sleeps.count, Some(5));
        let begin = Instant::now();
        assert_eq!(sleeps.awake(root.path(), &AtomicBool::new(false)), None);
        assert!(begin.elapsed() < PATIENCE / 2);
    }

    #[test]
    fn a_suspend_is_waited_for_until_the_kernel_has_counted_it() {
        let root = stats(3);
        let sleeps = Sleeps::now(root.path());
        let after = sleeps.asleep + Ns::from_secs(9);
        let stop = AtomicBool::new(false);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(PAUSE * 20);
                fs::write(root.path().join("sys/power/suspend_stats/success"), "4").unwrap();
            });
            let slept = sleeps.awake_after(after, root.path(), &stop);
            assert_eq!(slept, Some(Ns::from_secs(9)));
        });
        assert!((PAUSE * 20..PATIENCE).contains(&begin.elapsed()));
    }

    #[test]
    fn nobody_waits_for_it_who_is_told_to_stop() {
        let root = stats(3);
        let sleeps = Sleeps::now(root.path());
        let after = sleeps.asleep + Ns::from_secs(9);
        let begin = Instant::now();
        sleeps.awake_after(after, root.path(), &AtomicBool::new(true));
        assert!(begin.elapsed() < PATIENCE / 2);
    }
}
