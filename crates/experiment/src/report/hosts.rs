// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host policies of a run on real VMs against each other.
//!
//! What the guests' daemon gains is a matter of the other tables, each policy with its
//! own baseline. Here the arms that do nothing in the guest are compared, which differ
//! by the host's scheduler alone.

use comfy_table::CellAlignment;

use super::line;
use super::new_table;
use super::ratio;
use super::spread;
use crate::analysis::ops;
use crate::analysis::pairs;
use crate::analysis::phases_of;
use crate::analysis::reference_of;
use crate::result::Phase;
use crate::result::RunResult;
use crate::scenario::Arm;
use crate::scenario::HostPolicy;
use crate::stats::paired_ratio;
use crate::stats::summarise;

/// What the others are compared with: the kernel's own, and what the papers compare
/// theirs with.
const REFERENCES: [HostPolicy; 3] = [HostPolicy::Eevdf, HostPolicy::Fixed, HostPolicy::Credit2];

/// What its columns mean.
const LEGEND: &str = "\
to ...        requests/s without anything in the guest, paired within rounds of one boot;
              an arm above is compared with the one that does nothing under its host
p50, p99      latency of the requests in ms, median [min..max] of the rounds
CPU           of the pCPUs' time: the VM under test, each of the others";

/// Appends it, if the scenario names more than one policy.
pub(super) fn hosts(out: &mut String, result: &RunResult, load: &str) {
    let arms: Vec<&Arm> = baselines(result);
    if arms.len() < 2 {
        return;
    }
    let references: Vec<&Arm> = REFERENCES
        .iter()
        .filter_map(|policy| arms.iter().find(|arm| arm.host_policy() == *policy))
        .copied()
        .collect();
    let mut table = new_table();
    let mut header = vec!["N".to_owned(), "host".to_owned(), "requests/s".to_owned()];
    header.extend(
        references
            .iter()
            .map(|arm| format!("to {}", arm.host_policy())),
    );
    header.extend(["p50", "p99", "CPU"].map(str::to_owned));
    table.set_header(header);
    for &vms in &result.scenario.sharing.vms_per_pcpu {
        for arm in &arms {
            let of = |arm: &Arm| phases_of(result, load, vms, &arm.name);
            let mine = of(arm);
            if mine.is_empty() {
                continue;
            }
            let shown = |value: &dyn Fn(&Phase) -> Option<f64>| {
                let values: Vec<f64> = mine.iter().filter_map(|phase| value(phase)).collect();
                summarise(&values).map_or("-".to_owned(), |summary| spread(&summary))
            };
            let mut cells = vec![vms.to_string(), arm.host_policy().to_string(), shown(&ops)];
            cells.extend(references.iter().map(|reference| {
                let pairs = pairs(&mine, &of(reference), ops);
                let is_itself = reference.name == arm.name;
                let found = paired_ratio(&pairs).filter(|_| !is_itself);
                found.map_or("-".to_owned(), |found| ratio(&found))
            }));
            let ms = |ns: units::Ns| ns.0 as f64 / 1e6;
            cells.push(shown(&|phase| Some(ms(phase.io.as_ref()?.latency.p50))));
            cells.push(shown(&|phase| Some(ms(phase.io.as_ref()?.latency.p99))));
            cells.push(cpu(result, &mine));
            table.add_row(cells);
        }
    }
    for column in table.column_iter_mut().filter(|column| column.index != 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(out, &format!("{load}, by the host's scheduler:"));
    line(out, &table.trim_fmt());
    line(out, LEGEND);
}

/// The arm of each policy that the others are compared with; none if no arm names one.
fn baselines(result: &RunResult) -> Vec<&Arm> {
    let scenario = &result.scenario;
    let arms = scenario.arms.iter();
    arms.filter(|_| scenario.names_host_policies())
        .filter(|arm| reference_of(scenario, &arm.name) == Some(arm.name.as_str()))
        .collect()
}

/// Medians of the VMs' parts of the pCPUs' time.
fn cpu(result: &RunResult, phases: &[&Phase]) -> String {
    let cpus = f64::from(result.scenario.topology.cpus);
    let of_phase = |phase: &&Phase| {
        let lab = result.lab.as_ref()?.phases.iter().find(|lab| {
            (&lab.load, &lab.arm, lab.vms_per_pcpu, lab.round)
                == (&phase.load, &phase.arm, phase.vms_per_pcpu, phase.round)
        })?;
        let whole = phase.window.as_secs_f64() * cpus;
        let ran = lab.ran.iter().map(|ran| ran.as_secs_f64() / whole);
        Some(ran.collect::<Vec<f64>>())
    };
    let shares: Vec<Vec<f64>> = phases.iter().filter_map(of_phase).collect();
    let vms = shares.iter().map(Vec::len).max().unwrap_or(0);
    let of_vm = |vm: usize| {
        let values: Vec<f64> = shares.iter().filter_map(|s| s.get(vm).copied()).collect();
        summarise(&values).map_or("-".to_owned(), |s| format!("{:.2}", s.median))
    };
    let parts: Vec<String> = (0..vms).map(of_vm).collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(" ")
    }
}
