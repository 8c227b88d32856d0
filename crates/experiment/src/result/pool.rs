// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several results of one scenario as one: a boot of a slow lab has too few rounds for a
//! verdict.
//!
//! A round stays what it was, in its own boot: ratios are of phases of the same round and the
//! same boot ([`crate::analysis`]), so what differs between machines and days is in none of
//! them. Medians and ranges of absolute figures do mix the machines, and the report says so.

use std::path::Path;
use std::path::PathBuf;

use serde::Serialize;

use super::RunResult;
use crate::lab::Lab;
use crate::lab::LabPhase;
use crate::result::Phase;

/// Why results are not one.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Two differ in what has to be the same.
    #[error(
        "{}: {what} is {found} here and {wanted} in {}; only results of one scenario are put together, `vlab compare` puts others beside each other",
        file.display(), first.display()
    )]
    Differs {
        /// The file that differs.
        file: PathBuf,
        /// The first one.
        first: PathBuf,
        /// In what.
        what: &'static str,
        /// What it has.
        found: String,
        /// What the first one has.
        wanted: String,
    },
    /// The same phase would count twice, and make an interval narrower than it is.
    #[error(
        "{}: its phase {load}, {arm}, round {round} is in a file before it, too: the same file, or one that --resume went on with; name each measurement once",
        file.display()
    )]
    Twice {
        /// The later file.
        file: PathBuf,
        /// The load of the phase.
        load: String,
        /// Its arm.
        arm: String,
        /// Its round, from 1 on.
        round: u32,
    },
    /// The same scenario has the same seeds.
    #[error(
        "{}: simulated, and another simulation of one scenario is the same again; simulate more rounds instead (--rounds)",
        file.display()
    )]
    Simulated {
        /// The file.
        file: PathBuf,
    },
}

/// One thing of a result, for people.
type What = fn(&RunResult) -> String;

/// What all have to have in common, but the scenario: its name, and where it is.
const SAME: [(&str, What); 5] = [
    ("the backend", |r| r.backend.clone()),
    ("the kernel", |r| r.environment.kernel.clone()),
    ("the disk", |r| {
        let disk = r.environment.disk.as_ref();
        disk.map_or_else(
            || "none".to_owned(),
            |d| format!("{} ({}, {} queues)", d.name, d.scheduler, d.queues),
        )
    }),
    ("the host", |r| {
        lab_of(r, |lab| {
            format!("{}, times multiplied by {}", lab.host, lab.dilation)
        })
    }),
    ("the disk's latency", |r| {
        lab_of(r, |lab| lab.disk_latency.to_string())
    }),
];

fn lab_of(result: &RunResult, what: impl Fn(&Lab) -> String) -> String {
    result.lab.as_ref().map_or_else(|| "none".to_owned(), what)
}

impl RunResult {
    /// These results as one, in this order; `None` without any. Machines may differ in all
    /// but the kernel and the disk under test.
    ///
    /// # Errors
    /// One is of another scenario (but for its rounds), backend, kernel, disk or host, has
    /// phases of one before it, or is simulated.
    pub fn pooled(
        results: impl IntoIterator<Item = (PathBuf, Self)>,
    ) -> Result<Option<Self>, PoolError> {
        let mut results = results.into_iter();
        let Some((first, mut pool)) = results.next() else {
            return Ok(None);
        };
        let mut sources = vec![source(&first, &pool)];
        for (file, result) in results {
            pool.is_like(&first, &result, &file)?;
            pool.has_nothing_of(&result, &file)?;
            sources.push(source(&file, &result));
            pool.add(result);
        }
        if sources.len() > 1 {
            pool.warnings.insert(
                0,
                format!(
                    "{} results put together; ratios are within one boot, all other figures mix what was measured then: {}",
                    sources.len(),
                    sources.join("; ")
                ),
            );
        }
        Ok(Some(pool))
    }

    fn is_like(&self, first: &Path, other: &Self, file: &Path) -> Result<(), PoolError> {
        let error = |what, found, wanted| PoolError::Differs {
            file: file.to_owned(),
            first: first.to_owned(),
            what,
            found,
            wanted,
        };
        for (what, of) in SAME {
            let (found, wanted) = (of(other), of(self));
            if found != wanted {
                return Err(error(what, found, wanted));
            }
        }
        let mut scenario = other.scenario.clone();
        scenario.measure.rounds = self.scenario.measure.rounds;
        if scenario == self.scenario {
            return Ok(());
        }
        let (found, wanted) = first_difference(&scenario, &self.scenario);
        Err(error("the scenario", found, wanted))
    }

