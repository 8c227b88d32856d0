// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer in a few lines, for who reads nothing else.

use crate::analysis::Analysis;
use crate::analysis::Pooled;
use crate::result::RunResult;
use crate::scenario::Arm;
use crate::scenario::ArmKind;
use crate::stats::Verdict;

use super::line;
use super::ratio;

/// What each daemon that acts has gained, all loads together.
pub(super) fn short(out: &mut String, result: &RunResult, analysis: &Analysis) {
    if analysis.vanilla.is_none() {
        return;
    }
    for arm in result.scenario.arms.iter().filter(|arm| acts(arm)) {
        let rows = analysis.pooled.iter().filter(|row| row.arm == arm.name);
        let lines: Vec<String> = rows.filter_map(of_row).collect();
        if !lines.is_empty() {
            let name = &arm.name;
            line(
                out,
                &format!("\nIn short: I/O requests with {name}, as a multiple of those without"),
            );
            for text in lines {
                line(out, &text);
            }
        }
    }
}

/// A dry run changes nothing, so it gains nothing either.
fn acts(arm: &Arm) -> bool {
    arm.kind.is_daemon() && !matches!(arm.kind, ArmKind::Vmigrater { dry_run: true, .. })
}

fn of_row(row: &Pooled) -> Option<String> {
    let gain = row.vs_vanilla?;
    let path = if row.follows_submitter {
        "completions on the CPU that asked"
    } else {
        "completions on one CPU"
    };
    let verdict = match gain.verdict() {
        Verdict::Better => "a gain",
        Verdict::Worse => "a LOSS",
        Verdict::Same => "no difference",
        Verdict::Unclear => "unclear",
        Verdict::TooFew => "too few rounds to be sure",
    };
    let compute = row.compute_at_equal_io.map_or(String::new(), |work| {
        format!("; compute keeps {:.0} %", work.centre * 100.0)
    });
    Some(format!(
        "  {} VMs per CPU, {path}: {} ({verdict}){compute}",
        row.vms_per_pcpu,
        ratio(&gain)
    ))
}
