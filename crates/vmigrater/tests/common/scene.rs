// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task that lives on I/O on a machine shared with another VM, for a daemon to hold,
//! and whether it is as before when that has ended.

use freezer::Freezer;
use units::Ns;

use super::Daemon;
use super::Home;
use super::compute::Compute;
use super::freeze;
use super::program::Program;
use super::program::State;
use super::program::state;
use super::until;

/// What the machine's CPUs are shared in.
pub const SLICE: Ns = Ns::from_ms(11);
/// How many of them are.
pub const CPUS: u32 = 2;

/// One task, the freezer, and where one daemon after another keeps its files.
pub struct Scene {
    /// The task.
    pub io: u32,
    /// What its owner had given it.
    pub before: State,
    pub home: Home,
    pub freezer: Freezer,
    _program: Program,
    _compute: Compute,
}

impl Scene {
    /// With a program, see [`Program::start`], whose one thread of I/O has a name that
    /// begins with `pulse-`.
    pub fn new(program: &str) -> Self {
        let program = Program::start(program);
        let io = program.threads("pulse-", 1)[0];
        Self {
            io,
            before: state(io),
            freezer: freeze(SLICE, CPUS),
            home: Home::new(),
            _program: program,
            _compute: Compute::start(CPUS),
        }
    }

    /// A daemon that does for wake-ups what this lever is, so that more than a mask has to
    /// be given back. Never lets a task go to compare.
    pub fn daemon(&self, lever: &str) -> Daemon {
        let config = format!("trial.enabled = false\nwakeup.mode = \"{lever}\"\n");
        Daemon::start_under(&self.freezer, &self.home, &config)
    }

    /// Has the task another mask and another policy or slice than its owner's?
    pub fn is_held(&self) -> bool {
        let now = state(self.io);
        now.mask != self.before.mask && now.attr != self.before.attr
    }

    /// The same when it holds the task.
    pub fn daemon_that_holds(&self, lever: &str) -> Daemon {
        let daemon = self.daemon(lever);
        until(&format!("the task is held, with {lever}"), || {
            self.is_held()
        });
        daemon
    }

    /// Waits until the task is as before; then no journal is left.
    pub fn all_is_restored(&self, how: &str) {
        until(&format!("{how}: everything is as before"), || {
            state(self.io) == self.before
        });
        let stays = self.home.path("journal").exists();
        assert!(!stays, "{how}: the journal stays");
    }
}
