// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests boot side by side, and those that are lost meanwhile are started again.

use std::path::Path;
use std::time::Instant;

use units::CpuSet;

use super::super::protocol::FromHost;
use super::super::protocol::Setup;
use super::guest::Guest;

/// Guests that are started again, in one lab, because they were lost while they booted.
/// An emulated host may lose one; where more are lost, something else is wrong.
const RESTARTS: u32 = 4;

/// A guest that boots.
pub(super) trait Boots {
    /// Takes hold of QEMU, as soon as that lets itself be held.
    fn connect(&mut self) -> anyhow::Result<()>;
    /// Waits until the agent inside has spoken.
    fn come_up(&mut self, until: Instant) -> anyhow::Result<()>;
    /// Starts it again from the beginning: restart number `nr` of the lab, from 1.
    fn restart(&mut self, nr: u32) -> anyhow::Result<()>;
}

/// Returns when all of them are up; `says` hears of each, and of each restart. They were
/// started at `started`, and after `until` none is started again.
///
/// # Errors
/// That of a guest which is lost when no restart is left; `says` fails.
pub(super) fn all_up(
    guests: &mut [impl Boots],
    started: Instant,
    until: Instant,
    says: &mut dyn FnMut(FromHost) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut restarts = 0;
    // First, so that they boot side by side.
    let connected: Vec<_> = guests.iter_mut().map(Boots::connect).collect();
    for (number, (guest, mut connected)) in (0..).zip(guests.iter_mut().zip(connected)) {
        loop {
            let up = connected.and_then(|()| guest.come_up(until));
            let seconds = started.elapsed().as_secs();
            let Err(error) = up else {
                says(FromHost::Up {
                    guest: number,
                    seconds,
                })?;
                break;
            };
            if restarts == RESTARTS || Instant::now() >= until {
                return Err(error);
            }
            restarts += 1;
            says(FromHost::Restarted(format!(
                "guest {number} after {seconds} s: {error:#}"
            )))?;
            guest.restart(restarts)?;
            connected = guest.connect();
        }
    }
    Ok(())
}

/// A real guest with what it takes to start it again.
pub(super) struct Booting<'a> {
    guest: Guest,
    setup: &'a Setup,
    disk: Option<&'a Path>,
    cpus: &'a CpuSet,
}

impl<'a> Booting<'a> {
    /// Starts QEMU and returns at once.
    pub(super) fn start(
        setup: &'a Setup,
        number: u32,
        disk: Option<&'a Path>,
        cpus: &'a CpuSet,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            guest: Guest::start(setup, number, disk)?,
            setup,
            disk,
            cpus,
        })
    }

    /// When it is up.
    pub(super) fn into_guest(self) -> Guest {
        self.guest
    }
}

impl Boots for Booting<'_> {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.guest.connect(self.cpus)
    }

    fn come_up(&mut self, until: Instant) -> anyhow::Result<()> {
        self.guest.come_up(self.setup, until)
    }

    fn restart(&mut self, nr: u32) -> anyhow::Result<()> {
        self.guest.restart(self.setup, self.disk, nr)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Comes up in its `good_boot`th boot, from 0; it is lost before QEMU is held in the
    /// boots of `deaf`, and after that in the others.
    #[derive(Debug, Default)]
    struct Fake {
        good_boot: u32,
        deaf: Vec<u32>,
        boot: u32,
        /// Numbers of the lab's restarts that were this guest's.
        restarts: Vec<u32>,
        held: bool,
    }

    impl Fake {
        fn up_in(good_boot: u32) -> Self {
            Self {
                good_boot,
                ..Self::default()
            }
        }
    }

    impl Boots for Fake {
        fn connect(&mut self) -> anyhow::Result<()> {
            anyhow::ensure!(!self.deaf.contains(&self.boot), "no socket");
            self.held = true;
            Ok(())
        }

        fn come_up(&mut self, _: Instant) -> anyhow::Result<()> {
            assert!(self.held, "nobody waits for a guest that is not held");
            anyhow::ensure!(self.boot == self.good_boot, "boot {} ended", self.boot);
            Ok(())
        }

        fn restart(&mut self, nr: u32) -> anyhow::Result<()> {
            self.restarts.push(nr);
            self.boot += 1;
            self.held = false;
            Ok(())
        }
    }

    /// What is said, one word for each message, and how it ends.
    fn boot(guests: &mut [Fake], left: Duration) -> (Vec<String>, anyhow::Result<()>) {
        let mut said = Vec::new();
        let now = Instant::now();
        let result = all_up(guests, now, now + left, &mut |message| {
            said.push(match message {
                FromHost::Up { guest, .. } => format!("{guest} up"),
                FromHost::Restarted(why) => why,
                other => panic!("{other:?}"),
            });
            Ok(())
        });
        (said, result)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn guests_that_boot_are_not_started_again() {
        let mut guests = [Fake::up_in(0), Fake::up_in(0)];
        let (said, result) = boot(&mut guests, MINUTE);
        result.unwrap();
        assert_eq!(said, ["0 up", "1 up"]);
        assert!(guests.iter().all(|guest| guest.restarts.is_empty()));
    }

    #[test]
    fn a_lost_guest_is_started_again_and_told_of() {
        let mut guests = [Fake::up_in(1), Fake::up_in(2), Fake::up_in(0)];
        guests[1].deaf = vec![0];
        let (said, result) = boot(&mut guests, MINUTE);
        result.unwrap();
        assert_eq!(
            said,
            [
                "guest 0 after 0 s: boot 0 ended",
                "0 up",
                "guest 1 after 0 s: no socket",
                "guest 1 after 0 s: boot 1 ended",
                "1 up",
                "2 up",
            ]
        );
        // Numbered through the lab: each has a console of its own to keep.
        assert_eq!(guests[0].restarts, [1]);
        assert_eq!(guests[1].restarts, [2, 3]);
    }

    #[test]
    fn four_restarts_of_a_lab_are_all_there_are() {
        let mut guests = [Fake::up_in(4)];
        boot(&mut guests, MINUTE).1.unwrap();
        let mut guests = [Fake::up_in(2), Fake::up_in(3)];
        let (said, result) = boot(&mut guests, MINUTE);
        assert_eq!(result.unwrap_err().to_string(), "boot 2 ended");
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(guests[1].restarts, [3, 4]);
    }

    #[test]
    fn when_the_labs_time_is_over_nothing_is_started_again() {
        let mut guests = [Fake::up_in(0), Fake::up_in(1)];
        let (said, result) = boot(&mut guests, Duration::ZERO);
        assert_eq!(result.unwrap_err().to_string(), "boot 0 ended");
        assert_eq!(said, ["0 up"]);
        assert!(guests[1].restarts.is_empty());
    }
}
