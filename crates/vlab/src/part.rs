// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A part of a scenario, or of what was measured of it, as the command line names it.

use clap::Args;
use experiment::result::RunResult;
use experiment::scenario::Scenario;

/// What is named; everything where nothing is.
#[derive(Args, Clone, Debug, Default)]
pub struct Part {
    /// Only these arms, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Only these loads, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub loads: Vec<String>,
    /// Only these numbers of VMs per pCPU, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub vms: Vec<u32>,
}

/// What a scenario does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scenario has no {what}; it has {have}")]
pub struct Missing {
    what: String,
    have: String,
}

impl Part {
    /// Leaves this part of a scenario.
    ///
    /// # Errors
    /// A name or number that the scenario does not have.
    pub fn of_scenario(&self, scenario: &mut Scenario) -> Result<(), Missing> {
        self.check(scenario)?;
        scenario.arms.retain(|arm| is_wanted(&self.arms, &arm.name));
        scenario
            .loads
            .retain(|load| is_wanted(&self.loads, &load.name));
        let vms = &mut scenario.sharing.vms_per_pcpu;
        vms.retain(|n| is_wanted(&self.vms, n));
        Ok(())
    }

    /// Leaves this part of what was measured.
    ///
    /// # Errors
    /// A name or number that its scenario does not have.
    pub fn of_result(&self, result: &mut RunResult) -> Result<(), Missing> {
        self.check(&result.scenario)?;
        result.phases.retain(|phase| {
            is_wanted(&self.arms, &phase.arm)
                && is_wanted(&self.loads, &phase.load)
                && is_wanted(&self.vms, &phase.vms_per_pcpu)
        });
        Ok(())
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Missing> {
        let arms: Vec<_> = scenario.arms.iter().map(|arm| arm.name.clone()).collect();
        let loads: Vec<_> = scenario.loads.iter().map(|load| &load.name).collect();
        let vms = &scenario.sharing.vms_per_pcpu;
        let missing = |what, have| Err(Missing { what, have });
        if let Some(name) = self.arms.iter().find(|name| !arms.contains(name)) {
            return missing(format!("arm `{name}`"), arms.join(", "));
        }
        if let Some(name) = self.loads.iter().find(|name| !loads.contains(name)) {
            let have: Vec<_> = loads.iter().map(|name| name.as_str()).collect();
            return missing(format!("load `{name}`"), have.join(", "));
        }
        if let Some(n) = self.vms.iter().find(|n| !vms.contains(n)) {
            return missing(format!("phase with {n} VMs per pCPU"), format!("{vms:?}"));
        }
        Ok(())
    }
}

fn is_wanted<T: PartialEq>(wanted: &[T], it: &T) -> bool {
    wanted.is_empty() || wanted.contains(it)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn scenario() -> Scenario {
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 2 }
            sharing = { vms_per_pcpu = [2, 4], slice = "11 ms" }
            measure = { rounds = 1, window = "2 s" }
            load = [{ name = "a", kind = "pulse" }, { name = "b", kind = "idle" }]
            arm = [{ name = "vanilla" }, { name = "fifo" }]
        "#;
        Scenario::parse(text, "s.toml").unwrap()
    }

    fn part(arms: &[&str], loads: &[&str], vms: &[u32]) -> Part {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Part {
            arms: owned(arms),
            loads: owned(loads),
            vms: vms.to_vec(),
        }
    }

    #[test]
    fn a_part_of_a_scenario_can_be_asked_for() {
        let mut left = scenario();
        part(&["fifo"], &["b"], &[4])
            .of_scenario(&mut left)
            .unwrap();
        assert_eq!(left.arms.len(), 1);
        assert_eq!(left.loads[0].name, "b");
        assert_eq!(left.sharing.vms_per_pcpu, [4]);
        let mut all = scenario();
        Part::default().of_scenario(&mut all).unwrap();
        assert_eq!(all, scenario());
    }

    #[test]
    fn a_part_of_a_result_is_a_part_of_its_phases() {
        let text = include_str!("../../../docs/results/no-harm-fsync.json");
        let whole = RunResult::parse(text, Path::new("r.json")).unwrap();
        let arm = whole.scenario.arms[0].name.clone();
        let mut left = whole.clone();
        part(&[&arm], &[], &[]).of_result(&mut left).unwrap();
        let want = whole.phases.iter().filter(|phase| phase.arm == arm);
        assert_eq!(left.phases.len(), want.count());
        assert!(left.phases.len() < whole.phases.len());
    }

    #[test]
    fn what_the_scenario_has_not_is_named_with_what_it_has() {
        for (part, names) in [
            (part(&["magic"], &[], &[]), ["magic", "vanilla, fifo"]),
            (part(&[], &["tape"], &[]), ["tape", "a, b"]),
            (part(&[], &[], &[3]), ["3 VMs", "[2, 4]"]),
        ] {
            let error = part.of_scenario(&mut scenario()).unwrap_err().to_string();
            assert!(names.iter().all(|name| error.contains(name)), "{error}");
        }
    }
}
