// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in which phases are measured. Pure.
//!
//! Baselines first, between rounds and last, so that a machine that changes
//! under the run is noticed. In each round all arms of a round, a load and a number of VMs follow
//! each other directly: what is compared is close in time. A scenario can do with fewer
//! baselines.

use experiment::result::ALONE;
use experiment::result::COMPUTE_ONLY;
use experiment::result::Phase;
use experiment::result::SOLO;
use experiment::result::SOLO_FIFO;
use experiment::scenario::Arm;
use experiment::scenario::Baselines;
use experiment::scenario::HostPolicy;
use experiment::scenario::Load;
use experiment::scenario::LoadKind;
use experiment::scenario::Scenario;

/// One phase to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step<'a> {
    /// The I/O load; `None` for compute only.
    pub(crate) load: Option<&'a Load>,
    /// What is done; `None` for a baseline, where nothing is frozen either.
    pub(crate) arm: Option<&'a Arm>,
    /// Its name in the result.
    pub(crate) name: &'a str,
    /// VMs per pCPU.
    pub(crate) vms_per_pcpu: u32,
    /// Round; for a baseline the number of rounds before it.
    pub(crate) round: u32,
    /// Are the I/O threads of a baseline `SCHED_FIFO`?
    pub(crate) fifo: bool,
    /// Compute beside it?
    pub(crate) compute: bool,
}

impl Step<'_> {
    /// Is this phase the one that the step measures?
    pub(crate) fn is_of(&self, phase: &Phase) -> bool {
        let load = self.load.map_or("", |load| &load.name);
        (load, self.name, self.vms_per_pcpu, self.round)
            == (&phase.load, &phase.arm, phase.vms_per_pcpu, phase.round)
    }
}

/// All phases of a scenario, in order.
pub(crate) fn steps(scenario: &Scenario) -> Vec<Step<'_>> {
    let compute = scenario.compute.threads_per_cpu > 0;
    // A baseline is of the first VM; under sharing others may compute beside one that does not.
    let anyone = compute || scenario.vms.iter().any(|vm| vm.threads_per_vcpu > 0);
    let baseline = |name: &'static str, load, round| Step {
        load,
        arm: None,
        name,
        vms_per_pcpu: 1,
        round,
        fifo: name == SOLO_FIFO,
        compute: compute && name != ALONE,
    };
    let loads = || {
        scenario
            .loads
            .iter()
            .filter(|load| load.kind != LoadKind::Idle)
    };
    let baselines = scenario.measure.baselines;
    let all = baselines == Baselines::All;
    let mut steps = Vec::new();
    if compute && all {
        steps.push(baseline(COMPUTE_ONLY, None, 0));
        steps.extend(loads().map(|load| baseline(ALONE, Some(load), 0)));
        steps.extend(loads().map(|load| baseline(SOLO_FIFO, Some(load), 0)));
    }
    if baselines != Baselines::None {
        steps.extend(loads().map(|load| baseline(SOLO, Some(load), 0)));
    }
    for round in 0..scenario.measure.rounds {
        for load in &scenario.loads {
            for &vms_per_pcpu in &scenario.sharing.vms_per_pcpu {
                steps.extend(scenario.order_of_round(round).into_iter().map(|arm| Step {
                    load: Some(load),
                    arm: Some(arm),
                    name: &arm.name,
                    vms_per_pcpu,
                    round,
                    fifo: false,
                    compute: anyone,
                }));
            }
        }
        if all {
            steps.extend(loads().map(|load| baseline(SOLO, Some(load), round + 1)));
        }
    }
    if compute && all {
        steps.push(baseline(COMPUTE_ONLY, None, scenario.measure.rounds));
    }
    steps
}

/// What schedules the VMs of a real host in a step; a baseline has the first arm's.
pub(crate) fn host_policy(scenario: &Scenario, step: &Step<'_>) -> HostPolicy {
    let arm = step.arm.or(scenario.arms.first());
    arm.map(Arm::host_policy).unwrap_or_default()
}

/// Does any step start the daemon?
pub(crate) fn needs_daemon(scenario: &Scenario) -> bool {
    scenario.arms.iter().any(|arm| arm.kind.is_daemon())
}

/// Does any load use a disk?
pub(crate) fn needs_disk(scenario: &Scenario) -> bool {
    scenario.all_loads().any(|load| on_disk(&load.kind))
}

/// Does this load use a disk?
pub(crate) const fn on_disk(kind: &LoadKind) -> bool {
    matches!(kind, LoadKind::Disk { .. } | LoadKind::Fsync { .. })
}

