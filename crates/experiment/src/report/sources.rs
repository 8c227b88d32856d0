// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemons saw of the host: to be held against what it delivered, one line above.

use super::line;
use crate::result::Daemon;
use crate::result::RunResult;
use crate::stats::summarise;

/// Appends a line for each arm whose daemon said so at this number of VMs.
pub(super) fn sources(out: &mut String, result: &RunResult, vms: u32) {
    for arm in &result.scenario.arms {
        let phases = result.phases.iter();
        let of_arm: Vec<&Daemon> = phases
            .filter(|phase| phase.vms_per_pcpu == vms && phase.arm == arm.name)
            .filter_map(|phase| phase.daemon.as_ref())
            .collect();
        let source = of_arm.iter().find_map(|daemon| daemon.source.as_ref());
        let shares: Vec<f64> = of_arm.iter().copied().filter_map(away).collect();
        let (Some(source), Some(share)) = (source, summarise(&shares)) else {
            continue;
        };
        line(
            out,
            &format!(
                "N={vms}: {} saw, by {source}, its vCPUs away for {:.3} [{:.3}..{:.3}] of the time",
                arm.name, share.median, share.min, share.max
            ),
        );
    }
}

/// Share of the vCPUs' time in which they were away, as a daemon saw it.
fn away(daemon: &Daemon) -> Option<f64> {
    let stolen: f64 = daemon.vcpus.iter().map(|v| v.stolen.as_secs_f64()).sum();
    let whole = daemon.interval.as_secs_f64() * daemon.vcpus.len() as f64;
    (whole > 0.0).then(|| stolen / whole)
}
