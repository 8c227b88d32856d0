// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an arm does to a phase.

use std::path::Path;

use anyhow::Context;
use experiment::result::Daemon as Figures;
use experiment::scenario::Arm;
use experiment::scenario::ArmKind;
use rustix::process::Signal;
use units::Time;

use super::daemon::Daemon;
use super::daemon::Options;
use super::daemon::Reading;
use super::decisions::Decision;
use super::interrupt::Interrupt;
use super::process::Process;

/// A running arm.
#[derive(Debug)]
pub(super) enum Running {
    /// Nothing runs: vanilla, a priority that was set, a baseline.
    Nothing,
    /// The daemon, and what it said when the window opened.
    Daemon(Box<Daemon>, Option<Box<Reading>>),
    /// Somebody else's command.
    Command(Process),
}

/// What arms need to know of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    /// The daemon's program.
    pub(super) vmigrater: &'a Path,
    /// A directory of ours.
    pub(super) scratch: &'a Path,
    /// Shall the daemon say each of its decisions?
    pub(super) decisions: bool,
    /// How many times slower than a real machine this one is: the daemon's times are, too.
    pub(super) dilation: u32,
}

/// Gives the I/O threads the priority that the arm asks for. Before anything is
/// frozen, so that all arms begin alike.
pub(super) fn set_priorities(kind: &ArmKind, tids: &[u32]) -> anyhow::Result<()> {
    match kind {
        ArmKind::Fifo => tids.iter().try_for_each(|tid| fifo(*tid)),
        ArmKind::Nice => tids.iter().try_for_each(|tid| nice(*tid)),
        ArmKind::Vanilla
        | ArmKind::Vmigrater { .. }
        | ArmKind::Xballoon { .. }
        | ArmKind::Host { .. }
        | ArmKind::Command { .. } => Ok(()),
    }
}

fn nice(tid: u32) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_raw(tid.cast_signed());
    rustix::process::setpriority_process(pid, -20)
        .with_context(|| format!("cannot set nice -20 for thread {tid}; run as root"))
}

fn fifo(tid: u32) -> anyhow::Result<()> {
    set_fifo(tid).with_context(|| {
        format!(
            "cannot make thread {tid} SCHED_FIFO; run as root, in a cgroup with real-time run time"
        )
    })
}

fn set_fifo(tid: u32) -> std::io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads one structure, which lives until it returns.
    let failed = unsafe {
        libc::sched_setscheduler(tid.cast_signed(), libc::SCHED_FIFO, &raw const parameter)
    } != 0;
    if failed {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Running {
    /// Starts what the arm runs and waits until it is ready.
    pub(super) fn start(
        arm: &Arm,
        tids: &[u32],
        steal_map_id: Option<u32>,
        context: Setting<'_>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let plain = Options {
            program: context.vmigrater,
            dry_run: false,
            mode: None,
            profile: None,
            without: &[],
            config: None,
            steal_map_id,
            scratch: context.scratch,
            decisions: context.decisions,
            dilation: context.dilation,
        };
        let daemon = |options: Options<'_>| {
            Ok(Self::Daemon(
                Box::new(Daemon::start(&options, interrupt)?),
                None,
            ))
        };
        match &arm.kind {
            ArmKind::Vanilla | ArmKind::Fifo | ArmKind::Nice | ArmKind::Host { .. } => {
                Ok(Self::Nothing)
            }
            ArmKind::Vmigrater {
                dry_run,
                profile,
                without,
                config,
            } => daemon(Options {
                dry_run: *dry_run,
                profile: profile.as_deref(),
                without,
                config: config.as_deref(),
                ..plain
            }),
            ArmKind::Xballoon { config } => daemon(Options {
                mode: Some("xballoon"),
                config: config.as_deref(),
                ..plain
            }),
            ArmKind::Command { command } => {
                let list: Vec<String> = tids.iter().map(u32::to_string).collect();
                let mut words = command
                    .iter()
                    .map(|word| word.replace("{tids}", &list.join(",")));
                let program = words.next().context("the arm's command is empty")?;
                let arguments: Vec<String> = words.collect();
                Ok(Self::Command(Process::spawn_silent(
                    &arm.name,
                    program.as_ref(),
                    &arguments,
                    Signal::TERM,
                )?))
            }
        }
    }

    /// The window is about to open.
    pub(super) fn window_opens(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Daemon(daemon, first) => *first = Some(Box::new(daemon.read()?)),
            Self::Command(process) => has_not_failed(process, "before the window")?,
            Self::Nothing => {}
        }
        Ok(())
    }

    /// The window has closed; `thawed` is when, if nothing is frozen since then.
    pub(super) fn window_closed(
        &mut self,
        thawed: Option<Time>,
    ) -> anyhow::Result<Option<Figures>> {
        match self {
            Self::Daemon(daemon, Some(first)) => Ok(Some(first.until(&daemon.read()?, thawed))),
            Self::Command(process) => {
                has_not_failed(process, "within the window")?;
                Ok(None)
            }
            Self::Nothing | Self::Daemon(_, None) => Ok(None),
        }
    }

    /// What it has decided so far, if it says so.
    pub(super) fn decisions(&self) -> Vec<Decision> {
        match self {
            Self::Daemon(daemon, _) => daemon.decisions(),
            Self::Nothing | Self::Command(_) => Vec::new(),
        }
    }

    /// Has it end, without waiting.
    pub(super) fn ask_to_end(&mut self) {
        match self {
            Self::Daemon(daemon, _) => daemon.ask_to_end(),
            // All of a command's group is asked, and that by whoever waits for it.
            Self::Nothing | Self::Command(_) => {}
        }
    }

    /// Ends it.
    pub(super) fn end(self, interrupt: &Interrupt) -> anyhow::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Daemon(daemon, _) => daemon.end(interrupt),
            // A command that is ended by our signal has not failed.
            Self::Command(process) => process.end_group(interrupt),
        }
    }
}

/// A command may be done when it has set what it is there to set; it may not
/// have failed.
fn has_not_failed(process: &Process, when: &str) -> anyhow::Result<()> {
    let Some(status) = process.has_ended_in_place()? else {
        return Ok(());
    };
    let how = match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => return Ok(()),
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => String::new(),
    };
    anyhow::bail!(
        "the arm's command failed {when} {how}{}",
        process.last_words()
    )
}
