// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the freezer is to do in a phase.

use anyhow::Context;
use experiment::scenario::Arm;
use experiment::scenario::HostPolicy;
use experiment::scenario::Scenario;
use freezer::Plan;
use freezer::plan::Lane;
use freezer::plan::MAX_ON;
use freezer::plan::MIN_OFF;
use freezer::plan::Pattern;
use units::CpuSet;
use units::Ns;

use super::Unusable;
use super::schedule::Step;
use crate::sim::replay;

/// A warm-up has at least so many periods: what predicts slices must have seen
/// some, and with many VMs half a second has only a few.
const WARMUP_PERIODS: u64 = 10;

/// Under a host policy slices have lengths of its own, and this is the longest default (K3,
/// S4): a warm-up has as many periods of it.
const POLICY_SLICE: Ns = Ns::from_ms(30);

/// Simulated beyond warm-up and window, so that a program that is ready late sees no
/// slice twice.
const SPARE: Ns = Ns::from_secs(1);

/// What a reader of a result with host policies must know.
pub(super) const SIMULATED: &str = "slices and gaps under a host_policy are those that its simulator gives this VM, replayed: that host does not see what the guest does";

/// The plan of a step; the first gaps come later by `lead`.
pub(super) fn of(
    scenario: &Scenario,
    step: &Step<'_>,
    cpus: &CpuSet,
    lead: Ns,
) -> anyhow::Result<Plan> {
    let slice = scenario.sharing.slice;
    let vms = step.vms_per_pcpu;
    let plan = match vms {
        // Nothing is taken away, but the steal page is there to be watched: the
        // shortest gap after the longest slice.
        1 => Plan::fixed(MAX_ON, MIN_OFF, 0, cpus),
        _ if policy(step).is_some() => return under_policy(scenario, step, cpus, lead),
        _ => Plan::fixed(
            slice,
            slice * u64::from(vms - 1),
            scenario.sharing.sweep_permille,
            cpus,
        ),
    };
    let plan = plan
        .with_context(|| format!("{vms} VMs per pCPU with slices of {slice} cannot be frozen"))?;
    let lanes = plan.lanes().iter().map(|lane| Lane {
        first_on: if vms == 1 {
            MAX_ON
        } else {
            lane.first_on + lead
        },
        ..lane.clone()
    });
    Ok(Plan::new(lanes.collect())?)
}

/// What the simulated host of its arm gives this VM.
fn under_policy(
    scenario: &Scenario,
    step: &Step<'_>,
    cpus: &CpuSet,
    lead: Ns,
) -> anyhow::Result<Plan> {
    let length = warmup(scenario, step, 1) + scenario.measure.window + SPARE;
    let lanes = replay::slices(scenario, step, length)?;
    let lanes = cpus.iter().zip(lanes).map(|(cpu, pairs)| {
        let first = pairs.first().map_or(Ns::ZERO, |pair| pair.on);
        Lane {
            cpu,
            first_on: (first + lead).min(MAX_ON),
            pattern: Pattern::Recorded(pairs),
        }
    });
    Plan::new(lanes.collect())
        .map_err(|error| Unusable(format!("arm {}: {error}", step.name)).into())
}

/// Who schedules the VMs of the step's arm, if the scenario says so.
fn policy(step: &Step<'_>) -> Option<HostPolicy> {
    step.arm.and_then(|arm: &Arm| arm.host_policy)
}

/// How long a step warms up, of a scenario whose times have been multiplied by `dilation`
/// (those of host policies, which are not in it, have not).
pub(super) fn warmup(scenario: &Scenario, step: &Step<'_>, dilation: u32) -> Ns {
    let vms = step.vms_per_pcpu;
    let longest = POLICY_SLICE * u64::from(dilation);
    let own = policy(step).map_or(Ns::ZERO, |_| periods(longest, vms));
    scenario
        .measure
        .warmup
        .max(periods(scenario.sharing.slice, vms))
        .max(own)
}

/// The least that is needed where so many VMs have slices of this length.
fn periods(slice: Ns, vms: u32) -> Ns {
    if vms > 1 {
        slice * u64::from(vms) * WARMUP_PERIODS
    } else {
        Ns::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule;
    use super::*;

    /// On an emulated host, too: the times of its policies are not in the scenario.
    #[test]
    fn under_a_host_policy_the_warm_up_has_ten_turns_of_each_vm() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../scenarios/host-policies.toml"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let mut scenario = Scenario::parse(&text, "host-policies.toml").unwrap();
        for step in schedule::steps(&scenario) {
            let here = warmup(&scenario, &step, 1);
            let emulated = warmup(&scenario, &step, 20);
            if step.arm.is_some() {
                assert_eq!((here, emulated), (Ns::from_ms(600), Ns::from_secs(12)));
            } else {
                assert_eq!((here, emulated), (Ns::from_ms(100), Ns::from_ms(100)));
            }
        }
        // More is not cut.
        scenario.measure.warmup = Ns::from_secs(20);
        for step in schedule::steps(&scenario) {
            assert_eq!(warmup(&scenario, &step, 20), Ns::from_secs(20));
        }
    }
}
