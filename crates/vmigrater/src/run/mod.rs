// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmigrater run`: the daemon in the foreground.
//!
//! Two processes: the supervisor, which does nothing but wait and restore what a
//! killed daemon leaves (`guest::act::supervise`), and its child, the daemon. The
//! lock and the socket are made before the fork and belong to both: the lock
//! falls when the last of them is gone, and whichever ends last removes the
//! socket.

mod failure;
mod notify;
mod wait;

use std::os::fd::AsFd;
use std::process::ExitCode;

use guest::act::restore::Summary;
use guest::act::supervise::Supervised;
use guest::act::supervise::supervise;
use guest::act::task::Roots;
use guest::engine::Engine;
use guest::engine::Paths;
use guest::report::Report;
use guest::sense::SenseError;
use guest::sense::Tested;

use crate::cli::Global;
use crate::cli::RunArgs;
use crate::config;
use crate::config::Effective;
use crate::control::Server;
use crate::exit::Exit;
use crate::exit::Failure;
use crate::lock::Lock;
use failure::engine_failure;
pub(crate) use failure::journal_failure;
pub(crate) use failure::sense_failure;
pub(crate) use failure::start_failure;
use failure::supervise_failure;
use wait::End;
use wait::Signals;

/// Until it is asked to stop, or cannot go on.
pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<ExitCode, Failure> {
    let effective = config::load(&args.overrides(crate::steal_map_id()?))?;
    if args.show_config {
        crate::print(&config::show(&effective))?;
        return Ok(Exit::Ok.into());
    }
    let _lock = Lock::take(&global.lock)?;
    let server = Server::bind(&global.socket)?;
    let child = || match daemon(global, effective, &server) {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            eprintln!("vmigrater: {failure}");
            failure.exit.into()
        }
    };
    let supervised = supervise(&global.journal, &Roots::default(), child)
        .map_err(|error| supervise_failure(&error))?;
    match supervised {
        Supervised::Child(code) => Ok(code),
        Supervised::Parent {
            code,
            killed_by,
            restored,
        } => {
            if let Some(signal) = killed_by {
                tracing::error!("the daemon was killed by signal {signal}");
            }
            match restored {
                Ok(summary) if summary.is_empty() => {}
                Ok(summary) => say_restored("the killed daemon", &summary),
                // A daemon that ended by itself has said so already.
                Err(_) if killed_by.is_none() => {}
                Err(error) => return Err(journal_failure(&error)),
            }
            Ok(code)
        }
    }
}

/// The child's life.
fn daemon(global: &Global, effective: Effective, server: &Server) -> Result<(), Failure> {
    let broken = |error: std::io::Error| {
        Failure::new(
            Exit::Runtime,
            format!("cannot wait for signals: {error}"),
            "report this as a bug",
        )
    };
    let signals = Signals::catch().map_err(broken)?;
    let watchdog = sd_notify::watchdog_enabled().map(|longest| longest / 2);
    let engine = Engine::start(
        effective.settings,
        Paths {
            journal: global.journal.clone(),
        },
    )
    .map_err(|error| start_failure(&error))?;
    if crate::doctor::missing_capabilities()
        .iter()
        .any(|name| name == "CAP_SYS_NICE")
    {
        tracing::warn!(
            "without CAP_SYS_NICE only tasks of this user can be moved; add it to the service"
        );
    }
    if !engine.left_before().is_empty() {
        say_restored("a predecessor that was killed", engine.left_before());
    }
    let report = engine.report();
    tracing::info!(
        source = report.source,
        accuracy = %report.source_accuracy_ns,
        profile = %effective.profile,
        dry_run = report.dry_run,
        "ready, {} vCPUs",
        report.vcpus.len()
    );
    notify::ready(&report);
    let end = wait::wait(&engine, server, &signals, watchdog, notify::alive);
    notify::stopping();
    let summary = engine.stop();
    if summary.failed > 0 {
        say_restored("this run", &summary);
    } else {
        tracing::info!("stopped; {summary}");
    }
    match end.map_err(broken)? {
        End::Asked => Ok(()),
        End::Failed(reason) => Err(engine_failure(&reason)),
    }
}

impl wait::Engine for Engine {
    fn report(&self) -> Report {
        self.report()
    }
    fn failure_fd(&self) -> impl AsFd {
        self.failure_fd()
    }
    fn failed(&self) -> Option<String> {
        self.failed()
    }
    fn gets_on(&self) -> bool {
        self.gets_on()
    }
}

/// Tasks that could not be given back matter; the rest is for the record.
fn say_restored(whose: &str, summary: &Summary) {
    if summary.failed > 0 {
        tracing::warn!(
            "undid what {whose} had left: {summary}; try `vmigrater restore` for the rest"
        );
    } else {
        tracing::info!("undid what {whose} had left: {summary}");
    }
}

/// Whether every BPF program loads, attaches and runs here, a line for each. The
/// daemon does without KVM's steal pages, and without nothing else.
pub(crate) fn bpf_selftest() -> Result<Exit, Failure> {
    let tested = guest::sense::selftest().map_err(|error| sense_failure(&error))?;
    let mut failure = None;
    let mut text = String::new();
    for Tested { object, programs } in tested {
        match programs {
            Ok(programs) => {
                for (program, state) in programs {
                    text.push_str(&format!("{object} {program} {state}\n"));
                }
            }
            Err(error) => {
                let refused = sense_failure(&error);
                text.push_str(&format!("{object} refused: {refused}\n"));
                if !matches!(error, SenseError::NoStealPage { .. }) {
                    failure = failure.or(Some(refused));
                }
            }
        }
    }
    crate::print(&text)?;
    failure.map_or(Ok(Exit::Ok), Err)
}
