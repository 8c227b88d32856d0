// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An engine whose programs find nobody: the test says whom it holds.

use std::time::Duration;

use policy::guest::wakeup::Lever;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use units::CpuSet;

use super::mover::Wait;
use super::*;
use crate::act::testing::DEADLINE;
use crate::act::testing::Sleeper;
use crate::act::testing::cpus;
use crate::settings::PriorityRule;

fn becomes_readable(fd: BorrowedFd<'_>, within: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let within = Timespec::try_from(within).unwrap();
    rustix::event::poll(&mut fds, Some(&within)).unwrap() == 1
}

#[test]
fn root_an_engine_that_cannot_go_on_says_so_and_gives_everything_back() {
    let (a, _) = cpus();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let rule = |prefix: &str, priority| PriorityRule {
        comm_prefix: prefix.into(),
        priority,
    };
    let settings = Settings {
        priorities: vec![rule("sleep", Some(0)), rule("", None)],
        ..Settings::default()
    };
    let paths = Paths {
        journal: journal.clone(),
    };
    let engine = Engine::start(settings, paths).unwrap();
    let core = Arc::clone(&engine.core);

    let sleeper = Sleeper::new();
    let before = (sleeper.mask(), sleeper.attr());
    core.sense.put_live(0, sleeper.key());
    mover::seat(&core, 0, Wait::ForOthers);
    let seated = core.seats[0].anyone().unwrap();
    core.actor.move_to(&seated.held, a).unwrap();
    core.actor.set_lever(&seated.held, Lever::Fifo).unwrap();
    assert_eq!(sleeper.mask(), CpuSet::only(a));
    assert_ne!(sleeper.attr(), before.1);
    assert_eq!(engine.failed(), None);
    assert!(!becomes_readable(engine.failure_fd(), Duration::ZERO));

    // As any of its threads might.
    let broken = thread::spawn(&core, "vmg-broken".into(), || panic!("on purpose"));
    broken.unwrap().join().unwrap();
    assert!(becomes_readable(engine.failure_fd(), DEADLINE));
    let why = "the thread vmg-broken panicked: on purpose";
    assert_eq!(engine.failed().as_deref(), Some(why));
    core.fail("what came of it".into());
    assert_eq!(engine.failed().as_deref(), Some(why), "the first is told");

    let summary = engine.stop();
    assert_eq!((summary.restored, summary.failed), (1, 0), "{summary}");
    assert_eq!((sleeper.mask(), sleeper.attr()), before);
    assert!(!journal.exists());
}
