// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run has measured so far, kept whatever happens to the run.
//!
//! A run takes minutes under the freezer and hours on an emulated host, and is ended for
//! many reasons: a lab too many was lost, somebody's patience, a time limit. So the
//! result's file is written after each phase, says itself that it is not whole, and
//! another run can go on with it.

use std::fs::File;
use std::path::Path;
use std::path::PathBuf;

use experiment::result::Environment;
use experiment::result::FORMAT;
use experiment::result::Phase;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use units::Ns;

use super::Unusable;
use super::schedule;

/// Of what happened to a run that is not over.
pub(crate) const GOES_ON: &str = "the run goes on, or was killed";

/// Begins the warning in a result that is not whole.
const INCOMPLETE: &str = "incomplete: ";

/// The phases of a result that grows: what is the same for all backends.
#[derive(Debug)]
pub(crate) struct Growing {
    backend: &'static str,
    scenario: Scenario,
    phases: Vec<Phase>,
    steps: usize,
    file: Option<PathBuf>,
}

impl Growing {
    /// Nothing yet; what comes goes to `file` too.
    pub(crate) fn new(backend: &'static str, scenario: Scenario, file: Option<&Path>) -> Self {
        Self {
            backend,
            steps: schedule::steps(&scenario).len(),
            scenario,
            phases: Vec::new(),
            file: file.map(Path::to_owned),
        }
    }

    /// What is measured.
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// What has been measured.
    pub(crate) fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// How many phases there will be.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// The number of the next phase, which is how many there are; `None` when there are all.
    pub(crate) fn next(&self) -> Option<usize> {
        Some(self.phases.len()).filter(|done| *done < self.steps)
    }

    /// What the file has, to be looked at and then given to [`Self::adopt`]; `None`: there
    /// is to be no file.
    ///
    /// # Errors
    /// [`Unusable`]: no such file, or of another backend.
    pub(crate) fn before(&self) -> anyhow::Result<Option<RunResult>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let before = RunResult::load(file).map_err(|error| {
            let error = anyhow::Error::from(error);
            self.refuse(&format!("{error:#}"))
        })?;
        if before.backend != self.backend {
            return Err(self.refuse(&format!("it is of backend {}", before.backend)));
        }
        Ok(Some(before))
    }

    /// These phases are the beginning.
    ///
    /// # Errors
    /// [`Unusable`]: they are no beginning of this run.
    pub(crate) fn adopt(&mut self, scenario: Scenario, phases: Vec<Phase>) -> anyhow::Result<()> {
        let mut scenario = scenario;
        scenario.measure.rounds = self.scenario.measure.rounds;
        if scenario != self.scenario {
            return Err(self.refuse_other("scenario"));
        }
        let steps = schedule::steps(&self.scenario);
        let begins = phases
            .iter()
            .enumerate()
            .all(|(at, phase)| steps.get(at).is_some_and(|step| step.is_of(phase)));
        if !begins {
            return Err(self.refuse_other("order of phases"));
        }
        if phases.len() == self.steps {
            return Err(self.refuse("everything has been measured"));
        }
        self.phases = phases;
        Ok(())
    }

    /// The file is of no use.
    pub(crate) fn refuse(&self, why: &str) -> anyhow::Error {
        let file = self.file.as_deref().unwrap_or(Path::new("-")).display();
        Unusable::new(format!("{file}: {why}")).into()
    }

    /// The file is of a run with another `what`.
    pub(crate) fn refuse_other(&self, what: &str) -> anyhow::Error {
        self.refuse(&format!(
            "another {what} than this run's; ask for the same, or leave --resume out and measure all of it again"
        ))
    }

    /// A phase has been measured.
    pub(crate) fn push(&mut self, phase: Phase) {
        self.phases.push(phase);
    }

    /// What a result that ends here says of itself, if it is not whole.
    pub(crate) fn incomplete(&self, why: &str) -> Option<String> {
        let (done, steps) = (self.next()?, self.steps);
        Some(format!("{INCOMPLETE}{done} of {steps} phases: {why}"))
    }

    /// Writes what there is. A file that cannot be written now is no reason to lose what is
    /// measured: at the end it is told.
    pub(crate) fn save(&self, result: &RunResult) {
        if let Some(file) = &self.file {
            if let Err(error) = result.save(file) {
                tracing::warn!("{:#}", anyhow::Error::from(error));
            }
            // To the disk now, and not in the next window.
            let _ = File::open(file).and_then(|file| file.sync_all());
        }
    }

    /// The run ends with this error: what is kept says so, and the error says what is kept.
    pub(crate) fn give_up(
        &self,
        error: anyhow::Error,
        result: impl FnOnce(&str) -> RunResult,
    ) -> anyhow::Error {
        let done = self.phases.len();
        let Some(file) = self.file.as_ref().filter(|_| done > 0) else {
            return error;
        };
        self.save(&result(&format!("{error:#}")));
        let (steps, file) = (self.steps, file.display());
        error.context(format!(
            "{done} of {steps} phases are in {file}, and --resume goes on with them"
        ))
    }
}

