// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' mixes of VMs on real vCPUs whose guests boot in no time: who does I/O, how
//! soon it is answered, and what the others compute meanwhile, under every policy and the
//! kernel's own scheduler in one boot.
//!
//! The mixes are iSche's (four VMs compute, one does I/O as well) and ISACS's (hybrid: VMs
//! with I/O beside VMs that compute; mixed: all VMs do both), with two vCPUs for each VM on
//! two pCPUs. The device is `vlab load vm`'s: it answers after 2 ms, and the guest asks
//! again at once. Under emulation only ratios within a round mean anything.

use std::time::Duration;

use experiment::stats::Ratio;
use experiment::stats::paired_ratio;
use experiment::stats::summarise;
use serde::Serialize;
use vlab::load::vm::VcpuReport;
use vlab::load::vm::VmReport;
use vlab::vm::Output;

use super::Machine;
use super::boot_with;

/// How many rounds; verdicts need five. One takes some five minutes.
const ROUNDS: &str = "SCX_PAPERS_ROUNDS";

/// A file for all that was measured, as JSON.
const FILE: &str = "SCX_PAPERS_JSON";

/// Other arms than [`ARMS`], with blanks between: a policy, and after each + a setting of its
/// section of the file, as in `isacs+wake_preempts_boost=true`.
const ARMS_ASKED: &str = "SCX_PAPERS_ARMS";

/// How long each VM is counted.
const WINDOW: &str = "4s";

/// The kernel's own scheduler.
const EEVDF: &str = "none";

const ARMS: [&str; 7] = [
    EEVDF, "fixed", "credit1", "credit2", "vslicer", "ische", "isacs",
];

/// What all others are compared with.
const BASELINES: [&str; 3] = ["fixed", "credit2", EEVDF];

/// With the number of their VMs, and how many of those, the first ones, have a device. In
/// all but the hybrid ones such a VM's second vCPU computes.
const MIXES: [(&str, usize, usize); 5] = [
    ("ische-1+3", 4, 1),
    ("hybrid-1+3", 4, 1),
    ("hybrid-2+2", 4, 2),
    ("mixed-2", 2, 2),
    ("mixed-4", 4, 4),
];

/// With their units; of the first three less is better.
const FIGURES: [(&str, &str); 5] = [
    ("p50", "ms"),
    ("p95", "ms"),
    ("p99", "ms"),
    ("I/O", "per s"),
    ("compute", "pieces per s"),
];

/// One mix under one arm in one round.
#[derive(Serialize)]
struct Cell {
    round: u32,
    arm: String,
    mix: &'static str,
    /// None if it was lost.
    vms: Vec<VmReport>,
}

impl Cell {
    fn read(output: &Output, round: u32, arm: &str, mix: &'static str, vms: usize) -> Self {
        let read = |vm: usize| {
            let key = format!("{round}-{arm}-{mix}-{vm} ");
            let mut lines = output.stdout.lines();
            let line = lines.find_map(|line| line.strip_prefix(key.as_str()));
            line.and_then(|line| serde_json::from_str(line).ok())
        };
        let vms: Option<Vec<VmReport>> = (1..=vms).map(read).collect();
        Self {
            round,
            arm: arm.to_owned(),
            mix,
            vms: vms.unwrap_or_default(),
        }
    }

    /// vCPUs with a device, or those that compute.
    fn vcpus(&self, with_device: bool) -> impl Iterator<Item = &VcpuReport> {
        let &(mix, _, devices) = MIXES.iter().find(|(mix, ..)| *mix == self.mix).unwrap();
        let hybrid = mix.starts_with("hybrid");
        let all = self.vms.iter().enumerate().flat_map(move |(vm, report)| {
            let numbered = report.vcpus.iter().enumerate();
            numbered.map(move |(number, vcpu)| (vm < devices && (hybrid || number == 0), vcpu))
        });
        all.filter(move |(has, _)| *has == with_device)
            .map(|(_, vcpu)| vcpu)
    }

    /// In the order of [`FIGURES`]. Quantiles are the mean of those of the vCPUs; a vCPU that
    /// was never answered has none, and its VM's mix neither.
    fn figures(&self) -> [Option<f64>; 5] {
        let Some(first) = self.vms.first() else {
            return [None; 5];
        };
        let seconds = first.wall_ns as f64 / 1e9;
        let io: Vec<&VcpuReport> = self.vcpus(true).collect();
        let quantile = |of: fn(&VcpuReport) -> u64| {
            let all_have = io.iter().all(|vcpu| vcpu.responses > 0);
            let sum: u64 = io.iter().map(|vcpu| of(vcpu)).sum();
            all_have.then_some(sum as f64 / 1e6 / io.len() as f64)
        };
        let responses: u64 = io.iter().map(|vcpu| vcpu.responses).sum();
        let pieces: u64 = self.vcpus(false).map(|vcpu| vcpu.pieces).sum();
        // Only the hybrid mix without computing VMs would have none, and there is none such.
        [
            quantile(|vcpu| vcpu.response_p50_ns),
            quantile(|vcpu| vcpu.response_p95_ns),
            quantile(|vcpu| vcpu.response_p99_ns),
            Some(responses as f64 / seconds),
            Some(pieces as f64 / seconds),
        ]
    }
}