    fn has_nothing_of(&self, other: &Self, file: &Path) -> Result<(), PoolError> {
        let file = file.to_owned();
        if other.backend == "sim" {
            return Err(PoolError::Simulated { file });
        }
        let known = |phase: &&Phase| self.phases.iter().any(|one| is_same(one, phase));
        match other.phases.iter().find(known) {
            None => Ok(()),
            Some(phase) => Err(PoolError::Twice {
                file,
                load: phase.load.clone(),
                arm: phase.arm.clone(),
                round: phase.round + 1,
            }),
        }
    }

    /// The phases of `other` come after all there are.
    fn add(&mut self, other: Self) {
        let after = |n: Option<u32>| n.map_or(0, |n| n + 1);
        let rounds = after(self.phases.iter().map(|phase| phase.round).max());
        let boots = after(self.phases.iter().map(|phase| phase.boot).max());
        self.phases
            .extend(other.phases.into_iter().map(|phase| Phase {
                round: phase.round + rounds,
                boot: phase.boot + boots,
                ..phase
            }));
        self.scenario.measure.rounds += other.scenario.measure.rounds;
        join(&mut self.environment.date, &other.environment.date);
        join(
            &mut self.environment.cpu_model,
            &other.environment.cpu_model,
        );
        // Told as what may have disturbed it.
        self.environment.load_average = self
            .environment
            .load_average
            .max(other.environment.load_average);
        self.environment.more_tools(&other.environment.tools);
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        let (Some(lab), Some(more)) = (&mut self.lab, other.lab) else {
            return;
        };
        join(&mut lab.host_kernel, &more.host_kernel);
        join(&mut lab.qemu, &more.qemu);
        lab.boots += more.boots;
        lab.lost.extend(more.lost);
        lab.restarted.extend(more.restarted);
        lab.phases
            .extend(more.phases.into_iter().map(|phase| LabPhase {
                round: phase.round + rounds,
                ..phase
            }));
    }
}

/// Is it one window? Its round and boot are numbered anew when results are put together.
fn is_same(a: &Phase, b: &Phase) -> bool {
    (&a.load, &a.arm, a.vms_per_pcpu, a.at, a.window)
        == (&b.load, &b.arm, b.vms_per_pcpu, b.at, b.window)
        && (&a.io, &a.compute_per_s, &a.work) == (&b.io, &b.compute_per_s, &b.work)
}

/// `more` after what is known, unless it is.
pub(super) fn join(known: &mut String, more: &str) {
    if known.is_empty() {
        more.clone_into(known);
    } else if !known.split(", ").any(|one| one == more) {
        known.push_str(", ");
        known.push_str(more);
    }
}

fn source(file: &Path, result: &RunResult) -> String {
    let (scenario, environment) = (&result.scenario, &result.environment);
    let file = file.file_name().unwrap_or(file.as_os_str()).display();
    format!(
        "{file} ({}, {} round(s), {})",
        environment.date, scenario.measure.rounds, environment.cpu_model
    )
}

