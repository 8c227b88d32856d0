// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a run on real VMs beyond what every backend measures: where
//! the VMs ran, whether the host delivered the slices it was asked for, and
//! whether the guest saw of that what really happened.

use std::fmt::Write;

use serde::Deserialize;
use serde::Serialize;
use units::Ns;

/// The lab of a run on real VMs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// `direct`: on this machine's KVM; `nested`: on a KVM host that QEMU emulates.
    pub host: String,
    /// Why not directly, if nested.
    pub why: String,
    /// All times of the scenario were multiplied by this.
    pub dilation: u32,
    /// Device time of a request of the guests' disk, before dilation; zero where a result
    /// does not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_latency: Ns,
    /// Policies of the host scheduler in the order in which the arms name them, separated by
    /// commas; `fixed` where a result does not say.
    #[serde(default = "fixed")]
    pub policy: String,
    /// Kernel of the host.
    pub host_kernel: String,
    /// Kernel of the guests.
    pub guest_kernel: String,
    /// Version of QEMU.
    pub qemu: String,
    /// How often the lab was booted.
    pub boots: u32,
    /// Labs that were lost, with the reason. Their phases were measured again.
    pub lost: Vec<String>,
    /// Guests that were lost while they booted and were started again, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarted: Vec<String>,
    /// One per phase with sharing, in order.
    pub phases: Vec<LabPhase>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_zero(time: &Ns) -> bool {
    *time == Ns::ZERO
}

fn fixed() -> String {
    "fixed".to_owned()
}

/// The host's view of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabPhase {
    /// As in the phase; empty in results from before there were several.
    #[serde(default)]
    pub load: String,
    /// As in the phase.
    pub arm: String,
    /// As in the phase.
    pub vms_per_pcpu: u32,
    /// As in the phase.
    pub round: u32,
    /// Per pCPU, the lowest number first.
    pub turns: Vec<Turns>,
    /// Per vCPU of the guest under test.
    pub steal: Vec<Steal>,
    /// CPU time that each VM had in the window, the one under test first; empty: unknown.
    /// What is missing to the window times the pCPUs went to the host's own threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<Ns>,
    /// Messages of clients behind a network, sent in the window, that had no answer 5 s after
    /// the window.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unanswered: u64,
    /// How often in the window the host's trace contradicts itself, because events were lost.
    #[serde(default, skip_serializing_if = "is_none")]
    pub holes: u64,
    /// Guests that answered at the end of the phase.
    pub alive: u32,
    /// The guest's clock is known to so much.
    pub clock_error: Ns,
    /// Where several VMs measure: how much later than the first window the last one opened, while
    /// all of them went on with what they run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart: Ns,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_none(n: &u64) -> bool {
    *n == 0
}

/// Turns of vCPUs on one pCPU: from when one gets it until another one does.
/// Only turns that lie in the window as a whole count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// What was asked; zero under a policy that decides by itself.
    pub asked: Ns,
    /// How many turns there were.
    pub count: u64,
    /// Of them, those that the vCPU gave up by sleeping.
    pub given_up: u64,
    /// 5 of 100 turns were shorter.
    pub p05: Ns,
    /// Half were shorter.
    pub p50: Ns,
    /// 95 of 100.
    pub p95: Ns,
}

/// Time for which a vCPU could run and did not, from both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steal {
    /// From the host's trace.
    pub host: Ns,
    /// From the steal time that the guest's kernel shows.
    pub guest: Ns,
}

/// The part of a report that only real VMs have.
#[must_use]
pub fn text(lab: &Lab) -> String {
    let mut text = String::new();
    let ms = |ns: Ns| ns.0 as f64 / 1e6;
    let nested = if lab.host == "nested" {
        format!(
            " inside an emulated host ({}); all times are dilated by {}",
            lab.why, lab.dilation
        )
    } else {
        " of this machine".to_owned()
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nReal VMs: KVM{nested}\n  host kernel {}, policy {}, guest kernel {}, QEMU {}; {} boot(s), {} lost",
        lab.host_kernel,
        lab.policy,
        lab.guest_kernel,
        lab.qemu,
        lab.boots,
        lab.lost.len()
    );
    for lost in &lab.lost {
        let _ = writeln!(text, "  lost: {lost}");
    }
    for restarted in &lab.restarted {
        let _ = writeln!(text, "  started again: {restarted}");
    }
    let _ = writeln!(
        text,
        "  slices in ms (asked: 5 % / median / 95 %, turns, given up early) and steal (host's trace / guest) in ms per vCPU, CPU time per VM in ms:"
    );
    for phase in &lab.phases {
        let turns: Vec<String> = phase
            .turns
            .iter()
            .map(|turns| {
                format!(
                    "{:.0}: {:.0}/{:.0}/{:.0} n={} early={}",
                    ms(turns.asked),
                    ms(turns.p05),
                    ms(turns.p50),
                    ms(turns.p95),
                    turns.count,
                    turns.given_up
                )
            })
            .collect();
        let ran = phase.ran.iter().map(|ran| format!("{:.0}", ms(*ran)));
        let ran: Vec<String> = ran.collect();
        let steal: Vec<String> = phase
            .steal
            .iter()
            .map(|steal| format!("{:.0}/{:.0}", ms(steal.host), ms(steal.guest)))
            .collect();
        let _ = writeln!(
            text,
            "  {:<12} N={} round {}: {}; steal {}; ran {}; {} guests alive",
            phase.arm,
            phase.vms_per_pcpu,
            phase.round + 1,
            turns.join(", "),
            steal.join(" "),
            ran.join(" "),
            phase.alive
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_was_asked_and_what_was_delivered() {
        let lab = Lab {
            host: "nested".to_owned(),
            why: "no /dev/kvm".to_owned(),
            dilation: 20,
            policy: "credit2".to_owned(),
            boots: 2,
            lost: vec!["guest 1 does not answer".to_owned()],
            phases: vec![LabPhase {
                arm: "vanilla".to_owned(),
                vms_per_pcpu: 2,
                turns: vec![Turns {
                    asked: Ns::from_ms(220),
                    count: 12,
                    given_up: 1,
                    p05: Ns::from_ms(218),
                    p50: Ns::from_ms(222),
                    p95: Ns::from_ms(224),
                }],
                steal: vec![Steal {
                    host: Ns::from_ms(3000),
                    guest: Ns::from_ms(2990),
                }],
                alive: 2,
                ran: vec![Ns::from_ms(2500), Ns::from_ms(2600)],
                ..LabPhase::default()
            }],
            ..Lab::default()
        };
        let text = text(&lab);
        for part in [
            "no /dev/kvm",
            "dilated by 20",
            "policy credit2",
            "220: 218/222/224 n=12 early=1",
            "3000/2990",
            "ran 2500 2600;",
            "lost: guest 1 does not answer",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