/// One figure of one arm in one mix, round by round.
fn all(cells: &[Cell], mix: &str, arm: &str, figure: usize) -> Vec<Option<f64>> {
    let of = |cell: &&Cell| (cell.mix, cell.arm.as_str()) == (mix, arm);
    let cells = cells.iter().filter(of);
    cells.map(|cell| cell.figures()[figure]).collect()
}

/// How many times as good as the baseline, within rounds: above 1 is better in all figures.
fn times_as_good(arm: &[Option<f64>], baseline: &[Option<f64>], figure: usize) -> Option<Ratio> {
    let pairs = arm.iter().zip(baseline).filter_map(|(arm, baseline)| {
        let (arm, baseline) = ((*arm)?, (*baseline)?);
        Some(if figure < 3 {
            (baseline, arm)
        } else {
            (arm, baseline)
        })
    });
    paired_ratio(&pairs.collect::<Vec<_>>())
}

/// Medians with their ranges, then ratios with their intervals and what they allow to say.
fn print(cells: &[Cell], arms: &[&str]) {
    let width = arms.iter().map(|arm| arm.len()).max().unwrap_or(0);
    for (mix, ..) in MIXES {
        for &arm in arms {
            eprint!("{mix:<10} {arm:<width$}");
            for (figure, (name, unit)) in FIGURES.iter().enumerate() {
                let values = all(cells, mix, arm, figure);
                let there: Vec<f64> = values.iter().copied().flatten().collect();
                match summarise(&there) {
                    Some(s) => eprint!(
                        " | {name} {:.2} {unit} [{:.2}..{:.2}]",
                        s.median, s.min, s.max
                    ),
                    None => eprint!(" | {name} none"),
                }
                if there.len() < values.len() {
                    eprint!(" ({} of {} rounds)", there.len(), values.len());
                }
            }
            eprintln!();
        }
        for baseline in BASELINES.into_iter().filter(|arm| arms.contains(arm)) {
            for &arm in arms.iter().filter(|arm| **arm != baseline) {
                eprint!("{mix:<10} {arm:<width$} beside {baseline}");
                for (figure, (name, _)) in FIGURES.iter().enumerate() {
                    let values = |arm| all(cells, mix, arm, figure);
                    let ratio = times_as_good(&values(arm), &values(baseline), figure);
                    let Some(ratio) = ratio else {
                        eprint!(" | {name} none");
                        continue;
                    };
                    eprint!(" | {name} {:.2}", ratio.centre);
                    if let Some((low, high)) = ratio.interval {
                        eprint!(" [{low:.2}..{high:.2}]");
                    }
                    eprint!(" {}", ratio.verdict());
                }
                eprintln!();
            }
        }
    }
}

#[test]
#[ignore = "takes a quarter of an hour and a quiet machine; part of the long proofs, see docs/scx_vcpu-measured.md"]
fn root_vm_scx_vcpu_beside_the_papers_mixes() {
    let rounds = std::env::var(ROUNDS).unwrap_or_else(|_| "3".to_owned());
    let rounds: u32 = rounds
        .parse()
        .unwrap_or_else(|_| panic!("{ROUNDS}={rounds}: a number of rounds, for instance 3"));
    let asked = std::env::var(ARMS_ASKED).ok();
    let arms: Vec<&str> = asked
        .as_deref()
        .map_or(ARMS.to_vec(), |asked| asked.split_whitespace().collect());
    let script = include_str!("papers.sh");
    let output = boot_with(
        &format!(
            "rounds={rounds}\narms='{}'\nwindow={WINDOW}\n{script}",
            arms.join(" ")
        ),
        Machine {
            deadline: Some(Duration::from_secs(200 + 450 * u64::from(rounds))),
            // No vCPU on the first: see docs/lab.md, "What loses them".
            cpus: Some(3),
            ..Machine::default()
        },
    );
    let mut cells = Vec::new();
    for round in 1..=rounds {
        for arm in &arms {
            for (mix, vms, _) in MIXES {
                cells.push(Cell::read(&output, round, arm, mix, vms));
            }
        }
    }
    if let Ok(file) = std::env::var(FILE) {
        std::fs::write(&file, serde_json::to_string(&cells).unwrap()).unwrap();
    }
    print(&cells, &arms);
    let lost: Vec<&Cell> = cells.iter().filter(|cell| cell.vms.is_empty()).collect();
    for cell in &lost {
        eprintln!("lost: round {} {} {}", cell.round, cell.arm, cell.mix);
    }
    assert!(lost.len() * 10 <= cells.len(), "{}", output.stdout);

    // SCHED_EXT is 7. What is compared is what it is called.
    for cell in &cells {
        let expected = if cell.arm == EEVDF { 0 } else { 7 };
        for vcpu in cell.vcpus(true).chain(cell.vcpus(false)) {
            assert_eq!(vcpu.policy, expected, "{} {}", cell.arm, cell.mix);
        }
    }
    if asked.is_some() {
        return;
    }
    // The order that the papers are about: slices that nothing ends are the worst for I/O.
    let median = |arm, figure| {
        let values = all(&cells, "hybrid-1+3", arm, figure);
        summarise(&values.into_iter().flatten().collect::<Vec<_>>())
            .unwrap()
            .median
    };
    for arm in ["credit1", "credit2", "ische"] {
        assert!(median(arm, 1) < median("fixed", 1), "{arm}: p95");
        assert!(median(arm, 3) > median("fixed", 3), "{arm}: I/O per second");
    }
}
