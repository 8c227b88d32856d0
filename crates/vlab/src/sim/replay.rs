// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a simulated host does with the VM under test, as slices and gaps that the freezer
//! can replay on a real machine.
//!
//! The host goes its way without the machine: it does not see when a real vCPU sleeps, is
//! woken or has I/O, only what the same load does in the simulator, without a daemon. Where
//! each vCPU has something to compute all the time, the real ones never sleep either.

use std::ops::Range;

use experiment::scenario::Arm;
use experiment::scenario::ArmKind;
use experiment::scenario::Scenario;
use freezer::plan::MAX_OFF;
use freezer::plan::MAX_ON;
use freezer::plan::MIN_OFF;
use freezer::plan::MIN_ON;
use freezer::plan::Pair;
use sim::ids::VmId;
use sim::machine::State;
use sim::record::VcpuSpell;
use units::Ns;
use units::Time;

use super::build;
use super::phase::seed_of;
use crate::run::Unusable;
use crate::run::schedule::Step;

/// Slices and gaps of each vCPU for so long, from when the window of this step and round
/// opens in the simulator. The arms of a round that differ only by what is in the guest have
/// the same.
///
/// # Errors
/// The scenario cannot be simulated, or the host keeps a vCPU away for longer than a CPU can
/// be frozen.
pub(crate) fn slices(
    scenario: &Scenario,
    step: &Step<'_>,
    length: Ns,
) -> anyhow::Result<Vec<Vec<Pair>>> {
    let alone = step.arm.map(|arm| Arm {
        kind: ArmKind::Vanilla,
        ..arm.clone()
    });
    let step = Step {
        arm: alone.as_ref(),
        ..*step
    };
    let seed = scenario.sim.as_ref().map_or(1, |sim| sim.seed);
    let mut sim = build::simulation(scenario, &step, seed_of(seed, step.round))?;
    let from = Time::ZERO + build::opens(scenario, &step);
    let span = from..from + length;
    sim.run_until(span.start);
    sim.open_window();
    sim.record(VmId(0), build::IO, span.end);
    sim.run_until(span.end);
    let recording = sim.recorded().unwrap_or_default();
    let lanes = recording.vcpus.iter().enumerate();
    lanes
        .map(|(vcpu, spells)| {
            pairs(spells, &span).map_err(|gap| {
                let policy = step.arm.map(Arm::host_policy).unwrap_or_default();
                Unusable(format!(
                    "arm {}: host policy {policy} keeps vCPU {vcpu} away for {gap} at once, and a CPU can be frozen for {MAX_OFF} at most; use --backend kvm, or leave the arm out with --arms",
                    step.name
                ))
                .into()
            })
        })
        .collect()
}

/// The slices and gaps of one vCPU. One that sleeps has not been taken away. What is too
/// short to be frozen, or to run in, is a part of its neighbour; the sum stays what it was.
///
/// # Errors
/// A gap that is too long.
fn pairs(spells: &[VcpuSpell], span: &Range<Time>) -> Result<Vec<Pair>, Ns> {
    let mut pairs: Vec<Pair> = Vec::new();
    let mut on = Ns::ZERO;
    let mut off = Ns::ZERO;
    for spell in spells {
        let (from, to) = (spell.from.max(span.start), spell.to.min(span.end));
        if from >= to {
            continue;
        }
        let length = to.since(from);
        if spell.state == State::Queued {
            off += length;
            continue;
        }
        if off >= MIN_OFF && on + off >= MIN_ON + MIN_OFF {
            pairs.push(pair(on, off)?);
            (on, off) = (Ns::ZERO, Ns::ZERO);
        }
        on += off + length;
        off = Ns::ZERO;
    }
    // The last one ends with the shortest gap if it has none.
    let off = off.max(MIN_OFF);
    if on + off >= MIN_ON + MIN_OFF {
        pairs.push(pair(on, off)?);
    }
    Ok(pairs)
}