/// What a run on this machine keeps.
#[derive(Debug)]
pub(super) struct Kept {
    growing: Growing,
    environment: Environment,
    /// What a reader must know.
    pub(super) warnings: Vec<String>,
    /// How often the run was ended before.
    boot: u32,
}

impl Kept {
    pub(super) fn new(growing: Growing, environment: Environment, warnings: Vec<String>) -> Self {
        Self {
            growing,
            environment,
            warnings,
            boot: 0,
        }
    }

    /// What the file has is the beginning.
    ///
    /// # Errors
    /// [`Unusable`]: no such file, or what is in it is no beginning of this run.
    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        let Some(before) = self.growing.before()? else {
            return Ok(());
        };
        let (then, now) = (&before.environment, &self.environment);
        if (&then.cpu_model, then.cpus) != (&now.cpu_model, now.cpus) {
            return Err(self.growing.refuse_other("machine"));
        }
        if then.kernel != now.kernel {
            return Err(self.growing.refuse_other("kernel"));
        }
        if then.disk != now.disk {
            return Err(self.growing.refuse_other("disk"));
        }
        self.growing.adopt(before.scenario, before.phases)?;
        // What was so then is so now, but that it is not whole.
        let known = before.warnings.into_iter();
        let known = known.filter(|warning| !warning.starts_with(INCOMPLETE));
        let mut warnings: Vec<String> = known.collect();
        for warning in self.warnings.drain(..) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        self.warnings = warnings;
        let now = std::mem::replace(&mut self.environment, before.environment);
        self.environment.more_tools(&now.tools);
        let boots = self.growing.phases().iter().map(|phase| phase.boot);
        self.boot = boots.max().map_or(0, |last| last + 1);
        Ok(())
    }

    /// How many phases there are already.
    pub(super) fn done(&self) -> usize {
        self.growing.phases().len()
    }

    /// How long the run has taken so far, until the last window was over.
    pub(super) fn lasted(&self) -> Ns {
        let last = self.growing.phases().last();
        last.map_or(Ns::ZERO, |phase| phase.at + phase.window)
    }

    /// A phase has been measured. Those before and after an interruption are compared with
    /// nothing across it, as those of two boots of a lab: hours may lie between.
    pub(super) fn push(&mut self, phase: Phase) {
        self.growing.push(Phase {
            boot: self.boot,
            ..phase
        });
        self.growing.save(&self.result(Some(GOES_ON)));
    }

    /// The run ends with this error: what is kept says so, and the error says what is kept.
    pub(super) fn give_up(&self, error: anyhow::Error) -> anyhow::Error {
        self.growing.give_up(error, |why| self.result(Some(why)))
    }

    /// All of it; `why` it is not whole, if it is not.
    pub(super) fn result(&self, why: Option<&str>) -> RunResult {
        let mut warnings = self.warnings.clone();
        warnings.extend(why.and_then(|why| self.growing.incomplete(why)));
        RunResult {
            format: FORMAT,
            backend: self.growing.backend.to_owned(),
            scenario: self.growing.scenario.clone(),
            environment: self.environment.clone(),
            phases: self.growing.phases.clone(),
            warnings,
            lab: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
