// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run on real VMs has measured so far, kept whatever happens to the run, as under
//! the freezer ([`crate::run::keep`]); here the labs come with it.

use std::path::Path;

use experiment::lab::Lab;
use experiment::lab::LabPhase;
use experiment::result::Environment;
use experiment::result::FORMAT;
use experiment::result::Phase;
use experiment::result::RunResult;
use experiment::scenario::Scenario;
use units::Ns;

use super::fit;
use crate::run::environment::Inside;
use crate::run::keep::GOES_ON;
use crate::run::keep::Growing;

/// [`Lab::host`] of an emulated host, and of this machine.
pub(super) const NESTED: &str = "nested";
/// See [`NESTED`].
pub(super) const DIRECT: &str = "direct";

/// A result that grows.
#[derive(Debug)]
pub(super) struct Kept {
    growing: Growing,
    pub(super) environment: Environment,
    pub(super) lab: Lab,
}

impl Kept {
    /// Nothing yet; what comes goes to `file` too. The scenario has dilated times,
    /// `environment` is this machine's.
    pub(super) fn new(
        scenario: Scenario,
        environment: Environment,
        lab: Lab,
        file: Option<&Path>,
    ) -> Self {
        // On a real host nothing is slower, whatever the times are multiplied by.
        let slower = if lab.host == NESTED { lab.dilation } else { 1 };
        let environment = Environment {
            kernel: lab.guest_kernel.clone(),
            dilation: Some(f64::from(slower)),
            ..environment
        };
        Self {
            growing: Growing::new("kvm", scenario, file),
            environment,
            lab,
        }
    }

