// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steal time in /proc/stat as the wake-up switch, where no program can look at the
//! timer interrupt: one look a second, the only thing that ever ticks while asleep, and
//! only on such kernels.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use units::Ns;

use crate::settings::Settings;

/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(1);

/// Steal since the last look that means sharing.
const STEAL_MIN: Ns = Ns::from_ms(20);

/// The unit of /proc/stat: USER_HZ is 100 on every architecture that KVM runs on.
pub(crate) const TICK: Ns = Ns::from_ms(10);

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// vCPUs are being taken away.
    Sharing,
    /// They have not been for as long as the user wants to wait.
    Quiet,
    /// Neither.
    Nothing,
}

/// The steal time of the whole VM, watched.
#[derive(Debug)]
pub(super) struct StealStat {
    file: PathBuf,
    quiet_after: Duration,
    looked: Instant,
    stolen: Ns,
    /// The last look that has shown sharing.
    shared: Instant,
}

impl StealStat {
    pub(super) fn new(settings: &Settings) -> Self {
        let now = Instant::now();
        let mut stat = Self {
            file: file(settings),
            quiet_after: settings.quiet_after.to_std(),
            looked: now,
            stolen: Ns::ZERO,
            shared: now,
        };
        stat.stolen = stat.read();
        stat
    }

    /// Until the next look.
    pub(super) fn due_in(&self) -> Duration {
        PERIOD.saturating_sub(self.looked.elapsed())
    }

    /// Looks, if it is time to: how much was stolen says nothing without a time.
    pub(super) fn look(&mut self) -> Seen {
        if !self.due_in().is_zero() {
            return Seen::Nothing;
        }
        let stolen = self.read();
        self.judge(stolen, Instant::now())
    }

    fn judge(&mut self, stolen: Ns, now: Instant) -> Seen {
        let more = stolen - self.stolen;
        self.stolen = stolen;
        self.looked = now;
        if more >= STEAL_MIN {
            self.shared = now;
            Seen::Sharing
        } else if now.duration_since(self.shared) >= self.quiet_after {
            Seen::Quiet
        } else {
            Seen::Nothing
        }
    }

    /// Since boot; zero where it cannot be read, which keeps us asleep.
    fn read(&self) -> Ns {
        fs::read_to_string(&self.file)
            .ok()
            .and_then(|text| steal_of(&text))
            .unwrap_or(Ns::ZERO)
    }
}

fn file(settings: &Settings) -> PathBuf {
    let stand_in = settings.steal_stat.clone();
    stand_in.unwrap_or_else(|| "/proc/stat".into())
}

/// The VM's stolen time since boot, or why it cannot be known.
pub(crate) fn total(settings: &Settings) -> Result<Ns, String> {
    let file = file(settings);
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    steal_of(&text).ok_or_else(|| format!("{} has no column for it", file.display()))
}

/// The eighth number of the `cpu` line, in ticks.
fn steal_of(stat: &str) -> Option<Ns> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: u64 = line.split_whitespace().nth(8)?.parse().ok()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        let stat = "cpu  1 2 3 4 5 6 7 42 9 10\ncpu0 1 2 3 4 5 6 7 99 9 10\n";
        assert_eq!(steal_of(stat), Some(Ns::from_ms(420)));
        assert_eq!(steal_of("cpu  1 2 3\n"), None);
        assert_eq!(steal_of(""), None);
    }

    #[test]
    fn it_is_quiet_after_the_time_that_was_asked_for_and_not_before() {
        let mut stat = StealStat::new(&Settings {
            quiet_after: Ns::from_secs(3),
            steal_stat: Some("/nowhere".into()),
            ..Settings::default()
        });
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        // What was stolen in a second, and what that says.
        let seconds = [
            (30, Seen::Sharing),
            (10, Seen::Nothing),
            (0, Seen::Nothing),
            (20, Seen::Sharing),
            (0, Seen::Nothing),
            (10, Seen::Nothing),
            (10, Seen::Quiet),
            (0, Seen::Quiet),
            (20, Seen::Sharing),
        ];
        let mut stolen = Ns::ZERO;
        for (second, (more, says)) in (1..).zip(seconds) {
            stolen += Ns::from_ms(more);
            assert_eq!(stat.judge(stolen, after(second)), says, "second {second}");
        }
    }

    /// A thread that is woken for another reason has not waited for a second.
    #[test]
    fn nobody_looks_twice_a_second() {
        let mut stat = StealStat::new(&Settings {
            quiet_after: Ns::ZERO,
            ..Settings::default()
        });
        assert_eq!(stat.look(), Seen::Nothing);
        assert!(stat.due_in() > PERIOD / 2);
    }
}
