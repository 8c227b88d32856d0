// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ordinary threads of the host pay: rounds in which each arm has its turn, in one
//! boot. Under emulation only ratios within a round mean anything.

use std::path::Path;
use std::time::Duration;

use experiment::stats::Ratio;
use experiment::stats::paired_ratio;
use experiment::stats::summarise;
use serde::Deserialize;
use vlab::vm::Output;

use super::Machine;
use super::boot_with;
use super::said;

const PERF: &str = "/usr/bin/perf";

/// How many rounds; three allow an interval, six take some eight minutes.
const ROUNDS: &str = "SCX_COST_ROUNDS";

/// The kernel's own scheduler, and what is compared with it.
const BASELINE: &str = "none";
const POLICIES: [&str; 2] = ["fixed", "credit2"];

/// What non-vCPU work may pay: the goal.
const GOAL: f64 = 1.05;

/// All in units of which less is better.
const BENCHES: [(&str, &str); 4] = [
    ("messaging", "s"),
    ("pipe", "s"),
    ("wake-p50", "us"),
    ("wake-p99", "us"),
];

/// As `vlab load wake` says it.
#[derive(Deserialize)]
struct Wake {
    p50_ns: u64,
    p99_ns: u64,
}

/// One figure of one arm in one round.
fn figure(output: &Output, arm: &str, bench: &str) -> f64 {
    let (name, quantile) = bench.split_once('-').unwrap_or((bench, ""));
    let key = format!("{arm}-{name}");
    let said = said(output, &key).trim();
    if name == "wake" {
        let wake: Wake = serde_json::from_str(said).unwrap_or_else(|_| panic!("{key}: {said}"));
        let ns = if quantile == "p50" {
            wake.p50_ns
        } else {
            wake.p99_ns
        };
        return ns as f64 / 1e3;
    }
    said.parse().unwrap_or_else(|_| panic!("{key}: {said}"))
}

/// What a round may take, and what comes before the first: six rounds took 376 s in all.
const ROUND: Duration = Duration::from_secs(80);
const BEGIN: Duration = Duration::from_secs(120);

/// What the rounds allow to say about the goal.
fn verdict(ratio: &Ratio) -> &'static str {
    match ratio.interval {
        Some((_, high)) if high < GOAL => "met",
        Some((low, _)) if low > GOAL => "missed",
        Some(_) => "open",
        None => "too few rounds",
    }
}

#[test]
#[ignore = "takes minutes and a quiet machine with perf; part of the long proofs, see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_costs_ordinary_threads_little() {
    assert!(Path::new(PERF).exists(), "no {PERF}; install linux-perf");
    let rounds = std::env::var(ROUNDS).unwrap_or_else(|_| "6".to_owned());
    let rounds: u32 = rounds
        .parse()
        .unwrap_or_else(|_| panic!("{ROUNDS}={rounds}: a number of rounds, for instance 6"));
    let arms = [BASELINE, POLICIES[0], POLICIES[1]].join(" ");
    let script = include_str!("cost.sh");
    let output = boot_with(
        &format!("rounds={rounds}\narms='{arms}'\n{script}"),
        Machine {
            programs: &[Path::new(PERF)],
            deadline: Some(BEGIN + ROUND * rounds),
            ..Machine::default()
        },
    );
    eprintln!("VMs bench      policy   median [all rounds]; of the kernel's own [95 %]: goal");
    let mut medians = Vec::new();
    for vms in [0, 2] {
        for (bench, unit) in BENCHES {
            let all = |arm: &str| -> Vec<f64> {
                let of = |round| figure(&output, &format!("{vms}-{arm}-{round}"), bench);
                (1..=rounds).map(of).collect()
            };
            let baseline = all(BASELINE);
            for arm in std::iter::once(BASELINE).chain(POLICIES) {
                let values = all(arm);
                let summary = summarise(&values).unwrap();
                eprint!(
                    "{vms:<3} {bench:<10} {arm:<8} {:.3} {unit} [{:.3}..{:.3}]",
                    summary.median, summary.min, summary.max
                );
                if arm != BASELINE {
                    let pairs: Vec<(f64, f64)> = values
                        .iter()
                        .copied()
                        .zip(baseline.iter().copied())
                        .collect();
                    let ratio = paired_ratio(&pairs).unwrap();
                    eprint!("; {:.3} ", ratio.centre);
                    if let Some((low, high)) = ratio.interval {
                        eprint!("[{low:.3}..{high:.3}]");
                    }
                    eprint!(": {}", verdict(&ratio));
                }
                eprintln!();
                medians.push((vms, arm, bench, summary.median));
            }
        }
    }
    let of = |vms, arm, bench| {
        let found = medians
            .iter()
            .find(|m| (m.0, m.1, m.2) == (vms, arm, bench));
        found.unwrap().3
    };
    for bench in ["messaging", "pipe"] {
        // Beside vCPUs they come first: the kernel's own scheduler gives them their share.
        assert!(
            of(2, "credit2", bench) < of(2, BASELINE, bench) * 1.2,
            "{bench}"
        );
        assert!(
            of(0, "credit2", bench) < of(0, BASELINE, bench) * 1.5,
            "{bench}"
        );
    }
}