/// A slice and the gap after it.
fn pair(on: Ns, off: Ns) -> Result<Pair, Ns> {
    let longer = MIN_ON - on.min(MIN_ON);
    let off = off - longer.min(off - MIN_OFF);
    if off > MAX_OFF {
        return Err(off);
    }
    Ok(Pair {
        on: on.max(MIN_ON).min(MAX_ON),
        off,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::schedule::steps;

    /// Spells one after the other from `from` on: how long, and is it queued?
    fn spells(from: Time, lengths: &[(Ns, bool)]) -> Vec<VcpuSpell> {
        let mut at = from;
        let spell = |&(length, queued): &(Ns, bool)| {
            let state = if queued { State::Queued } else { State::Halted };
            let from = at;
            at = at + length;
            let to = at;
            VcpuSpell { state, from, to }
        };
        lengths.iter().map(spell).collect()
    }

    fn pair_of(on: Ns, off: Ns) -> Pair {
        Pair { on, off }
    }

    #[test]
    fn what_is_too_short_is_a_part_of_its_neighbour() {
        let (ms, us) = (Ns::from_ms, Ns::from_us);
        let from = Time(7_000);
        let made = |lengths: &[(Ns, bool)]| {
            let length: Ns = lengths.iter().map(|(length, _)| *length).sum();
            pairs(&spells(from, lengths), &(from..from + length))
        };
        assert_eq!(
            made(&[(ms(11), false), (ms(10), true)]),
            Ok(vec![pair_of(ms(11), ms(10))])
        );
        // A gap of 50 us cannot be made; it is time in which the vCPU was on.
        assert_eq!(
            made(&[
                (ms(1), false),
                (us(50), true),
                (ms(2), false),
                (ms(3), true)
            ]),
            Ok(vec![pair_of(us(3050), ms(3))])
        );
        // It begins in a gap, and the shortest slice goes off it.
        assert_eq!(
            made(&[(ms(5), true), (ms(1), false), (ms(1), true)]),
            Ok(vec![pair_of(us(200), us(4800)), pair_of(ms(1), ms(1))])
        );
        // The last slice has the shortest gap.
        assert_eq!(
            made(&[(ms(1), false), (ms(1), true), (ms(2), false)]),
            Ok(vec![pair_of(ms(1), ms(1)), pair_of(ms(2), us(100))])
        );
        assert_eq!(made(&[(ms(1), false), (ms(401), true)]), Err(ms(401)));
    }

    proptest! {
        /// Nothing gets lost but the end, and every pair can be frozen.
        #[test]
        fn the_sum_stays(lengths in prop::collection::vec((1u64..5_000_000, any::<bool>()), 1..60)) {
            let lengths: Vec<(Ns, bool)> = lengths.iter().map(|(n, off)| (Ns(*n), *off)).collect();
            let sum: Ns = lengths.iter().map(|(length, _)| *length).sum();
            let span = Time(5)..Time(5) + sum;
            let pairs = pairs(&spells(span.start, &lengths), &span).unwrap_or_default();
            let made: Ns = pairs.iter().map(Pair::period).sum();
            let slack = MIN_ON + MIN_OFF;
            prop_assert!(made <= sum + slack && made + slack >= sum, "{made} of {sum}: {pairs:?}");
            prop_assert!(pairs.iter().all(|pair| pair.on >= MIN_ON && pair.off >= MIN_OFF));
        }
    }

    /// Two VMs on two pCPUs, each arm with another host.
    fn scenario(vms: u32) -> Scenario {
        let text = format!(
            r#"
            name = "s"
            title = "s"
            host_config = "[ische]\ngeneral_cores = 1\nseed = 1\n\n[[vm]]\nmatch = \"-name vlab0,\"\nclass = \"io\"\n"
            topology.cpus = 2
            sharing = {{ vms_per_pcpu = [{vms}], slice = "11 ms" }}
            measure = {{ rounds = 2, window = "300 ms" }}
            compute.threads_per_cpu = 1
            sim.others = "compute"
            load = [{{ name = "a", kind = "pulse" }}]
            arm = [
                {{ name = "fixed", kind = "vanilla", host_policy = "fixed" }},
                {{ name = "fixed-daemon", kind = "vmigrater", host_policy = "fixed" }},
                {{ name = "credit1", kind = "vanilla", host_policy = "credit1" }},
                {{ name = "ische", kind = "vanilla", host_policy = "ische" }},
            ]
            "#
        );
        Scenario::parse(&text, "s.toml").unwrap()
    }

    fn slices_of(scenario: &Scenario, arm: &str, round: u32) -> anyhow::Result<Vec<Vec<Pair>>> {
        let steps = steps(scenario);
        let mut steps = steps.iter();
        let step = steps.find(|step| step.name == arm && step.round == round);
        slices(scenario, step.unwrap(), Ns::from_ms(500))
    }

    fn median(lengths: impl Iterator<Item = Ns>) -> Ns {
        let mut lengths: Vec<Ns> = lengths.collect();
        lengths.sort_unstable();
        lengths[lengths.len() / 2]
    }

    #[test]
    fn each_policy_has_its_slices() {
        let scenario = scenario(2);
        for (arm, turn) in [("fixed", 11), ("credit1", 30), ("ische", 10)] {
            for lane in slices_of(&scenario, arm, 0).unwrap() {
                let sum: Ns = lane.iter().map(Pair::period).sum();
                assert!(
                    sum.0.abs_diff(500_000_000) < 300_000,
                    "{arm}: {sum}: {lane:?}"
                );
                for median in [
                    median(lane.iter().map(|pair| pair.on)),
                    median(lane.iter().map(|pair| pair.off)),
                ] {
                    // The last vCPU's phase sweeps by a tenth under `fixed`.
                    let range =
                        Ns::from_ms(turn).scaled(95, 100)..Ns::from_ms(turn).scaled(115, 100);
                    assert!(range.contains(&median), "{arm}: {median}: {lane:?}");
                }
            }
        }
    }

    /// iSche gives the VM with I/O the I/O core, which its two vCPUs share.
    #[test]
    fn vcpus_that_share_a_core_take_turns() {
        let lanes = slices_of(&scenario(2), "ische", 0).unwrap();
        let on: Vec<Ns> = lanes
            .iter()
            .map(|lane| lane.iter().map(|pair| pair.on).sum())
            .collect();
        let both = on[0] + on[1];
        assert!(
            both.0.abs_diff(500_000_000) < 10_000_000,
            "one of them at any time: {on:?}"
        );
    }

    #[test]
    fn arms_of_a_round_are_paired_and_rounds_differ() {
        let scenario = scenario(2);
        let of = |arm, round| slices_of(&scenario, arm, round).unwrap();
        assert_eq!(of("fixed", 1), of("fixed-daemon", 1));
        assert_ne!(of("fixed", 0), of("fixed", 1));
    }

    /// 15 others have 30 ms each: a gap of 450 ms, of which a second holds a whole one.
    #[test]
    fn longer_than_a_cpu_can_be_frozen_is_refused() {
        let scenario = scenario(16);
        let steps = steps(&scenario);
        let step = steps.iter().find(|step| step.name == "credit1");
        let error = slices(&scenario, step.unwrap(), Ns::from_secs(1)).unwrap_err();
        assert!(error.is::<Unusable>());
        let text = error.to_string();
        assert!(
            text.contains("arm credit1: host policy credit1 keeps vCPU")
                && text.contains("400 ms")
                && text.contains("--backend kvm"),
            "{text}"
        );
    }
}