/// Where the two begin to differ, a line of each.
fn first_difference<T: Serialize>(a: &T, b: &T) -> (String, String) {
    let lines = |of: &T| -> Vec<String> {
        let text = serde_json::to_string_pretty(of).unwrap_or_default();
        let bare = |line: &str| line.trim().trim_end_matches(',').to_owned();
        text.lines().map(bare).collect()
    };
    let (a, b) = (lines(a), lines(b));
    let at = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let of = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
    (of(&a), of(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::analysis::tests::fixture;

    /// Another run of the fixture's scenario, `n` ms later.
    fn another(n: u64) -> RunResult {
        let mut result = fixture();
        for phase in &mut result.phases {
            phase.at += units::Ns::from_ms(n);
        }
        result
    }

    fn named(results: &[RunResult]) -> Vec<(PathBuf, RunResult)> {
        let name = |n: usize| PathBuf::from(format!("{n}.json"));
        let results = results.iter().cloned().enumerate();
        results.map(|(n, result)| (name(n), result)).collect()
    }

    #[test]
    fn pairs_are_those_of_all_results_and_of_none_together() {
        let one = fixture();
        let mut faster = another(1);
        // Another machine: twice as fast, and another gain.
        for phase in &mut faster.phases {
            let factor = if phase.arm == "ours" { 3.0 } else { 2.0 };
            if let Some(io) = &mut phase.io {
                io.ops_per_s *= factor;
            }
        }
        "another CPU".clone_into(&mut faster.environment.cpu_model);
        let build = "0.1.0 (sha256 ba7816bf)".to_owned();
        faster.environment.tools.insert("ours".to_owned(), build);
        let pool = RunResult::pooled(named(&[one.clone(), faster.clone()]));
        let pool = pool.unwrap().unwrap();
        let row = |result: &RunResult| analyse(result).loads[0].rows[1].clone();
        let ratio = |result: &RunResult| row(result).vs_vanilla.unwrap();
        let (a, b, both) = (ratio(&one), ratio(&faster), ratio(&pool));
        assert_eq!(both.n, a.n + b.n);
        let expected = f64::midpoint(a.centre.ln(), b.centre.ln()).exp();
        assert!((both.centre - expected).abs() < 1e-12, "{both:?}");
        assert_eq!(row(&pool).rounds, row(&one).rounds + row(&faster).rounds);
        assert_eq!(
            pool.scenario.measure.rounds,
            one.scenario.measure.rounds * 2
        );
        assert!(pool.environment.cpu_model.ends_with(", another CPU"));
        assert!(pool.warnings[0].contains("1.json"), "{:?}", pool.warnings);
        assert!(
            !pool
                .notices()
                .any(|notice| notice.contains("same programs"))
        );

        let mut older = one;
        let build = "0.1.0 (sha256 cafe)".to_owned();
        older.environment.tools.insert("ours".to_owned(), build);
        let pool = RunResult::pooled(named(&[older, faster])).unwrap().unwrap();
        let told = "with the same programs: ours 0.1.0 (sha256 cafe), 0.1.0 (sha256 ba7816bf)";
        let last = pool.notices().last().unwrap();
        assert!(last.ends_with(told), "{last}");
    }

    #[test]
    fn one_result_is_itself() {
        let one = fixture();
        let pool = RunResult::pooled(named(std::slice::from_ref(&one))).unwrap();
        assert_eq!(pool, Some(one));
        assert_eq!(RunResult::pooled([]).unwrap(), None);
    }

    #[test]
    fn another_scenario_kernel_or_backend_is_refused_by_name() {
        let one = fixture();
        let (mut window, mut kernel, mut backend) = (one.clone(), one.clone(), one.clone());
        window.scenario.measure.window = units::Ns::from_ms(7);
        "1.2.3".clone_into(&mut kernel.environment.kernel);
        "sim".clone_into(&mut backend.backend);
        for (other, what) in [
            (window, "the scenario is \"window\": 7000000"),
            (kernel, "the kernel is 1.2.3 here and "),
            (backend, "the backend is sim here and "),
        ] {
            let error = RunResult::pooled(named(&[one.clone(), other])).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("1.json: "), "{error}");
            assert!(error.contains(what), "{error}");
            assert!(error.contains("in 0.json"), "{error}");
        }
    }

    #[test]
    fn rounds_of_another_number_are_added() {
        let one = fixture();
        let mut more = another(1);
        more.scenario.measure.rounds = 7;
        let pool = RunResult::pooled(named(&[one.clone(), more])).unwrap();
        assert_eq!(
            pool.unwrap().scenario.measure.rounds,
            one.scenario.measure.rounds + 7
        );
    }

    #[test]
    fn a_phase_counts_once() {
        let (one, mut resumed) = (fixture(), another(2));
        let error = RunResult::pooled(named(&[one.clone(), one.clone()])).unwrap_err();
        assert!(
            error.to_string().starts_with("1.json: its phase "),
            "{error}"
        );
        let last = one.phases.last().unwrap().clone();
        let arm = last.arm.clone();
        resumed.phases.push(Phase { round: 9, ..last });
        let error = RunResult::pooled(named(&[one, another(1), resumed])).unwrap_err();
        assert!(
            error.to_string().contains(&format!("{arm}, round 10")),
            "{error}"
        );
    }

    #[test]
    fn a_simulation_is_not_measured_twice() {
        let (mut one, mut other) = (fixture(), another(1));
        for result in [&mut one, &mut other] {
            "sim".clone_into(&mut result.backend);
        }
        let error = RunResult::pooled(named(&[one, other])).unwrap_err();
        assert!(matches!(error, PoolError::Simulated { .. }), "{error}");
    }
}