/// Does any load need fio?
pub(crate) fn needs_fio(scenario: &Scenario) -> bool {
    scenario
        .all_loads()
        .any(|load| matches!(load.kind, LoadKind::Disk { .. }))
}

#[cfg(test)]
mod tests {
    use units::Ns;

    use super::super::plan;
    use super::*;

    fn scenario(compute: u32) -> Scenario {
        let text = format!(
            r#"
            name = "s"
            title = "s"
            topology = {{ cpus = 2 }}
            sharing = {{ vms_per_pcpu = [2, 4], slice = "11 ms" }}
            measure = {{ rounds = 2 }}
            compute = {{ threads_per_cpu = {compute} }}
            load = [{{ name = "a", kind = "pulse" }}, {{ name = "none", kind = "idle" }}]
            arm = [{{ name = "vanilla" }}, {{ name = "fifo", rounds = 1 }}]
            "#
        );
        Scenario::parse(&text, "s.toml").unwrap()
    }

    #[test]
    fn baselines_frame_the_rounds() {
        let scenario = scenario(1);
        let names: Vec<&str> = steps(&scenario).iter().map(|step| step.name).collect();
        assert_eq!(names[..4], ["compute-only", "alone", "solo-fifo", "solo"]);
        assert_eq!(names[names.len() - 2..], ["solo", "compute-only"]);
        // 2 loads, 2 numbers of VMs, vanilla twice and fifo once.
        assert_eq!(names.len(), 7 + 2 * 2 * 3);
    }

    #[test]
    fn others_may_compute_beside_a_vm_that_does_not() {
        let text = r#"
            name = "s"
            title = "s"
            topology = { cpus = 2 }
            sharing = { slice = "11 ms" }
            load = [{ name = "a", kind = "pulse" }]
            arm = [{ name = "vanilla" }]
            vm = [
                { name = "io", placement = "one-to-one", threads_per_vcpu = 0 },
                { name = "cpu", placement = "one-to-one", threads_per_vcpu = 1, loads = [] },
            ]
        "#;
        let scenario = Scenario::parse_real_points(text, "s.toml")
            .unwrap()
            .remove(0);
        let steps = steps(&scenario);
        assert!(steps.iter().all(|step| step.compute == step.arm.is_some()));
    }

    /// What a phase takes beside its warm-up and its window: loads, freezer and daemon
    /// start and end. Means of docs/results/demo-2026-11-24.json.
    fn overhead(step: &Step<'_>) -> Ns {
        Ns::from_ms(match step.arm {
            None => 370,
            Some(arm) if arm.kind.is_daemon() => 900,
            Some(_) => 440,
        })
    }

    #[test]
    fn the_demo_fits_into_four_minutes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/demo.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let scenario = Scenario::parse(&text, "demo.toml").unwrap();
        let steps = steps(&scenario);
        let length: Ns = steps
            .iter()
            .map(|step| {
                let warmup = plan::warmup(&scenario, step, 1);
                warmup + scenario.measure.window + overhead(step)
            })
            .sum();
        println!("{} phases, {length}", steps.len());
        assert!(length <= Ns::from_secs(240), "{length}");
        // And says something: each load with each number of VMs, twice.
        assert!(steps.len() >= 100, "{}", steps.len());
        for baseline in ["compute-only", "alone", "solo-fifo", "solo"] {
            assert!(steps.iter().any(|step| step.name == baseline), "{baseline}");
        }
    }

    #[test]
    fn expensive_baselines_can_be_left_out() {
        let mut scenario = scenario(1);
        let names = |scenario: &Scenario| -> Vec<String> {
            let steps = steps(scenario);
            steps.iter().map(|step| step.name.to_owned()).collect()
        };
        scenario.measure.baselines = Baselines::Solo;
        let solo = names(&scenario);
        assert_eq!(solo.iter().filter(|name| *name == "solo").count(), 1);
        assert_eq!((solo[0].as_str(), solo.len()), ("solo", 1 + 2 * 2 * 3));
        // More rounds only add to that: what has been measured stays a beginning.
        scenario.measure.rounds = 3;
        assert!(names(&scenario).starts_with(&solo));
        scenario.measure.baselines = Baselines::None;
        assert_eq!(names(&scenario)[0], "vanilla");
    }

    #[test]
    fn without_compute_there_is_one_kind_of_baseline() {
        let scenario = scenario(0);
        let steps = steps(&scenario);
        assert_eq!(steps[0].name, "solo");
        assert!(
            steps
                .iter()
                .all(|step| !step.compute && step.name != "alone")
        );
    }
}
