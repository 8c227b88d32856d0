// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steal time in /proc/stat as the wake-up switch, where no program can look at the
//! timer interrupt: one look a second, the only thing that ever ticks while asleep, and
//! only on such kernels.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use units::Ns;
use units::Time;

use crate::sense::now;
use crate::settings::Settings;

/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(1);

/// Steal since the last look that means sharing.
const STEAL_MIN: Ns = Ns::from_ms(20);

/// The unit of /proc/stat: USER_HZ is 100 on every architecture that KVM runs on.
const TICK: Ns = Ns::from_ms(10);

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

    /// Since boot; what it was where it cannot be read, which keeps us asleep.
    fn read(&self) -> Ns {
        fs::read_to_string(&self.file)
            .ok()
            .and_then(|text| steal_of(&text))
            .unwrap_or(self.stolen)
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

/// How long it is watched to see how often it is brought up to date, and how often it is
/// looked at.
const WATCHED: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(1);

/// The typical error of the account, as seen: how long it stands still between two
/// changes. Takes a quarter of a second, nearly all of it asleep. What does not change
/// meanwhile is as good as its unit.
pub(crate) fn accuracy(settings: &Settings) -> Ns {
    let file = file(settings);
    let begin = Instant::now();
    let mut looks = Vec::new();
    while begin.elapsed() < WATCHED {
        if let Some(columns) = fs::read_to_string(&file).ok().and_then(|text| first(&text)) {
            looks.push((now(), columns));
        }
        std::thread::sleep(LOOK);
    }
    standstill(&looks).unwrap_or(TICK)
}

/// The columns of the first vCPU.
fn first(stat: &str) -> Option<Vec<u64>> {
    let mut lines = stat.lines();
    let line = lines.find(|line| line.starts_with("cpu") && !line.starts_with("cpu "))?;
    let numbers = line.split_whitespace().skip(1);
    Some(numbers.map_while(|number| number.parse().ok()).collect())
}

/// The median time between two changes of the column that changes most: what the vCPU
/// does, or that it does nothing. `None` if there are too few.
fn standstill(looks: &[(Time, Vec<u64>)]) -> Option<Ns> {
    const ENOUGH: usize = 5;
    let columns = looks.first()?.1.len();
    let changes = |column: usize| -> Vec<Time> {
        let differs = |pair: &&[(Time, Vec<u64>)]| pair[0].1.get(column) != pair[1].1.get(column);
        let pairs = looks.windows(2);
        pairs.filter(differs).map(|pair| pair[1].0).collect()
    };
    let most = (0..columns).map(changes).max_by_key(Vec::len)?;
    let mut lengths: Vec<Ns> = most.windows(2).map(|two| two[1].since(two[0])).collect();
    lengths.sort_unstable();
    (lengths.len() >= ENOUGH).then(|| lengths[lengths.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at an account of which `step` is booked at once.
    fn looks(step: u64) -> Vec<(Time, Vec<u64>)> {
        (0..250)
            .map(|ms| {
                let booked = ms / step;
                // Something else now and then.
                (Time(ms * 1_000_000), vec![booked, 7, booked / 9])
            })
            .collect()
    }

    #[test]
    fn an_account_is_as_accurate_as_it_is_often_brought_up_to_date() {
        for step in [4, 10, 40] {
            assert_eq!(standstill(&looks(step)), Some(Ns::from_ms(step)));
        }
        assert_eq!(standstill(&looks(100)), None, "hardly ever seen to change");
        assert_eq!(standstill(&[]), None);
    }

    #[test]
    fn this_kernels_account_is_watched_and_one_that_stands_still_has_its_unit() {
        let here = accuracy(&Settings::default());
        println!("/proc/stat stands still for {here}");
        assert!(here >= Ns::from_ms(1) && here <= Ns::from_ms(50), "{here}");

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stat");
        fs::write(&file, "cpu  1 2 3\ncpu0 1 2 3\n").unwrap();
        let still = Settings {
            steal_stat: Some(file),
            ..Settings::default()
        };
        assert_eq!(accuracy(&still), TICK);
    }

    #[test]
    fn the_first_vcpus_columns_are_read() {
        let stat = "cpu  9 9 9\ncpu0 1 2 3\ncpu1 4 5 6\nintr 7\n";
        assert_eq!(first(stat), Some(vec![1, 2, 3]));
        assert_eq!(first("intr 7\n"), None);
    }

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

    /// All that was stolen since boot has not been stolen in the second after a failure.
    #[test]
    fn what_cannot_be_read_for_a_moment_is_no_sharing_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stat");
        fs::write(&file, "cpu  1 2 3 4 5 6 7 42 9 10\n").unwrap();
        let mut stat = StealStat::new(&Settings {
            steal_stat: Some(file.clone()),
            ..Settings::default()
        });
        assert_eq!(stat.stolen, Ns::from_ms(420));
        for text in ["", "cpu  1 2 3 4 5 6 7 42 9 10\n"] {
            fs::write(&file, text).unwrap();
            let stolen = stat.read();
            assert_eq!(stat.judge(stolen, Instant::now()), Seen::Nothing, "{text}");
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
