// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live look: the daemon's own senses for some seconds, moving nothing. A
//! daemon that runs already is asked instead, so that there are never two.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use guest::engine::Engine;
use guest::engine::Paths;
use guest::report;
use guest::report::Report;
use guest::sense::SourceFacts;
use serde::Serialize;
use units::Ns;
use units::Tid;

use super::Facts;
use super::root::Root;
use super::steal;
use crate::cli::Global;
use crate::config::Effective;
use crate::control;
use crate::exit::Exit;
use crate::run;

/// Between two looks at the report: shorter than the I/O phases worth moving for.
const STEP: Duration = Duration::from_millis(200);

/// What was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Look {
    /// How long it took.
    pub(crate) seconds: f64,
    /// Stolen share of all vCPUs' time by `/proc/stat`.
    pub(crate) accounted_percent: f64,
    /// The same by the daemon's source.
    pub(crate) seen_percent: f64,
    /// Slice sources, best first.
    pub(crate) sources: Vec<SourceFacts>,
    /// The vCPUs; `gaps` and `stolen_ns` are those of the look.
    pub(crate) vcpus: Vec<report::Vcpu>,
    /// Every task that was I/O-bound at some time, with its highest load.
    pub(crate) tasks: Vec<report::Task>,
}

/// Why the daemon's senses do not work here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// Cause and fix.
    pub(crate) words: String,
    /// The code that `run` would end with.
    #[serde(skip)]
    pub(crate) exit: Exit,
}

/// Fills in what a look can tell; anything that keeps it from looking is a fact
/// as well.
pub(crate) fn take(
    global: &Global,
    length: Duration,
    config: &Effective,
    root: &Root,
    facts: &mut Facts,
) {
    let accounted = steal::read(root);
    let start = Instant::now();
    let mut look = Look::default();
    if let Ok((first, _)) = control::fetch(&global.socket) {
        facts.daemon = Some(first.pid);
        let asked = || {
            control::fetch(&global.socket)
                .ok()
                .map(|(report, _)| report)
        };
        look.watch(&first, length, asked);
    } else if facts.machine.btf && facts.privileges.missing.is_empty() {
        look.sources = guest::sense::probe(&config.settings).sources;
        // Beside the real journal, in the directory that only root can change.
        let journal = global
            .journal
            .with_extension(format!("doctor-{}", std::process::id()));
        if let Err(problem) = own_senses(&journal, length, config, &mut look) {
            facts.engine_problem = Some(problem);
            // What the kernel accounts can be seen all the same.
            std::thread::sleep(length.saturating_sub(start.elapsed()));
        }
        let _ = std::fs::remove_file(&journal);
    } else {
        std::thread::sleep(length);
    }
    look.seconds = start.elapsed().as_secs_f64();
    if let (Some(before), Some(after)) = (accounted, steal::read(root)) {
        look.accounted_percent = steal::sum(&after).since(steal::sum(&before)).percent();
    }
    facts.look = Some(look);
}

fn own_senses(
    journal: &Path,
    length: Duration,
    config: &Effective,
    look: &mut Look,
) -> Result<(), Problem> {
    let mut settings = config.settings.clone();
    settings.dry_run = true;
    let problem = |words: String, exit| Problem { words, exit };
    crate::lock::create_private_parent(journal)
        .map_err(|error| problem(error.to_string(), Exit::Permission))?;
    let engine = Engine::start(
        settings,
        Paths {
            journal: journal.to_owned(),
        },
    )
    .map_err(|error| {
        let failure = run::start_failure(&error);
        problem(failure.to_string(), failure.exit)
    })?;
    let first = engine.report();
    look.watch(&first, length, || Some(engine.report()));
    engine.stop();
    Ok(())
}