    /// What the file has is the beginning.
    ///
    /// # Errors
    /// [`Unusable`](crate::run::Unusable): no such file, or what is in it is no beginning of
    /// this run.
    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        let Some(before) = self.growing.before()? else {
            return Ok(());
        };
        let lab = before.lab.unwrap_or_default();
        if (&lab.host, lab.dilation) != (&self.lab.host, self.lab.dilation) {
            return Err(self.growing.refuse_other("host"));
        }
        if lab.guest_kernel != self.lab.guest_kernel {
            return Err(self.growing.refuse_other("guest kernel"));
        }
        let both = [lab.disk_latency, self.lab.disk_latency];
        if !both.contains(&Ns::ZERO) && both[0] != both[1] {
            return Err(self.growing.refuse_other("--disk-latency"));
        }
        self.growing.adopt(before.scenario, before.phases)?;
        // Results of before said 1.
        let now = std::mem::replace(&mut self.environment, before.environment);
        self.environment.dilation = now.dilation;
        self.environment.more_tools(&now.tools);
        self.lab = Lab {
            disk_latency: self.lab.disk_latency,
            ..lab
        };
        Ok(())
    }

    /// With dilated times.
    pub(super) fn scenario(&self) -> &Scenario {
        self.growing.scenario()
    }

    /// How many phases there will be.
    pub(super) fn steps(&self) -> usize {
        self.growing.steps()
    }

    /// The number of the next phase, which is how many there are; `None` when there are all.
    pub(super) fn next(&self) -> Option<usize> {
        self.growing.next()
    }

    /// A lab is up: what runs on its host and in the guest under test.
    pub(super) fn is_up(&mut self, host_kernel: String, guest: Inside, qemu: String) {
        self.lab.host_kernel = host_kernel;
        self.lab.guest_kernel.clone_from(&guest.kernel);
        self.lab.qemu = qemu;
        self.environment.kernel = guest.kernel;
        self.environment.preemption = guest.preemption;
        self.environment.disk = guest.disk;
        // The agent has looked before it made one.
        if fit::needs_files(self.scenario())
            && let Some(disk) = &mut self.environment.disk
        {
            disk.file_system = "ext4 for writers, none for readers".to_owned();
        }
    }

    /// A phase has been measured.
    pub(super) fn push(&mut self, mut phase: Phase, lab: LabPhase) {
        let full = self.full_speed();
        for vm in &mut phase.work {
            vm.compute = full.map_or(0.0, |full| vm.compute / full);
        }
        if phase.vms_per_pcpu > 1 {
            self.lab.phases.push(lab);
        }
        self.growing.push(Phase {
            boot: self.lab.boots,
            ..phase
        });
        self.growing.save(&self.result(Some(GOES_ON)));
    }

    /// What a compute thread counts per second on a CPU of its own: in the guest under test
    /// without sharing, where an I/O load takes a little of it.
    fn full_speed(&self) -> Option<f64> {
        let solo = |phase: &&Phase| phase.vms_per_pcpu == 1 && !phase.compute_per_s.is_empty();
        let phase = self.growing.phases().iter().rfind(solo)?;
        let all: f64 = phase.compute_per_s.iter().sum();
        let full = all / f64::from(self.scenario().topology.cpus);
        (full > 0.0).then_some(full)
    }

    /// The run ends with this error: what is kept says so, and the error says what is kept.
    pub(super) fn give_up(&self, error: anyhow::Error) -> anyhow::Error {
        self.growing.give_up(error, |why| self.result(Some(why)))
    }

    /// All of it; `why` it is not whole, if it is not.
    pub(super) fn result(&self, why: Option<&str>) -> RunResult {
        let mut warnings = Vec::new();
        let by = self.lab.dilation;
        if self.lab.host == NESTED {
            warnings.push(format!(
                "real VMs: all times are dilated by {by}; a nested host's numbers scatter by a quarter"
            ));
        } else if by > 1 {
            warnings.push(format!(
                "real VMs: all times of the scenario are {by} times as long"
            ));
        }
        warnings.extend(why.and_then(|why| self.growing.incomplete(why)));
        for phase in self.growing.phases() {
            let dead = phase.liveness.iter().filter(|one| !one.alive);
            warnings.extend(dead.map(|one| {
                format!(
                    "{}, {} VMs per pCPU, {}, round {}: no progress: {}",
                    phase.load,
                    phase.vms_per_pcpu,
                    phase.arm,
                    phase.round + 1,
                    one.who
                )
            }));
        }
        let holes: u64 = self.lab.phases.iter().map(|phase| phase.holes).sum();
        if holes > 0 {
            warnings.push(format!(
                "the host's trace has {holes} hole(s): events were lost, and turns, steal and the bound are less certain"
            ));
        }
        if !self.lab.restarted.is_empty() {
            warnings.push(format!(
                "{} guest(s) were lost while they booted, and started again",
                self.lab.restarted.len()
            ));
        }
        if !self.lab.lost.is_empty() {
            warnings.push(format!(
                "{} of {} labs were lost; their open phases were measured again",
                self.lab.lost.len(),
                self.lab.boots
            ));
        }
        RunResult {
            format: FORMAT,
            backend: "kvm".to_owned(),
            scenario: self.scenario().clone(),
            environment: self.environment.clone(),
            phases: self.growing.phases().to_vec(),
            warnings,
            lab: Some(self.lab.clone()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use experiment::result::Liveness;

    use super::*;
    use crate::run::Interrupted;
    use crate::run::Unusable;

    pub(in crate::kvm) use crate::run::keep::tests::phase;
    use crate::run::keep::tests::scenario;

    /// A run of three phases, the first without sharing.
    pub(in crate::kvm) fn kept(rounds: u32, window: u32, file: &Path) -> Kept {
        let lab = Lab {
            host: NESTED.to_owned(),
            dilation: 20,
            boots: 1,
            guest_kernel: "6.12-of-the-guests".to_owned(),
            disk_latency: Ns::from_us(150),
            ..Lab::default()
        };
        let environment = Environment {
            kernel: "of-this-machine".to_owned(),
            preemption: "this machine's".to_owned(),
            dilation: Some(1.0),
            ..Environment::default()
        };
        Kept::new(scenario(rounds, window), environment, lab, Some(file))
    }

    #[test]
    fn what_stood_still_and_a_trace_with_holes_are_warnings() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = kept(1, 100, &dir.path().join("r.json"));
        let one = |who: &str, alive| Liveness {
            who: who.to_owned(),
            alive,
            per_s: 0.0,
        };
        let measured = Phase {
            vms_per_pcpu: 2,
            liveness: vec![one("I/O load", true), one("guest 1", false)],
            ..phase("e", 0)
        };
        let lab = LabPhase {
            holes: 3,
            ..LabPhase::default()
        };
        kept.push(measured, lab);
        let warnings = kept.result(None).warnings.join("\n");
        assert!(
            warnings.contains("round 1: no progress: guest 1"),
            "{warnings}"
        );
        assert!(!warnings.contains("I/O load"), "{warnings}");
        assert!(warnings.contains("3 hole(s)"), "{warnings}");
    }

    #[test]
    fn an_interrupted_run_keeps_what_it_has_and_says_that_it_is_not_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.json");
        let mut kept = kept(1, 100, &file);
        let nothing = kept.give_up(Interrupted.into());
        assert!(!file.exists() && nothing.to_string().starts_with("interrupted"));
        assert_eq!((kept.next(), kept.steps()), (Some(0), 3));
        kept.push(phase("solo", 0), LabPhase::default());
        let on_disk = RunResult::load(&file).unwrap();
        assert!(on_disk.warnings[1].starts_with("incomplete: 1 of 3 phases: the run goes on"));
        kept.push(phase("e", 0), LabPhase::default());
        let error = kept.give_up(Interrupted.into());
        // Its exit code stays, and it says where everything is.
        assert!(error.is::<Interrupted>());
        assert!(
            format!("{error:#}").starts_with("2 of 3 phases are in "),
            "{error:#}"
        );
        let on_disk = RunResult::load(&file).unwrap();
        assert_eq!((on_disk.phases.len(), on_disk.phases[1].boot), (2, 1));
        assert_eq!(on_disk.lab.as_ref().unwrap().phases.len(), 1);
        assert!(on_disk.warnings[1].contains("2 of 3 phases: interrupted"));
        kept.push(phase("f", 0), LabPhase::default());
        assert_eq!(kept.next(), None);
        assert_eq!(kept.result(None).warnings.len(), 1);
        // A guest that was started again is in the file, too, and is warned of.
        kept.lab.restarted.push("guest 1 after 60 s".to_owned());
        let whole = kept.result(None);
        assert!(whole.warnings[1].starts_with("1 guest(s) were lost while they booted"));
        assert!(experiment::lab::text(&kept.lab).contains("started again: guest 1 after 60 s"));
    }

    #[test]
    fn a_result_that_is_not_whole_is_of_the_guests_kernel_and_says_how_slow_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.json");
        let mut kept = kept(1, 100, &file);
        kept.push(phase("solo", 0), LabPhase::default());
        let environment = RunResult::load(&file).unwrap().environment;
        assert_eq!(environment.kernel, "6.12-of-the-guests");
        assert_eq!(environment.dilation, Some(20.0));
        let guest = Inside {
            kernel: "6.12.1".to_owned(),
            preemption: "full".to_owned(),
            disk: Some(experiment::result::Disk {
                queues: 2,
                ..experiment::result::Disk::default()
            }),
        };
        kept.is_up("7.3.1".to_owned(), guest, "11".to_owned());
        kept.push(phase("e", 0), LabPhase::default());
        let result = RunResult::load(&file).unwrap();
        let environment = result.environment;
        assert_eq!(environment.kernel, "6.12.1");
        assert_eq!(environment.preemption, "full");
        assert_eq!(environment.disk.unwrap().queues, 2);
        let lab = result.lab.unwrap();
        assert_eq!(
            (lab.host_kernel.as_str(), lab.guest_kernel.as_str()),
            ("7.3.1", "6.12.1")
        );
        // On this machine itself nothing is slower, and no host is nested.
        let direct = Lab {
            host: DIRECT.to_owned(),
            dilation: 3,
            ..Lab::default()
        };
        let direct = Kept::new(
            kept.scenario().clone(),
            Environment::default(),
            direct,
            None,
        );
        let direct = direct.result(None);
        assert_eq!(direct.environment.dilation, Some(1.0));
        assert_eq!(
            direct.warnings,
            ["real VMs: all times of the scenario are 3 times as long"]
        );
    }

    #[test]
    fn another_run_goes_on_also_with_more_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.json");
        let mut first = kept(1, 100, &file);
        for (arm, round) in [("solo", 0), ("e", 0), ("f", 0)] {
            first.push(phase(arm, round), LabPhase::default());
        }
        let mut second = kept(2, 100, &file);
        second.resume().unwrap();
        assert_eq!((second.next(), second.lab.boots), (Some(3), 1));
        second.lab.boots += 1;
        second.push(phase("f", 1), LabPhase::default());
        let boots: Vec<u32> = second.result(None).phases.iter().map(|p| p.boot).collect();
        assert_eq!(boots, [1, 1, 1, 2]);
    }

    #[test]
    fn what_is_no_beginning_is_refused_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.json");
        let refused = |mut kept: Kept| {
            let error = kept.resume().unwrap_err();
            assert!(error.is::<Unusable>());
            let text = error.to_string();
            assert!(text.starts_with(&file.display().to_string()), "{text}");
            text
        };
        assert!(refused(kept(1, 100, &file)).contains("cannot read"));
        let mut first = kept(1, 100, &file);
        first.push(phase("solo", 0), LabPhase::default());
        assert!(refused(kept(1, 200, &file)).contains("another scenario"));
        let mut other = kept(1, 100, &file);
        other.lab.dilation = 1;
        assert!(refused(other).contains("another host"));
        let mut other = kept(1, 100, &file);
        other.lab.guest_kernel = "6.1".to_owned();
        assert!(refused(other).contains("another guest kernel"));
        let mut other = kept(1, 100, &file);
        other.lab.disk_latency = Ns::from_us(300);
        assert!(refused(other).contains("another --disk-latency"));
        // A result of before does not say which.
        let text = std::fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|l| l.contains("disk_latency")).unwrap();
        std::fs::write(&file, text.replacen(&format!("{line}\n"), "", 1)).unwrap();
        let mut older = kept(1, 100, &file);
        older.resume().unwrap();
        assert_eq!(older.lab.disk_latency, Ns::from_us(150));
        first.push(phase("f", 0), LabPhase::default());
        assert!(refused(kept(1, 100, &file)).contains("another order"));
        let mut whole = kept(1, 100, &file);
        for (arm, round) in [("solo", 0), ("e", 0), ("f", 0)] {
            whole.push(phase(arm, round), LabPhase::default());
        }
        assert!(refused(kept(1, 100, &file)).contains("everything"));
    }
}