impl Look {
    /// Looks again and again until the time is over or `next` has nothing more.
    fn watch(&mut self, first: &Report, length: Duration, next: impl Fn() -> Option<Report>) {
        let end = Instant::now() + length;
        let mut tasks: BTreeMap<Tid, report::Task> = BTreeMap::new();
        let mut last = first.clone();
        loop {
            for task in &last.tasks {
                let best = tasks.entry(task.tid).or_insert_with(|| task.clone());
                if task.load_permille > best.load_permille {
                    *best = task.clone();
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(STEP));
            match next() {
                Some(report) => last = report,
                None => break,
            }
        }
        self.tasks = tasks.into_values().collect();
        self.vcpus = difference(first, &last);
        let length = last.uptime_ns - first.uptime_ns;
        // A source that starts between two reports may hand over a gap that
        // began before it: nobody can be away for longer than we looked.
        let stolen: Ns = self
            .vcpus
            .iter()
            .map(|vcpu| vcpu.stolen_ns.min(length))
            .sum();
        let whole = length * self.vcpus.len() as u64;
        if whole > Ns::ZERO {
            self.seen_percent = 100.0 * stolen.as_ns() as f64 / whole.as_ns() as f64;
        }
    }
}

/// The vCPUs as they are now, with what was added since `first`.
fn difference(first: &Report, last: &Report) -> Vec<report::Vcpu> {
    let before: BTreeMap<u32, &report::Vcpu> =
        first.vcpus.iter().map(|vcpu| (vcpu.id, vcpu)).collect();
    let grown = |vcpu: &report::Vcpu| {
        let (gaps, stolen) = before
            .get(&vcpu.id)
            .map_or((0, Ns::ZERO), |b| (b.gaps, b.stolen_ns));
        report::Vcpu {
            gaps: vcpu.gaps.saturating_sub(gaps),
            stolen_ns: vcpu.stolen_ns - stolen,
            ..vcpu.clone()
        }
    };
    last.vcpus.iter().map(grown).collect()
}

#[cfg(test)]
mod tests {
    use units::Permille;
    use units::VcpuId;

    use super::*;

    fn report(uptime_s: u64, gaps: u64, load: u16) -> Report {
        let mut report = crate::control::report_for_tests(uptime_s);
        report.vcpus = vec![report::Vcpu {
            id: 0,
            gaps,
            stolen_ns: Ns::from_ms(gaps * 10),
            ..report::Vcpu::default()
        }];
        report.tasks = vec![report::Task {
            tid: Tid(5),
            tgid: 5,
            comm: "fio".into(),
            vcpu: VcpuId(0),
            load_permille: Permille::new(load),
            inactivity_ns: Ns::ZERO,
            moves: 0,
            wakeup: "off".into(),
            completion: "unknown".into(),
        }];
        report
    }

    #[test]
    fn only_what_happened_during_the_look_counts() {
        let mut look = Look::default();
        let first = report(10, 100, 300);
        look.watch(&first, Duration::from_millis(1), || {
            Some(report(11, 150, 200))
        });
        assert_eq!(look.vcpus[0].gaps, 50);
        assert!(
            (look.seen_percent - 50.0).abs() < 1e-9,
            "{}",
            look.seen_percent
        );
        assert_eq!(look.tasks.len(), 1);
        assert_eq!(
            look.tasks[0].load_permille,
            Permille::new(300),
            "the highest load is kept"
        );
    }

    #[test]
    fn nobody_is_away_for_longer_than_the_look() {
        let mut look = Look::default();
        look.watch(&report(10, 0, 0), Duration::from_millis(1), || {
            Some(report(11, 900, 0))
        });
        assert!(
            (look.seen_percent - 100.0).abs() < 1e-9,
            "{}",
            look.seen_percent
        );
    }

    #[test]
    fn a_daemon_that_ends_while_we_look_ends_the_look() {
        let mut look = Look::default();
        let start = Instant::now();
        look.watch(&report(10, 1, 1), Duration::from_secs(600), || None);
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(look.seen_percent, 0.0);
    }
}
